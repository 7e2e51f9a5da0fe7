"""The classes that a model file may hold, with every field: nothing else is ever built.

A class that is not listed here, a field that is not listed, a missing one, or a value of another
kind makes `permea.load` refuse the file. A new model family is added here before it can be saved.
"""

from typing import Any

from permea.storage import consistency as check
from permea.storage.fields import (
    ANY_LABEL,
    ANY_NUMBER,
    CERTIFICATE,
    COLUMN_NUMBERS,
    COUNT,
    FEATURE_NAMES,
    FLAG,
    JOBS,
    LEDGER,
    NONE,
    NORM,
    NOT_NEGATIVE,
    NUMBER,
    POSITIVE,
    PRIVACY,
    RANGES,
    ROW_OF_LABELS,
    SEED,
    SHARE,
    TEXT,
    TINY,
    UNBOUNDED,
    Array,
    CertificateKind,
    Either,
    Items,
    Kind,
    Labels,
    Number,
    Stored,
    Table,
    Text,
    Whole,
    floats,
    maybe,
    one,
    size,
    template,
    tuple_of,
    word,
)

AUTOENCODERS = ("KernelAffineHullMachine", "MembershipAutoencoder", "FuzzyAutoencoder")
DEEP = (*AUTOENCODERS, "ConditionallyDeep")
FAMILIES = (*DEEP, "Wide")
DISTANCE_CLASSIFIERS = (
    "ReconstructionClassifier", "KAHMClassifier", "MembershipClassifier", "FuzzyClassifier",
)  # fmt: skip
CLASSIFIERS = (*DISTANCE_CLASSIFIERS, "MomentClassifier", "SourceModel")
MAPS = (
    "ScaledIdentity", "RandomFourier", "PublicNystrom", "OrientedGradients", "Chain", "SideBySide",
)  # fmt: skip
VOICES = ("DensityVoice", "ClassifierVoice", "Chorus")
ROOTS = (
    *FAMILIES, *CLASSIFIERS, *MAPS, "MembershipMapping", "FuzzyModel", "BayesianMembershipMapping",
    "MomentRegressor", "TransferClassifier", "TableClassifier", "Interpreter",
    "InformationLeakage", "Release", "PairRelease", "Fabricated", "FabricatedRecords",
)  # fmt: skip

STORABLE: dict[str, Stored] = {}


def _store(name: str, module: str, parameters: dict[str, Kind], **rest: Any) -> None:
    STORABLE[name] = Stored(name, f"permea.{module}", parameters, **rest)


# ---- promises and what was released --------------------------------------------------------------

_store("Privacy", "privacy.units", {
    "epsilon": POSITIVE, "delta": SHARE, "unit": Text(40),
    "domain": maybe(tuple_of(Either((NUMBER, tuple_of(NUMBER))), 2)),
    "bound": maybe(Either((NUMBER, tuple_of(NUMBER)))), "mechanism": Text(40),
    "clip_norm": maybe(POSITIVE), "resolution": maybe(Whole(2, 2**40)), "sampler": Text(40),
}, call=True)  # fmt: skip

_store("Split", "privacy.moments", {
    "mean": NOT_NEGATIVE, "second": NOT_NEGATIVE, "cross": NOT_NEGATIVE, "tally": NOT_NEGATIVE,
})  # fmt: skip

_store("Release", "privacy.release", {
    "data": floats("N", "p"), "certificate": CertificateKind(),
})  # fmt: skip

_store("PairRelease", "privacy.release", {
    "inputs": one("Release", N="N"), "outputs": one("Release", N="N"),
})  # fmt: skip

_store("Fabricated", "fabricate.rows", {
    "data": floats("N", "p"), "n_steps": Items(Whole()), "stopped_by": TEXT,
    "reads_private_rows": FLAG, "history": Items(Items(Table(ANY_NUMBER))), "rule": TEXT,
    "limit": Whole(), "satisfied": Items(FLAG),
})  # fmt: skip

_store("FabricatedRecords", "fabricate.records", {
    "data": floats("N", "p"), "labels": ROW_OF_LABELS, "certificate": CertificateKind(),
})  # fmt: skip

# ---- models of one layer -------------------------------------------------------------------------

_store("Encoding", "models.encoding", {
    "mean": floats("p"), "active": Array("b", ("p",)), "components": floats("a?", "n?"),
    "scales": floats("n?", low=TINY),
}, caches=frozenset({"columns"}), check=check.encoding)  # fmt: skip

_store("KernelAffineHullMachine", "models.kahm", {
    "n_components": COUNT, "tol": POSITIVE,
}, fitted={
    "n_features_in_": size("p"), "encoding_": one("Encoding", p="p", a="a", n="n"),
    "codes_": floats("N", "n?"), "coefficients_": floats("N", "a?"), "denominators_": floats("N"),
    "regularization_": NOT_NEGATIVE, "error_": ANY_NUMBER, "residual_": ANY_NUMBER,
    "n_iter_": Whole(), "n_components_": size("n?"), "largest_eigenvalue_": POSITIVE,
}, optional=FEATURE_NAMES, check=check.machine)  # fmt: skip

_LEARNING: dict[str, Kind] = {
    "max_inducing": POSITIVE, "disturbance": word("precision", "gamma"),
    "inducing": word("kmeans", "pivots"), "standardize": FLAG,
    "nu": Number(low=2, special=("inf",)), "kappa": POSITIVE, "input_variance": NOT_NEGATIVE,
    "tol": POSITIVE, "max_iter": COUNT,
}  # fmt: skip

_store("Mapping", "models.mapping", {
    "scales": floats("n?", low=0), "points": floats("M", "n?"), "coefficients": floats("M", "q?"),
    "scale": NOT_NEGATIVE, "precision": UNBOUNDED, "smoothing": NOT_NEGATIVE, "n_iter": Whole(),
    "validation_error": ANY_NUMBER,
})  # fmt: skip

_store("MembershipMapping", "models.membership", {
    **_LEARNING, "bandwidth": Either((POSITIVE, word("auto"))),
}, fitted={
    "n_features_in_": size("p"), "_one_output": FLAG, "input_mean_": floats("p"),
    "mapping_": one("Mapping", n="p", q="q"), "offset_": floats("q"), "n_iter_": Whole(),
    "scale_": NOT_NEGATIVE, "smoothing_": NOT_NEGATIVE, "precision_": UNBOUNDED,
}, optional=FEATURE_NAMES, check=check.outputs)  # fmt: skip

_store("MembershipAutoencoder", "models.membership", {
    "n_components": COUNT, **_LEARNING,
}, fitted={
    "n_features_in_": size("p"), "encoding_": one("Encoding", p="p", a="a", n="n"),
    "mapping_": one("Mapping", n="n", q="a", M="M"), "offset_": floats("a?"),
    "n_components_": size("n?"), "n_inducing_": size("M"), "scale_": NOT_NEGATIVE,
    "precision_": UNBOUNDED, "n_iter_": Whole(),
}, optional=FEATURE_NAMES)  # fmt: skip

_RULES: dict[str, Kind] = {
    "n_rules": POSITIVE, "max_layers": COUNT, "tol": POSITIVE, "max_iter": COUNT,
}  # fmt: skip

_store("FuzzySystem", "models.fuzzy", {
    "scales": floats("n?", low=0), "centres": floats("M", "n?"), "encoder": floats("q?", "k?"),
    "layers": Items(floats("M", "q?"), ("list",), least=1), "precisions": Items(UNBOUNDED),
    "free_energies": Items(Items(ANY_NUMBER)), "members": Array("iu", ("M",), low=0),
    "n_iter": Whole(),
}, check=check.fuzzy_system)  # fmt: skip

_store("FuzzyModel", "models.fuzzy", _RULES, fitted={
    "n_features_in_": size("p"), "_one_output": FLAG, "input_mean_": floats("p"),
    "system_": one("FuzzySystem", n="p", q="q"), "precision_": UNBOUNDED, "n_layers_": COUNT,
    "n_iter_": Whole(),
}, optional=FEATURE_NAMES, check=check.outputs)  # fmt: skip

_store("FuzzyAutoencoder", "models.fuzzy", {"n_components": COUNT, **_RULES}, fitted={
    "n_features_in_": size("p"), "active_": Array("b", ("p",)), "constant_": floats("p"),
    "n_components_": size("n?"), "system_": one("FuzzySystem", n="n", q="a", k="n"),
    "precision_": UNBOUNDED, "n_layers_": COUNT, "n_iter_": Whole(),
}, optional=FEATURE_NAMES, check=check.fuzzy_autoencoder)  # fmt: skip

_store("OutputFrame", "models.bayes", {
    "offset": floats("q"), "mix": floats("q", "r?"), "unmix": floats("r?", "q"), "log_det": NUMBER,
})  # fmt: skip

_store("Reach", "models.bayes", {
    "factor": floats("M", "M"), "usual": NUMBER,
}, check=check.triangle("factor"))  # fmt: skip

_store("Belief", "models.bayes", {
    "precisions": floats("K", low=TINY), "means": floats("K", "r"), "shape": POSITIVE,
    "rate": POSITIVE,
})  # fmt: skip

_store("BayesianMembershipMapping", "models.bayes", {
    "max_inducing": maybe(POSITIVE), "noise": word("shared", "per_output", "full"),
    "trend": word("none", "linear"), "inducing": word("kmeans", "pivots"), "standardize": FLAG,
    "bandwidth": Either((POSITIVE, word("auto"))), "nu": Number(low=2, special=("inf",)),
    "kappa": POSITIVE, "prior_precision": POSITIVE, "prior_shape": POSITIVE,
    "prior_rate": POSITIVE, "far": word("widen", "plain"), "tol": POSITIVE,
    "max_iter": COUNT,
}, fitted={
    "n_features_in_": size("p"), "_one_output": FLAG, "input_mean_": floats("p"),
    "frame_": one("OutputFrame", q="q", r="r"), "line_": maybe(one("OutputFrame", q="p")),
    "mapping_": one("Mapping", n="p", M="M", q="r"), "reach_": one("Reach", M="M"),
    "basis_": floats("K", "K"), "gram_values_": floats("K", low=0),
    "belief_": one("Belief", K="K", r="r"), "free_energy_": floats("*"), "n_iter_": Whole(),
    "noise_precision_": UNBOUNDED, "noise_std_": floats("q"), "effective_weights_": NUMBER,
    "residual_rows_": NUMBER, "signal_variance_": floats("q"),
}, optional=FEATURE_NAMES, check=check.bayesian)  # fmt: skip

# ---- depth, width, classes -----------------------------------------------------------------------

_store("ConditionallyDeep", "compose.layers", {
    "model": maybe(template(*FAMILIES)), "n_layers": COUNT,
}, fitted={
    "n_features_in_": size("p"), "layers_": Items(one(*AUTOENCODERS, p="p", a="a"), ("list",),
                                                  least=1),
}, optional=FEATURE_NAMES, check=check.chain)  # fmt: skip

_store("Wide", "compose.layers", {
    "model": maybe(template(*FAMILIES)), "branch_size": COUNT, "n_jobs": JOBS,
    "random_state": SEED,
}, fitted={
    "n_features_in_": size("p"), "branches_": Items(one(*DEEP, p="p"), ("list",), "S", least=1),
    "centres_": floats("S", "p"),
}, optional=FEATURE_NAMES, check=check.wide)  # fmt: skip

_CLASSIFIER: dict[str, Kind] = {
    "model": maybe(template(*FAMILIES)), "n_layers": COUNT,
    "branch_size": Either((COUNT, word("auto"))), "privacy": PRIVACY,
    "fabricate": Either((FLAG, Whole(), word("discrepancy", "original"))),
    "partition_on": word("noised", "original"), "ledger": LEDGER, "dataset": maybe(TEXT),
    "allow_single_class": FLAG, "n_jobs": JOBS, "random_state": SEED,
}  # fmt: skip
_CLASSES: dict[str, Kind] = {
    "n_features_in_": size("p"), "classes_": Labels("C"), "certificate_": CERTIFICATE,
    "holds_private_rows_": FLAG,
}  # fmt: skip
_BY_DISTANCE: dict[str, Any] = {
    "fitted": {**_CLASSES, "class_models_": Items(one("Wide", p="p"), ("list",), "C"),
               "branch_size_": COUNT},
    "optional": FEATURE_NAMES,
    "check": check.promise,
}  # fmt: skip

_store("ReconstructionClassifier", "compose.classifier", _CLASSIFIER, **_BY_DISTANCE)
_store("KAHMClassifier", "compose.classifiers", {
    **_CLASSIFIER, "n_components": COUNT, "tol": POSITIVE,
}, **_BY_DISTANCE)  # fmt: skip
_store("MembershipClassifier", "compose.classifiers", {
    **_CLASSIFIER, "n_components": COUNT, "max_inducing": POSITIVE,
    "disturbance": word("precision", "gamma"),
}, **_BY_DISTANCE)  # fmt: skip
_store("FuzzyClassifier", "compose.classifiers", {
    **_CLASSIFIER, "n_components": COUNT, "n_rules": POSITIVE,
}, **_BY_DISTANCE)  # fmt: skip

_store("TableClassifier", "cli.table_model", {
    "classifier": template(*CLASSIFIERS), "columns": Items(Text(1000), size="p"),
    "label": Text(1000), "privacy": PRIVACY,
}, fitted={
    **_CLASSES, "classifier_": one(*CLASSIFIERS, p="p", C="C"), **FEATURE_NAMES,
}, check=check.promise)  # fmt: skip

# ---- moments -------------------------------------------------------------------------------------

_MAPPED: dict[str, Kind] = {
    "n_features_in_": size("p"), "n_features_out_": size("D"), "norm_bound_": NORM,
}  # fmt: skip

_store("ScaledIdentity", "models.features", {"domain": RANGES}, fitted={
    **_MAPPED, "_middle": floats("p"), "_half": floats("p", low=TINY),
}, check=check.identity)  # fmt: skip

_store("RandomFourier", "models.features", {
    "n_frequencies": Whole(1, size="m"), "scale": POSITIVE, "seed": Whole(),
}, fitted={**_MAPPED, "_frequencies": floats("p", "m")}, check=check.fourier)  # fmt: skip

_store("PublicNystrom", "models.features", {
    "inducing_points": Either((Array("fiu", ("M", "p")), Items(Items(NUMBER), size="M"))),
    "scale": POSITIVE,
}, fitted={
    **_MAPPED, "_points": floats("M", "p"), "_factor": floats("M", "M"),
}, check=check.nystrom)  # fmt: skip

_SIDES = Items(Whole(1, 1 << 16), least=1, most=64)
_store("OrientedGradients", "models.features", {
    "image_shape": maybe(_SIDES), "cells": Either((Whole(1, 1 << 16), _SIDES)),
    "orientations": Whole(1, 1 << 12),
}, fitted={
    **_MAPPED, "_shape": tuple_of(Whole(1, 1 << 16), 2),
    "_pools": Items(tuple_of(Array("f", ("*", "*"), 0, 1), 2), ("list",), least=1, most=64),
}, check=check.gradients)  # fmt: skip

_store("Chain", "models.features", {"maps": Items(template(*MAPS), least=1)}, fitted={
    **_MAPPED, "maps_": Items(one(*MAPS), ("list",), least=1),
}, check=check.feature_chain)  # fmt: skip

_store("SideBySide", "models.features", {
    "maps": Items(template(*MAPS), least=1), "weights": maybe(COLUMN_NUMBERS),
}, fitted={
    **_MAPPED, "maps_": Items(one(*MAPS, p="p"), ("list",), "k", least=1),
    "_weights": Array("f", ("k",), -1.001, 1.001),
}, check=check.side_by_side)  # fmt: skip

_store("Moments", "privacy.moments", {
    "second": floats("D", "D"), "cross": floats("D", "C"), "total": floats("D"),
    "outputs": floats("C"), "squares": floats("C"), "size": NUMBER,
    "second_noise": NOT_NEGATIVE, "cross_noise": NOT_NEGATIVE, "squares_noise": NOT_NEGATIVE,
})  # fmt: skip

_store("LinearModel", "models.moments", {
    "weights": floats("D", "C"), "intercept": floats("C"), "error": floats("C"),
    "regularization": floats("*"), "vectors": maybe(floats("D", "D")),
    "variances": maybe(floats("D", "C")), "centre": maybe(floats("D")),
})  # fmt: skip

_MOMENTS: dict[str, Kind] = {
    "privacy": PRIVACY,
    "features": Either((word("fourier", "gradients", "identity"), template(*MAPS))),
    "neighbours": word("replace", "add/remove"), "radius": NORM, "feature_norm": NORM,
    "split": Either((Items(NOT_NEGATIVE, least=4, most=4), one("Split"))),
    "strength": NOT_NEGATIVE, "ledger": LEDGER, "dataset": maybe(TEXT), "random_state": SEED,
}  # fmt: skip
_LEARNED: dict[str, Kind] = {
    "n_features_in_": size("p"), "map_": one(*MAPS, p="p", D="D"), "mean_": floats("D"),
    "moments_": one("Moments", D="D", C="C"), "model_": one("LinearModel", D="D", C="C"),
    "certificate_": CERTIFICATE, "holds_private_rows_": FLAG,
}  # fmt: skip

_store("MomentClassifier", "models.moments", {
    **_MOMENTS, "classes": maybe(Either((Items(ANY_LABEL), ROW_OF_LABELS))),
}, fitted={**_LEARNED, "classes_": Labels("C")}, optional=FEATURE_NAMES,
    check=check.promise)  # fmt: skip

_store("MomentRegressor", "models.moments", {
    **_MOMENTS, "output_domain": maybe(RANGES), "inference": word("bayes", "ridge"),
}, fitted={
    **_LEARNED, "_one_output": FLAG, "_middle": floats("C"), "_unit": floats("C", low=TINY),
}, optional=FEATURE_NAMES, check=check.regressor)  # fmt: skip

# ---- transfer ------------------------------------------------------------------------------------

_store("ClassMixtures", "transfer.source", {
    "mean": floats("p"), "directions": floats("d", "p"), "weights": floats("C", "K", low=0),
    "centres": floats("C", "K", "d"), "covariances": floats("C", "K", "d", "d"),
    "counts": floats("C", low=0),
}, check=check.mixtures)  # fmt: skip

_store("ClassMoments", "transfer.source", {
    "counts": floats("C", low=0), "means": floats("C", "p"),
    "seconds": maybe(floats("C", "p", "p")), "noise": floats("p", low=0),
})  # fmt: skip

_store("SourceModel", "transfer.source", {
    "privacy": PRIVACY, "classifier": maybe(template(*DISTANCE_CLASSIFIERS)),
    "moments_limit": Whole(), "ledger": LEDGER, "dataset": maybe(TEXT), "n_jobs": JOBS,
    "random_state": SEED,
}, fitted={
    **_CLASSES, "noise_": floats("p", low=0), "directions_": floats("d?", "p"),
    "centres_": floats("C", "d?"), "mixtures_": tuple_of(one("ClassMixtures", p="p", C="C")),
    "moments_": one("ClassMoments", p="p", C="C"),
    "classifier_": one(*DISTANCE_CLASSIFIERS, p="p", C="C"),
}, optional=FEATURE_NAMES, check=check.promise)  # fmt: skip

_store("Alignment", "transfer.alignment", {
    "source": maybe(floats("n?", "s")), "target": maybe(floats("n?", "t")),
}, check=check.alignment)  # fmt: skip

_store("AlignedSource", "transfer.task", {
    "model": one("SourceModel", p="s", C="K"), "alignment": one("Alignment", s="s", t="t"),
    "columns": Array("iu", ("K",), low=0), "n_classes": size("C"),
}, check=check.aligned_source)  # fmt: skip

_store("TargetModel", "transfer.learner", {
    "classifier": one("ReconstructionClassifier", p="p"), "n_classes": size("C"),
}, check=check.target_model)  # fmt: skip

_store("Iteration", "transfer.task", {
    "step": TEXT, "changed": Whole(), "accuracy": maybe(SHARE),
})  # fmt: skip

_HISTORY = Items(one("Iteration"), ("list",))
_store("CentersModel", "transfer.learner", {
    "target": one("TargetModel", p="t", C="C"), "source": one("AlignedSource", s="s", t="t", C="C"),
    "alignment": one("Alignment", n="n", s="s", t="t"),
    "target_centres": floats("C", "n?", finite=False),
    "source_centres": floats("C", "n?", finite=False), "history": _HISTORY,
}, check=check.centers)  # fmt: skip

_store("MappingModel", "transfer.learner", {
    "target": one("TargetModel", p="s", C="C"), "source": one("AlignedSource", s="s", t="t", C="C"),
    "mapping": maybe(one("MembershipMapping", p="s", q="s")), "history": _HISTORY,
}, check=check.mapping_model)  # fmt: skip

_store("Memory", "transfer.consensus", {"codes": floats("m", "k"), "posterior": floats("m", "C")})

_store("DensityVoice", "transfer.experts", {
    "mixtures": Items(one("ClassMixtures", p="s", C="K", d="d"), ("tuple",), least=1),
    "source": one("AlignedSource", s="s", t="t", K="K", C="C"),
})  # fmt: skip
_store("ClassifierVoice", "transfer.experts", {
    "source": one("AlignedSource", s="s", t="t", K="K", C="C"),
})  # fmt: skip
_store("Chorus", "transfer.experts", {
    "members": Items(one("DensityVoice", t="t", K="K", C="C"), ("tuple",), least=1),
    "temperatures": tuple_of(POSITIVE), "weights": tuple_of(NOT_NEGATIVE),
    "ends": tuple_of(Whole()),
}, check=check.chorus)  # fmt: skip

_store("ConsensusModel", "transfer.consensus", {
    "mean": floats("t"), "directions": floats("d", "t"),
    "target": one("TargetModel", p="d", C="C"), "target_temperature": POSITIVE,
    "target_weight": NUMBER, "memory": one("Memory", k="k", C="C"), "mixing": SHARE,
    "voice": maybe(one(*VOICES, t="t", C="C", K="K")), "source_temperature": POSITIVE,
    "source": one("AlignedSource", s="s", t="t", C="C", K="K"), "heard_as": TEXT,
    "history": _HISTORY,
}, check=check.consensus)  # fmt: skip

_store("TransferClassifier", "transfer.target", {
    "source": one("SourceModel", p="s"), "method": word("consensus", "centers", "source2target"),
    "alignment": word("auto", "identity", "subspace"), "model": maybe(template(*AUTOENCODERS)),
    "dimensions": maybe(Either((Items(COUNT), Array("iu", ("*",))))), "n_layers": COUNT,
    "branch_size": COUNT, "unlabelled": Either((NONE, ANY_LABEL)), "n_jobs": JOBS,
    "random_state": SEED,
}, fitted={
    **_CLASSES, "alignment_": one("Alignment", s="s", t="p"),
    "fitted_": one("CentersModel", "MappingModel", "ConsensusModel", t="p", C="C"),
    "history_": _HISTORY, "labels_": ROW_OF_LABELS,
}, optional=FEATURE_NAMES, check=check.transfer)  # fmt: skip

# ---- information ---------------------------------------------------------------------------------

_store("MutualInformation", "information.entropy", {
    "nats": ANY_NUMBER, "entropy": ANY_NUMBER, "method": TEXT, "reason": TEXT,
})  # fmt: skip

_store("InformationLeakage", "information.leakage", {
    "value": ANY_NUMBER, "model": one("BayesianMembershipMapping", p="p", q="q"),
    "gain": ANY_NUMBER, "standard_error": ANY_NUMBER, "interval": maybe(tuple_of(ANY_NUMBER, 2)),
    "mutual_information": one("MutualInformation"), "updates": floats("*"), "noise": TEXT,
    "n_samples": Whole(), "names": Items(Text(1000), ("tuple",), "q"), "notes": tuple_of(TEXT),
})  # fmt: skip

_store("Interpreter", "information.interpreter", {
    "model": maybe(template("BayesianMembershipMapping")), "max_samples": maybe(Whole()),
    "random_state": SEED,
}, fitted={
    "measure_": one("InformationLeakage", q="q"),
    "model_": one("BayesianMembershipMapping", q="q"), "names_": Items(Text(1000), ("tuple",), "q"),
    "usual_": floats("q"), "spread_": floats("q"),
}, check=check.interpreter)  # fmt: skip
