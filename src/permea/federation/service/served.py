"""What a deployed node replies, held in memory and read again when a file changes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from permea.federation.flower.replies import Replies, party_replies
from permea.federation.service.config import PartyConfig, ReaderConfig, node_config

_Stamp = tuple[tuple[int, int], ...]


class ServedParty:
    """What a deployed party, or reader of sums, replies with now.

    Parameters
    ----------
    path : Path
        Its configuration file. A change of it, or of the model file, holds from the next message
        on; when what is there cannot be used, messages are refused until it can. Rounds of
        training are kept while the files that they are about stay the same.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, tuple[_Stamp, Any]] = {}

    def replies(self) -> Replies:
        """The replies, by kind of message."""
        config = self._kept("file", [self._path], lambda: node_config(self._path))
        if isinstance(config, ReaderConfig):
            return self._reader(config)
        found: Replies = {}
        if config.model is not None:
            files = [self._path, config.model]
            found = self._kept("model", files, lambda: party_replies(config.party()))
        return {**found, **self._moments(config)}

    def _moments(self, config: PartyConfig) -> Replies:
        files = config.moments
        if files is None:
            return {}
        from permea.federation.service.training import party_moments

        name, about = config.name, [files.training, files.agreement, files.trusted, files.data]
        kept: Replies = self._kept(
            "moments", about, lambda: party_moments(name, files, config.guard.get("log"))
        )
        return kept

    def _reader(self, config: ReaderConfig) -> Replies:
        from permea.federation.service.training import reader_of

        about = [config.agreement, config.trusted, config.sign]
        kept: Replies = self._kept("reader", about, lambda: reader_of(config))
        return kept

    def _kept(self, what: str, files: Sequence[Path], make: Any) -> Any:
        """What was made before from the same files, or made now."""
        stamp = _stamp(files)
        if what not in self._known or self._known[what][0] != stamp:
            self._known[what] = stamp, make()
        return self._known[what][1]


def _stamp(files: Sequence[Path]) -> _Stamp:
    """When files were last written, and how long they are."""
    found = [path.stat() for path in files]
    return tuple((one.st_mtime_ns, one.st_size) for one in found)
