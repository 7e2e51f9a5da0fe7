"""What a classifier learns from: the rows as they are, or what came through the wall."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from permea._parallel import run_parallel
from permea.models.base import Array, Indices
from permea.models.partition import partition
from permea.privacy import Certificate, Ledger, Privacy
from permea.privacy.fabrication import Fabricated, Stop, fabricate, what_stopped
from permea.privacy.release import PaidRelease, pay_for_rows
from permea.privacy.strength import noise_ratio, noise_variance

_PLAIN_BRANCH = 1000  # 004 eq. (59)
_LARGEST_BRANCH = 8000  # a kernel matrix of 256 MB in single precision
_STRONG_NOISE = 0.5  # standard deviation of the noise over the width of the domain


@dataclass(frozen=True)
class Learnable:
    """Rows to learn from, with what is promised about them."""

    data: Array
    certificate: Certificate | None  #: None for rows as they are
    holds_private_rows: bool
    parts: list[list[Indices]] | None = None  #: branches of each class, where they are given


@dataclass(frozen=True, kw_only=True)
class Wall:
    """The way of training rows to a classifier: noise once, then perhaps fabrication.

    Everything that is computed after `pass_through` gets its result and nothing else. Two choices
    of document 004 read raw rows a second time and are kept for reproduction: clustering before
    the noise (``partition_on="original"``, Remark 4) and the stopping rule of the fabrication
    (``fabricate="original"``, eq. 88). Both void the certificate.
    """

    privacy: Privacy | None
    fabricate: bool | Stop
    partition_on: str
    n_components: int
    branch_size: int
    ledger: Ledger | None
    dataset: str | None
    random_state: np.random.RandomState | None
    n_jobs: int | None

    def pay(self, X: Any) -> PaidRelease | None:
        """Charge the release before any value is read; nothing to pay without privacy."""
        if self.privacy is None:
            return None
        text = "training rows of a classifier"
        return pay_for_rows(
            X, self.privacy, ledger=self.ledger, dataset=self.dataset, description=text
        )

    def pass_through(
        self, X: Array, labels: NDArray[np.intp], paid: PaidRelease | None
    ) -> Learnable:
        """Noise the rows, or let them pass untouched when no privacy is asked for."""
        if paid is None:
            return Learnable(X, None, True)
        n_classes = len(np.unique(labels))
        released = paid.release(X, random_state=self.random_state, n_classes=n_classes)
        data, certificate, parts = released.data, released.certificate, None
        if self.partition_on == "original":
            parts = self._parts(X, labels)
            certificate = certificate.void("the rows were clustered before the noise")
        if self.fabricate is not False:
            groups = self._parts(data, labels) if parts is None else parts
            original = X if self.fabricate == "original" else None
            data, stopped_by = self._fabricated(data, groups, original)
            certificate = certificate.add_step(
                f"fabricated per class from the noised rows; end of the smoothing: {stopped_by}"
            )
            if original is not None:
                certificate = certificate.void("the fabrication read private rows to know its end")
        return Learnable(data, certificate, bool(certificate.void_reasons), parts)

    def _parts(self, rows: Array, labels: NDArray[np.intp]) -> list[list[Indices]]:
        """Row numbers of each branch of each class."""
        found: list[list[Indices]] = []
        for label in np.unique(labels):
            mine = np.flatnonzero(labels == label)
            parts = partition(rows[mine], self.branch_size, random_state=self.random_state)
            found.append([mine[part] for part in parts])
        return found

    def _fabricated(
        self, noised: Array, groups: list[list[Indices]], original: Array | None
    ) -> tuple[Array, str]:
        """Fabricate every branch of every class from its noised rows (004 Def. 15, Remark 4)."""
        assert self.privacy is not None
        stop: Stop = 1 if self.fabricate is True else self.fabricate
        variance = noise_variance(self.privacy, noised.shape[1])
        data = np.empty_like(noised)
        tasks = [
            (noised[rows], stop, variance, None if original is None else original[rows])
            for branches in groups
            for rows in branches
        ]
        results = run_parallel(self._fabricate_branch, tasks, n_jobs=self.n_jobs, desc="fabricate")
        for rows, made in zip([r for branches in groups for r in branches], results, strict=True):
            data[rows] = made.data
        return data, what_stopped(results)

    def _fabricate_branch(
        self, noised: Array, stop: Stop, variance: Array, original: Array | None
    ) -> Fabricated:
        return fabricate(
            noised,
            n_components=self.n_components,
            stop=stop,
            noise_variance=variance,
            original=original,
        )


def default_branch_size(privacy: Privacy | None, n_features: int) -> int:
    """Rows of a branch when the user does not say: larger under strong noise.

    Clusters found in noised rows mean less the stronger the noise is, and noise is averaged out
    over the rows of a branch. From a public ratio of noise to domain of one half on, a class stays
    together as far as memory allows; below it the branches are those of 004 eq. (59).

    Examples
    --------
    >>> default_branch_size(None, 784), default_branch_size(Privacy(epsilon=8, domain=(0, 1)), 784)
    (1000, 1000)
    >>> default_branch_size(Privacy(epsilon=1, domain=(0, 1)), 784)
    8000
    """
    if privacy is None or noise_ratio(privacy, n_features) < _STRONG_NOISE:
        return _PLAIN_BRANCH
    return _LARGEST_BRANCH
