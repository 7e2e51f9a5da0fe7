"""A party: an owner's model behind a guard that limits and logs what is computed for others."""

import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea._arrays import Array
from permea._text import safe_json, safe_text
from permea.federation.errors import ConsentError, RefusedError
from permea.federation.schema import Label, Schema
from permea.privacy import Certificate
from permea.privacy.signing import SigningKey, TrustedKeys
from permea.storage import load, save

if TYPE_CHECKING:
    from permea.federation.encryption.protocol import EncryptedQuery

_WINDOW = 60.0  # seconds over which the rate is counted
_TAIL = 1 << 20  # bytes of the log that are searched for the last minute


class Guard:
    """Limits on queries, and a log of who sent how many and when.

    The log holds the time, the name of the client, the number of queries and the outcome. It never
    holds a query, a distance or a hash of one: a hash of something guessable is as good as the
    thing. With a log file the rate holds across processes and restarts, because it is counted from
    the log itself.

    Parameters
    ----------
    max_batch : int, default=1000
        Queries in one batch.
    per_minute : int or None, default=None
        Queries accepted in any 60 seconds; None sets no limit.
    log : path, optional
        File to which one line of JSON is appended for each batch.
    clock : callable, default=time.time
        Seconds; another clock is for tests.

    Examples
    --------
    >>> guard = Guard(max_batch=10, per_minute=15, clock=lambda: 0.0)
    >>> guard.admit("hospital", 10)
    >>> guard.admit("hospital", 11)
    Traceback (most recent call last):
        ...
    permea.federation.errors.RefusedError: 11 queries in one batch; this party takes at most 10.
    Send smaller batches.
    >>> guard.admit("hospital", 6)
    Traceback (most recent call last):
        ...
    permea.federation.errors.RefusedError: 10 of 15 queries per minute are used up; ...
    """

    def __init__(
        self,
        *,
        max_batch: int = 1000,
        per_minute: int | None = None,
        log: str | os.PathLike[str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if max_batch < 1 or (per_minute is not None and per_minute < 1):
            raise ValueError("max_batch and per_minute must be at least 1.")
        self.max_batch = max_batch
        self.per_minute = per_minute
        self.log = None if log is None else Path(log)
        self._clock = clock
        self._recent: list[dict[str, Any]] = []

    def admit(self, client: str, n_queries: int) -> None:
        """Accept a batch and log it, or log why not and raise `RefusedError`."""
        with self._log_file() as file:
            entries, now = self._recent if file is None else _read_tail(file), self._clock()
            recent = [entry for entry in entries if entry["time"] > now - _WINDOW]
            used = sum(e["queries"] for e in recent if e["outcome"] == "accepted")
            reason = self._objection(n_queries, used)
            entry = {"time": now, "client": str(client)[:100], "queries": int(n_queries)}
            entry["outcome"] = "refused" if reason else "accepted"
            if file is None:
                self._recent = [*recent, entry]
            else:
                _append(file, entry)
        if reason:
            raise RefusedError(reason)

    def _objection(self, n_queries: int, used: int) -> str:
        if n_queries < 1:
            return "The batch is empty. Send at least one query."
        if n_queries > self.max_batch:
            return (
                f"{n_queries} queries in one batch; this party takes at most {self.max_batch}. "
                "Send smaller batches."
            )
        if self.per_minute is not None and used + n_queries > self.per_minute:
            return (
                f"{used} of {self.per_minute} queries per minute are used up; {n_queries} more are "
                "too many. Wait a minute and retry."
            )
        return ""

    @contextmanager
    def _log_file(self) -> Iterator[TextIO | None]:
        """The log file under a lock that other processes respect; None without one."""
        if self.log is None:
            yield None
            return
        import fcntl  # the log is shared between processes, which needs a POSIX lock

        self.log.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.log, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file


def _append(file: TextIO, entry: dict[str, Any]) -> None:
    """Add a line to the log; it is on disk when this returns."""
    size = file.seek(0, os.SEEK_END)
    if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
        file.write("\n")  # end a line that a crash cut short
    file.write(safe_json(entry) + "\n")
    file.flush()
    os.fsync(file.fileno())


def _read_tail(file: TextIO) -> list[dict[str, Any]]:
    """Entries at the end of the log; a line that was cut short by a crash is skipped."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL))
    entries = []
    for line in file:
        try:
            entry = json.loads(line)
            entries.append({"time": float(entry["time"]), **entry})
        except (ValueError, KeyError, TypeError):
            continue
    return entries


OBJECTIONS = {
    "not private": "nothing is promised about the training rows",
    "seeded": "the noise can be repeated and removed by whoever learns the seed",
    "raw rows": "the training rows can be read out of the model",
    "unverified": "the certificate was read from outside and no trusted key has signed it",
}
"""Objections to which an owner can consent, and what each of them means."""
_DRAWN = 200  # rows of each class that tell how long distances are
_INFORMATION_ONLY = {"unverified"}  # displayed with the party; joining needs no consent to it


class Party:
    """An owner's classifier as the federation sees it: a name, a schema, a certificate, distances.

    A model joins when its certificate states that it is private. An owner whose model is not
    private, was seeded or holds raw rows must consent to these `OBJECTIONS` by name. A model that
    was read from a file may join, but unless a trusted key signed it, its certificate is shown as
    an unverified claim.

    Parameters
    ----------
    name : str
        Name of the party.
    classifier : fitted classifier
        Anything with ``distances(X)``, ``classes_`` and ``n_features_in_``; families may differ
        between parties.
    consent : str or collection of str
        Objections that the owner accepts: "not private", "seeded", "raw rows". "unverified" is
        allowed too, and never needed.
    guard : Guard, optional
        Limits on the queries. Without one, every batch is accepted.
    encrypted_only : bool, default=False
        Reply with ciphertexts only: distances and the model itself do not leave in the clear.
    client_keys : collection of str, optional
        SHA-256 digests (`PublicKey.digest`) of the clients' public keys that this party encrypts
        for. Without them any key is accepted, also one that an aggregator made for itself.

    Attributes
    ----------
    certificate : Certificate or None
        What is promised about the training rows.
    schema : Schema
        Features and classes.
    unit_of_distance : float
        What distances are divided by before they leave, see `typical_distance`; 1 for models
        of rows, whose distances are in the units of the features.

    Examples
    --------
    >>> import numpy as np
    >>> from permea import KAHMClassifier
    >>> from permea.privacy import Privacy
    >>> X, y = np.random.default_rng(0).random((40, 3)), np.repeat([0, 1], 20)
    >>> clf = KAHMClassifier(n_components=2, n_layers=2, privacy=Privacy(epsilon=4, domain=(0, 1)))
    >>> party = Party("clinic-a", clf.fit(X, y))
    >>> bool(np.isinf(party.distances(X[:3], classes=(0, 1, 2))[:, 2]).all())  # knows no class 2
    True
    >>> Party("careless", KAHMClassifier(n_components=2, n_layers=2).fit(X, y))
    Traceback (most recent call last):
        ...
    permea.federation.errors.ConsentError: Party 'careless' does not join: not private ...
    """

    def __init__(
        self,
        name: str,
        classifier: Any,
        *,
        consent: str | Collection[str] = (),
        guard: Guard | None = None,
        encrypted_only: bool = False,
        client_keys: Collection[str] = (),
    ) -> None:
        self.name = checked_name(name)
        self._classifier = classifier
        self._consent = {consent} if isinstance(consent, str) else set(consent)
        self._guard = guard
        self.encrypted_only = encrypted_only
        self._client_keys = frozenset(client_keys)
        self._refuse_unless_private()
        self.schema = Schema.of(classifier)
        self.schema.check()
        self.certificate: Certificate | None = getattr(classifier, "certificate_", None)
        self.unit_of_distance = typical_distance(classifier)

    @classmethod
    def from_file(
        cls,
        name: str,
        path: str | os.PathLike[str],
        *,
        trusted: TrustedKeys | None = None,
        **options: Any,
    ) -> "Party":
        """A party whose model was written by `permea.save`; takes the keywords of `Party`.

        ``trusted`` are the keys whose signatures count; without a signature of one of them the
        certificate is an unverified claim.
        """
        return cls(name, load(path, trusted=trusted), **options)

    @property
    def classifier(self) -> Any:
        """The model, for whoever it was handed over to (Remark 6); refused where it stays."""
        if self.encrypted_only:
            raise RefusedError("This party replies to encrypted queries only; its model stays.")
        return self._classifier

    @property
    def status(self) -> str:
        """Status of the model: "PRIVATE", "unverified claim" or "not private"."""
        return status_of(self.certificate)

    @property
    def objections(self) -> tuple[str, ...]:
        """The keys of `OBJECTIONS` that apply to this model."""
        return objections(self._classifier)

    def _refuse_unless_private(self) -> None:
        if unknown := sorted(self._consent - set(OBJECTIONS)):
            raise ValueError(
                f"consent must be among {', '.join(map(repr, OBJECTIONS))}; got {unknown}."
            )
        needed = tuple(word for word in self.objections if word not in _INFORMATION_ONLY)
        open_points = [word for word in needed if word not in self._consent]
        if open_points:
            reasons = "; ".join(f"{word} ({OBJECTIONS[word]})" for word in open_points)
            raise ConsentError(
                f"Party {self.name!r} does not join: {reasons}. Fit the model with "
                "privacy=Privacy(…) and without random_state, or let its owner pass "
                f"consent={needed!r}."
            )

    def distances(
        self, X: ArrayLike, classes: Sequence[Label] | None = None, *, client: str = "unknown"
    ) -> Array:
        """Distance of each query to each class, ∞ for a class this party lacks (Remark 5).

        Parameters
        ----------
        X : array-like of shape (m, p)
            Queries.
        classes : sequence of labels, optional
            Columns of the result; the party's own classes by default.
        client : str
            Name of the client, for the log.

        Returns
        -------
        ndarray of shape (m, len(classes))
            Γ of 004 Def. 6, in multiples of ``unit_of_distance``.
        """
        if self.encrypted_only:
            raise RefusedError("This party replies to encrypted queries only.")
        return self._measured(X, classes, client)

    def encrypted_distances(
        self, X: ArrayLike, query: "EncryptedQuery", *, client: str = "unknown"
    ) -> bytes:
        """The same distances as a ciphertext that only the key holder can decrypt (001 ch. 2).

        Parameters
        ----------
        X : array-like of shape (m, p)
            Queries.
        query : EncryptedQuery
            Scheme, public key, classes, and the index of this party in the scheme.
        client : str
            Name of the client, for the log.
        """
        from permea.federation.encryption.protocol import encrypt_reply

        if self._client_keys and query.public_key.digest not in self._client_keys:
            raise RefusedError(
                "The query is encrypted under a key that is not among the client keys which this "
                "party accepts. Its owner can add the digest of the client's public key."
            )
        return encrypt_reply(self._measured(X, query.classes, client), query)

    def _measured(self, X: ArrayLike, classes: Sequence[Label] | None, client: str) -> Array:
        queries = self.schema.check_queries(X)
        if self._guard is not None:
            self._guard.admit(client, len(queries))
        found = np.asarray(self._classifier.distances(queries)) / self.unit_of_distance
        return found if classes is None else align_classes(found, self.schema.classes, classes)

    def hand_over(self, path: str | os.PathLike[str], *, sign: SigningKey | None = None) -> Path:
        """Write the model to a file that may leave its owner (Remark 6).

        Whoever has the file can evaluate it as often as they like: no guard limits them any more.
        A private model is safe to give away, as its certificate states; ``sign`` lets others
        verify who made that statement.
        """
        if self.encrypted_only:
            raise RefusedError("This party replies to encrypted queries only; its model stays.")
        private_rows = "include" if "raw rows" in self.objections else None
        return save(self._classifier, path, private_rows=private_rows, sign=sign)

    def __repr__(self) -> str:
        rest = [word for word in self.objections if word not in ("not private", "unverified")]
        state = ", ".join([self.status, *rest])
        return f"Party({self.name!r}, {len(self.schema.classes)} classes, {state})"


def typical_distance(classifier: Any) -> float:
    """Root mean square distance of rows to their own class, of a model of class moments.

    Parties that learn from class moments whiten by covariances of their own, in as many directions
    as their noise leaves: distances in these coordinates compare only as multiples of what is
    typical for the party. The rows are drawn from the release, always the same ones. Models that
    keep the units of the features have 1.

    Examples
    --------
    >>> typical_distance(object())
    1.0
    """
    encoder = getattr(classifier, "encoder_", None) or classifier
    if not hasattr(classifier, "hull_distances") or not hasattr(encoder, "draw"):
        return 1.0
    codes, labels = encoder.draw(_DRAWN, random_state=0)
    found = classifier.hull_distances(codes)
    own = found[np.arange(len(found)), np.searchsorted(classifier.classes_, labels)]
    return float(np.sqrt(np.mean(np.square(own)))) or 1.0


def objections(classifier: Any) -> tuple[str, ...]:
    """The keys of `OBJECTIONS` that apply to a fitted model."""
    certificate = getattr(classifier, "certificate_", None)
    found = []
    if certificate is None or certificate.void_reasons:
        found.append("not private")
    if certificate is not None and certificate.seeded:
        found.append("seeded")
    if getattr(classifier, "holds_private_rows_", True):
        found.append("raw rows")
    if certificate is not None and not certificate.is_verified:
        found.append("unverified")
    return tuple(found)


def status_of(certificate: Certificate | None) -> str:
    """Status of a model by its certificate; without one it is not private."""
    return "not private" if certificate is None else certificate.status


def align_classes(found: NDArray[Any], own: Sequence[Label], classes: Sequence[Label]) -> Array:
    """Columns of ``own`` classes put where ``classes`` wants them, ∞ elsewhere.

    Examples
    --------
    >>> align_classes(np.array([[1.0, 2.0]]), ["b", "a"], ["a", "b", "c"])
    array([[ 2.,  1., inf]])
    """
    if tuple(own) == tuple(classes):
        return found
    wide = np.full((found.shape[0], len(classes)), np.inf, dtype=found.dtype)
    position = {label: column for column, label in enumerate(classes)}
    for column, label in enumerate(own):
        if label in position:
            wide[:, position[label]] = found[:, column]
    return wide


def checked_name(name: str) -> str:
    """A name that can be shown in a table."""
    if not isinstance(name, str) or not name.strip() or len(name) > 100:
        raise ValueError("A party needs a name of 1 to 100 characters.")
    if safe_text(name) != name:
        raise ValueError("The name of a party must not hold control characters.")
    return name
