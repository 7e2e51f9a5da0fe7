"""A log of who asked how much: each line holds the hash of the line before it.

A line holds the time, the asker, what was asked for and how many rows, and the outcome; never a
token, a query, a distance or a label. A changed or removed line breaks the chain. Lines that are
cut off at the end leave a chain that holds together by itself, so that its last link is kept in the
database of the service as well.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from permea._text import safe_json, safe_text
from permea.federation.errors import FederationError
from permea.federation.service.database import Database, set_fact

_START = "0" * 64
_FACT = "journal"


class JournalError(FederationError):
    """The log was changed, or lines of it are missing."""


class Head(NamedTuple):
    """Number and hash of the last line, and where it ends in its file."""

    number: int
    hash: str
    size: int


class Journal:
    """The log in a folder, for appending.

    Parameters
    ----------
    folder : path
        Folder of the service; the log is ``audit.jsonl``.
    database : Database
        Keeps the last link.
    thorough : bool, default=False
        Check the whole chain first, and not only what follows the last link. That takes a while for
        a long log.

    Examples
    --------
    >>> import tempfile
    >>> place = tempfile.TemporaryDirectory()
    >>> base = Database(place.name)
    >>> journal = Journal(place.name, base)
    >>> journal.add("answered", asker="3f1c", rows=12)
    >>> check(Path(place.name) / "audit.jsonl").number
    1
    >>> base.close(); place.cleanup()
    """

    def __init__(
        self, folder: str | os.PathLike[str], database: Database, *, thorough: bool = False
    ) -> None:
        self.path, self._database = Path(folder) / "audit.jsonl", database
        self._lock = threading.Lock()
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        self._file = os.fdopen(handle, "ab", buffering=0)
        self.path.chmod(0o600)
        with database.transaction() as change:  # nobody adds a line meanwhile
            kept, size = _kept(change), os.fstat(handle).st_size
            if not size:
                kept = kept._replace(size=0)  # a new file, which goes on from the last link
            found = self._settled(kept)
            if size < kept.size or (thorough and size and check(self.path)[:2] != found[:2]):
                raise JournalError(
                    f"{self.path} does not end with line {kept.number}, which was written: lines "
                    "were removed or changed, or the machine lost power. Keep the file as evidence "
                    "under another name; a new one goes on from the last link."
                )
            set_fact(change, _FACT, _text(found))

    def add(self, event: str, **values: Any) -> None:
        """Append a line."""
        with self._lock, self._database.transaction() as change:  # other processes wait too
            head = self._settled(_kept(change))
            entry = {"number": head.number + 1, "time": round(time.time(), 3), "event": event}
            entry |= {name: _plain(value) for name, value in values.items()}
            text = safe_json({**entry, "before": head.hash}, sort_keys=True)
            digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
            line = f'{text[:-1]}, "hash": "{digest}"}}\n'.encode()
            self._file.write(line)
            set_fact(change, _FACT, _text(Head(head.number + 1, digest, head.size + len(line))))

    def _settled(self, head: Head) -> Head:
        """The last link, also when a program ended between its line and its link, or within one."""
        with open(self.path, "rb") as file:
            file.seek(head.size)
            tail = file.read()
        whole, end, torn = tail.rpartition(b"\n")
        if torn:  # the disk was full, or the program ended: nobody was told that this is a line
            os.ftruncate(self._file.fileno(), head.size + len(whole) + len(end))
        return _follow((whole + end).splitlines(keepends=True), head, self.path)

    def close(self) -> None:
        """Bring the log to the disk."""
        with self._lock:
            if not self._file.closed:
                os.fsync(self._file.fileno())
                self._file.close()


def check(path: str | os.PathLike[str]) -> Head:
    """The last link of a log whose chain is whole; raises `JournalError` for any other.

    A log that goes on from an older one begins with the link to that.
    """
    with open(path, "rb") as file:
        last = _follow(file, Head(0, "", 0), path)
    if not last.number:
        raise JournalError(f"{path} is empty.")
    return last


def _follow(lines: Iterable[bytes], last: Head, path: str | os.PathLike[str]) -> Head:
    """The last link of lines that follow a link; any link may stand before those of a file."""
    for line in lines:
        try:
            text, _, digest = line.decode("utf-8").removesuffix("\n").rpartition(', "hash": "')
            entry = json.loads(text + "}")
            number, before = int(entry["number"]), str(entry["before"])
            whole = hashlib.sha256((text + "}").encode("utf-8")).hexdigest() + '"}' == digest
        except (ValueError, KeyError, TypeError, RecursionError):
            number, before, digest, whole = 0, "", "", False
        if not whole or (last.number and (number - 1, before) != last[:2]):
            raise JournalError(
                f"{path}: the line after number {last.number} was changed, or lines were removed."
            )
        last = Head(number, digest[:-2], last.size + len(line))
    return last


def verify(folder: str | os.PathLike[str], database: Database) -> Head:
    """Check the log of a service against the last link that is kept in its database."""
    kept, path = _head(database.fact(_FACT)), Path(folder) / "audit.jsonl"
    if not kept.number:
        return kept
    if not path.exists():
        raise JournalError(f"{path} is gone; it had {kept.number} lines.")
    found = check(path)
    if found != kept and found.number <= kept.number:
        raise JournalError(f"{path} ends with line {found.number}; it had {kept.number} lines.")
    return found


def _head(text: str | None) -> Head:
    if text is None:
        return Head(0, _START, 0)
    number, digest, size = text.split()
    return Head(int(number), digest, int(size))


def _kept(change: Any) -> Head:
    """The last link as it is in the database."""
    row = change.execute("SELECT value FROM facts WHERE name = ?", (_FACT,)).fetchone()
    return _head(None if row is None else row[0])


def _text(head: Head) -> str:
    return f"{head.number} {head.hash} {head.size}"


def _plain(value: Any) -> Any:
    return safe_text(value)[:200] if isinstance(value, str) else value
