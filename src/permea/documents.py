"""Settings exactly as documents 000 to 004 write them, by name and number.

Every function gives an estimator or a protocol that is configured as a definition or an algorithm
of a document says, not fitted. Elsewhere in the library defaults are chosen to serve users; here
they reproduce. ``tests/documents`` compares each of them with a plain transcription of its
equations. Four things the documents leave open, leave to chance, or get wrong:

* k-means starts from rows that explain the others badly, so that the same rows give the same model.
  A part with more than twice ``branch_size`` rows is split again.
* Far from the rows the denominator of 004 eq. (33) may fall below what (147) says; the image is
  then that of the limit for large λ, see `permea.KernelAffineHullMachine`.
* M in Algorithm 1 of 001 falls by at least one: ⌈0.9 M⌉ stands still below ten.
* Noise is drawn on a grid of 2⁻²⁰ d from a secure source, the law of 004 eq. (76) up to that step,
  and needs a declared domain. ``sampler="float"`` is the documents' own sampler.

Where a document reads private rows a second time (004 Remark 4 and eq. 88), so do these settings,
and the certificate says that the result is not private.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from permea._arrays import Array, Indices
from permea.compose import ConditionallyDeep, ReconstructionClassifier, Wide
from permea.compose.classifiers import KAHMClassifier
from permea.fabricate.rows import Fabricated, fabricate
from permea.federation import Federation, Party
from permea.information.leakage import InformationLeakage, information_leakage
from permea.information.measures import MAX_SAMPLES, document_model
from permea.information.study import TradeOff, trade_off
from permea.models.bayes import BayesianMembershipMapping
from permea.models.fuzzy import FuzzyAutoencoder, FuzzyModel
from permea.models.kahm import KernelAffineHullMachine
from permea.models.membership import MembershipAutoencoder, MembershipMapping
from permea.privacy import Privacy
from permea.transfer import SourceModel, TransferClassifier

BRANCH_SIZE = 1000  # S = ⌈N/1000⌉ in every document
DELTA = 1e-5
_AS_WRITTEN: dict[str, Any] = {"standardize": False, "inducing": "inputs"}


def noise(
    epsilon: float,
    delta: float = DELTA,
    *,
    d: float = 1.0,
    domain: tuple[Any, Any] = (0.0, 1.0),
    mechanism: str = "optimal",
    sampler: Any = "grid",
) -> Privacy:
    """The noise on every entry that all documents add before anything else.

    002 Result 4, 000 Algorithm 5, 001 Algorithm 5, 003 Algorithm 5, 004 Algorithm 1.

    Parameters
    ----------
    epsilon, delta : float
        Per entry.
    d : float
        Largest change of an entry that stays hidden; 1 in 000, 001, 003 and 004, and 0.1 in 002
        for standardised features.
    domain : (low, high)
        Public domain of the entries, which the documents do not declare.
    mechanism : {"optimal", "classical-gaussian"}
        The second is what 002 compares with (Result 6); it is proven for ε < 1.
    sampler : {"grid", "float"}

    Returns
    -------
    Privacy

    Examples
    --------
    >>> noise(0.5)
    Privacy(epsilon=0.5 per entry, delta=1e-05 per entry, domain=(0.0, 1.0), bound=1.0,
    mechanism='optimal')
    """
    return Privacy(
        epsilon=epsilon, delta=delta, domain=domain, bound=d, mechanism=mechanism, sampler=sampler
    )


def membership_mapping_000(
    ratio: float = 0.5, *, nu: float = 2.1, tol: float = 1e-6
) -> MembershipMapping:
    """000 Algorithm 1: uncertain inputs, and gamma membership functions of the disturbance.

    Parameters
    ----------
    ratio : float or int
        M as a share of the rows, or as a number.
    nu : float
        ν, which the algorithm takes as an input.
    tol : float
        When "β nearly converges".
    """
    return MembershipMapping(
        max_inducing=ratio, disturbance="gamma", bandwidth=1.0, nu=nu, tol=tol, **_AS_WRITTEN
    )


def membership_mapping_001(ratio: float = 0.5, *, tol: float = 1e-6) -> MembershipMapping:
    """001 Algorithm 1 and 003 Algorithm 1: one precision, and M by the smoothing level.

    Parameters
    ----------
    ratio : float or int
        M_max as a share of the rows, or as a number.
    tol : float
        When "β nearly converges".
    """
    return MembershipMapping(max_inducing=ratio, bandwidth=1.0, tol=tol, **_AS_WRITTEN)


def autoencoder_000(n: int = 20, ratio: float = 0.5, *, tol: float = 1e-6) -> MembershipAutoencoder:
    """000 Definition 16: a membership-mapping autoencoder, one layer of a CDMMA.

    Parameters
    ----------
    n : int
        Subspace dimension.
    ratio : float or int
        M/N, or M.
    tol : float
    """
    return MembershipAutoencoder(
        n_components=n, max_inducing=ratio, disturbance="gamma", drop_constant=False, tol=tol,
        **_AS_WRITTEN,
    )  # fmt: skip


def autoencoder_001(n: int = 20, ratio: float = 0.5, *, tol: float = 1e-6) -> MembershipAutoencoder:
    """001 Definition 2 and 003 Definition 3, one layer of a CDMMA.

    Parameters
    ----------
    n : int
        Subspace dimension.
    ratio : float or int
        r_max, or M_max.
    tol : float
    """
    return MembershipAutoencoder(
        n_components=n, max_inducing=ratio, drop_constant=False, tol=tol, **_AS_WRITTEN
    )


def cdmma_000(
    n: int = 20, ratio: float = 0.5, n_layers: int = 5, *, tol: float = 1e-6
) -> ConditionallyDeep:
    """000 Algorithm 2 and Definition 18: M stays, and ν is infinite from the second layer on."""
    return ConditionallyDeep(autoencoder_000(n, ratio, tol=tol), n_layers=n_layers)


def cdmma_001(
    n: int = 20, ratio: float = 0.5, n_layers: int = 5, *, tol: float = 1e-6
) -> ConditionallyDeep:
    """001 Algorithm 2 and Definition 12, 003 Algorithm 2: M_max of a layer is M of the last."""
    return ConditionallyDeep(autoencoder_001(n, ratio, tol=tol), n_layers=n_layers)


def wide_cdmma_000(n: int = 20, ratio: float = 0.5, n_layers: int = 5, **options: Any) -> Wide:
    """000 Algorithm 3. ``options`` are those of `permea.Wide`."""
    return Wide(cdmma_000(n, ratio, n_layers), **{"branch_size": BRANCH_SIZE, **options})


def wide_cdmma_001(n: int = 20, ratio: float = 0.5, n_layers: int = 5, **options: Any) -> Wide:
    """001 Algorithm 3 and Definition 14, 003 Algorithm 3. ``options`` as in `permea.Wide`."""
    return Wide(cdmma_001(n, ratio, n_layers), **{"branch_size": BRANCH_SIZE, **options})


def classifier_000(
    n: int = 20, ratio: float = 0.5, n_layers: int = 5, **options: Any
) -> ReconstructionClassifier:
    """000 Algorithm 4, and with ``privacy=`` Algorithm 6.

    ``options`` are those of `permea.ReconstructionClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = classifier_000(n=10, n_layers=1).fit(X[:600] / 16, y[:600])
    >>> clf.score(X[600:800] / 16, y[600:800]) > 0.8
    True
    """
    return _classifier(autoencoder_000(n, ratio), n_layers, options)


def classifier_001(
    n: int = 20, ratio: float = 0.5, n_layers: int = 5, **options: Any
) -> ReconstructionClassifier:
    """001 Algorithms 4 and 6, 003 Algorithms 4 and 6. ``options`` as in `classifier_000`."""
    return _classifier(autoencoder_001(n, ratio), n_layers, options)


def _classifier(layer: Any, n_layers: int, options: dict[str, Any]) -> ReconstructionClassifier:
    chosen = {"branch_size": BRANCH_SIZE, **options}
    return ReconstructionClassifier(layer, n_layers=n_layers, **chosen)


def source_000(privacy: Privacy | None, *, p: int, **options: Any) -> SourceModel:
    """What the owner of the source hands over in 000 §5, items 1 to 4.

    Parameters
    ----------
    privacy : Privacy or None
        `noise` of some ε, or None for ε = ∞.
    p : int
        Features of the source, p_sr: n = min(20, p_sr), n_st = ⌈p_sr/2⌉ (or p_tg where that is
        less).
    **options
        Of `permea.SourceModel`; ``n_jobs`` and ``random_state`` serve its classifier as well.
    """
    return _source(classifier_000(min(20, p)), privacy, options)


def source_001(privacy: Privacy | None, *, p: int, **options: Any) -> SourceModel:
    """What the owner of the source hands over in 001 §1.4 and 003 Algorithm 9; see `source_000`."""
    return _source(classifier_001(min(20, p)), privacy, options)


def _source(
    classifier: ReconstructionClassifier, privacy: Privacy | None, options: dict[str, Any]
) -> SourceModel:
    classifier.set_params(n_jobs=options.get("n_jobs"), random_state=options.get("random_state"))
    chosen = {"release": "rows", "moments_limit": 0, **options}
    return SourceModel(privacy=privacy, classifier=classifier, **chosen)


def transfer_000(source: SourceModel, **options: Any) -> TransferClassifier:
    """000 Algorithm 7 in the setting of §5: n = 4, 6, 8, 10 and M/N = 1/10, 1/8, 1/6, 1/4.

    Parameters
    ----------
    source : SourceModel
        Fitted, from `source_000`.
    **options
        Of `permea.TransferClassifier`.
    """
    return TransferClassifier(
        source,
        method="centers",
        model=autoencoder_000(),
        **{"dimensions": (4, 6, 8, 10), "shares": (1 / 10, 1 / 8, 1 / 6, 1 / 4), **options},
    )


def transfer_001(source: SourceModel, **options: Any) -> TransferClassifier:
    """001 eq. (1.79)-(1.87) in the setting of §1.4: n = 5, 10, 15, 20 and r_max = 1/2.

    Parameters
    ----------
    source : SourceModel
        Fitted, from `source_001`.
    **options
        Of `permea.TransferClassifier`.
    """
    return TransferClassifier(
        source,
        method="source2target",
        model=autoencoder_001(),
        mapping=membership_mapping_001(),
        **{"dimensions": (5, 10, 15, 20), "shares": 0.5, **options},
    )


def fuzzy_model_002(n_rules: float = 0.5, *, tol: float = 1e-6) -> FuzzyModel:
    """002 Algorithm 1: a deep fuzzy model, with rules at centroids of the inputs as they are.

    Parameters
    ----------
    n_rules : float or int
        M as a share of the rows, ⌈N/2⌉ in 002 §4.1, or as a number.
    tol : float
        When β̂ "nearly converges".
    """
    return FuzzyModel(n_rules=n_rules, clustering="inputs", bandwidth=1.0, tol=tol)


def fuzzy_autoencoder_002(
    n: int = 20, n_rules: float = 0.5, *, tol: float = 1e-6
) -> FuzzyAutoencoder:
    """002 Algorithm 2 and Definition 9. The document has n = min(20, p) and M = ⌈N/2⌉ (§4.1)."""
    return FuzzyAutoencoder(
        n_components=n, n_rules=n_rules, clustering="inputs", drop_constant=False, tol=tol
    )


def fuzzy_classifier_002(n: int = 20, **options: Any) -> ReconstructionClassifier:
    """002 §2.3: a fuzzy set for every class and part, and with ``privacy=`` Algorithm 3.

    The largest degree of membership (2.166) is the smallest distance. ``options`` as in
    `classifier_000`.
    """
    order = "noised" if options.get("privacy") is None else "original"
    return _classifier(fuzzy_autoencoder_002(n), 1, {"partition_on": order, **options})


def bayesian_mapping_003(*, tol: float = 1e-6) -> BayesianMembershipMapping:
    """003 Algorithm 7: a variational membership-mapping Bayesian model.

    M_max is min(⌈N/2⌉, 1000), the noise variance is one number for all outputs, and these are
    modelled as they are.
    """
    return document_model(tol=tol)


def leakage_003(observed: ArrayLike, hidden: ArrayLike, *, tol: float = 1e-6) -> InformationLeakage:
    """003 Algorithm 8: information leakage IL = I(t; x) − H(t) from pairs (x, t).

    Examples
    --------
    >>> import numpy as np
    >>> t = np.random.default_rng(0).normal(size=(200, 2))
    >>> leakage_003(t, t).value > leakage_003(t[::-1], t).value
    True
    """
    return information_leakage(
        observed, hidden, model=bayesian_mapping_003(tol=tol), constants="keep", entropy="gaussian"
    )


def study_003(
    X_source: ArrayLike,
    y_source: ArrayLike,
    *,
    epsilons: Sequence[float],
    max_samples: int | None = MAX_SAMPLES,
    random_state: int | None = None,
    n_jobs: int | None = None,
    **options: Any,
) -> TradeOff:
    """003 Algorithm 9: transfer, and the three measures, for several ε.

    Parameters
    ----------
    X_source, y_source : array-like
        Labelled source rows.
    epsilons : sequence of float
        003 §6.1.4 has 0.1, 0.25, 0.5, 1, 2, 10.
    max_samples : int or None
        Rows for each measure, 5000 in 003 §6.1.4.
    random_state, n_jobs
        See `permea.trade_off`.
    **options
        Of `permea.trade_off`: ``X_target``, ``y_target``, ``X_test``, ``y_test``, ``private``,
        ``interpretable``, ``delta``, ``domain``, ``models``.
    """
    n = min(20, np.shape(X_source)[1])
    transfer = {
        "method": "source2target", "model": autoencoder_001(), "shares": 0.5, "n_jobs": n_jobs,
        "mapping": membership_mapping_001(),
        "dimensions": tuple(min(size, n) for size in (5, 10, 15, 20)),
    }  # fmt: skip
    return trade_off(
        X_source,
        y_source,
        epsilons=epsilons,
        classifier=classifier_001(n, n_jobs=n_jobs, random_state=random_state),
        source={"release": "rows", "moments_limit": 0},
        transfer=transfer,
        max_samples=max_samples,
        random_state=random_state,
        **options,
    )


def kahm_004(n: int = 20, *, tol: float = 5e-3) -> KernelAffineHullMachine:
    """004 Definition 1: a kernel affine hull machine.

    Parameters
    ----------
    n : int
        Subspace dimension.
    tol : float
        How closely λ* solves (40) and (41), as a share of λ*. The document says that its iteration
        converges and not when it ends.
    """
    return KernelAffineHullMachine(n_components=n, tol=tol)


def deep_kahm_004(n: int = 20, n_layers: int = 5, *, tol: float = 5e-3) -> ConditionallyDeep:
    """004 Definition 3: a conditionally deep machine."""
    return ConditionallyDeep(kahm_004(n, tol=tol), n_layers=min(n_layers, n))


def wide_kahm_004(n: int = 20, n_layers: int = 5, *, tol: float = 5e-3, **options: Any) -> Wide:
    """004 Definition 5: a wide conditionally deep machine. ``options`` as in `permea.Wide`."""
    return Wide(deep_kahm_004(n, n_layers, tol=tol), **{"branch_size": BRANCH_SIZE, **options})


def kahm_classifier_004(
    n: int = 20, n_layers: int = 5, *, tol: float = 5e-3, **options: Any
) -> KAHMClassifier:
    """004 Definitions 7 and 8, and with ``privacy=`` Definition 12.

    The parts of a class are found by k-means on the rows before the noise, the order of Remark 4
    and of the document's tables; the certificate then says that this is not private.
    ``options`` are those of `permea.KAHMClassifier`.
    """
    order = "noised" if options.get("privacy") is None else "original"
    chosen = {"branch_size": BRANCH_SIZE, "partition_on": order, **options}
    return KAHMClassifier(n_components=n, n_layers=min(n_layers, n), tol=tol, **chosen)


def fabricate_004(
    noised: Array, original: Array, n: int = 20, *, tol: float = 5e-3, max_steps: int = 50
) -> Fabricated:
    """004 Definitions 13 and 14: smooth until the modelling error is that of the original rows.

    Parameters
    ----------
    noised, original : ndarray of shape (N, p)
        Y⁺ and Y.
    n : int
        Subspace dimension.
    tol : float
        See `kahm_004`.
    max_steps : int
        Most smoothing steps; the document has no limit.
    """
    return fabricate(
        noised, n_components=n, stop="original", original=original, tol=tol, max_steps=max_steps
    )


def fabricated_classifier_004(
    privacy: Privacy, n: int = 20, n_layers: int = 5, *, tol: float = 5e-3, **options: Any
) -> KAHMClassifier:
    """004 Definition 15 with Remark 4: a classifier of fabricated rows.

    The parts in which rows are fabricated are the branches of the classifier. ``options`` as in
    `kahm_classifier_004`.
    """
    return kahm_classifier_004(
        n, n_layers, tol=tol, privacy=privacy, **{"fabricate": "original", **options}
    )


SCENARIOS = {
    1: "a party for every class, with all its rows",
    2: "two parties for every class, with half of its rows each",
    3: "rows dealt out at random among Q parties",
}


def shares_004(
    scenario: int, labels: ArrayLike, *, n_parties: int = 10, random_state: int | None = None
) -> list[Indices]:
    """Rows of the parties in the three scenarios of 004 §6.3.

    Parameters
    ----------
    scenario : {1, 2, 3}
        1: every class lies with one party. 2: every class lies with two parties, half with each.
        3: the rows are dealt out at random.
    labels : array-like of shape (N,)
        Class labels.
    n_parties : int
        Q, for scenario 3; the document has 2, 5, 10, 20, 50 and 100.
    random_state : int, optional

    Returns
    -------
    list of ndarray
        Row numbers of each party.

    Examples
    --------
    >>> [len(rows) for rows in shares_004(2, [0, 0, 0, 0, 1, 1])]
    [2, 2, 1, 1]
    """
    if scenario not in SCENARIOS:
        raise ValueError(f"scenario must be 1, 2 or 3, got {scenario!r}.")
    random = np.random.default_rng(random_state)
    values = np.asarray(labels)
    if scenario == 3:
        return list(np.array_split(random.permutation(len(values)), n_parties))
    classes: list[Indices] = [np.flatnonzero(values == label) for label in np.unique(values)]
    if scenario == 1:
        return classes
    return [half for rows in classes for half in np.array_split(random.permutation(rows), 2)]


def parties_004(X: Array, y: ArrayLike, shares: Sequence[Indices], classifier: Any) -> list[Party]:
    """A party of 004 §5.3 for each share of the rows.

    The parties consent to joining with models that are not private, which those of the document
    are not: they fabricate with a look at the original rows.

    Parameters
    ----------
    X, y : array-like
        Rows and labels of all parties.
    shares : sequence of ndarray
        Rows of each party, see `shares_004`.
    classifier : estimator
        Cloned for each party: `fabricated_classifier_004` with ``allow_single_class=True``. A
        number as its ``random_state`` is raised by one from party to party: every party has noise
        of its own.
    """
    labels = np.asarray(y)
    parties = []
    for number, rows in enumerate(shares):
        own = clone(classifier)
        if isinstance(own.random_state, int):
            own.set_params(random_state=own.random_state + number)
        own.fit(X[rows], labels[rows])
        consent = ("not private", "seeded", "raw rows")
        parties.append(Party(f"party {number}", own, consent=consent))
    return parties


def federation_004(
    X: Array, y: ArrayLike, shares: Sequence[Indices], classifier: Any, **options: Any
) -> Federation:
    """004 eq. (101)-(104): parties combined by the smallest distance.

    `Federation.merged` gives the global machines (101) where the models were handed over,
    ``topology="models"``. ``options`` are those of `permea.federation.Federation`, the others those
    of `parties_004`.
    """
    parties = parties_004(X, y, shares, classifier)
    return Federation(parties, **{"records": "disjoint", **options})
