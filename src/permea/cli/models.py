"""Model families by name, and model files."""

import importlib
import inspect
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import permea
from permea.cli.console import InputError, ModelError, UsageError
from permea.cli.tables import (
    is_device,
    listed,
    numbers,
    numeric_columns,
    output_errors,
    read_declared_table,
    read_table,
)
from permea.compose import ReconstructionClassifier
from permea.models.base import Reconstructor
from permea.privacy.signing import SigningKey, TrustedKeys
from permea.storage import load, save

FAMILIES_VARIABLE = "PERMEA_FAMILIES"  #: names of modules, separated by commas


def families() -> dict[str, type[ReconstructionClassifier]]:
    """The public classifiers by distance, each under its name without "Classifier".

    Examples
    --------
    >>> sorted(families())[:2]
    ['fuzzy', 'kahm']
    """
    public = [getattr(permea, name) for name in permea.__all__ if name.endswith("Classifier")]
    return {
        kind.__name__.removesuffix("Classifier").lower(): kind
        for kind in public
        if issubclass(kind, ReconstructionClassifier) and kind is not ReconstructionClassifier
    }


def build_classifier(name: str, **values: Any) -> Any:
    """An unfitted classifier of a family, with those of the values that it has parameters for.

    Parameters
    ----------
    name : str
        A key of `families`; or ``package.module:Class``, a family of the user's own.
    **values
        Parameters by name, such as ``n_components``.

    Examples
    --------
    >>> build_classifier("fuzzy", n_components=3, unknown=1)
    FuzzyClassifier(n_components=3)
    """
    kind = _kind(name)
    if name in families():
        return _built(kind, values)
    return _built(ReconstructionClassifier, {**values, "model": _built(kind, values)})


def parameters_of(name: str) -> set[str]:
    """Names of the parameters of a family that `build_classifier` knows.

    Examples
    --------
    >>> "n_rules" in parameters_of("fuzzy"), "n_rules" in parameters_of("kahm")
    (True, False)
    """
    kinds = [_kind(name)] if name in families() else [_kind(name), ReconstructionClassifier]
    return {parameter for kind in kinds for parameter in inspect.signature(kind).parameters}


def _kind(name: str) -> type:
    """The class that a family's name stands for."""
    if name in families():
        return families()[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise UsageError(
            f"There is no model family {name!r}. Use one of moments, hulls, "
            f"{', '.join(families())}, or package.module:Class for a family of your own."
        )
    kind = getattr(import_module(module), attribute, None)
    if not isinstance(kind, type) or not issubclass(kind, Reconstructor):
        raise UsageError(
            f"--model {name} is not a model family: a class with fit, reconstruct and distance is "
            "expected."
        )
    return kind


def _built(kind: type, values: dict[str, Any]) -> Any:
    parameters = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in values.items() if name in parameters})


def import_module(name: str) -> ModuleType:
    """Import a module of the user, also from the current folder."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"The module {name} cannot be imported: {error}.") from error


def import_own_families() -> None:
    """Import the modules of ``PERMEA_FAMILIES``, so that models of their families can be read."""
    for name in os.environ.get(FAMILIES_VARIABLE, "").split(","):
        if name.strip():
            import_module(name.strip())


def save_model(model: Any, output: str, key: SigningKey | None) -> None:
    """Write a fitted model; a device or a pipe gets it only when it holds no private rows."""
    holds_rows = bool(model.holds_private_rows_)
    rows = "include" if holds_rows else None
    with output_errors(output):
        if holds_rows or not is_device(output):
            save(model, output, private_rows=rows, sign=key)
            return
        with TemporaryDirectory() as folder:
            file = save(model, Path(folder, "model"), private_rows=rows, sign=key)
            Path(output).write_bytes(file.read_bytes())


def load_model(path: str, trusted: TrustedKeys | None = None) -> Any:
    """A fitted classifier or regression from a file; anything else is refused."""
    model = load(path, trusted=trusted)
    if not hasattr(model, "predict") or not hasattr(model, "certificate_"):
        raise ModelError(f"{path} holds a {type(model).__name__}, not a classifier.")
    return model


def feature_columns(model: Any, frame: pd.DataFrame, what: str) -> list[str]:
    """Columns of ``frame`` that the model was trained on, by name where it knows them."""
    names = getattr(model, "columns", getattr(model, "feature_names_in_", None))
    if schema_of(model) is not None:
        names = schema_of(model).features
    if names is None:
        found = numeric_columns(frame)
        if len(found) != model.n_features_in_:
            raise InputError(
                f"{what} has {len(found)} columns of numbers, the model needs "
                f"{model.n_features_in_}."
            )
        return found
    missing = [str(name) for name in names if name not in frame.columns]
    if missing:
        raise InputError(
            f"{what} lacks {len(missing)} of the {len(names)} columns that the model was "
            f"trained on: {listed(missing)}. Give a table with the same columns."
        )
    return [str(name) for name in names]


# ---- rows for a model ----------------------------------------------------------------------------


def schema_of(model: Any) -> Any:
    """The schema by which a model encodes tables itself; None for a model of numbers."""
    return getattr(model, "schema", None)


def output_column(model: Any) -> str | None:
    """The column that the model predicts, where it knows its name."""
    schema = schema_of(model)
    if schema is None:
        return getattr(model, "label", None)
    name: str | None = schema.label if hasattr(model, "classes_") else schema.target
    return name


def read_rows(model: Any, path: str) -> pd.DataFrame:
    """A table for a model; one that is read by a schema stays as it is written."""
    return read_table(path) if schema_of(model) is None else read_declared_table(path)


def model_input(model: Any, frame: pd.DataFrame, what: str) -> Any:
    """What the model predicts from: the declared columns as they are, or a matrix of numbers.

    An error names all columns that cannot be used, and no value.
    """
    columns = feature_columns(model, frame, what)
    schema = schema_of(model)
    if schema is None:
        return numbers(frame, columns, what)
    try:
        schema.read(frame[columns])
    except ValueError as error:
        raise InputError(f"{what}: {error}") from error
    return frame[columns]


def known_labels(
    model: Any, frame: pd.DataFrame
) -> tuple[NDArray[np.bool_], NDArray[Any], NDArray[Any]]:
    """Rows whose class is known, their classes, and those of the model to compare them with."""
    schema, classes = schema_of(model), np.asarray(model.classes_)
    values = frame[output_column(model)]
    if schema is not None:
        missing = {word.strip().casefold() for word in schema.missing_values}
        known = values.notna() & ~values.astype(str).str.strip().str.casefold().isin(missing)
        return known.to_numpy(), schema.labels(frame[known]), classes
    known = values.notna()
    if classes.dtype.kind in "fiub":
        truth = pd.to_numeric(values[known], errors="coerce").to_numpy(np.float64)
        return known.to_numpy(), truth, classes.astype(np.float64)
    return known.to_numpy(), values[known].astype(str).to_numpy(dtype=str), classes.astype(str)
