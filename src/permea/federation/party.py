"""A party: a fitted private classifier that answers queries with distances and nothing else."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea._text import safe_text
from permea.federation.errors import ConsentError, RefusedError
from permea.federation.guard import Guard
from permea.federation.schema import Label, Schema
from permea.models.base import Array
from permea.privacy import Certificate
from permea.privacy.signing import SigningKey, TrustedKeys
from permea.storage import load, save

if TYPE_CHECKING:
    from permea.federation.encrypted import EncryptedQuestion

OBJECTIONS = {
    "not private": "nothing is promised about the training rows",
    "seeded": "the noise can be repeated and removed by whoever learns the seed",
    "raw rows": "the training rows can be read out of the model",
    "unverified": "the certificate was read from outside and no trusted key has signed it",
}
"""Words by which an owner consents, and what each of them admits."""
_ONLY_SAID = {"unverified"}  # shown wherever the party is shown; joining needs no consent to it


class Party:
    """An owner's classifier as the federation sees it: a name, a schema, a certificate, distances.

    A model joins when its certificate says that it is private. An owner whose model is not private,
    was seeded or holds raw rows must say so in the words of `OBJECTIONS`. A model that was read
    from a file may join, but unless a trusted key signed it, its certificate is shown as an
    unverified claim.

    Parameters
    ----------
    name : str
        Name of the party.
    classifier : fitted classifier
        Anything with ``distances(X)``, ``classes_`` and ``n_features_in_``; families may differ
        between parties.
    consent : str or collection of str
        Objections that the owner accepts: "not private", "seeded", "raw rows". "unverified" is
        understood too, and never needed.
    guard : Guard, optional
        Limits on what is answered. Without one, any batch is.
    encrypted_only : bool, default=False
        Answer with ciphertexts only: distances and the model itself do not leave in the clear.
    asker_keys : collection of str, optional
        SHA-256 digests (`PublicKey.digest`) of the askers' public keys that this party encrypts
        for. Without them any key is taken, also one that an aggregator made for itself.

    Attributes
    ----------
    certificate : Certificate or None
        What is promised about the training rows.
    schema : Schema
        Features and classes.

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
    permea.federation.errors.ConsentError: Party 'careless' does not join: not private (nothing is
    promised about the training rows); raw rows (the training rows can be read out of the model).
    Fit the model with privacy=Privacy(…) and without random_state, or let its owner say
    consent=('not private', 'raw rows').
    """

    def __init__(
        self,
        name: str,
        classifier: Any,
        *,
        consent: str | Collection[str] = (),
        guard: Guard | None = None,
        encrypted_only: bool = False,
        asker_keys: Collection[str] = (),
    ) -> None:
        self.name = checked_name(name)
        self._classifier = classifier
        self._consent = {consent} if isinstance(consent, str) else set(consent)
        self._guard = guard
        self.encrypted_only = encrypted_only
        self._asker_keys = frozenset(asker_keys)
        self._refuse_unless_private()
        self.schema = Schema.of(classifier)
        self.schema.check()
        self.certificate: Certificate | None = getattr(classifier, "certificate_", None)

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
    def status(self) -> str:
        """The verdict on the model: "PRIVATE", "unverified claim" or "not private"."""
        return status_of(self.certificate)

    @property
    def objections(self) -> tuple[str, ...]:
        """What speaks against letting this model out, in the words of `OBJECTIONS`."""
        return objections(self._classifier)

    def _refuse_unless_private(self) -> None:
        if unknown := sorted(self._consent - set(OBJECTIONS)):
            raise ValueError(
                f"consent knows the words {', '.join(map(repr, OBJECTIONS))}; got {unknown}."
            )
        needed = tuple(word for word in self.objections if word not in _ONLY_SAID)
        open_points = [word for word in needed if word not in self._consent]
        if open_points:
            said = "; ".join(f"{word} ({OBJECTIONS[word]})" for word in open_points)
            raise ConsentError(
                f"Party {self.name!r} does not join: {said}. Fit the model with "
                "privacy=Privacy(…) and without random_state, or let its owner say "
                f"consent={needed!r}."
            )

    def distances(
        self, X: ArrayLike, classes: Sequence[Label] | None = None, *, asker: str = "unknown"
    ) -> Array:
        """Distance of each query to each class, ∞ for a class this party lacks (Remark 5).

        Parameters
        ----------
        X : array-like of shape (m, p)
            Queries.
        classes : sequence of labels, optional
            Columns of the answer; the party's own classes by default.
        asker : str
            Who asks, for the log.

        Returns
        -------
        ndarray of shape (m, len(classes))
            Γ of 004 Def. 6.
        """
        if self.encrypted_only:
            raise RefusedError("This party answers encrypted questions only.")
        return self._measured(X, classes, asker)

    def encrypted_distances(
        self, X: ArrayLike, index: int, question: "EncryptedQuestion", *, asker: str = "unknown"
    ) -> bytes:
        """The same distances as a ciphertext that the asker alone could open (001 ch. 2).

        Parameters
        ----------
        X : array-like of shape (m, p)
            Queries.
        index : int
            Place of this party in the scheme.
        question : EncryptedQuestion
            Scheme, public key and classes.
        asker : str
            Who asks, for the log.
        """
        from permea.federation.encrypted import encrypt_reply

        if self._asker_keys and question.public_key.digest not in self._asker_keys:
            raise RefusedError(
                "The question is encrypted under a key that is not among the askers' keys which "
                "this party knows. Let its owner add the digest of the asker's public key."
            )
        return encrypt_reply(self._measured(X, question.classes, asker), index, question)

    def _measured(self, X: ArrayLike, classes: Sequence[Label] | None, asker: str) -> Array:
        queries = self.schema.check_queries(X)
        if self._guard is not None:
            self._guard.admit(asker, len(queries))
        found = np.asarray(self._classifier.distances(queries))
        return found if classes is None else spread(found, self.schema.classes, classes)

    def hand_over(self, path: str | os.PathLike[str], *, sign: SigningKey | None = None) -> Path:
        """Write the model to a file that may leave its owner (Remark 6).

        From then on whoever has the file can ask it anything, as often as they like: no guard
        stands before it any more. A private model is safe to give away; that is what its
        certificate says, and ``sign`` lets others check who says so.
        """
        if self.encrypted_only:
            raise RefusedError("This party answers encrypted questions only; its model stays.")
        words = "include" if "raw rows" in self.objections else None
        return save(self._classifier, path, private_rows=words, sign=sign)

    def __repr__(self) -> str:
        rest = [word for word in self.objections if word not in ("not private", "unverified")]
        state = ", ".join([self.status, *rest])
        return f"Party({self.name!r}, {len(self.schema.classes)} classes, {state})"


def objections(classifier: Any) -> tuple[str, ...]:
    """What speaks against letting a fitted model out, in the words of `OBJECTIONS`."""
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
    """The verdict on a model by its certificate; without one it is not private."""
    return "not private" if certificate is None else certificate.status


def spread(found: NDArray[Any], own: Sequence[Label], classes: Sequence[Label]) -> Array:
    """Columns of ``own`` classes put where ``classes`` wants them, ∞ elsewhere.

    Examples
    --------
    >>> spread(np.array([[1.0, 2.0]]), ["b", "a"], ["a", "b", "c"])
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
    """A name that can stand in a table."""
    if not isinstance(name, str) or not name.strip() or len(name) > 100:
        raise ValueError("A party needs a name of 1 to 100 characters.")
    if safe_text(name) != name:
        raise ValueError("The name of a party must not hold control characters.")
    return name
