"""Moments of several parties: they add up, so a federation learns what one owner would.

Two ways, both pure functions of messages:

* every party noises its own moments fully and anybody may add them (:func:`add_released`); the
  noise of n parties has √n times the deviation of one;
* parties send exact sums plus a *share* of the noise through a secure aggregation, which shows the
  server nothing but the total (additive encryption, or masks that cancel). The total then carries
  one noise and equals the centralised release. The shares are sized for ``needed`` parties: when
  more answer, there is more noise than promised; when fewer do, the round fails. How many are
  needed is decided by the owners of the rows (`permea.federation.agreement`), never by whoever
  adds up.

Messages are whole numbers modulo 2**64, so their order and grouping do not matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from permea.models.moments import Moments
from permea.privacy.bits import BitSource
from permea.privacy.moments import (
    FeatureSums,
    MeanNoise,
    MomentPlan,
    MomentSums,
    add_noise,
    mean_from_steps,
    mean_noise,
    moment_noise,
    moments_from_steps,
    noised_mean_steps,
)

Words = NDArray[np.int64]


class DropOutError(RuntimeError):
    """Raised when too few parties answered: their noise would not suffice. Nothing is opened."""


@dataclass(frozen=True)
class Message:
    """What one party puts into a secure aggregation: whole numbers, and the number of rows.

    ``n_rows`` is public when neighbours are replaced, and 0 (not sent) when they come and go.
    ``needed`` is the number of parties its share of the noise was sized for. ``agreement`` is the
    digest of the agreement under which the party answered, ``round_id`` the round it answered.
    """

    words: Words
    n_rows: int
    needed: int
    agreement: str = ""
    round_id: str = ""


def mean_message(sums: FeatureSums, plan: MomentPlan, needed: int, source: BitSource) -> Message:
    """A party's sum of features with its share of the noise, for the first round."""
    _check_needed(needed)
    noised = noised_mean_steps(sums, mean_noise(plan, source, shares=needed), plan)
    words = np.append(noised.features, np.int64(noised.size))
    public_rows = sums.n_rows if plan.neighbours == "replace" else 0
    return Message(words, public_rows, needed)


def moment_message(sums: MomentSums, plan: MomentPlan, needed: int, source: BitSource) -> Message:
    """A party's moments about the common noised mean with its share of the noise.

    Of the symmetric matrix the upper triangle is sent.
    """
    _check_needed(needed)
    noised = add_noise(sums, moment_noise(plan, source, shares=needed), plan)
    upper = noised.second[np.triu_indices(plan.n_features)]
    words = np.concatenate([upper, noised.cross.ravel(), noised.tally])
    return Message(words, noised.n_rows, needed)


def aggregate(messages: Sequence[Message], *, least: int = 1) -> Message:
    """Add up messages modulo 2**64, as a secure aggregation does; fail when too few came.

    Parameters
    ----------
    messages : sequence of Message
        Of one round, under one agreement, with noise sized for one number of parties.
    least : int, default=1
        Parties that must have answered, beside what their shares of the noise ask for.

    Examples
    --------
    >>> import numpy as np
    >>> one = Message(np.array([1, -2]), 3, 2)
    >>> aggregate([one, one]).words.tolist()
    [2, -4]
    >>> aggregate([one])
    Traceback (most recent call last):
        ...
    permea.federation.moments.DropOutError: 1 of at least 2 parties answered: their shares of the
    noise do not keep the promise. Nothing was opened.
    """
    if not messages:
        raise DropOutError("No party answered. Nothing was opened.")
    first = messages[0]
    for message in messages:
        if message.needed != first.needed:
            raise ValueError("The parties sized their noise for different numbers of parties.")
        if (message.agreement, message.round_id) != (first.agreement, first.round_id):
            raise ValueError("The parties answered under different agreements or rounds.")
        if message.words.shape != first.words.shape:
            raise ValueError("The parties' messages have different lengths: plans differ.")
    check_answered(len(messages), max(first.needed, least))
    total = np.zeros_like(first.words, dtype=np.int64)
    for message in messages:
        total += message.words
    return replace(first, words=total, n_rows=sum(message.n_rows for message in messages))


def check_answered(answered: int, least: int, reasons: str = "") -> None:
    """Raise unless at least ``least`` parties answered."""
    if answered < least:
        raise DropOutError(
            f"{answered} of at least {least} parties answered: their shares of the noise do not "
            f"keep the promise. Nothing was opened.{reasons and f' Missing: {reasons}'}"
        )


def open_mean(total: Message, plan: MomentPlan) -> NDArray[np.float64]:
    """The noised mean of all rows."""
    return mean_from_steps(MeanNoise(total.words[:-1], int(total.words[-1])), plan)


def open_moments(total: Message, plan: MomentPlan) -> Moments:
    """The noised moments of all rows, ready to learn from."""
    D, C = plan.n_features, plan.n_outputs
    above = np.triu_indices(D)
    triangle, rest = total.words[: above[0].size], total.words[above[0].size :]
    second = np.zeros((D, D), dtype=np.int64)
    second[above] = triangle
    second = np.where(np.tri(D, k=-1, dtype=bool), second.T, second)
    cross, tally = rest[: D * C].reshape(D, C), rest[D * C :]
    return moments_from_steps(MomentSums(second, cross, tally, total.n_rows), plan)


def mask(words: Words, party: int, pairs: dict[int, BitSource]) -> Words:
    """Hide a message by masks that cancel in the sum: one stream shared with every other party.

    The party of the smaller number adds the mask of a pair, the other subtracts it. All parties
    must answer; a federation with drop-outs uses an aggregation that repairs them.

    Examples
    --------
    >>> import numpy as np
    >>> from permea.privacy.bits import SeededBits
    >>> a = mask(np.array([5, 7]), 0, {1: SeededBits(9)})
    >>> b = mask(np.array([1, 1]), 1, {0: SeededBits(9)})
    >>> (a + b).tolist()
    [6, 8]
    """
    hidden = words.astype(np.int64).copy()
    for other, stream in pairs.items():
        noise = stream.words(words.size).view(np.int64)
        hidden += noise if party < other else -noise
    return hidden


def add_released(parts: Sequence[Moments]) -> Moments:
    """Add moments that left their owners fully noised, about one common origin."""
    if not parts:
        raise DropOutError("No party answered.")
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _check_needed(needed: int) -> None:
    if needed < 1:
        raise ValueError("At least one party must be needed.")
