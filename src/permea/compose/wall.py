"""What a classifier learns from: the rows as they are, or what came through the wall."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from permea.models.base import Array
from permea.privacy import Certificate, Ledger, Privacy, release
from permea.privacy.fabrication import Stop, fabricate
from permea.privacy.strength import noise_ratio, noise_variance

_PLAIN_BRANCH = 1000  # 004 eq. (59)
_LARGEST_BRANCH = 8000  # a kernel matrix of 256 MB in single precision


@dataclass(frozen=True)
class Learnable:
    """Rows to learn from, with what is promised about them."""

    data: Array
    certificate: Certificate | None  #: None for rows as they are
    holds_private_rows: bool


@dataclass(frozen=True, kw_only=True)
class Wall:
    """The way of training rows to a classifier: noise once, then perhaps fabrication.

    Everything that is computed after `pass_through` gets its result and nothing else.
    """

    privacy: Privacy | None
    fabricate: bool | Stop
    n_components: int
    branch_size: int
    ledger: Ledger | None
    random_state: np.random.RandomState | None
    n_jobs: int | None

    def pass_through(self, X: Array, labels: NDArray[np.intp]) -> Learnable:
        """Noise the rows, or let them pass untouched when no privacy is asked for."""
        if self.privacy is None:
            return Learnable(X, None, True)
        released = release(
            X,
            self.privacy,
            random_state=self.random_state,
            ledger=self.ledger,
            n_classes=len(np.unique(labels)),
            description="training rows of a classifier",
        )
        if self.fabricate is False:
            return Learnable(released.data, released.certificate, False)
        original = X if self.fabricate == "original" else None
        return self._fabricate(released.data, released.certificate, labels, original)

    def _fabricate(
        self,
        noised: Array,
        certificate: Certificate,
        labels: NDArray[np.intp],
        original: Array | None,
    ) -> Learnable:
        """Fabricate each class from its noised rows (004 Def. 15)."""
        assert self.privacy is not None
        stop: Stop = 1 if self.fabricate is True else self.fabricate
        data = np.empty_like(noised)
        for label in np.unique(labels):
            rows = labels == label
            made = fabricate(
                noised[rows],
                n_components=self.n_components,
                stop=stop,
                noise_variance=noise_variance(self.privacy, noised.shape[1]),
                original=None if original is None else original[rows],
                branch_size=self.branch_size,
                n_jobs=self.n_jobs,
                random_state=self.random_state,
            )
            data[rows] = made.data
        certificate = certificate.add_step(
            f"fabricated per class from the noised rows, stopped when {made.stopped_by}"
        )
        if made.reads_private_rows:
            certificate = certificate.void("the stopping rule of the fabrication read private rows")
        return Learnable(data, certificate, made.reads_private_rows)


def default_branch_size(privacy: Privacy | None, n_features: int) -> int:
    """Rows of a branch when the user does not say: larger under stronger noise.

    Noise is averaged out over the rows of a branch, and clusters found in noised rows mean less, so
    the branch grows with the public ratio of noise to domain, from 1000 rows without noise.

    Examples
    --------
    >>> default_branch_size(None, 784)
    1000
    >>> default_branch_size(Privacy(epsilon=1, domain=(0, 1)), 784)
    8000
    """
    if privacy is None:
        return _PLAIN_BRANCH
    return _LARGEST_BRANCH if noise_ratio(privacy, n_features) > 0 else _PLAIN_BRANCH
