"""Model families by name, and model files."""

import importlib
import inspect
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

import permea
from permea.cli.console import CommandError, ExitCode
from permea.cli.tables import is_device, listed, numeric_columns, output_errors
from permea.compose import ReconstructionClassifier
from permea.models.base import Reconstructor
from permea.privacy.signing import SigningKey, TrustedKeys
from permea.storage import load, save


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


def build_classifier(name: str, **values: Any) -> ReconstructionClassifier:
    """An unfitted classifier of a family, with those of the values that it has parameters for.

    Parameters
    ----------
    name : str
        As in `find_family`.
    **values
        Parameters by name, such as ``n_components``.
    """
    kind = find_family(name)
    if not issubclass(kind, ReconstructionClassifier):
        values["model"] = kind(**_known(kind, values))
        kind = ReconstructionClassifier
    classifier: ReconstructionClassifier = kind(**_known(kind, values))
    return classifier


def _known(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(kind).parameters
    return {name: value for name, value in values.items() if name in parameters}


def find_family(name: str) -> type:
    """The class of a model family: a public one by its name, or ``package.module:Class``.

    Parameters
    ----------
    name : str
        A key of `families`, or the place of a class that is a `ReconstructionClassifier` or has
        ``fit``, ``reconstruct`` and ``distance``.

    Examples
    --------
    >>> find_family("fuzzy").__name__, find_family("permea.models.kahm:KernelAffineHullMachine")
    ('FuzzyClassifier', <class 'permea.models.kahm.KernelAffineHullMachine'>)
    """
    if name in families():
        return families()[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise CommandError(
            f"There is no model family {name!r}. Use one of {', '.join(families())}, or "
            "package.module:Class for a family of your own.",
            ExitCode.USAGE,
        )
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise CommandError(
            f"--model {name} cannot be imported: {error}.", ExitCode.USAGE
        ) from error
    if not isinstance(kind, type) or not issubclass(kind, ReconstructionClassifier | Reconstructor):
        raise CommandError(
            f"--model {name} is no model family. It needs fit, reconstruct and distance, or must "
            "be a ReconstructionClassifier.",
            ExitCode.USAGE,
        )
    return kind


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
    """A fitted classifier from a file; anything else is refused."""
    model = load(path, trusted=trusted)
    if not hasattr(model, "predict") or not hasattr(model, "classes_"):
        raise CommandError(
            f"{path} holds a {type(model).__name__}, not a classifier.", ExitCode.MODEL
        )
    return model


def feature_columns(model: Any, frame: pd.DataFrame, what: str) -> list[str]:
    """Columns of ``frame`` that the model was trained on, by name where it knows them."""
    names = getattr(model, "columns", getattr(model, "feature_names_in_", None))
    if names is None:
        found = numeric_columns(frame)
        if len(found) != model.n_features_in_:
            raise CommandError(
                f"{what} has {len(found)} columns of numbers, the model needs "
                f"{model.n_features_in_}.",
                ExitCode.INPUT,
            )
        return found
    missing = [str(name) for name in names if name not in frame.columns]
    if missing:
        raise CommandError(
            f"{what} lacks {len(missing)} of the {len(names)} columns that the model was "
            f"trained on: {listed(missing)}. Give a table with the same columns.",
            ExitCode.INPUT,
        )
    return [str(name) for name in names]
