"""From rows to what the wall for moments is given: public features, in two passes over chunks."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from permea.models.base import Array
from permea.models.features import (
    Chain,
    FeatureMap,
    OrientedGradients,
    RandomFourier,
    ScaledIdentity,
)
from permea.privacy.moments import FeatureSums

Chunks = Callable[[], Iterable[tuple[ArrayLike, ArrayLike]]]
_KEPT_BYTES = 1 << 29  # features of the first pass that are kept for the second


def feature_map(features: str | Any, domain: tuple[ArrayLike, ArrayLike], n_columns: int) -> Any:
    """The public map that a name or a transformer stands for, ready for rows of ``n_columns``.

    Maps of :mod:`permea.models.features` are told the number of columns. Any other transformer
    must have been fitted already, on public data: it is used as it is and never fitted here.
    """
    named: dict[str, Callable[[], FeatureMap]] = {
        "identity": lambda: ScaledIdentity(domain=domain),
        "fourier": lambda: Chain(
            [ScaledIdentity(domain=domain), RandomFourier(n_frequencies=300, scale=2.0)]
        ),
        "gradients": lambda: Chain([OrientedGradients(), RandomFourier(scale=2.0)]),
    }
    if isinstance(features, str):
        if features not in named:
            raise ValueError(f"features must be one of {sorted(named)} or a transformer.")
        return named[features]().fit_columns(n_columns)
    if isinstance(features, FeatureMap):
        return clone(features).fit_columns(n_columns)
    if not hasattr(features, "transform"):
        raise TypeError("features must be a name or an object with a method `transform`.")
    return features


def column_range(chunks: Chunks) -> tuple[Array, Array]:
    """Range of every column, for learning without a promise; a constant column gets a width."""
    lows, highs = zip(*((np.min(X, axis=0), np.max(X, axis=0)) for X, _ in chunks()), strict=True)
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    return low, np.where(high > low, high, low + 1.0)


class Passes:
    """Chunks of rows, mapped; what fits into half a gibibyte is mapped once, not twice."""

    def __init__(self, chunks: Chunks, transform: Callable[[Array], Array], keep: bool) -> None:
        self._chunks, self._transform, self._keep = chunks, transform, keep
        self._kept: list[tuple[Array, ArrayLike]] = []
        self._complete = False

    def first(self) -> Iterator[tuple[Array, ArrayLike]]:
        """Features and outputs of every chunk."""
        size, keep = 0, self._keep
        for X, y in self._chunks():
            phi = self._transform(np.asarray(X))
            size += phi.nbytes
            keep = keep and size <= _KEPT_BYTES
            if keep:
                self._kept.append((phi, y))
            else:
                self._kept.clear()
            yield phi, y
        self._complete = keep

    def second(self) -> Iterator[tuple[Array, ArrayLike]]:
        """The same once more."""
        if self._complete:
            yield from self._kept
            return
        for X, y in self._chunks():
            yield self._transform(np.asarray(X)), y


def total_sums(parts: list[FeatureSums]) -> FeatureSums:
    """Sums of chunks added up."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
