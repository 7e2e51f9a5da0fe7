"""What the fields of one object must say about each other, beyond kinds and sizes.

Each check gets a draft whose fields are right by themselves, and raises `RefusedError` where a
prediction could fail: a matrix that cannot be factorised, a class number beyond the classes.
"""

from collections.abc import Callable

import numpy as np

from permea.storage.container import RefusedError
from permea.storage.fields import Draft, bind
from permea.tables import TableEncoder

LARGEST_MACHINE = 1 << 16  # rows of one machine, whose kernel matrix may have to be formed
MOST_PARTS = 1 << 12  # of the mixture of a class
MOST_CLASSES = 1_000_000

Check = Callable[[Draft], None]


def sized(letter: str, size: Callable[[Draft], int]) -> Check:
    """A check that a size is the one that follows from other fields."""
    return lambda draft: bind(draft.sizes, letter, size(draft))


def holds(problem: str, condition: Callable[[Draft], bool | np.bool_]) -> Check:
    """A check that a condition holds; ``problem`` says what is wrong where it does not."""

    def check(draft: Draft) -> None:
        _require(condition(draft), problem)

    return check


def _require(condition: bool | np.bool_, problem: str) -> None:
    if not condition:
        raise RefusedError(problem)


def promise(draft: Draft) -> None:
    """A model without private rows has a certificate, and its privacy is that of its columns."""
    if not draft.values.get("holds_private_rows_", True):
        _require(draft["certificate_"] is not None, "no private rows, and no certificate either")
    privacy = draft.values.get("privacy")
    if privacy is not None:
        declared = (*(privacy["domain"] or ()), privacy["bound"])
        lengths = {len(end) for end in declared if isinstance(end, tuple)}
        _require(lengths <= {draft.sizes["p"]}, "privacy is declared for other columns")


def encoded(draft: Draft) -> None:
    """Models know the columns of the rows, unless an encoder gives them other coordinates."""
    if draft["encoder_"] is None:
        bind(draft.sizes, "d", draft.sizes["p"])


def encoder(draft: Draft) -> None:
    """The features of a table are those of its schema."""
    made = TableEncoder(draft["schema"], bins=draft["bins"]).fit()
    same = list(made.feature_names_in_) == list(draft["feature_names_in_"])
    _require(same and made.n_features_out_ == draft.sizes["D"], "features of another schema")
    _require(draft["norm_bound_"] == made.norm_bound_, "another norm than the schema's")


def class_labels(draft: Draft) -> None:
    """Class labels are in order, and none occurs twice."""
    labels = draft["classes_"]
    _require(len(labels) <= MOST_CLASSES, f"more than {MOST_CLASSES} classes")
    ordered = np.all(labels[1:] > labels[:-1])
    _require(ordered, "class labels out of order, or one of them twice")


def active(name: str) -> Check:
    """A check that the active features are those that have directions or rules."""
    return sized("a?", lambda draft: int(np.count_nonzero(draft[name])))


def one_output(letter: str) -> Check:
    """A check that a model which predicts single numbers has one output."""
    return holds("several outputs in one", lambda d: d.sizes[letter] == 1 or not d["_one_output"])


def one_family(name: str) -> Check:
    """A check that the models of a list are of one class."""
    return holds(
        "models of several classes in one chain",
        lambda draft: len({model.stored.name for model in draft[name]}) == 1,
    )


def triangle(name: str) -> Check:
    """A check that a triangular matrix can be divided by."""
    return holds(f"{name} is singular", lambda d: np.all(np.abs(np.diagonal(d[name])) > 1e-12))


machine = holds(
    f"more than {LARGEST_MACHINE} rows", lambda draft: draft.sizes["N"] <= LARGEST_MACHINE
)
# Layers share the encoding of the first one.
first_is_widest = holds(
    "a layer wider than the first",
    lambda draft: max(one.sizes["n"] for one in draft["layers_"]) == draft["layers_"][0].sizes["n"],
)


def fuzzy_system(draft: Draft) -> None:
    """Every layer has its precision; a second one needs an encoder that fits the inputs."""
    for name in ("precisions", "free_energies"):
        _require(len(draft[name]) == len(draft["layers"]), f"{name} of other layers")
    fits = draft.sizes["k"] == draft.sizes["n"]
    _require(len(draft["layers"]) == 1 or fits, "layers that the encoder does not connect")


def bayesian_weights(draft: Draft) -> int:
    """Weights of the kernel values and, with a trend, of the directions of the inputs."""
    line = draft["line_"]
    return draft.sizes["M"] + (0 if line is None else line.sizes["r"])


def gradients(draft: Draft) -> None:
    """Cells that cover images of the declared shape."""
    height, width = draft["_shape"]
    bind(draft.sizes, "p", height * width * draft["_channels"])
    cells = 0
    for rows, columns in draft["_pools"]:
        _require(rows.shape[1] == height and columns.shape[1] == width, "cells of other images")
        cells += rows.shape[0] * columns.shape[0]
    bind(draft.sizes, "D", draft["orientations"] * cells)


def feature_chain(draft: Draft) -> None:
    """Each map reads what the one before gives."""
    width = draft.sizes["p"]
    for one in draft["maps_"]:
        _require(one.sizes["p"] == width, "a map that does not fit the one before")
        width = one.sizes["D"]
    bind(draft.sizes, "D", width)


def mixtures(draft: Draft) -> None:
    """Weights of parts, and covariances that can be factorised where there is a part."""
    _require(draft.sizes["K"] <= MOST_PARTS, f"more than {MOST_PARTS} parts of a class")
    _require(np.all(draft["weights"].sum(axis=1) > 0), "a class without parts")
    try:
        for row, covariances in zip(draft["weights"], draft["covariances"], strict=True):
            for part in np.flatnonzero(row):
                np.linalg.cholesky(covariances[part])
    except np.linalg.LinAlgError:
        raise RefusedError("a covariance that is not positive definite") from None


alignment = holds(
    "half of an alignment", lambda draft: (draft["source"] is None) == (draft["target"] is None)
)


def aligned_source(draft: Draft) -> None:
    """Class numbers of the source among those of the target."""
    columns = draft["columns"]
    _require(np.all(columns < draft.sizes["C"]), "class numbers beyond the classes")
    _require(len(np.unique(columns)) == len(columns), "two classes of one number")
    if draft["alignment"]["source"] is None:
        bind(draft.sizes, "t", draft.sizes["s"])


def numbered_target(draft: Draft) -> None:
    """The classes of the target classifier are class numbers."""
    labels = draft["target"]["classes_"]
    _require(labels.dtype.kind in "iu", "classes that are not numbered")
    _require(int(labels[0]) >= 0 and int(labels[-1]) < draft.sizes["C"], "numbers out of range")


def centers(draft: Draft) -> None:
    """Centres in the space of the aligned rows."""
    same = draft["source"]["alignment"]["source"] is None
    bind(draft.sizes, "a", draft.sizes["s" if same else "c"])
    _require(draft["alignment"]["source"] is not None, "centres without directions")
    known = np.flatnonzero(np.isfinite(draft["source_centres"]).all(axis=1))
    inside = np.isin(known, draft["source"]["columns"]).all()
    _require(inside, "centres of classes that the source lacks")


mapping_model = holds(
    "a mapping to one number",
    lambda draft: draft["mapping"] is None or not draft["mapping"]["_one_output"],
)
self_trained = holds(
    "more coordinates than directions", lambda draft: draft.sizes["k"] <= draft.sizes["d"]
)
interpreter = holds("a model of one number", lambda draft: not draft["model_"]["_one_output"])


def ensemble(draft: Draft) -> None:
    """A temperature and a weight for each member."""
    for name in ("temperatures", "weights"):
        _require(len(draft[name]) == len(draft["members"]), f"{name} of other members")


def transfer(draft: Draft) -> None:
    """Rows reach the source through the alignment, or have its columns and are encoded."""
    if draft["alignment_"]["source"] is None:
        bind(draft.sizes, "c", draft.sizes["p"])
        bind(draft.sizes, "t", draft.sizes["s"])
    else:
        bind(draft.sizes, "t", draft.sizes["p"])
