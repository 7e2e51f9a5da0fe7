"""Messages of parties that add up their moments: whole numbers, with all of the noise or a share.

Four kinds, one for each stage of a release: the mean, the moments about it, and where they are
planned the scatter of the classes and sums of losses (`permea.privacy.scatter`). Messages are
numbers modulo 2**64, so their order and grouping do not matter.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from permea._arrays import Array, Integers
from permea.federation.errors import FederationError
from permea.privacy import moments as noising
from permea.privacy import scatter as scattering
from permea.privacy.moments import FeatureSums, MomentPlan, Moments, MomentSums
from permea.privacy.sampling import BitSource
from permea.privacy.scatter import ClassScatter

Released = TypeVar("Released", Moments, ClassScatter)


class DropOutError(FederationError):
    """Too few parties replied: their noise would not suffice. Nothing was decrypted."""


@dataclass(frozen=True)
class Message:
    """What one party contributes to a secure aggregation.

    Parameters
    ----------
    values : ndarray of int64, or bytes
        Noised sums, or a ciphertext of them.
    n_units : int
        Number of records or persons: public when neighbours are replaced, and 0 (not sent) when
        they come and go.
    needed : int
        Number of parties that the share of the noise was sized for.
    agreement, round_id : str
        Digest of the agreement and name of the round that the message belongs to.
    """

    values: Any
    n_units: int
    needed: int
    agreement: str = ""
    round_id: str = ""


def mean_message(sums: FeatureSums, plan: MomentPlan, needed: int, source: BitSource) -> Message:
    """A party's sum of features with its share of the noise, for the first stage."""
    noised = noising.noised_mean_steps(
        sums, noising.mean_noise(plan, source, shares=_positive(needed)), plan
    )
    values = np.append(noised.features, np.int64(noised.size))
    return Message(values, sums.n_units if plan.size_is_public else 0, needed)


def moment_message(sums: MomentSums, plan: MomentPlan, needed: int, source: BitSource) -> Message:
    """A party's moments about the common noised mean with its share of the noise.

    Of the symmetric matrix the upper triangle is sent.
    """
    noised = noising.add_noise(
        sums, noising.moment_noise(plan, source, shares=_positive(needed)), plan
    )
    return Message(
        np.concatenate([_triangle(noised.second), noised.cross.ravel(), noised.counts]),
        noised.n_units, needed,
    )  # fmt: skip


def scatter_message(
    sums: Integers, n_units: int, plan: MomentPlan, needed: int, source: BitSource
) -> Message:
    """A party's scatter of every class with its share of the noise: triangles, one by one.

    ``n_units`` is what its moments were sent with.
    """
    noised = scattering.scatter_steps(sums, plan, source, shares=_positive(needed))
    return Message(np.concatenate([_triangle(matrix) for matrix in noised]), n_units, needed)


def loss_message(sums: Integers, plan: MomentPlan, needed: int, source: BitSource) -> Message:
    """A party's sums of losses with its share of the noise."""
    return Message(scattering.loss_steps(sums, plan, source, shares=_positive(needed)), 0, needed)


def _triangle(matrix: Integers) -> Integers:
    """The upper triangle of a symmetric matrix, row by row."""
    return np.asarray(matrix[np.triu_indices(len(matrix))])


def _symmetric(triangle: Integers, size: int) -> Integers:
    """The symmetric matrix of an upper triangle."""
    matrix = np.zeros((size, size), dtype=np.int64)
    matrix[np.triu_indices(size)] = triangle
    return np.where(np.tri(size, k=-1, dtype=bool), matrix.T, matrix)


def _positive(needed: int) -> int:
    if needed < 1:
        raise ValueError(f"needed must be at least 1 party, got {needed}.")
    return needed


def aggregate(messages: Sequence[Message], *, least: int = 1) -> Message:
    """Add up messages modulo 2**64, as a secure aggregation does; fail when there are too few.

    Parameters
    ----------
    messages : sequence of Message
        Of one round, under one agreement, with noise sized for one number of parties.
    least : int, default=1
        Parties that must have replied, in addition to what their shares of the noise require.

    Examples
    --------
    >>> import numpy as np
    >>> one = Message(np.array([1, -2]), 3, 2)
    >>> aggregate([one, one]).values.tolist()
    [2, -4]
    >>> aggregate([one])
    Traceback (most recent call last):
        ...
    permea.federation.messages.DropOutError: 1 of at least 2 parties replied: their shares of the
    noise do not keep the promise. Nothing was decrypted.
    """
    if not messages:
        raise DropOutError("No party replied. Nothing was decrypted.")
    first = messages[0]
    for message in messages:
        if message.needed != first.needed:
            raise ValueError("The parties sized their noise for different numbers of parties.")
        if (message.agreement, message.round_id) != (first.agreement, first.round_id):
            raise ValueError("The messages belong to different agreements or rounds.")
        if message.values.shape != first.values.shape:
            raise ValueError("The parties' messages have different lengths: plans differ.")
    check_replied(len(messages), max(first.needed, least))
    total = np.sum([message.values for message in messages], axis=0, dtype=np.int64)
    return replace(first, values=total, n_units=sum(message.n_units for message in messages))


def check_replied(replied: int, least: int, reasons: str = "") -> None:
    """Raise unless at least ``least`` parties replied."""
    if replied < least:
        raise DropOutError(
            f"{replied} of at least {least} parties replied: their shares of the noise do not "
            f"keep the promise. Nothing was decrypted.{reasons and f' Missing: {reasons}'}"
        )


def open_mean(total: Message, plan: MomentPlan) -> NDArray[np.float64]:
    """The noised mean of all rows."""
    return noising.mean_from_steps(
        noising.MeanNoise(total.values[:-1], int(total.values[-1])), plan
    )


def open_moments(total: Message, plan: MomentPlan) -> Moments:
    """The noised moments of all rows, ready to learn from."""
    D, C = plan.n_features, plan.n_outputs
    half = D * (D + 1) // 2
    second, rest = _symmetric(total.values[:half], D), total.values[half:]
    cross, counts = rest[: D * C].reshape(D, C), rest[D * C :]
    weight = total.n_units * noising.UNIT_STEPS
    return noising.moments_from_steps(MomentSums(second, cross, counts, weight), plan)


def open_scatter(total: Message, directions: Array, plan: MomentPlan) -> ClassScatter:
    """The noised scatter of every class over all rows."""
    d = directions.shape[1]
    triangles = total.values.reshape(plan.n_outputs, d * (d + 1) // 2)
    noised = np.stack([_symmetric(triangle, d) for triangle in triangles])
    return scattering.scatter_from_steps(noised, directions, plan)


def open_losses(total: Message, plan: MomentPlan) -> Array:
    """The noised sums of losses over all rows."""
    return scattering.losses_from_steps(total.values, plan)


def add_released(parts: Sequence[Released]) -> Released:
    """Add moments or scatter that left their owners with all of the noise, about one origin."""
    if not parts:
        raise DropOutError("No party replied.")
    return reduce(operator.add, parts)
