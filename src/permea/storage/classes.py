"""The classes that a model file may hold, with every field: nothing else is ever built.

A class that is not listed here, a field that is not listed, a missing one, or a value of another
kind makes `permea.load` refuse the file. A new model family is added here before it can be saved;
a family outside of this library adds itself with `register_family`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from permea.storage import consistency as check
from permea.storage.fields import (
    REGISTERED,
    REGISTERED_FAMILIES,
    Array,
    CertificateKind,
    Either,
    Items,
    Kind,
    Number,
    One,
    Plain,
    SchemaKind,
    Stored,
    Table,
    Text,
    Whole,
    Words,
)

AUTOENCODERS = ("KernelAffineHullMachine", "MembershipAutoencoder", "FuzzyAutoencoder")
DEEP = (*AUTOENCODERS, "ConditionallyDeep")
FAMILIES = (*DEEP, "Wide")
DISTANCE_CLASSIFIERS = (
    "ReconstructionClassifier", "KAHMClassifier", "MembershipClassifier", "FuzzyClassifier",
)  # fmt: skip
CLASSIFIERS = (*DISTANCE_CLASSIFIERS, "MomentClassifier", "HullClassifier", "SourceModel")
MAPS = (
    "ScaledIdentity", "RandomFourier", "PublicNystrom", "OrientedGradients", "Chain", "SideBySide",
)  # fmt: skip
SOURCE_EXPERTS = ("DensityExpert", "ClassifierExpert")
ROOTS = (
    *FAMILIES, *CLASSIFIERS, *MAPS, "MembershipMapping", "FuzzyModel", "BayesianMembershipMapping",
    "MomentRegressor", "TransferClassifier", "TableClassifier", "Interpreter",
    "InformationLeakage", "Release", "PairRelease", "Fabricated", "FabricatedRecords",
)  # fmt: skip

STORABLE: dict[str, Stored] = {}


def _store(
    name: str,
    module: str,
    *checks: check.Check,
    fitted: Mapping[str, Kind] | None = None,
    optional: Mapping[str, Kind] | None = None,
    caches: Sequence[str] = (),
    call: bool = False,
    **parameters: Kind,
) -> None:
    """List a class with the kinds of its fields."""
    STORABLE[name] = Stored(
        name, f"permea.{module}", parameters, fitted or {}, optional or {}, caches, checks, call
    )


def _estimator(name: str, module: str, *checks: check.Check, **fields: Any) -> None:
    """List a class that learns from rows with p columns, which may have names."""
    fields["fitted"] = {"n_features_in_": size("p"), **fields["fitted"]}
    ordered = (check.class_labels,) if "classes_" in fields["fitted"] else ()
    _store(name, module, *ordered, *checks, **{"optional": FEATURE_NAMES, **fields})


def register_family(kind: type, *, fitted: Mapping[str, Kind], **parameters: Kind) -> None:
    """Allow models of your own family in files: its parameters and fitted attributes, no others.

    Call it in the file of the family. `permea.load` reads such a model only in a process that has
    imported that file: a model file never decides which code is loaded.

    Parameters
    ----------
    kind : class
        The family, with ``fit``, ``reconstruct`` and ``distance``.
    fitted : mapping of str to Kind
        What each fitted attribute may be, such as ``floats("n", "p")``; p is the number of columns.
    **parameters : Kind
        What each parameter may be, such as ``n_components=COUNT``.

    Examples
    --------
    >>> class Mean:
    ...     def __init__(self, weight=1.0):
    ...         self.weight = weight
    >>> register_family(Mean, weight=POSITIVE, fitted={"mean_": floats("p")})
    """
    name = kind.__qualname__
    if name in STORABLE:
        raise ValueError(f"There is a class {name} already. Choose another name for the family.")
    stored = Stored(name, kind.__module__, parameters, fitted, FEATURE_NAMES)
    REGISTERED_FAMILIES[name] = stored


def maybe(kind: Kind) -> Kind:
    """None, or a value of that kind."""
    return Either(NONE, kind)


def floats(*shape: str, low: float = -math.inf, finite: bool = True) -> Kind:
    """Floating-point numbers."""
    return Array("f", *shape, low=low, finite=finite)


def template(*names: str) -> Kind:
    """An unfitted estimator of one of these classes; its parameters alone are stored."""
    return One(*names, parameters_only=True)


def size(letter: str) -> Kind:
    """A whole number that equals a size."""
    return Whole(size=letter)


def labels(letter: str) -> Kind:
    """A row of class labels: numbers, truth values or words."""
    return Either(Array("biuf", letter), Words(letter))


def tuple_of(kind: Kind, length: int | None = None) -> Kind:
    """A tuple, of a given length."""
    return Items(kind, ("tuple",), least=length or 0, most=100_000 if length is None else length)


def list_of(kind: Kind, letter: str = "*", most: int = 100_000) -> Kind:
    """A list with at least one item; its length is a size."""
    return Items(kind, ("list",), letter, least=1, most=most)


TINY = 5e-324
NONE, FLAG, TEXT, NAME = Plain(None), Plain(True, False), Text(), Text(1000)
LEDGER = Plain(None)  # a ledger is not part of a model
NUMBER, ANY_NUMBER = Number(), Number(special=("inf", "-inf", "nan"))
POSITIVE, NOT_NEGATIVE, SHARE = Number(low=TINY), Number(low=0), Number(low=0, high=1)
NORM = Number(low=1e-100, high=1e100)
UNBOUNDED = Number(low=0, special=("inf",))
COUNT = Whole(low=1)
SEED, JOBS = maybe(Whole(0, 2**32 - 1)), maybe(Whole(-1024, 1024))
COLUMN_NUMBERS = Either(NUMBER, Items(NUMBER), Array("fiu", "*"))
RANGES = Items(COLUMN_NUMBERS, least=2, most=2)
ANY_LABEL = Either(FLAG, NUMBER, NAME)
ROW_OF_LABELS = labels("N")
PRIVACY, CERTIFICATE = maybe(One("Privacy")), maybe(CertificateKind())
FEATURE_NAMES = {"feature_names_in_": Words("p")}

# ---- promises and what was released --------------------------------------------------------------

_store(
    "Privacy", "privacy.units", call=True, epsilon=POSITIVE, delta=SHARE, unit=Text(40),
    domain=maybe(tuple_of(Either(NUMBER, tuple_of(NUMBER)), 2)),
    bound=maybe(Either(NUMBER, tuple_of(NUMBER))), mechanism=Text(40), clip_norm=maybe(POSITIVE),
    resolution=maybe(Whole(2, 2**40)), sampler=Text(40),
    optional={"rows_per_person": maybe(Whole(1, 2**40))},  # files of version 0.1 lack it
)  # fmt: skip

_store(
    "Split", "privacy.moments",
    mean=NOT_NEGATIVE, second=NOT_NEGATIVE, cross=NOT_NEGATIVE, counts=NOT_NEGATIVE,
)  # fmt: skip

_store(
    "Release", "privacy.release", data=floats("N", "p"), certificate=CertificateKind(),
    moments=NONE, mean=NONE, scatter=NONE, noise_variance=maybe(floats("p")), groups=NONE,
)  # fmt: skip

_store(
    "PairRelease", "privacy.release", inputs=One("Release", N="N"), outputs=One("Release", N="N")
)

_store(
    "Fabricated", "fabricate.rows", data=floats("N", "p"), n_steps=Items(Whole()), stopped_by=TEXT,
    reads_private_rows=FLAG, history=Items(Items(Table(ANY_NUMBER))),
    certificate=maybe(CertificateKind()),
)  # fmt: skip

_store(
    "FabricatedRecords", "fabricate.records",
    data=floats("N", "p"), labels=ROW_OF_LABELS, certificate=CertificateKind(),
)  # fmt: skip

# ---- models of one layer -------------------------------------------------------------------------

_store(
    "Encoding", "models.encoding", check.active("active"), caches=("columns",), mean=floats("p"),
    active=Array("b", "p"), components=floats("a?", "n?"), scales=floats("n?", low=TINY),
)  # fmt: skip

_estimator(
    "KernelAffineHullMachine", "models.kahm", check.machine, n_components=COUNT, tol=POSITIVE,
    fitted={
        "encoding_": One("Encoding", p="p", a="a", n="n"), "codes_": floats("N", "n?"),
        "coefficients_": floats("N", "a?"), "denominators_": floats("N"),
        "regularization_": NOT_NEGATIVE, "error_": ANY_NUMBER, "residual_": ANY_NUMBER,
        "n_iter_": Whole(), "n_components_": size("n?"), "largest_eigenvalue_": POSITIVE,
    },
)  # fmt: skip

_LEARNING: dict[str, Kind] = {
    "max_inducing": POSITIVE, "disturbance": Plain("precision", "gamma"),
    "inducing": Plain("kmeans", "inputs", "pivots"), "standardize": FLAG,
    "nu": Number(low=2, special=("inf",)), "kappa": POSITIVE, "input_variance": NOT_NEGATIVE,
    "kernel_variance": POSITIVE, "gamma_priors": Items(POSITIVE, least=6, most=6),
    "tol": POSITIVE, "max_iter": COUNT,
}  # fmt: skip
_BANDWIDTH = Either(POSITIVE, Plain("auto"))

_store(
    "Mapping", "models.membership", scales=floats("n?", low=0), points=floats("M", "n?"),
    coefficients=floats("M", "q?"), scale=NOT_NEGATIVE, precision=UNBOUNDED,
    smoothing=NOT_NEGATIVE, n_iter=Whole(), validation_error=ANY_NUMBER,
)  # fmt: skip

_estimator(
    "MembershipMapping", "models.membership", check.one_output("q"), **_LEARNING,
    bandwidth=_BANDWIDTH,
    fitted={
        "_one_output": FLAG, "input_mean_": floats("p"), "mapping_": One("Mapping", n="p", q="q"),
        "offset_": floats("q"), "n_iter_": Whole(), "scale_": NOT_NEGATIVE,
        "smoothing_": NOT_NEGATIVE, "precision_": UNBOUNDED,
    },
)  # fmt: skip

_estimator(
    "MembershipAutoencoder", "models.membership", n_components=COUNT, drop_constant=FLAG,
    **_LEARNING,
    fitted={
        "encoding_": One("Encoding", p="p", a="a", n="n"),
        "mapping_": One("Mapping", n="n", q="a", M="M"), "offset_": floats("a?"),
        "n_components_": size("n?"), "n_inducing_": size("M"), "scale_": NOT_NEGATIVE,
        "precision_": UNBOUNDED, "n_iter_": Whole(),
    },
)  # fmt: skip

_RULES: dict[str, Kind] = {
    "n_rules": POSITIVE, "max_layers": COUNT, "clustering": Plain("scaled", "inputs"),
    "tol": POSITIVE, "max_iter": COUNT,
}  # fmt: skip

_store(
    "FuzzySystem", "models.fuzzy", check.fuzzy_system, origin=floats("n?"),
    scales=floats("n?", low=0), centres=floats("M", "n?"), encoder=floats("q?", "k?"),
    layers=list_of(floats("M", "q?")),
    precisions=Items(UNBOUNDED), free_energies=Items(Items(ANY_NUMBER)),
    members=Array("iu", "M", low=0), n_iter=Whole(),
)  # fmt: skip

_estimator(
    "FuzzyModel", "models.fuzzy", check.one_output("q"), **_RULES, bandwidth=_BANDWIDTH,
    fitted={
        "_one_output": FLAG,
        "system_": One("FuzzySystem", n="p", q="q"), "precision_": UNBOUNDED, "n_layers_": COUNT,
        "n_iter_": Whole(),
    },
)  # fmt: skip

_estimator(
    "FuzzyAutoencoder", "models.fuzzy", check.active("active_"), n_components=COUNT,
    drop_constant=FLAG, **_RULES,
    fitted={
        "active_": Array("b", "p"), "constant_": floats("p"), "n_components_": size("n?"),
        "system_": One("FuzzySystem", n="n", q="a", k="n"), "precision_": UNBOUNDED,
        "n_layers_": COUNT, "n_iter_": Whole(),
    },
)  # fmt: skip

_store(
    "OutputFrame", "models.bayes",
    offset=floats("q"), mix=floats("q", "r?"), unmix=floats("r?", "q"), log_det=NUMBER,
)  # fmt: skip

_store("Reach", "models.bayes", check.triangle("factor"), factor=floats("M", "M"), usual=NUMBER)

_store(
    "Belief", "models.bayes",
    precisions=floats("K", low=TINY), means=floats("K", "r"), shape=POSITIVE, rate=POSITIVE,
)  # fmt: skip

_estimator(
    "BayesianMembershipMapping", "models.bayes",
    check.one_output("q"), check.sized("K", check.bayesian_weights),
    max_inducing=maybe(POSITIVE), noise=Plain("shared", "per_output", "full"),
    trend=Plain("none", "linear"), inducing=Plain("kmeans", "inputs", "pivots"), standardize=FLAG,
    bandwidth=_BANDWIDTH, nu=Number(low=2, special=("inf",)), kappa=POSITIVE,
    prior_precision=POSITIVE, prior_shape=POSITIVE, prior_rate=POSITIVE,
    far=Plain("widen", "plain"), tol=POSITIVE, max_iter=COUNT,
    fitted={
        "_one_output": FLAG, "input_mean_": floats("p"),
        "frame_": One("OutputFrame", q="q", r="r"), "line_": maybe(One("OutputFrame", q="p")),
        "mapping_": One("Mapping", n="p", M="M", q="r"), "reach_": One("Reach", M="M"),
        "basis_": floats("K", "K"), "gram_values_": floats("K", low=0),
        "belief_": One("Belief", K="K", r="r"), "free_energy_": floats("*"), "n_iter_": Whole(),
        "noise_precision_": UNBOUNDED, "noise_std_": floats("q"), "effective_weights_": NUMBER,
        "residual_rows_": NUMBER, "signal_variance_": floats("q"),
    },
)  # fmt: skip

# ---- depth, width, classes -----------------------------------------------------------------------

_FAMILY = maybe(template(*FAMILIES, REGISTERED))

_estimator(
    "ConditionallyDeep", "compose.layers", check.one_family("layers_"), check.first_is_widest,
    model=_FAMILY, n_layers=COUNT,
    fitted={"layers_": list_of(One(*AUTOENCODERS, REGISTERED, p="p", a="a"))},
)  # fmt: skip

_estimator(
    "Wide", "compose.layers", check.one_family("branches_"),
    model=_FAMILY, branch_size=COUNT, n_jobs=JOBS, random_state=SEED,
    fitted={"branches_": list_of(One(*DEEP, REGISTERED, p="p"), "S"), "centres_": floats("S", "p")},
)  # fmt: skip

_CLASSES: dict[str, Kind] = {
    "classes_": labels("C"), "certificate_": CERTIFICATE, "holds_private_rows_": FLAG,
}  # fmt: skip


DIMENSION = Either(COUNT, Plain("auto"))
_RELEASED: dict[str, Kind] = {
    "release": Plain("auto", "rows", "moments"), "schema": maybe(SchemaKind()),
    "features": Either(Plain("edges", "fourier", "gradients", "identity"), template(*MAPS)),
    "classes": maybe(Either(Items(ANY_LABEL), ROW_OF_LABELS)),
    "neighbours": Plain("replace", "add/remove"),
}  # fmt: skip


def _distance_classifier(name: str, module: str, **parameters: Kind) -> None:
    """List a classifier by distances with its parameters beyond those that all have."""
    _estimator(
        name, module, check.promise, check.encoded, model=_FAMILY, n_layers=COUNT,
        branch_size=Either(COUNT, Plain("auto")), privacy=PRIVACY,
        **_RELEASED, rows_per_class=COUNT,
        fabricate=Either(FLAG, Whole(), Plain("discrepancy", "original")),
        partition_on=Plain("noised", "original"), ledger=LEDGER, dataset=maybe(TEXT),
        allow_single_class=FLAG, n_jobs=JOBS, random_state=SEED, **parameters,
        fitted={
            **_CLASSES, "class_models_": Items(One("Wide", p="d"), ("list",), "C"),
            "branch_size_": COUNT, "encoder_": maybe(One("HullClassifier", p="p", C="C", d="d")),
        },
    )  # fmt: skip


_distance_classifier("ReconstructionClassifier", "compose.classifier")
_distance_classifier("KAHMClassifier", "compose.classifiers", n_components=DIMENSION, tol=POSITIVE)
_distance_classifier(
    "MembershipClassifier", "compose.classifiers", n_components=DIMENSION, max_inducing=POSITIVE,
    disturbance=Plain("precision", "gamma"), nu=Number(low=2, special=("inf",)), kappa=POSITIVE,
)  # fmt: skip
_distance_classifier(
    "FuzzyClassifier",
    "compose.classifiers",
    n_components=DIMENSION,
    n_rules=Either(POSITIVE, Plain("auto")),
)

_estimator(
    "TableClassifier", "cli.table_model", check.promise,
    classifier=template(*CLASSIFIERS), columns=Items(NAME, size="p"), label=NAME, privacy=PRIVACY,
    fitted={**_CLASSES, "classifier_": One(*CLASSIFIERS, p="p", C="C"), **FEATURE_NAMES},
    optional={},
)  # fmt: skip

# ---- moments -------------------------------------------------------------------------------------


def _feature_map(
    name: str, *checks: check.Check, fitted: Mapping[str, Kind], **parameters: Kind
) -> None:
    """List a map from p columns to D features."""
    sizes = {"n_features_out_": size("D"), "norm_bound_": NORM}
    _estimator(
        name, "models.features", *checks, fitted={**sizes, **fitted}, optional={}, **parameters
    )


_feature_map(
    "ScaledIdentity", check.sized("D", lambda draft: draft.sizes["p"]), domain=RANGES,
    fitted={"_middle": floats("p"), "_half": floats("p", low=TINY)},
)  # fmt: skip

_feature_map(
    "RandomFourier", check.sized("D", lambda draft: 2 * draft.sizes["m"]),
    n_frequencies=Whole(1, size="m"), scale=POSITIVE, seed=Whole(),
    fitted={"_frequencies": floats("p", "m")},
)  # fmt: skip

_feature_map(
    "PublicNystrom", check.sized("D", lambda draft: draft.sizes["M"]), check.triangle("_factor"),
    inducing_points=Either(Array("fiu", "M", "p"), Items(Items(NUMBER), size="M")),
    scale=POSITIVE,
    fitted={"_points": floats("M", "p"), "_factor": floats("M", "M")},
)  # fmt: skip

_SIDE = Whole(1, 1 << 16)
_SIDES = Items(_SIDE, least=1, most=64)
_feature_map(
    "OrientedGradients", check.gradients,
    image_shape=maybe(_SIDES), cells=Either(_SIDE, _SIDES), orientations=Whole(1, 1 << 12),
    exponent=Plain(0.5, 0.375, 0.25),
    fitted={
        "_shape": tuple_of(_SIDE, 2), "_channels": _SIDE,
        "_pools": list_of(tuple_of(Array("f", "*", "*", low=0, high=1), 2), most=64),
    },
)  # fmt: skip

_TEMPLATES = Items(template(*MAPS), least=1)
_feature_map(
    "Chain", check.feature_chain, maps=_TEMPLATES, fitted={"maps_": list_of(One(*MAPS))},
)  # fmt: skip

_feature_map(
    "SideBySide", check.sized("D", lambda draft: sum(one.sizes["D"] for one in draft["maps_"])),
    maps=_TEMPLATES, weights=maybe(COLUMN_NUMBERS),
    fitted={
        "maps_": list_of(One(*MAPS, p="p"), "k"),
        "_weights": Array("f", "k", low=-1.001, high=1.001),
    },
)  # fmt: skip

_store(
    "TableEncoder", "tables.encoding", check.encoder, schema=SchemaKind(), bins=maybe(COUNT),
    fitted={
        "n_features_in_": size("p"), "n_features_out_": size("D"), "norm_bound_": NORM,
        "feature_names_in_": Words("p"),
    },
)  # fmt: skip

_store(
    "Moments", "privacy.moments", second=floats("D", "D"), cross=floats("D", "C"),
    total=floats("D"), outputs=floats("C"), squares=floats("C"), size=NUMBER,
    second_noise=NOT_NEGATIVE, cross_noise=NOT_NEGATIVE, squares_noise=NOT_NEGATIVE,
)  # fmt: skip

_store(
    "LinearModel", "models.linear", weights=floats("D", "C"), intercept=floats("C"),
    error=floats("C"), regularization=floats("*"), vectors=maybe(floats("D", "D")),
    variances=maybe(floats("D", "C")), centre=maybe(floats("D")),
)  # fmt: skip

_store(
    "Calibration", "models.calibration", slopes=floats("C", "C"), offsets=floats("C"),
    priors=floats("C", low=TINY),
)  # fmt: skip

_store(
    "ClassScatter", "privacy.scatter", directions=floats("E", "d"), second=floats("C", "d", "d"),
    noise=NOT_NEGATIVE,
)  # fmt: skip

_store(
    "ClassHulls", "models.hull", transform=floats("D", "d"), means=floats("C", "d"),
    values=floats("C", "d", low=TINY), vectors=floats("C", "d", "d"),
    regularization=floats("C", low=TINY),
)  # fmt: skip

_MOMENTS: dict[str, Kind] = {
    "privacy": PRIVACY, "schema": maybe(SchemaKind()), "bins": maybe(COUNT),
    "expected_size": maybe(COUNT),
    "features": Either(Plain("edges", "fourier", "gradients", "identity"), template(*MAPS)),
    "neighbours": Plain("replace", "add/remove"), "radius": NORM, "feature_norm": NORM,
    "split": Either(Items(NOT_NEGATIVE, least=4, most=4), One("Split")),
    "strength": maybe(NOT_NEGATIVE), "ledger": LEDGER, "dataset": maybe(TEXT), "random_state": SEED,
}  # fmt: skip
_LEARNED: dict[str, Kind] = {
    "map_": One(*MAPS, "TableEncoder", p="p", D="D"), "mean_": floats("D"),
    "moments_": One("Moments", D="D", C="C"), "model_": One("LinearModel", D="D", C="C"),
    "certificate_": CERTIFICATE, "holds_private_rows_": FLAG,
}  # fmt: skip

_estimator(
    "MomentClassifier", "models.moments", check.promise, **_MOMENTS,
    classes=maybe(Either(Items(ANY_LABEL), ROW_OF_LABELS)),
    class_weight=Either(NONE, Plain("balanced"), Table(POSITIVE)),
    loss=Plain("auto", "squared", "logistic"),
    fitted={
        **_LEARNED, "classes_": labels("C"), "loss_": Plain("squared", "logistic"),
        "calibration_": One("Calibration", C="C"),
    },
)  # fmt: skip

_estimator(
    "HullClassifier", "models.hull", check.promise, **_MOMENTS,
    classes=maybe(Either(Items(ANY_LABEL), ROW_OF_LABELS)),
    class_weight=Either(NONE, Plain("balanced"), Table(POSITIVE)),
    n_directions=COUNT, metric=Plain("image", "likelihood"), ridge_weight=NOT_NEGATIVE,
    fitted={
        **_LEARNED, "classes_": labels("C"), "scatter_": One("ClassScatter", C="C", d="d"),
        "hulls_": One("ClassHulls", D="D", C="C", d="d"), "temperature_": POSITIVE,
        "norm_bounds_": floats("C", low=0),
    },
)  # fmt: skip

_estimator(
    "MomentRegressor", "models.moments", check.promise, check.one_output("C"), **_MOMENTS,
    output_domain=maybe(RANGES), inference=Plain("bayes", "ridge"),
    fitted={
        **_LEARNED, "_one_output": FLAG, "_middle": floats("C"), "_unit": floats("C", low=TINY),
    },
)  # fmt: skip

# ---- transfer ------------------------------------------------------------------------------------

_store(
    "ClassMixtures", "transfer.densities", check.mixtures, mean=floats("p"),
    directions=floats("d", "p"), weights=floats("C", "K", low=0), centres=floats("C", "K", "d"),
    covariances=floats("C", "K", "d", "d"), counts=floats("C", low=0),
)  # fmt: skip

_store(
    "ClassMoments", "transfer.densities", counts=floats("C", low=0), means=floats("C", "p"),
    seconds=maybe(floats("C", "p", "p")), noise=floats("p", low=0),
)  # fmt: skip

_estimator(
    "SourceModel", "transfer.source", check.promise,
    privacy=PRIVACY, classifier=maybe(template(*DISTANCE_CLASSIFIERS)),
    n_directions=maybe(COUNT), moments_limit=Whole(),
    **_RELEASED, ledger=LEDGER, dataset=maybe(TEXT), n_jobs=JOBS, random_state=SEED,
    fitted={
        **_CLASSES, "noise_": floats("s", low=0), "directions_": floats("n?", "s"),
        "centres_": floats("C", "n?"), "mixtures_": tuple_of(One("ClassMixtures", p="s", C="C")),
        "moments_": One("ClassMoments", p="s", C="C"),
        "classifier_": One(*DISTANCE_CLASSIFIERS, "HullClassifier", p="p", C="C", d="s"),
    },
)  # fmt: skip

_store(
    "Alignment", "transfer.alignment", check.alignment,
    source=maybe(floats("n?", "s")), target=maybe(floats("n?", "t")),
)  # fmt: skip

_store(
    "AlignedSource", "transfer.task", check.aligned_source,
    model=One("SourceModel", p="c", s="s", C="K"), alignment=One("Alignment", s="c", t="t"),
    columns=Array("iu", "K", low=0), n_classes=size("C"),
)  # fmt: skip

_store("Iteration", "transfer.task", step=TEXT, changed=Whole(), accuracy=maybe(SHARE))

_HISTORY = Items(One("Iteration"), ("list",))
_store(
    "CentersModel", "transfer.centers", check.numbered_target, check.centers,
    target=One("ReconstructionClassifier", p="t"),
    source=One("AlignedSource", s="s", t="t", c="c", C="C"),
    alignment=One("Alignment", n="n", s="a", t="t"),
    target_centres=floats("C", "n?", finite=False),
    source_centres=floats("C", "n?", finite=False), history=_HISTORY,
)  # fmt: skip

_store(
    "MappingModel", "transfer.source2target", check.numbered_target, check.mapping_model,
    target=One("ReconstructionClassifier", p="s"), source=One("AlignedSource", s="s", t="t", C="C"),
    mapping=maybe(One("MembershipMapping", p="s", q="s")), history=_HISTORY,
)  # fmt: skip

_store(
    "NeighbourVote", "transfer.self_training", codes=floats("m", "k"), posterior=floats("m", "C")
)

_EXPERT_SOURCE = One("AlignedSource", s="s", t="t", K="K", C="C")
_store(
    "DensityExpert", "transfer.experts", source=_EXPERT_SOURCE,
    mixtures=Items(One("ClassMixtures", p="s", C="K", d="d"), ("tuple",), least=1),
)  # fmt: skip
_store("ClassifierExpert", "transfer.experts", source=_EXPERT_SOURCE)
_store(
    "SourceEnsemble", "transfer.experts", check.ensemble,
    members=Items(One(*SOURCE_EXPERTS, t="t", K="K", C="C"), ("tuple",), least=1),
    temperatures=tuple_of(POSITIVE), weights=tuple_of(NOT_NEGATIVE),
)  # fmt: skip

_store(
    "SelfTrainedModel", "transfer.self_training", check.numbered_target, check.self_trained,
    mean=floats("t"), directions=floats("d", "t"), target=One("ReconstructionClassifier", p="d"),
    target_temperature=POSITIVE, target_exponent=NUMBER, vote=One("NeighbourVote", k="k", C="C"),
    mixing=SHARE, ensemble=maybe(One("SourceEnsemble", t="t", C="C", K="K")),
    source_temperature=POSITIVE, source=_EXPERT_SOURCE, leading_expert=TEXT, history=_HISTORY,
)  # fmt: skip

_estimator(
    "TransferClassifier", "transfer.target", check.promise, check.transfer,
    source=One("SourceModel", p="c", s="s"), method=Plain("consensus", "centers", "source2target"),
    alignment=Plain("auto", "identity", "subspace"),
    model=maybe(template(*AUTOENCODERS, REGISTERED)),
    dimensions=maybe(Either(Items(COUNT), Array("iu", "*"))),
    shares=maybe(Either(POSITIVE, Items(POSITIVE), Array("f", "*", low=TINY))),
    n_directions=maybe(COUNT), mapping=maybe(template("MembershipMapping")), n_layers=COUNT,
    branch_size=COUNT,
    unlabelled=Either(NONE, ANY_LABEL), n_jobs=JOBS, random_state=SEED,
    fitted={
        **_CLASSES, "alignment_": One("Alignment", s="c", t="p"),
        "fitted_": One("CentersModel", "MappingModel", "SelfTrainedModel", t="t", C="C"),
        "history_": _HISTORY, "labels_": ROW_OF_LABELS,
    },
)  # fmt: skip

# ---- information ---------------------------------------------------------------------------------

_store(
    "MutualInformation", "information.entropy",
    nats=ANY_NUMBER, entropy=ANY_NUMBER, method=TEXT, reason=TEXT,
)  # fmt: skip

_NAMES = Items(NAME, ("tuple",), "q")
_store(
    "InformationLeakage", "information.leakage",
    value=ANY_NUMBER, model=One("BayesianMembershipMapping", p="p", q="q"), gain=ANY_NUMBER,
    standard_error=ANY_NUMBER, interval=maybe(tuple_of(ANY_NUMBER, 2)),
    mutual_information=One("MutualInformation"), updates=floats("*"), noise=TEXT,
    n_samples=Whole(), names=_NAMES, notes=tuple_of(TEXT),
)  # fmt: skip

_store(
    "Interpreter", "information.interpreter", check.interpreter,
    model=maybe(template("BayesianMembershipMapping")), max_samples=maybe(Whole()),
    random_state=SEED,
    fitted={
        "measure_": One("InformationLeakage", q="q"),
        "model_": One("BayesianMembershipMapping", q="q"), "names_": _NAMES,
        "usual_": floats("q"), "spread_": floats("q"),
    },
)  # fmt: skip
