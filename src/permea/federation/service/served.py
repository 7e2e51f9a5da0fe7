"""A party's configuration and model, held in memory and read again when a file changes."""

from pathlib import Path

from permea.federation.flower.replies import Replies, party_replies
from permea.federation.service.config import PartyConfig

_Stamp = tuple[tuple[int, int], ...]


class ServedParty:
    """What a deployed party replies with now.

    Parameters
    ----------
    path : Path
        Its configuration file. A change of it, or of the model file, holds from the next message
        on; when what is there cannot be used, messages are refused until it can.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._config = PartyConfig.from_file(path)
        self._stamp: _Stamp = ()
        self._replies: Replies = {}

    def replies(self) -> Replies:
        """The replies of the party, by kind of message."""
        stamp = self._now()
        if stamp != self._stamp:
            self._config = PartyConfig.from_file(self._path)
            self._replies = party_replies(self._config.party())
            self._stamp = self._now()
        return self._replies

    def _now(self) -> _Stamp:
        """When the files were last written, and how long they are."""
        found = [path.stat() for path in (self._path, self._config.model)]
        return tuple((one.st_mtime_ns, one.st_size) for one in found)
