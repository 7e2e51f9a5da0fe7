"""What the fields of one object must say about each other, beyond kinds and sizes.

Each check gets a draft whose fields are right each for itself, and raises `RefusedError` where a
prediction could fail: a matrix that cannot be factorised, a class number beyond the classes.
"""

from typing import Any

import numpy as np

from permea.storage.container import RefusedError
from permea.storage.fields import Draft, bind

LARGEST_MACHINE = 1 << 16  # rows of one machine, whose kernel matrix may have to be formed
MOST_PARTS = 1 << 12  # of the mixture of a class


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise RefusedError(problem)


def promise(draft: Draft) -> None:
    """A model without private rows in it has a certificate, and speaks of its own columns."""
    values = draft.values
    if "holds_private_rows_" in values and not values["holds_private_rows_"]:
        _require(values["certificate_"] is not None, "no private rows, and no certificate either")
    privacy = values.get("privacy")
    if privacy is not None:
        declared = (*(privacy.values["domain"] or ()), privacy.values["bound"])
        lengths = {len(end) for end in declared if isinstance(end, tuple)}
        _require(lengths <= {draft.sizes["p"]}, "privacy is declared for other columns")


def encoding(draft: Draft) -> None:
    """The active features are those that have directions."""
    active = int(np.count_nonzero(draft.values["active"]))
    bind(draft.sizes, "a?", active)


def machine(draft: Draft) -> None:
    """A machine is not larger than one that can be learned."""
    _require(draft.sizes["N"] <= LARGEST_MACHINE, f"more than {LARGEST_MACHINE} rows")


def one_family(draft: Draft, layers: list[Draft]) -> None:
    """Models that are asked together are of one class."""
    _require(len({layer.name for layer in layers}) == 1, "models of several classes in one chain")


def chain(draft: Draft) -> None:
    """Layers share the encoding of the first one, whose directions are enough for all."""
    layers = draft.values["layers_"]
    one_family(draft, layers)
    first = layers[0].sizes["n"]
    _require(all(layer.sizes["n"] <= first for layer in layers), "a layer wider than the first")


def wide(draft: Draft) -> None:
    """Branches are of one class."""
    one_family(draft, draft.values["branches_"])


def fuzzy_system(draft: Draft) -> None:
    """Every layer has its precision; a second one needs an encoder that fits the inputs."""
    layers = draft.values["layers"]
    for name in ("precisions", "free_energies"):
        _require(len(draft.values[name]) == len(layers), f"{name} of other layers")
    fits = draft.sizes["k"] == draft.sizes["n"]
    _require(len(layers) == 1 or fits, "layers that the encoder does not connect")


def fuzzy_autoencoder(draft: Draft) -> None:
    """The active features are those that have rules; codes come from the encoder."""
    active = int(np.count_nonzero(draft.values["active_"]))
    bind(draft.sizes, "a?", active)


def outputs(draft: Draft) -> None:
    """A model that answers with single numbers has one output."""
    _require(draft.sizes["q"] == 1 or not draft.values["_one_output"], "several outputs in one")


def regressor(draft: Draft) -> None:
    """The same, for a regressor with a promise."""
    promise(draft)
    _require(draft.sizes["C"] == 1 or not draft.values["_one_output"], "several outputs in one")


def bayesian(draft: Draft) -> None:
    """Weights belong to the kernel values and, with a trend, to the directions of the inputs."""
    outputs(draft)
    line = draft.values["line_"]
    trend = 0 if line is None else line.sizes["r"]
    bind(draft.sizes, "K", draft.sizes["M"] + trend)


def triangle(name: str) -> Any:
    """A check that a triangular matrix can be divided by."""

    def check(draft: Draft) -> None:
        diagonal = np.diagonal(draft.values[name])
        _require(bool(np.all(np.abs(diagonal) > 1e-12)), f"{name} is singular")

    return check


def identity(draft: Draft) -> None:
    """As many features as columns."""
    bind(draft.sizes, "D", draft.sizes["p"])


def fourier(draft: Draft) -> None:
    """A cosine and a sine for every frequency."""
    bind(draft.sizes, "D", 2 * draft.sizes["m"])


def nystrom(draft: Draft) -> None:
    """A feature for every point, from a factor that can be divided by."""
    bind(draft.sizes, "D", draft.sizes["M"])
    triangle("_factor")(draft)


def gradients(draft: Draft) -> None:
    """Cells that cover images of the declared shape."""
    height, width = draft.values["_shape"]
    bind(draft.sizes, "p", height * width)
    cells = 0
    for rows, columns in draft.values["_pools"]:
        _require(rows.shape[1] == height and columns.shape[1] == width, "cells of other images")
        cells += rows.shape[0] * columns.shape[0]
    bind(draft.sizes, "D", draft.values["orientations"] * cells)


def feature_chain(draft: Draft) -> None:
    """Each map reads what the one before gives."""
    width = draft.sizes["p"]
    for one in draft.values["maps_"]:
        _require(one.sizes["p"] == width, "a map that does not fit the one before")
        width = one.sizes["D"]
    bind(draft.sizes, "D", width)


def side_by_side(draft: Draft) -> None:
    """Features of all maps."""
    bind(draft.sizes, "D", sum(one.sizes["D"] for one in draft.values["maps_"]))


def mixtures(draft: Draft) -> None:
    """Weights of parts, and covariances that can be factorised where there is a part."""
    weights, covariances = draft.values["weights"], draft.values["covariances"]
    _require(draft.sizes["K"] <= MOST_PARTS, f"more than {MOST_PARTS} parts of a class")
    _require(bool(np.all(weights.sum(axis=1) > 0)), "a class without parts")
    for label, row in enumerate(weights):
        try:
            for part in np.flatnonzero(row):
                np.linalg.cholesky(covariances[label, part])
        except np.linalg.LinAlgError:
            raise RefusedError("a covariance that is not positive definite") from None


def alignment(draft: Draft) -> None:
    """Both subspaces, or none."""
    one, other = draft.values["source"], draft.values["target"]
    _require((one is None) == (other is None), "half of an alignment")


def aligned_source(draft: Draft) -> None:
    """Class numbers of the source among those of the target."""
    columns = draft.values["columns"]
    _require(bool(np.all(columns < draft.sizes["C"])), "class numbers beyond the classes")
    _require(len(np.unique(columns)) == len(columns), "two classes of one number")
    if "t" not in draft.sizes:
        bind(draft.sizes, "t", draft.sizes["s"])


def target_model(draft: Draft) -> None:
    """The classes of its classifier are class numbers."""
    labels = draft.values["classifier"].values["classes_"]
    _require(labels.dtype.kind in "iu", "classes that are not numbered")
    _require(int(labels[0]) >= 0 and int(labels[-1]) < draft.sizes["C"], "numbers out of range")


def centers(draft: Draft) -> None:
    """Centres in the space that rows are shown in."""
    if draft.values["alignment"].values["source"] is None:
        bind(draft.sizes, "n", draft.sizes["t"])
        bind(draft.sizes, "s", draft.sizes["t"])
    known = np.flatnonzero(np.isfinite(draft.values["source_centres"]).all(axis=1))
    columns = draft.values["source"].values["columns"]
    _require(bool(np.isin(known, columns).all()), "centres of classes that the source lacks")


def mapping_model(draft: Draft) -> None:
    """The mapping gives rows, not single numbers."""
    mapping = draft.values["mapping"]
    _require(mapping is None or not mapping.values["_one_output"], "a mapping to one number")


def consensus(draft: Draft) -> None:
    """Neighbours are looked for in the first directions."""
    _require(draft.sizes["k"] <= draft.sizes["d"], "more coordinates than directions")


def chorus(draft: Draft) -> None:
    """Columns of the codes, one part for each member."""
    members, values = draft.values["members"], draft.values
    for name in ("temperatures", "weights", "ends"):
        _require(len(values[name]) == len(members), f"{name} of other members")
    ends = np.cumsum([member.sizes["d"] for member in members])
    _require(list(values["ends"]) == ends.tolist(), "columns of other members")


def transfer(draft: Draft) -> None:
    """Rows reach the source through the alignment, or are in its space already."""
    promise(draft)
    if draft.values["alignment_"].values["source"] is None:
        bind(draft.sizes, "s", draft.sizes["p"])


def interpreter(draft: Draft) -> None:
    """It answers in the parameters that it has names for."""
    _require(not draft.values["model_"].values["_one_output"], "a model of one number")
