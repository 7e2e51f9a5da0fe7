"""Distances as k-bit integers on a public scale.

Homomorphic comparison works on small integers. All parties must use one scale, and the scale must
be public: a bound of the feature domain or a figure agreed upon in the handshake, never the largest
distance in some party's data, which would tell the others about that data.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

MIN_BITS = 2


def infinity_code(bits: int) -> int:
    """Code of an infinite distance (a class that the party has never seen): 2^bits − 2.

    The all-ones code stays free: both circuits of `bfv` use it as a sentinel, which is what makes
    ties come out by class order at no extra depth.
    """
    return int(2**bits - 2)


@dataclass(frozen=True, kw_only=True)
class Quantiser:
    """Map distances on the public interval [low, high] to codes 0, …, 2^bits − 2.

    With n = 2^bits − 2 cells of width step = (high − low)/n,

        code(d) = min(⌊(d − low)/step⌋, n − 1) for low ≤ d ≤ high,        code(∞) = n,

    so d ↦ code(d) is non-decreasing, code(d) < code(∞) for every finite d, and two distances with
    different codes are ordered as their codes are. Distances in one cell tie, and **a tie goes to
    the lowest class index**, as in `numpy.argmin`; so an encrypted label can differ from the label
    of the exact distances only when the two distances are less than one step apart.

    Parameters
    ----------
    bits : int
        Number of bits k ≥ 2 of a code.
    high, low : float
        The public scale.
    overflow : {"raise", "clip"}, default="raise"
        What to do with a finite distance outside the scale: refuse, or move it to the nearest
        finite code and warn (order is lost among clipped distances).

    Examples
    --------
    >>> import numpy as np
    >>> quantiser = Quantiser(bits=3, high=6.0)
    >>> quantiser.codes(np.array([[0.0, 0.99, 1.0, 6.0, np.inf]]))
    array([[0, 0, 1, 5, 6]])
    """

    bits: int
    high: float
    low: float = 0.0
    overflow: Literal["raise", "clip"] = "raise"

    def __post_init__(self) -> None:
        if not isinstance(self.bits, int | np.integer) or self.bits < MIN_BITS:
            raise ValueError(f"bits must be an integer of at least {MIN_BITS}, got {self.bits!r}")
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise ValueError(
                f"the scale must be finite, low < high, got low={self.low!r}, high={self.high!r}"
            )
        if self.overflow not in ("raise", "clip"):
            raise ValueError(f"overflow must be 'raise' or 'clip', got {self.overflow!r}")

    @property
    def step(self) -> float:
        """Width of a cell."""
        return (self.high - self.low) / infinity_code(self.bits)

    def codes(self, distances: ArrayLike) -> NDArray[np.int64]:
        """Quantise distances of any shape; +∞ is allowed, NaN is not."""
        values = np.asarray(distances, dtype=np.float64)
        if np.isnan(values).any():
            raise ValueError("distances contain NaN: a missing class is stated by +inf")
        finite = np.isfinite(values)
        outside = (finite & ((values < self.low) | (values > self.high))) | (values == -np.inf)
        if outside.any():
            self._report(int(outside.sum()), values.size)
        cells = np.floor((np.where(finite, values, self.low) - self.low) / self.step)
        last = infinity_code(self.bits) - 1
        codes = np.clip(cells, 0, last).astype(np.int64)
        return np.where(values == np.inf, last + 1, codes)

    def _report(self, count: int, total: int) -> None:
        """Refuse or warn, without showing a distance."""
        scale = f"[{self.low}, {self.high}]"
        what = f"{count} of {total} distances lie outside the public scale {scale}"
        if self.overflow == "raise":
            raise ValueError(
                f"{what}: agree on a wider scale with all parties, or accept overflow='clip'"
            )
        warnings.warn(f"{what}: clipped, their order is lost", UserWarning, stacklevel=3)


def plain_labels(codes: ArrayLike) -> NDArray[np.intp]:
    """What every scheme must reproduce: arg min over classes of the minimum over parties.

    This is the global classifier of 004 eq. 104 on quantised distances.

    Parameters
    ----------
    codes : array of shape (parties, queries, classes)

    Examples
    --------
    >>> plain_labels([[[3, 1, 2]], [[1, 6, 6]]])  # classes 0 and 1 tie at 1: the lower index wins
    array([0])
    """
    return np.asarray(np.argmin(np.min(codes, axis=0), axis=1), dtype=np.intp)
