"""A party: an owner's model behind a guard that limits and logs what is computed for others."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea._arrays import Array
from permea._text import safe_text
from permea.federation.errors import ConsentError, RefusedError
from permea.federation.guard import Guard
from permea.federation.schema import Label, Schema
from permea.privacy import Certificate
from permea.privacy.signing import SigningKey, TrustedKeys
from permea.storage import load, save

if TYPE_CHECKING:
    from permea.federation.encryption.protocol import EncryptedQuery

OBJECTIONS = {
    "not private": "nothing is promised about the training rows",
    "seeded": "the noise can be repeated and removed by whoever learns the seed",
    "raw rows": "the training rows can be read out of the model",
    "unverified": "the certificate was read from outside and no trusted key has signed it",
}
"""Objections to which an owner can consent, and what each of them means."""
PERMITS = ("distances", "encrypted", "model")
"""What a party can answer: distances in the clear, encrypted distances, the model itself."""
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
    permits : collection of str, optional
        What others are answered, of `PERMITS`; everything else is refused, and the refusal logged.
        By default all of it: in one process the owner is who asks. The file of a deployed party
        permits distances alone unless it says more.
    encrypted_only : bool, default=False
        Permit ``"encrypted"`` alone: distances and the model itself do not leave in the clear.
    client_keys : collection of str, optional
        SHA-256 digests (`PublicKey.digest`) of the clients' public keys that this party encrypts
        for; an empty collection accepts none. By default any key is accepted, also one that an
        aggregator made for itself.

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
        permits: Collection[str] = PERMITS,
        encrypted_only: bool = False,
        client_keys: Collection[str] | None = None,
    ) -> None:
        self.name = checked_name(name)
        self.permits = frozenset({"encrypted"} if encrypted_only else permits)
        if unknown := sorted(self.permits - set(PERMITS)):
            raise ValueError(f"permits must be among {', '.join(map(repr, PERMITS))}; {unknown}.")
        self._classifier = classifier
        self._consent = {consent} if isinstance(consent, str) else set(consent)
        self._guard = guard
        self._client_keys = None if client_keys is None else frozenset(client_keys)
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
        self.require("distances", client, len(np.asarray(X)))
        return self._measured(X, classes, client, "distances")

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

        n_queries, digest = len(np.asarray(X)), query.public_key.digest
        self.require("encrypted", client, n_queries)
        if self._client_keys is not None:
            if digest not in self._client_keys:
                self._refuse(
                    client, n_queries, "encrypted",
                    "The query is encrypted under a key that is not among the client keys which "
                    "this party accepts. Its owner can add the digest of the client's public key.",
                )  # fmt: skip
            client = f"key {digest[:16]}"  # whoever holds it is who asks
        return encrypt_reply(self._measured(X, query.classes, client, "encrypted"), query)

    @property
    def encrypted_only(self) -> bool:
        """Whether nothing but ciphertexts leaves."""
        return self.permits == {"encrypted"}

    def require(self, kind: str, client: str, n_queries: int = 1) -> None:
        """Raise `RefusedError`, and log it, unless the owner permits a kind of answer."""
        if kind in self.permits:
            return
        if self.encrypted_only:
            what = "This party replies to encrypted queries only; its model stays."
        else:
            allowed = ", ".join(sorted(self.permits)) or "nothing"
            what = f"The owner of this party does not permit {kind!r}; permitted: {allowed}."
        self._refuse(client, n_queries, kind, what)

    def _refuse(self, client: str, n_queries: int, kind: str, reason: str) -> None:
        if self._guard is not None:
            self._guard.refuse(client, n_queries, kind, reason)
        raise RefusedError(reason)

    def note(self, client: str, kind: str) -> None:
        """Log that something other than distances left."""
        if self._guard is not None:
            self._guard.admit(client, 1, kind)

    def _measured(
        self, X: ArrayLike, classes: Sequence[Label] | None, client: str, kind: str
    ) -> Array:
        queries = self.schema.check_queries(X)
        if self._guard is not None:
            self._guard.admit(client, len(queries), kind)
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
