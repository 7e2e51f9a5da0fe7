"""Fabricated data: noised rows, smoothed onto the geometry they share (004 section 5.2).

Smoothing a noised matrix Ŷ with its own kernel affine hull machine,

    Ŷ_{m+1} = K_m (K_m + λ_m I)⁻¹ Ŷ_m,        Ŷ_0 = Y⁺                       (004 eq. 80-82)

removes what the rows do not have in common, noise before all. The fabricated rows are the images
of the smoothed ones under their machine (004 Def. 14). All of it is post-processing of Y⁺.

When to stop is the one place where the document reads the private rows again: its bound r is the
modelling error on the original data (004 eq. 88). On MNIST that rule stops after one step almost
always, so the default here is one step, a public constant; ``benchmarks/fabrication_stop.py``
compares the rules. ``stop="discrepancy"`` smooths until as much energy is removed as the noise,
whose law is public, brought in. ``stop="original"`` is the document's rule; it voids the
guarantee.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from permea._arrays import Array, Indices
from permea._parallel import run_parallel
from permea.models.base import row_norms
from permea.models.kahm import KernelAffineHullMachine
from permea.models.partition import partition
from permea.privacy import Certificate
from permea.privacy.release import Release

Stop = Literal["discrepancy", "original"] | int


@dataclass(frozen=True)
class Fabricated:
    """Fabricated rows and how their smoothing was stopped."""

    data: Array
    n_steps: list[int]  #: smoothing steps M̃ − 1 of each branch
    stopped_by: str  #: what ended the smoothing, in words: the rule, or the limit of steps
    reads_private_rows: bool  #: whether the rule looked at rows before the noise
    history: list[list[dict[str, float]]] = field(repr=False)
    #: per branch and step: modelling error (004 eq. 87) and energy removed, per row
    certificate: Certificate | None = None  #: of the release, where one was given


def fabricate(
    Y_noised: Array | Release,
    *,
    n_components: int = 20,
    stop: Stop = 1,
    noise_variance: float | Array | None = None,
    original: Array | None = None,
    branch_size: int | None = None,
    groups: Sequence[Indices] | None = None,
    max_steps: int = 50,
    tol: float = 5e-3,
    n_jobs: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> Fabricated:
    """Fabricate as many rows as there are noised ones (004 Def. 13-14, Remark 4).

    Parameters
    ----------
    Y_noised : Release, or ndarray of shape (N, p)
        Noised rows. A release brings its certificate and the variance of its noise along.
    n_components : int, default=20
        Subspace dimension of the machines.
    stop : int, "discrepancy" or "original", default=1
        An integer is the number of smoothing steps, a public constant; "discrepancy" smooths until
        the energy removed reaches the public energy of the noise; "original" is the document's
        rule (smooth until the modelling error is not larger than on the original rows), which
        reads private rows and is for reproduction only.
    noise_variance : float or ndarray of shape (p,), optional
        Variance of the noise of each entry, as the mechanism states it. For "discrepancy"; a
        release has it.
    original : ndarray of shape (N, p), optional
        The rows before the noise. For "original" only.
    branch_size : int, optional
        Rows fabricated together; the clustering reads noised rows. None keeps all together.
    groups : sequence of arrays of row numbers, optional
        Rows fabricated together, where they are known: every row in one of them.
    max_steps : int, default=50
        Most smoothing steps. ``stopped_by`` says in how many branches they were not enough.
    tol : float, default=5e-3
        Accuracy of the machines' regularisation.
    n_jobs : int, optional
        Branches fabricated at the same time.
    random_state : int, RandomState or None
        For the clustering.

    Returns
    -------
    Fabricated
        ``data`` has the shape, order and precision of ``Y_noised``.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> line = np.linspace(0, 1, 200)[:, None] * np.ones(6)
    >>> noised = line + rng.laplace(scale=0.2, size=line.shape)
    >>> made = fabricate(noised, n_components=2)
    >>> bool(np.linalg.norm(made.data - line) < np.linalg.norm(noised - line) / 1.5)
    True
    >>> made.reads_private_rows
    False
    """
    certificate = None
    if isinstance(Y_noised, Release):
        certificate, noise_variance = Y_noised.certificate, Y_noised.noise_variance
        Y_noised = Y_noised.data
    Y_noised = np.asarray(Y_noised)
    _check(Y_noised, stop, noise_variance, original)
    parts = [np.arange(Y_noised.shape[0])] if groups is None else groups
    if branch_size is not None and groups is None:
        parts = partition(Y_noised, branch_size, random_state=random_state)
    machine = KernelAffineHullMachine(n_components=n_components, tol=tol)
    rules = [_Rule.of(stop, rows, Y_noised, noise_variance, original, machine) for rows in parts]
    tasks = [
        (machine, Y_noised[rows], rule, max_steps) for rows, rule in zip(parts, rules, strict=True)
    ]
    results = run_parallel(_fabricate_branch, tasks, n_jobs=n_jobs, desc="fabricate")
    data = np.empty_like(Y_noised)
    for rows, (images, _, _) in zip(parts, results, strict=True):
        data[rows] = images
    stopped_by = _in_words(_rule_in_words(stop), max_steps, [met for _, _, met in results])
    return Fabricated(
        data=data,
        n_steps=[len(history) - 1 for _, history, _ in results],
        stopped_by=stopped_by,
        reads_private_rows=stop == "original",
        history=[history for _, history, _ in results],
        certificate=_certified(certificate, stopped_by, stop),
    )


def _certified(certificate: Certificate | None, stopped_by: str, stop: Stop) -> Certificate | None:
    if certificate is None:
        return None
    certificate = certificate.add_step(
        f"fabricated from the noised rows; end of the smoothing: {stopped_by}"
    )
    if stop == "original":
        return certificate.void("the fabrication read private rows to know its end")
    return certificate


@dataclass(frozen=True)
class _Rule:
    """When a branch has been smoothed enough."""

    steps: int | None = None
    removed: float | None = None  #: energy to be removed
    error: float | None = None  #: modelling error not to be exceeded

    @classmethod
    def of(
        cls,
        stop: Stop,
        rows: Indices,
        Y_noised: Array,
        noise_variance: float | Array | None,
        original: Array | None,
        machine: KernelAffineHullMachine,
    ) -> "_Rule":
        if stop == "original":
            assert original is not None
            raw = np.asarray(original)[rows]
            model = KernelAffineHullMachine(**machine.get_params()).fit(raw)
            return cls(error=float(model.distance(raw).sum()))
        if stop == "discrepancy":
            per_row = np.broadcast_to(np.asarray(noise_variance), Y_noised.shape[1:]).sum()
            return cls(removed=float(per_row) * len(rows))
        return cls(steps=int(stop))

    def satisfied(self, step: int, error: float, removed: float) -> bool:
        """Whether to stop before another smoothing step."""
        if self.steps is not None:
            return step >= self.steps
        if self.removed is not None:
            return removed >= self.removed
        assert self.error is not None
        return error <= self.error


def _fabricate_branch(
    machine: KernelAffineHullMachine, Y: Array, rule: _Rule, max_steps: int
) -> tuple[Array, list[dict[str, float]], bool]:
    """Smooth one branch until its rule is satisfied: the images, every step, and whether it was."""
    smoothed, history = Y, []
    for step in range(max_steps + 1):
        model = KernelAffineHullMachine(**machine.get_params()).fit(smoothed)
        images = model.reconstruct(smoothed)
        error = float(row_norms(smoothed - images).sum())
        # what would be gone from the noised rows if these images were the answer
        removed = float(np.square(Y - images, dtype=np.float64).sum())
        history.append({"error": error / len(Y), "removed": removed / len(Y)})
        met = rule.satisfied(step, error, removed)
        if met or step == max_steps:
            break
        smoothed = model.smooth(smoothed)
    return images, history, met


def _check(
    Y: Array, stop: Any, noise_variance: float | Array | None, original: Array | None
) -> None:
    if Y.ndim != 2 or Y.dtype.kind != "f":
        raise ValueError("Y_noised must be a two-dimensional array of float32 or float64.")
    if not np.isfinite(Y).all():
        raise ValueError("Y_noised contains NaN or infinity; take the rows through release().")
    if stop == "discrepancy" and noise_variance is None:
        raise ValueError(
            'stop="discrepancy" needs noise_variance, the public variance of the noise '
            "(Release.noise_variance has it). Or give a number of steps as stop."
        )
    if stop == "original" and (original is None or np.shape(original) != Y.shape):
        raise ValueError('stop="original" needs the rows before the noise as original=…')
    if isinstance(stop, bool) or not (
        stop in ("discrepancy", "original") or (isinstance(stop, int | np.integer) and stop >= 0)
    ):
        raise ValueError(
            f'stop must be "discrepancy", "original" or a number of steps ≥ 0, got {stop!r}.'
        )


def _in_words(rule: str, limit: int, satisfied: Sequence[bool]) -> str:
    """What ended the smoothing: the rule, or the limit of steps where the rule did not."""
    if all(satisfied):
        return rule
    unfinished = len(satisfied) - sum(satisfied)
    return (
        f"the limit of {limit} smoothing steps was reached in {unfinished} of {len(satisfied)} "
        f"branches before the rule was satisfied ({rule})"
    )


def _rule_in_words(stop: Stop) -> str:
    if stop == "discrepancy":
        return "the energy removed reached the public energy of the noise"
    if stop == "original":
        return "the modelling error fell to that of the original rows (reads private rows)"
    return f"a public constant of {stop} smoothing steps"
