"""``permea predict``: labels for new rows."""

from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from permea.cli.app import LEARN, command
from permea.cli.console import CommandError, Console, ExitCode
from permea.cli.tables import (
    FORMATS,
    STREAM,
    check_output,
    listed,
    numbers,
    read_table,
    write_table,
)
from permea.cli.trust import Trusted, remark, standing, trusted_keys
from permea.privacy.signing import TrustedKeys
from permea.storage import load

Model = Annotated[str, typer.Argument(help="Model file that permea wrote.")]


@command("predict", panel=LEARN, examples=["permea predict model.permea new.csv -o out.csv"])
def predict(
    console: Console,
    model: Model,
    data: Annotated[str, typer.Argument(help="Table: .csv, .parquet, or -.")],
    output: Annotated[
        str, typer.Option("--output", "-o", help="Table to write; - is standard output.")
    ] = STREAM,
    column: Annotated[str, typer.Option(help="Name of the new column.")] = "prediction",
    distances: Annotated[
        bool, typer.Option("--distances", help="Add the distance to each class.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep-features", help="Write the feature columns as well.")
    ] = False,
    trusted: Trusted = None,
) -> None:
    """Predict the class of each row of a table.

    Columns are found by name, in any order. Columns that the model does not know, such as ids,
    pass through in front of the prediction.
    """
    if console.as_json and output == STREAM:
        raise CommandError(
            "--json and the table would mix on standard output; give -o FILE.", ExitCode.USAGE
        )
    check_output(output, FORMATS, inputs=(data, model))
    classifier = load_model(model, trusted_keys(trusted))
    frame = read_table(data)
    columns = feature_columns(classifier, frame, data)
    X = numbers(frame, columns, data)
    answer = np.asarray(classifier.predict(X))
    result = frame if keep else frame.drop(columns=columns)
    if column in result.columns:
        raise CommandError(
            f"{data} has a column {column!r} already; name the new one with --column.",
            ExitCode.USAGE,
        )
    result = result.assign(**{column: answer})
    if distances:
        result = _with_distances(result, classifier, X)
    write_table(result, output)
    names, counts = np.unique(answer.astype(str), return_counts=True)
    found = dict(zip(names.tolist(), counts.tolist(), strict=True))
    certificate = getattr(classifier, "certificate_", None)
    console.result(
        f"{len(frame)} rows predicted, written to {output}\n{remark(certificate, model)}",
        {"output": output, "rows": len(frame), "predicted": found, **standing(certificate)},
        stdout_taken=output == STREAM,
    )


def _with_distances(result: pd.DataFrame, classifier: Any, X: NDArray[np.float64]) -> pd.DataFrame:
    values = classifier.distances(X)
    names = [f"distance_{name}" for name in classifier.classes_]
    return pd.concat([result, pd.DataFrame(values, columns=names, index=result.index)], axis=1)


def load_model(path: str, trusted: TrustedKeys | None = None) -> Any:
    """A fitted classifier from a file; anything else is refused in one line."""
    model = load(path, trusted=trusted)
    if not hasattr(model, "predict") or not hasattr(model, "classes_"):
        raise CommandError(
            f"{path} holds a {type(model).__name__}, not a classifier.", ExitCode.MODEL
        )
    return model


def feature_columns(model: Any, frame: pd.DataFrame, what: str) -> list[str]:
    """Columns of ``frame`` that the model was trained on, by name where it knows them."""
    names = getattr(model, "columns", None)
    if names is None:
        names = getattr(model, "feature_names_in_", None)
    if names is not None:
        missing = [str(name) for name in names if name not in frame.columns]
        if missing:
            raise CommandError(
                f"{what} lacks {len(missing)} of the {len(names)} columns that the model was "
                f"trained on: {listed(missing)}. Give a table with the same columns.",
                ExitCode.INPUT,
            )
        return [str(name) for name in names]
    numeric = [c for c in frame.columns if pd.api.types.is_numeric_dtype(frame[c])]
    if len(numeric) != model.n_features_in_:
        raise CommandError(
            f"{what} has {len(numeric)} columns of numbers, the model needs "
            f"{model.n_features_in_}.",
            ExitCode.INPUT,
        )
    return numeric
