"""Which parties an encrypted federation answers with: always the same ones.

Labels of one question under two sets of parties tell which party had decided, and so something of
its distances, although every single label is encrypted until the end. The first answer fixes the
set; a question that other parties answer fails.
"""

import json
from collections.abc import Collection, Sequence
from pathlib import Path

from permea._files import write_atomically
from permea.federation.errors import QuorumError


class AnsweringParties:
    """The parties that answered first, in memory or in a file.

    Parameters
    ----------
    path : Path, optional
        Where the set outlives the program. Whoever deletes the file begins anew, and lets askers
        compare answers of two sets.

    Examples
    --------
    >>> parties = AnsweringParties()
    >>> parties.agree(["a", "b"], ["a", "b", "c"])
    >>> parties.agree(["a", "b", "c"], ["a", "b", "c"])
    Traceback (most recent call last):
        ...
    permea.federation.errors.QuorumError: Earlier questions were answered by a, b, this one by
    a, b, c: the two answers together would tell which party decided. ...
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known: dict[str, list[str]] = {}
        if path is not None and path.exists():
            self._known = json.loads(path.read_text(encoding="utf-8"))

    def agree(self, answered: Collection[str], everybody: Sequence[str]) -> None:
        """Accept the parties that answered, or raise `QuorumError`."""
        federation, now = json.dumps(list(everybody)), sorted(answered)
        known = self._known.setdefault(federation, now)
        if known is now and self._path is not None:
            write_atomically(self._path, json.dumps(self._known).encode(), private=True)
        if known != now:
            raise QuorumError(
                f"Earlier questions were answered by {', '.join(known)}, this one by "
                f"{', '.join(now)}: the two answers together would tell which party decided. Wait "
                "for the same parties, or begin anew without the one that is gone."
            )
