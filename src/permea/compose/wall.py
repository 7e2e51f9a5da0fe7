"""What a classifier learns from: the rows as they are, or what came through the wall."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from permea.models.base import Array


@dataclass(frozen=True)
class Learnable:
    """Rows to learn from, with what is promised about them."""

    data: Array
    labels: NDArray[np.intp]
    certificate: Any  #: permea.privacy.Certificate, or None for rows as they are
    holds_private_rows: bool


def behind_the_wall(
    X: Array,
    labels: NDArray[np.intp],
    *,
    privacy: Any,
    fabricate: bool,
    random_state: np.random.RandomState | None,
    n_components: int,
    branch_size: int,
    n_jobs: int | None,
) -> Learnable:
    """Take rows through the wall once, or let them pass untouched when no privacy is asked for."""
    if privacy is None:
        return Learnable(X, labels, None, True)
    raise ValueError
