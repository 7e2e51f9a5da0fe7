"""Who may ask, how much, and until when: tokens that are kept as hashes only.

A token is ``permea_<id>_<secret>`` with 256 random bits; whoever reads the database cannot ask with
what is there. An asker who comes with a token of an identity provider (`permea.federation.service.
oidc`) has an entry of the same kind, without a hash.

Every answered row is charged to the budget of its asker in the same transaction as the job that
holds it. The budget limits how far a model can be copied by asking (extraction); the rate limits
how fast. Rates are counted by a steady clock, in this process: a restart forgets the last minute.
"""

import hashlib
import hmac
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from permea._text import safe_text
from permea.federation.errors import FederationError, RefusedError
from permea.federation.service.database import Database
from permea.federation.service.store import charge

SCOPES = ("ask", "jobs", "operate")
"""What a token may be for: to ask at once, to submit jobs, to read the console and the metrics."""
_COLUMNS = "id, name, scopes, budget, per_minute, expires, created, revoked, used"
_WINDOW = 60.0
_LONGEST_NAME = 100


class DeniedError(FederationError):
    """The token is missing, unknown, revoked or expired; which of these is not told."""


class RateError(FederationError):
    """The asker asks faster than allowed.

    Parameters
    ----------
    text : str
        What was exceeded.
    wait : float
        Seconds until it is worth to try again.
    """

    def __init__(self, text: str, wait: float) -> None:
        super().__init__(text)
        self.wait = wait


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Somebody who may ask."""

    id: str
    name: str
    scopes: frozenset[str]
    budget: int | None = None  #: answers in all; None sets no limit
    per_minute: int | None = None  #: rows in any 60 seconds; None sets no limit
    expires: float | None = None  #: seconds since 1970
    created: float = 0.0
    revoked: bool = False
    used: int = 0  #: answers so far

    @property
    def state(self) -> str:
        """State of the token: "valid", "revoked" or "expired"."""
        if self.revoked:
            return "revoked"
        return "expired" if self.expires is not None and time.time() >= self.expires else "valid"

    def require(self, scope: str) -> "Asker":
        """Raise `RefusedError` unless the token is for ``scope``."""
        if scope not in self.scopes:
            raise RefusedError(
                f"This token is not for {scope!r}. Ask the operator for another one."
            )
        return self


class Askers:
    """The askers of a service.

    Parameters
    ----------
    folder : path
        Folder of the service, see `permea.federation.service.database.Database`.
    clock : callable, default=time.monotonic
        Seconds; another clock is for tests.

    Examples
    --------
    >>> import tempfile
    >>> place = tempfile.TemporaryDirectory()
    >>> askers = Askers(place.name)
    >>> token = askers.create("ward 3", budget=100)
    >>> asker = askers.find(token)
    >>> asker.name, asker.state
    ('ward 3', 'valid')
    >>> askers.spend(asker, 60)
    >>> askers.spend(asker, 60)
    Traceback (most recent call last):
        ...
    permea.federation.errors.RefusedError: 60 of the 100 answers of your budget are used; ...
    >>> askers.close(); place.cleanup()
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.database = Database(folder, durable=False, clock=clock)
        self._clock = clock
        self._recent: dict[str, deque[tuple[float, int]]] = {}
        self._lock = threading.Lock()

    def create(
        self,
        name: str,
        *,
        scopes: Collection[str] = ("ask", "jobs"),
        budget: int | None = None,
        per_minute: int | None = None,
        days: float | None = 90.0,
    ) -> str:
        """Make a token; it is returned once and kept nowhere.

        Parameters
        ----------
        name : str
            Whose it is; parties write it into their logs.
        scopes : collection of str
            What it is for, see `SCOPES`.
        budget : int, optional
            Answers in all. A few hundred labels are enough to copy a small model.
        per_minute : int, optional
            Rows in any 60 seconds.
        days : float or None
            Until it expires; None for never.
        """
        identity, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        self._insert(identity, name, _hash(secret), scopes, budget, per_minute, days)
        return f"permea_{identity}_{secret}"

    def admit(self, identity: str, name: str, **limits: Any) -> Asker:
        """The entry of somebody whom an identity provider vouches for, made when there is none."""
        if not self.database.rows("SELECT 1 FROM askers WHERE id = ?", identity):
            self._insert(identity, name, b"", **{"days": None, **limits})
        return self._checked(self.get(identity))

    def _insert(
        self,
        identity: str,
        name: str,
        hash_: bytes,
        scopes: Collection[str] = ("ask", "jobs"),
        budget: int | None = None,
        per_minute: int | None = None,
        days: float | None = None,
    ) -> None:
        if not name.strip() or len(name) > _LONGEST_NAME or safe_text(name) != name:
            raise ValueError(
                f"A name has 1 to {_LONGEST_NAME} characters, and no control characters."
            )
        if not scopes or set(scopes) - set(SCOPES):
            raise ValueError(f"scopes must be among {', '.join(SCOPES)}.")
        if any(limit is not None and limit < 1 for limit in (budget, per_minute)):
            raise ValueError("budget and per_minute must be at least 1; leave them out for none.")
        if days is not None and not 0 < days < 36500:
            raise ValueError("days must be positive; None (0 on the command line) is for never.")
        now = time.time()
        values = (identity, name, hash_, " ".join(sorted(scopes)), budget, per_minute,
                  None if days is None else now + 86400 * days, now)  # fmt: skip
        with self.database.transaction() as change:
            change.execute(
                "INSERT OR IGNORE INTO askers (id, name, hash, scopes, budget, per_minute, "
                "expires, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )

    def find(self, token: str) -> Asker:
        """The asker of a token; raises `DeniedError` for anything but a valid one."""
        identity, _, secret = token.removeprefix("permea_").partition("_")
        rows = self.database.rows(
            f"SELECT hash, {_COLUMNS} FROM askers WHERE id = ?", identity[:_LONGEST_NAME]
        )
        known = bytes(rows[0][0]) if rows else bytes(32)
        if not hmac.compare_digest(known, _hash(secret)) or not rows:
            raise DeniedError("The token is not valid. Ask the operator for one.")
        return self._checked(_asker(rows[0][1:]))

    def get(self, identity: str) -> Asker:
        """An asker by its id."""
        rows = self.database.rows(f"SELECT {_COLUMNS} FROM askers WHERE id = ?", identity)
        if not rows:
            raise DeniedError("There is no such asker.")
        return _asker(rows[0])

    @staticmethod
    def _checked(asker: Asker) -> Asker:
        if asker.state != "valid":
            raise DeniedError("The token is not valid. Ask the operator for one.")
        return asker

    def all(self) -> list[Asker]:
        """Every asker, oldest first."""
        query = f"SELECT {_COLUMNS} FROM askers ORDER BY created, id"
        return [_asker(row) for row in self.database.rows(query)]

    def revoke(self, identity: str) -> Asker:
        """End a token at once; it stays listed with what it used."""
        with self.database.transaction() as change:
            change.execute("UPDATE askers SET revoked = 1 WHERE id = ?", (identity,))
        return self.get(identity)

    # ---- limits ------------------------------------------------------------------------------

    def pace(self, asker: Asker, rows: int) -> None:
        """Count rows towards the rate of an asker, or raise `RateError`."""
        if asker.per_minute is None:
            return
        now = self._clock()
        with self._lock:
            recent = self._recent.setdefault(asker.id, deque())
            while recent and recent[0][0] <= now - _WINDOW:
                recent.popleft()
            used = sum(count for _, count in recent)
            if used + rows > asker.per_minute:
                wait = recent[0][0] + _WINDOW - now if recent else _WINDOW
                raise RateError(
                    f"{used} of {asker.per_minute} rows per minute are used up; {rows} more are "
                    f"too many. Try again in {wait:.0f} s, with fewer rows.",
                    wait,
                )
            recent.append((now, rows))

    def spend(self, asker: Asker, rows: int) -> None:
        """Charge answers to the budget of an asker, or raise `RefusedError` and charge nothing."""
        with self.database.transaction() as change:
            charge(change, asker.id, rows)

    def refund(self, asker: Asker, rows: int) -> None:
        """Give back what was charged for rows that were not answered."""
        with self.database.transaction() as change:
            change.execute(
                "UPDATE askers SET used = max(0, used - ?) WHERE id = ?", (rows, asker.id)
            )

    def close(self) -> None:
        """End the connection."""
        self.database.close()


def _hash(secret: str) -> bytes:
    """The secret has 256 random bits, so that one round of a plain hash is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _asker(row: tuple[Any, ...]) -> Asker:
    values = dict(zip(_COLUMNS.split(", "), row, strict=True))
    scopes = frozenset(str(values.pop("scopes")).split())
    return Asker(**{**values, "revoked": bool(values["revoked"])}, scopes=scopes)
