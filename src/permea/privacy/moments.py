r"""Release of moments: sums over private rows leave once, with Gaussian noise on a grid.

A row x with output y is turned by a public feature map into φ(x), clipped to a public norm. Two
releases are composed as one event:

1. the noised mean of the features (and, when the number of rows is private, their number);
2. with z = φ - mean, clipped to a public radius: the noised sums of z zᵀ, of z yᵀ and of y.

Where it is planned, more follows: the second moments of each class in some directions, and sums of
losses, for models that are learned from them (`permea.privacy.scatter`).

Everything is summed in whole steps of a public grid, so sums do not depend on the order of rows,
chunks or parties, and the sensitivity is that of integers, free of rounding. A row that comes or
goes moves z zᵀ (upper triangle, off-diagonal entries weighted by √2, which is the Frobenius norm)
by at most r², z yᵀ by r and the class counts by 1. The parts are Gaussian, so they compose to one
Gaussian: μ² is the sum of (sensitivity / σ)². Proofs: ``docs/proofs/moments.md``.

With ``unit="person"`` each of the m rows of a person has the weight w = 1/m: √w z, √w y and w enter
the sums in place of z, y and 1. All her rows together then move the sums no further than one row
may, because what she adds is a mean of what her rows would add.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from permea._arrays import Array, Integers
from permea.privacy.certificate import NOT_PROTECTED, Certificate
from permea.privacy.composition import Loss, tight_epsilon
from permea.privacy.gaussian import LARGEST_SIGMA, discrete_gaussian
from permea.privacy.ledger import Ledger
from permea.privacy.ledger_events import Event
from permea.privacy.noise import gaussian_mu, grid_slack
from permea.privacy.people import LARGEST_GROUP as LARGEST_GROUP
from permea.privacy.people import count_rows as count_rows
from permea.privacy.people import row_weights as row_weights
from permea.privacy.release import RELEASES, Release, pay
from permea.privacy.rowwise import shrink_rows
from permea.privacy.sampling import BitSource, RandomState, bit_source
from permea.privacy.units import Privacy

Neighbours = Literal["replace", "add/remove"]
Outputs = Literal["classes", "numbers"]

RELATIONS = {
    "record": {
        "replace": "one whole row, with its output, is replaced by any other; the number of rows "
        "is public",
        "add/remove": "one whole row, with its output, is added or taken away",
    },
    "person": {
        "replace": "all rows of one person, with their outputs, are replaced by any other rows, "
        "any number of them; the number of persons is public, the number of rows is not",
        "add/remove": "all rows of one person, with their outputs, are added or taken away",
    },
}
ROW_STEPS = 2**16  # steps per radius of a row z, and per unit of an output
MEAN_STEPS = 2**32  # steps per norm of a row of features
SQUARE_STEPS = ROW_STEPS**2  # steps of products: of z zᵀ, z yᵀ, and of the counts
_NOISE_STEPS = 2**36  # the grid is refined until the noise has at least so many steps
_GRADIENT_NORM = math.hypot(1.0, 0.25)  # of a row with its constant, in units of the radius
_LARGEST_SUM = 2**62  # whole numbers of 64 bits, with room for the noise
_EXACT_ROWS = 2**13  # rows per block: products below 2**32 add up exactly in doubles
GRADIENT_CONSTANT = 0.25  # beside a row in a gradient, in units of the radius
UNIT_STEPS = 2**32  # steps per unit, of the weight of all rows
_SHRINK = 1.0 - 1e-9  # far more than a computed norm can be wrong


class Split(NamedTuple):
    """Shares of the budget, in μ², of the mean, z zᵀ, z yᵀ and the counts."""

    mean: float = 0.05
    second: float = 0.43
    cross: float = 0.46
    counts: float = 0.06


class Scales(NamedTuple):
    """Noise of every part in units of what one row can add: norms of at most 1."""

    mean: float
    size: float
    second: float
    cross: float
    counts: float
    gradient: float = math.inf
    scatter: float = math.inf
    losses: float = math.inf


def squared_mu(
    scales: Scales, neighbours: Neighbours, outputs: Outputs, n_gradients: int = 0
) -> float:
    """(sensitivity / σ)² of all parts together, exact for classes: ``docs/proofs/moments.md``.

    Replacing a row by one of another class moves all parts by √2; by one of its own class with z
    turned by an angle of more than 90° it moves z yᵀ by up to 2, and z zᵀ by less. The size is
    noised where it is private; when a row is replaced, only weights can change it. The second
    moments of the classes move by 1, or by √2, losses by 1; for these and for gradients the bound
    is added.

    Examples
    --------
    >>> equal = Scales(*[1.0] * 5)
    >>> squared_mu(equal, "add/remove", "classes"), squared_mu(equal, "replace", "classes")
    (5.0, 11.0)
    """
    mean, size, second, cross, counts, gradient, scatter, losses = (1.0 / s**2 for s in scales)
    further = n_gradients * gradient + losses
    if neighbours == "add/remove":
        most = 1.0 if outputs == "classes" else 3.0  # (1, y, y²) with |y| at most 1
        return mean + size + second + cross + most * counts + further + scatter
    turned = min(1.0, cross / (2.0 * second))  # cosine of the worst angle, negated
    own_class = 2.0 * turned * cross - 2.0 * turned**2 * second
    rest = 4.0 * (mean + n_gradients * gradient) + size + 2.0 * (second + cross + scatter) + losses
    if outputs == "classes":
        return rest + max(own_class, 2.0 * counts)
    return rest + own_class + 4.0 * counts


@dataclass(frozen=True)
class MomentPlan:
    """Everything public about a release of moments, fixed before the rows are looked at.

    ``n_outputs`` counts classes, or the constant 1 and the numbers after it. ``scales`` are the
    noises per unit sensitivity; ``loss`` is what the release costs under ``neighbours``,
    ``replace_loss`` what it costs when a unit is replaced (the unit of a ledger). With ``weighted``
    rows have weights of their own, such as class weights; their total is private. After the moments
    follow, with ``n_directions``, the second moments of the classes (of ``n_parts`` parts of each)
    in at most so many directions, ``n_losses`` sums of numbers in [0, 1], and ``n_gradients`` sums
    of z uᵀ, one after the other, with u of norm at most 1. All of these depend on the row and on
    what was released before.
    """

    privacy: Privacy
    neighbours: Neighbours
    outputs: Outputs
    n_features: int
    n_outputs: int
    radius: float
    feature_norm: float
    split: Split
    scales: Scales
    loss: Loss
    replace_loss: Loss
    weighted: bool = False
    n_gradients: int = 0
    n_directions: int = 0
    n_losses: int = 0
    n_parts: int = 1

    @property
    def size_is_public(self) -> bool:
        """Whether the number of records or persons is public, and is the weight of all rows."""
        return self.neighbours == "replace" and not self.weighted

    def mu(self, neighbours: Neighbours) -> float:
        """Sensitivity / σ of all parts together, with what truncated weights can add to it."""
        shape = neighbours, self.outputs, self.n_gradients
        if neighbours == "add/remove":
            return math.sqrt(squared_mu(self.scales, *shape))
        size = self.scales.size if self.weighted else math.inf  # a replaced unit counts as one
        exact = math.sqrt(squared_mu(self.scales._replace(size=size), *shape))
        rows = LARGEST_GROUP if self.privacy.unit == "person" else int(self.weighted)
        entries = 1 if self.outputs == "classes" else self.n_counts
        return exact + 2.0 * rows * math.sqrt(entries) / (SQUARE_STEPS * self.scales.counts)

    @property
    def n_counts(self) -> int:
        """Number of counts: those of the classes, or (1, y, y²)."""
        return self.n_outputs if self.outputs == "classes" else 2 * self.n_outputs - 1

    @property
    def gradient_shape(self) -> tuple[int, int]:
        """Features and columns of a gradient; two classes need one column."""
        return self.n_features + 1, 1 if self.n_outputs == 2 else self.n_outputs

    @staticmethod
    def refinement(scale: float, steps: float) -> int:
        """How many noise steps one step of a sum is split into."""
        if math.isinf(scale):
            return 1
        return 1 << max(0, math.ceil(math.log2(_NOISE_STEPS / (scale * steps))))

    def most_rows(self) -> int:
        """How many records or persons fit into 64-bit sums."""
        worst = max(
            int(steps) * self.refinement(scale, steps)
            for scale, steps in zip(self.scales, _STEPS, strict=True)
        )
        return _LARGEST_SUM // worst

    def check_noise(self) -> None:
        """Refuse noise that cannot be drawn, which is to be known before the charge."""
        widest = max(
            _GRADIENT_NORM * scale * steps * self.refinement(scale, steps)
            for scale, steps in zip(self.scales, _STEPS, strict=True)
            if not math.isinf(scale)
        )
        if widest >= LARGEST_SIGMA:
            raise ValueError("The noise does not fit into 64 bits; raise epsilon.")

    def event(self, dataset: str, description: str) -> Event:
        """One spend for a ledger, whose unit is replaced."""
        privacy, loss = self.privacy, (self.replace_loss,)
        epsilon = privacy.epsilon
        if self.neighbours == "add/remove":
            epsilon = tight_epsilon(loss, privacy.delta)
            description += f" (ε = {privacy.epsilon:g} add/remove, charged as replace-one)"
        return Event(
            dataset, description, privacy.unit, epsilon, privacy.delta, "gaussian", loss, loss,
            person_losses=self._person_losses(),
        )  # fmt: skip

    def _person_losses(self) -> tuple[Loss, ...]:
        """What a release per record costs a person: her rows move the sums one after another."""
        if self.privacy.unit == "person" or self.privacy.rows_per_person is None:
            return ()
        mu = self.privacy.rows_per_person * self.replace_loss.value
        eta, tau = _slack(self, mu)
        return (Loss("gaussian", mu, 1, tau, eta),)


_STEPS = Scales(MEAN_STEPS, UNIT_STEPS, *[SQUARE_STEPS] * 6)


def plan_moments(
    privacy: Privacy,
    n_features: int,
    n_outputs: int,
    *,
    outputs: Outputs = "classes",
    neighbours: Neighbours = "replace",
    radius: float = 0.5,
    feature_norm: float = 1.0,
    split: Split | tuple[float, float, float, float] = Split(),  # noqa: B008
    weighted: bool = False,
    n_gradients: int = 0,
    n_directions: int = 0,
    n_losses: int = 0,
    n_parts: int = 1,
    further_shares: tuple[float, float, float] = (0.5, 0.32, 0.02),
) -> MomentPlan:
    """Calibrate the noise of a release of moments.

    With ``weighted`` rows may have weights of their own in [0, 1], beside those of
    :func:`row_weights`; the weight of all rows is noised then, with a tenth of the mean's share.
    ``further_shares`` of the budget are for the ``n_gradients`` that follow the moments, for the
    second moments of the classes (of ``n_parts`` disjoint parts of each) in ``n_directions``, and
    for ``n_losses``.

    Examples
    --------
    >>> promise = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 1))
    >>> plan = plan_moments(promise, 100, 10)
    >>> abs(tight_epsilon([plan.loss], 1e-5) - 1) < 1e-3
    True
    >>> wider = plan_moments(promise, 100, 10, neighbours="add/remove")
    >>> plan.scales.second > wider.scales.second
    True
    """
    shares = _check(privacy, neighbours, outputs, radius, feature_norm, split)
    wanted = (n_gradients, n_directions, n_losses)
    further = _check_further(outputs, n_features, wanted, further_shares)
    left = 1.0 - sum(further)
    size_share = 0.1 * shares.mean if neighbours == "add/remove" or weighted else 0.0
    parts = [left * share for share in (shares.mean - size_share, size_share, *shares[1:])]
    parts += [further[0] / max(n_gradients, 1), *further[1:]]
    base = Scales(*(share**-0.5 if share else math.inf for share in parts))
    promise = replace(privacy, mechanism="gaussian", resolution=SQUARE_STEPS)
    draft = MomentPlan(
        promise, neighbours, outputs, n_features, n_outputs, float(radius), float(feature_norm),
        shares, base, Loss("gaussian", 1.0), Loss("gaussian", 1.0), bool(weighted), n_gradients,
        n_directions, n_losses, n_parts,
    )  # fmt: skip
    goal = gaussian_mu(privacy.epsilon, privacy.delta)
    eta, tau = _slack(_scaled(draft, goal), goal)
    if 2.0 * eta > 0.1 * privacy.epsilon or tau > 0.1 * privacy.delta:
        raise ValueError(
            "There are too many features for noise on this grid; use fewer, or a larger epsilon."
        )
    goal = gaussian_mu(privacy.epsilon - 2.0 * eta, (privacy.delta - tau) * math.exp(-eta))
    return _scaled(draft, goal)


def _scaled(draft: MomentPlan, mu: float) -> MomentPlan:
    """The plan with noise in the proportions of ``draft`` and a total of ``mu``."""
    factor = draft.mu(draft.neighbours) / mu
    plan = replace(draft, scales=Scales(*(s * factor for s in draft.scales)))
    losses = {}
    relations: tuple[Neighbours, ...] = ("replace", "add/remove")
    for relation in relations:
        own = plan.mu(relation)
        eta, tau = _slack(plan, own)
        losses[relation] = Loss("gaussian", own, 1, tau, eta)
    return replace(plan, loss=losses[plan.neighbours], replace_loss=losses["replace"])


def _slack(plan: MomentPlan, mu: float) -> tuple[float, float]:
    """What the grid costs, added up over the parts; every entry may change."""
    D, C, d = plan.n_features, plan.n_outputs, plan.n_directions
    gradients = plan.n_gradients * math.prod(plan.gradient_shape)
    scatter = C * plan.n_parts * d * (d + 1) // 2
    entries = Scales(
        D, 1, D * (D + 1) // 2, D * C, plan.n_counts, gradients, scatter, plan.n_losses
    )
    eta = tau = 0.0
    for scale, steps, count in zip(plan.scales, _STEPS, entries, strict=True):
        if math.isinf(scale) or count == 0:
            continue
        sigma = scale * steps * plan.refinement(scale, steps) / math.sqrt(2.0)
        part = grid_slack(sigma, mu, int(count))
        eta, tau = eta + part[0], tau + part[1]
    return eta, tau


def _check_further(
    outputs: str, n_features: int, counts: tuple[int, ...], shares: tuple[float, ...]
) -> tuple[float, ...]:
    """Shares of the budget for gradients, scatter and losses; 0 for what is not wanted."""
    if min(counts) < 0 or min(shares) <= 0 or sum(shares) >= 1:
        raise ValueError(
            "What follows the moments needs counts of at least 0 and shares in (0, 1)."
        )
    if any(counts) and outputs != "classes":
        raise ValueError("Gradients, scatter and losses follow moments with classes only.")
    if counts[1] > n_features + 1:  # a constant coordinate may be among them
        raise ValueError("n_directions must not be larger than the number of features.")
    return tuple(share if count else 0.0 for share, count in zip(shares, counts, strict=True))


def _check(
    privacy: Privacy, neighbours: str, outputs: str, radius: float, norm: float, split: Any
) -> Split:
    if "moments" not in RELEASES[privacy.unit] or privacy.delta <= 0:
        raise ValueError(
            "Moments hide whole records or persons with Gaussian noise: they need unit='record' or "
            f"unit='person', and delta > 0, e.g. delta=1e-5; got {privacy.describe()}."
        )
    if privacy.sampler != "grid" or privacy.clip_norm is not None:
        raise ValueError(
            "Moments are noised on their own grid and clipped to `radius`: leave sampler and "
            "clip_norm of Privacy at their defaults."
        )
    if neighbours not in RELATIONS[privacy.unit]:
        raise ValueError(f"neighbours must be 'replace' or 'add/remove', got {neighbours!r}.")
    if outputs not in ("classes", "numbers"):
        raise ValueError(f"outputs must be 'classes' or 'numbers', got {outputs!r}.")
    if not (math.isfinite(radius) and radius > 0 and math.isfinite(norm) and norm > 0):
        raise ValueError("radius and feature_norm must be positive public numbers.")
    shares = Split(*split)
    if min(shares) <= 0 or abs(sum(shares) - 1.0) > 1e-9:
        raise ValueError("split needs four positive shares that add up to 1: see Split.")
    return shares


@dataclass(frozen=True)
class MomentSums:
    """Exact sums of rows in whole steps: private, and additive over chunks and parties.

    Examples
    --------
    >>> import numpy as np
    >>> promise = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 1))
    >>> plan = plan_moments(promise, 2, 2)
    >>> Z, Y = np.array([[0.3, 0.0], [0.0, 0.5]]), np.eye(2)
    >>> whole = sum_moments(Z, Y, plan)
    >>> parts = sum_moments(Z[:1], Y[:1], plan) + sum_moments(Z[1:], Y[1:], plan)
    >>> bool((whole.second == parts.second).all() and (whole.cross == parts.cross).all())
    True
    """

    second: Integers
    cross: Integers
    counts: Integers
    weight: int  #: of all rows, in steps of 2⁻³²

    @property
    def n_units(self) -> int:
        """Number of records, or of persons."""
        return _whole_units(self.weight)

    def __add__(self, other: "MomentSums") -> "MomentSums":
        return MomentSums(
            self.second + other.second, self.cross + other.cross, self.counts + other.counts,
            self.weight + other.weight,
        )  # fmt: skip


@dataclass(frozen=True)
class FeatureSums:
    """Exact sum of rows of features in whole steps, for the mean: private and additive."""

    features: Integers
    weight: int  #: of all rows, in steps of 2⁻³²

    @property
    def n_units(self) -> int:
        """Number of records, or of persons."""
        return _whole_units(self.weight)

    def __add__(self, other: "FeatureSums") -> "FeatureSums":
        return FeatureSums(self.features + other.features, self.weight + other.weight)


def _whole_units(weight: int) -> int:
    """The number of units whose rows weigh so much; m weights 1/m fall short by under m steps."""
    return -(-weight // UNIT_STEPS)


def to_steps(
    rows: Array, norm: float, steps: int, factors: Array | None = None
) -> NDArray[np.float64]:
    """Shrink rows to ``norm`` and round them towards zero, to whole steps of ``norm / steps``.

    What the proof uses: the whole numbers of a row are a function of that row alone (and of its
    factor in [0, 1]), and their norm is at most ``steps`` (times the factor). NaN and infinity have
    no whole number and are refused.

    Examples
    --------
    >>> import numpy as np
    >>> to_steps(np.array([[3.0, 4.0], [0.3, 0.0], [1e306, 0.0]]), 1.0, 100).tolist()
    [[59.0, 79.0], [30.0, 0.0], [99.0, 0.0]]
    """
    whole = shrink_rows(rows, _SHRINK * norm)
    if not math.isfinite(whole.sum()):  # rows are bounded now: finite if and only if all are
        raise ValueError(
            "The features are not all finite, and NaN and infinity have no whole number. Check "
            "the transformer on public rows at the edges of the declared domain."
        )
    whole *= steps / norm
    if factors is not None:
        whole *= factors[:, None]
    return np.trunc(whole, out=whole)


def sum_features(features: Array, plan: MomentPlan, weights: Array | None = None) -> FeatureSums:
    """Sum of features for the mean, each row clipped to the public norm.

    ``weights`` are those of :func:`row_weights` for ``unit="person"``, times weights of rows in
    [0, 1] where the plan is ``weighted``.
    """
    w = checked_weights(weights, len(features), plan)
    total = np.zeros(plan.n_features, dtype=np.int64)
    for part in exact_blocks(len(features)):
        factors = None if weights is None else w[part]
        block = to_steps(features[part], plan.feature_norm, MEAN_STEPS, factors)
        total += block.sum(axis=0).astype(np.int64)
    return FeatureSums(total, _total_weight(w))


def sum_moments(Z: Array, Y: Array, plan: MomentPlan, weights: Array | None = None) -> MomentSums:
    """Sums of centred features Z and outputs Y (class indicators, or numbers).

    For ``outputs="numbers"`` Y has the columns (1, y), each of the q numbers is clipped to
    [-1/√q, 1/√q], and (1, y)/√2 enters the cross moments. ``weights`` as in :func:`sum_features`.
    """
    w = checked_weights(weights, len(Z), plan)
    D, C = plan.n_features, plan.n_outputs
    second, cross = np.zeros((D, D), np.int64), np.zeros((D, C), np.int64)
    counts = np.zeros(plan.n_counts, np.int64)
    for part in exact_blocks(len(Z)):
        roots = None if weights is None else np.sqrt(w[part])
        z = to_steps(Z[part], plan.radius, ROW_STEPS, roots)
        y, counted = _outputs_in_steps(Y[part], plan, w[part, None])
        second += (z.T @ z).astype(np.int64)
        cross += (z.T @ y).astype(np.int64)
        counts += counted.sum(axis=0).astype(np.int64)
    return MomentSums(second, cross, counts, _total_weight(w))


def sum_gradients(
    Z: Array, residuals: Array, plan: MomentPlan, weights: Array | None = None
) -> Integers:
    """Sum of (z, κ) uᵀ over rows, for residuals u of norm at most 1, in whole steps.

    The constant κ beside z, a `GRADIENT_CONSTANT` of the radius, is for the intercepts. ``weights``
    as in :func:`sum_features`.
    """
    w = checked_weights(weights, len(Z), plan)
    total = np.zeros(plan.gradient_shape, np.int64)
    constant = math.trunc(GRADIENT_CONSTANT * ROW_STEPS)
    for part in exact_blocks(len(Z)):
        roots = np.sqrt(w[part])
        z = to_steps(Z[part], plan.radius, ROW_STEPS, None if weights is None else roots)
        z = np.hstack([z, np.trunc(constant * roots)[:, None]])
        u = to_steps(residuals[part], 1.0, ROW_STEPS, roots)
        total += (z.T @ u).astype(np.int64)
    return total


def exact_blocks(n_rows: int) -> list[slice]:
    """Blocks of rows whose products add up exactly."""
    return [slice(start, start + _EXACT_ROWS) for start in range(0, n_rows, _EXACT_ROWS)]


def checked_weights(weights: Array | None, n_rows: int, plan: MomentPlan) -> NDArray[np.float64]:
    """Weights that the proof covers: 1/m, or any in [0, 1] where their total is noised."""
    person = plan.privacy.unit == "person"
    if weights is None and person:
        raise ValueError("unit='person' needs weights of rows: see row_weights(groups).")
    if weights is None:
        return np.ones(n_rows)
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (n_rows,) or not np.all((w >= 0) & (w <= 1)):
        raise ValueError("weights must hold one number in [0, 1] for every row.")
    if not plan.weighted:
        shares = 1.0 / np.rint(1.0 / np.maximum(w, 1e-9))
        if not np.all(w == (shares if person else 1.0)):
            raise ValueError(
                "These weights are not 1/m for the m rows of a person. Plan the release with "
                "weighted=True, so that the weight of all rows is noised."
            )
    return w


def _total_weight(w: NDArray[np.float64]) -> int:
    return sum(int(np.trunc(w[part] * UNIT_STEPS).sum()) for part in exact_blocks(len(w)))


def _outputs_in_steps(
    Y: Array, plan: MomentPlan, w: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Outputs for the cross moments, and for the counts, in whole steps."""
    root = np.sqrt(w)
    if plan.outputs == "classes":
        indicators = np.asarray(Y, dtype=np.float64)
        if not np.all((indicators == 0) | (indicators == 1)) or np.any(indicators.sum(1) != 1):
            raise ValueError("Class indicators must hold a single 1 in every row.")
        return indicators * np.trunc(root * ROW_STEPS), indicators * np.trunc(w * SQUARE_STEPS)
    if not np.all(np.isfinite(Y)):
        raise ValueError("Outputs with NaN or infinity cannot be summed; leave out their rows.")
    box = 1.0 / math.sqrt(Y.shape[1] - 1)  # every output by itself, so that the norm is at most 1
    y = np.trunc(np.clip(np.asarray(Y[:, 1:], np.float64), -box, box) * ROW_STEPS * _SHRINK)
    one = np.full((len(y), 1), float(ROW_STEPS))
    both = np.trunc(np.hstack([one, y]) * (_SHRINK / math.sqrt(2.0)) * root)
    return both, np.trunc(np.hstack([one * ROW_STEPS, y * ROW_STEPS, y * y]) * w)


@dataclass(frozen=True)
class Moments:
    """Sums over rows z of features and y of outputs, and the noise that is on them.

    Attributes
    ----------
    second : ndarray of shape (D, D)
        S = Σ z zᵀ.
    cross : ndarray of shape (D, C)
        Σ z yᵀ.
    total : ndarray of shape (D,)
        Σ z.
    outputs, squares : ndarray of shape (C,)
        Σ y and Σ y² (of every output).
    size : float
        Number of rows, or of persons; with weights, the weight of all rows.
    second_noise, cross_noise, squares_noise : float
        Standard deviation of the noise on the diagonal of ``second`` (off it the variance is
        half), on the entries of ``cross`` and of ``squares``; 0 for none.

    Examples
    --------
    >>> import numpy as np
    >>> Z, Y = np.array([[1.0], [2.0], [6.0]]), np.array([[1.0], [2.0], [3.0]])
    >>> moments = Moments.of(Z, Y)
    >>> moments.centred().second.item(), moments.centred().cross.item()
    (14.0, 5.0)
    >>> (moments + moments).size
    6.0
    """

    second: Array
    cross: Array
    total: Array
    outputs: Array
    squares: Array
    size: float
    second_noise: float = 0.0
    cross_noise: float = 0.0
    squares_noise: float = 0.0

    @classmethod
    def of(cls, Z: Array, Y: Array, weights: Array | None = None) -> "Moments":
        """Moments of rows, without noise."""
        w = np.ones(len(Z)) if weights is None else weights
        weighted = Z.T * w
        return cls(
            weighted @ Z, weighted @ Y, weighted.sum(1), w @ Y, w @ np.square(Y), float(w.sum())
        )

    @property
    def noise_norm(self) -> float:
        """Spectral norm of the noise on ``second``, as it is in the limit of many features."""
        return self.second_noise * math.sqrt(2.0 * self.second.shape[0])

    def centred(self) -> "Moments":
        """Moments about the means of features and outputs."""
        size = max(self.size, 1.0)
        return replace(
            self,
            second=self.second - np.outer(self.total, self.total) / size,
            cross=self.cross - np.outer(self.total, self.outputs) / size,
            squares=np.maximum(self.squares - np.square(self.outputs) / size, 0.0),
        )

    def __add__(self, other: "Moments") -> "Moments":
        """Moments of two disjoint sets of rows; independent noises add up in variance."""
        return Moments(
            self.second + other.second, self.cross + other.cross, self.total + other.total,
            self.outputs + other.outputs, self.squares + other.squares, self.size + other.size,
            math.hypot(self.second_noise, other.second_noise),
            math.hypot(self.cross_noise, other.cross_noise),
            math.hypot(self.squares_noise, other.squares_noise),
        )  # fmt: skip


class ChargedMoments:
    """A release of moments that was planned and charged: the mean first, then the moments.

    Parameters
    ----------
    plan : MomentPlan
    random_state : None, int, RandomState or Generator
        ``None`` draws from a cryptographic generator. Anything else is repeatable, and the
        certificate says "not private: seeded".
    ledger : Ledger, optional
        Charged with one event when this object is made, before anything is computed.
    dataset : str, optional
        Name of the rows in the ledger. Rows without a name count against every data set.
    description : str
        For the ledger.
    rows : array-like, optional
        The rows, for the ledger's fingerprint of rows without a name.

    Examples
    --------
    >>> import numpy as np
    >>> promise = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 1))
    >>> plan = plan_moments(promise, 3, 2)
    >>> charged = ChargedMoments(plan)
    >>> phi = np.random.default_rng(0).random((50, 3)) / 3
    >>> mean = charged.release_mean(sum_features(phi, plan))
    >>> out = charged.release(sum_moments(phi - mean, np.eye(2)[[0, 1] * 25], plan))
    >>> out.moments.second.shape, out.certificate.is_private
    ((3, 3), True)
    """

    def __init__(
        self,
        plan: MomentPlan,
        *,
        random_state: RandomState = None,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        description: str = "noised moments",
        rows: Any = None,
    ) -> None:
        self.plan = plan
        self._payment = pay(ledger, plan.event, dataset, description, rows)
        self._source = bit_source(random_state)
        self._mean: NDArray[np.float64] | None = None
        self._gradients: int | None = None

    def release_mean(self, sums: FeatureSums) -> NDArray[np.float64]:
        """The noised mean of the features, once."""
        self._payment.use("mean")
        _check_units(sums.n_units, self.plan)
        noise = mean_noise(self.plan, self._source)
        self._mean = mean_from_steps(noised_mean_steps(sums, noise, self.plan), self.plan)
        return self._mean

    def release(self, sums: MomentSums) -> Release:
        """The noised moments of rows about the noised mean, once."""
        if self._mean is None:
            raise RuntimeError("Release the mean first, then the moments about it.")
        self._payment.use("moments")
        _check_units(sums.n_units, self.plan)
        noised = add_noise(sums, moment_noise(self.plan, self._source), self.plan)
        moments = moments_from_steps(noised, self.plan)
        certificate = self._payment.certify(certify(self.plan, moments, self._source.seeded))
        self._gradients = 0
        return Release(certificate=certificate, moments=moments, mean=self._mean)

    def release_scatter(self, sums: Integers, directions: Array, released: Release) -> Release:
        """The planned second moments of the classes in ``directions``, beside ``released``."""
        from permea.privacy.scatter import add_scatter_noise

        if released.mean is not self._mean or not 0 < sums.shape[1] <= self.plan.n_directions:
            raise RuntimeError("Scatter follows the moments, in as many directions as planned.")
        self._payment.use("scatter")
        scatter = add_scatter_noise(sums, directions, self.plan, self._source)
        return replace(released, scatter=scatter)

    def release_losses(self, sums: Integers) -> NDArray[np.float64]:
        """The planned sums of losses, with noise."""
        from permea.privacy.scatter import add_loss_noise

        if self._mean is None or sums.size != self.plan.n_losses:
            raise RuntimeError("Losses follow the moments, as many as were planned.")
        self._payment.use("losses")
        return add_loss_noise(sums, self.plan, self._source)

    def release_gradient(self, sums: Integers) -> tuple[NDArray[np.float64], float]:
        """One of the planned gradients with noise, and the standard deviation of the noise.

        The last row, of the constant, is in its units: it is the sum of the residuals.
        """
        plan = self.plan
        if self._gradients is None or self._gradients >= plan.n_gradients:
            raise RuntimeError("Gradients follow the moments, as many as were planned.")
        self._payment.use(f"gradient {self._gradients}")
        self._gradients += 1
        scale = plan.scales.gradient * _GRADIENT_NORM
        fine = plan.refinement(plan.scales.gradient, SQUARE_STEPS)
        noise = draw_steps(
            scale, SQUARE_STEPS, sums.size, plan, self._source, 1, base=plan.scales.gradient
        )
        noised = (sums * fine + noise.reshape(sums.shape)) / (SQUARE_STEPS * fine)
        noised[-1] /= GRADIENT_CONSTANT * plan.radius
        return np.asarray(noised * plan.radius), scale * plan.radius


def _check_units(n_units: int, plan: MomentPlan) -> None:
    if n_units > plan.most_rows():
        raise OverflowError(
            f"Sums over more than {plan.most_rows()} {plan.privacy.unit}s do not fit into 64 bits "
            "at this epsilon. Release the moments of parts of the rows, as parties of a federation "
            "do."
        )


class MeanNoise(NamedTuple):
    """Noise of the first stage in refined steps."""

    features: Integers
    size: int


class MomentNoise(NamedTuple):
    """Noise of the second stage in refined steps; ``second`` is symmetric."""

    second: Integers
    cross: Integers
    counts: Integers

    def __add__(self, other: "MomentNoise") -> "MomentNoise":  # type: ignore[override]
        return MomentNoise(*(a + b for a, b in zip(self, other, strict=True)))


def mean_noise(plan: MomentPlan, source: BitSource, *, shares: int = 1) -> MeanNoise:
    """Noise for the mean, or one of ``shares`` parts whose sum is that noise."""
    features = draw_steps(plan.scales.mean, MEAN_STEPS, plan.n_features, plan, source, shares)
    size = 0
    if not plan.size_is_public:
        size = int(draw_steps(plan.scales.size, UNIT_STEPS, 1, plan, source, shares)[0])
    return MeanNoise(features, size)


def moment_noise(plan: MomentPlan, source: BitSource, *, shares: int = 1) -> MomentNoise:
    """Noise for the moments, or one of ``shares`` parts whose sum is that noise.

    The sum of discrete Gaussians of variance σ²/n is within ``exp(10 n exp(-π² σ²/n))`` of the
    discrete Gaussian of variance σ² (Kairouz, Liu and Steinke 2021): no difference for σ above
    2**30 steps.
    """
    D = plan.n_features
    second = symmetric_noise(plan.scales.second, D, plan, source, shares)
    cross = draw_steps(plan.scales.cross, SQUARE_STEPS, D * plan.n_outputs, plan, source, shares)
    counts = draw_steps(plan.scales.counts, SQUARE_STEPS, plan.n_counts, plan, source, shares)
    return MomentNoise(second, cross.reshape(D, plan.n_outputs), counts)


def symmetric_noise(
    scale: float, size: int, plan: MomentPlan, source: BitSource, shares: int = 1
) -> Integers:
    """Noise for a matrix of second moments: ``scale`` on the diagonal, ``scale / √2`` off it."""
    noise = np.zeros((size, size), dtype=np.int64)
    above = np.triu_indices(size, 1)
    noise[above] = draw_steps(
        scale / math.sqrt(2.0), SQUARE_STEPS, above[0].size, plan, source, shares, base=scale
    )
    noise += noise.T
    noise[np.diag_indices(size)] = draw_steps(scale, SQUARE_STEPS, size, plan, source, shares)
    return noise


def draw_steps(
    scale: float, steps: float, count: int, plan: MomentPlan, source: BitSource, shares: int,
    base: float | None = None,
) -> Integers:  # fmt: skip
    """Discrete Gaussian noise for ``count`` sums, in refined steps."""
    whole = int(steps)
    refined = whole * plan.refinement(scale if base is None else base, whole)
    sigma = scale * refined / math.sqrt(shares) * (1.0 + 1e-12)
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    return discrete_gaussian(sigma, count, source)


def noised_mean_steps(sums: FeatureSums, noise: MeanNoise, plan: MomentPlan) -> MeanNoise:
    """Sum plus noise, in refined steps; the number of units is exact when it is public."""
    fine = plan.refinement(plan.scales.mean, MEAN_STEPS)
    size = sums.n_units
    if not plan.size_is_public:
        weight = sums.weight if plan.weighted else sums.n_units * UNIT_STEPS
        size = weight * plan.refinement(plan.scales.size, UNIT_STEPS) + noise.size
    return MeanNoise(sums.features * fine + noise.features, size)


def mean_from_steps(noised: MeanNoise, plan: MomentPlan) -> NDArray[np.float64]:
    """The noised mean in the units of the features, drawn to 0 as far as it may be noise.

    The factor of James and Stein, 1 − D σ²/‖m‖²: near 1 for many rows, 0 where the noise of the
    mean is as long as the mean itself.
    """
    grid = plan.feature_norm / (MEAN_STEPS * plan.refinement(plan.scales.mean, MEAN_STEPS))
    size = float(noised.size)
    if not plan.size_is_public:
        size /= UNIT_STEPS * plan.refinement(plan.scales.size, UNIT_STEPS)
    mean = noised.features * grid / max(size, 1.0)
    noise = plan.n_features * (plan.scales.mean * plan.feature_norm / max(size, 1.0)) ** 2
    return np.asarray(mean * max(0.0, 1.0 - noise / max(float(mean @ mean), 1e-300)))


def add_noise(sums: MomentSums, noise: MomentNoise, plan: MomentPlan) -> MomentSums:
    """Sums plus noise, in refined steps."""
    fine = [
        plan.refinement(s, SQUARE_STEPS)
        for s in (plan.scales.second, plan.scales.cross, plan.scales.counts)
    ]
    return MomentSums(
        sums.second * fine[0] + noise.second, sums.cross * fine[1] + noise.cross,
        sums.counts * fine[2] + noise.counts, sums.weight if plan.size_is_public else 0,
    )  # fmt: skip


def moments_from_steps(noised: MomentSums, plan: MomentPlan) -> Moments:
    """Noised sums in the units of features and outputs, for the models."""
    r, scales = plan.radius, plan.scales
    second, cross, counts = (
        part * (1.0 / (SQUARE_STEPS * plan.refinement(scale, SQUARE_STEPS)))
        for part, scale in zip(
            (noised.second, noised.cross, noised.counts),
            (scales.second, scales.cross, scales.counts),
            strict=True,
        )
    )
    noise = scales.second * r**2, scales.cross * r
    if plan.outputs == "classes":
        size = float(noised.n_units) if plan.size_is_public else float(counts.sum())
        return Moments(
            second * r**2, cross * r, cross.sum(axis=1) * r, counts, counts, max(size, 1.0), *noise,
            scales.counts,
        )  # fmt: skip
    width = math.sqrt(2.0)  # (1, y)/√2 went in
    q = plan.n_outputs - 1
    size = float(noised.n_units) if plan.size_is_public else float(counts[0])
    return Moments(
        second * r**2, cross[:, 1:] * (r * width), cross[:, 0] * (r * width), counts[1 : 1 + q],
        np.maximum(counts[1 + q :], 0.0), max(size, 1.0), noise[0], noise[1] * width, scales.counts,
    )  # fmt: skip


def certify(plan: MomentPlan, moments: Moments, seeded: bool) -> Certificate:
    """The certificate of a release of moments; the neighbour relation is part of it."""
    privacy = plan.privacy
    unit = privacy.unit
    public = f"the number of {unit}s and of features"
    if plan.neighbours == "add/remove":
        public = f"whether there is a {unit} at all: an empty table is refused"
    labels = (
        "the set of class labels, which is declared and not read from the rows"
        if plan.outputs == "classes"
        else "the range of the outputs, which is declared"
    )
    scales = ", ".join(f"{s:.4g}" for s in plan.scales[2:5])
    further = (
        f", then {plan.n_gradients} gradients of the logistic loss, σ = {plan.scales.gradient:.4g}"
        if plan.n_gradients
        else ""
    )
    if plan.n_directions:
        further = (
            f", then second moments of each class in at most {plan.n_directions} directions, "
            f"σ = {plan.scales.scatter:.4g}"
        )
    if plan.n_losses:
        further += f", and {plan.n_losses} sums of losses, σ = {plan.scales.losses:.4g}"
    replace_epsilon = tight_epsilon([plan.replace_loss], privacy.delta)
    certificate = Certificate(
        privacy=privacy,
        n_rows=round(moments.size),
        n_columns=plan.n_features,
        noise=f"Gaussian on second moments, cross moments and counts; σ = {scales} times what one "
        f"{unit} adds; {100 * plan.split.mean:g} % of the budget for the mean",
        seeded=seeded,
        exposed_entries=0.0,
        record_epsilon=privacy.epsilon,
        record_delta=privacy.delta,
        simple_record_epsilon=privacy.epsilon,
        simple_record_delta=privacy.delta,
        not_protected=(labels, public, NOT_PROTECTED[-1]),
        classes="declared" if plan.outputs == "classes" else "",
        neighbours=RELATIONS[unit][plan.neighbours],
        released=f"moments of {plan.n_features} features, clipped to the radius {plan.radius:g} "
        f"about their noised mean{further}; no rows",
    )
    if plan.neighbours == "add/remove":
        return certificate.add_step(
            f"when a {unit} is replaced instead, the same noise keeps ε = {replace_epsilon:.4g} "
            f"per {unit} at δ = {privacy.delta:g} per {unit}"
        )
    return certificate
