"""``permea predict``: classes with probabilities, or numbers with intervals, for new rows."""

from typing import Annotated, Any

import numpy as np
import pandas as pd
from typer import Option

from permea.audit import signals
from permea.cli import models, options, signatures, tables
from permea.cli.app import LEARN, command
from permea.cli.console import Console, UsageError
from permea.report.content import accuracy_from

Found = tuple[pd.DataFrame, dict[str, Any], list[str]]  # columns to add, values for JSON, text
_DEVIATIONS = 1.959964  # of a 95 % interval


@command("predict", panel=LEARN)
def predict(
    console: Console,
    model: options.ModelFile,
    data: options.Data,
    output: options.TableOutput = tables.STREAM,
    column: options.NewColumn = "prediction",
    probabilities: Annotated[
        bool, Option("--probabilities", help="Add the probability of each class.")
    ] = False,
    distances: Annotated[
        bool, Option("--distances", help="Add the distance to each class.")
    ] = False,
    keep: Annotated[
        bool, Option("--keep-features", help="Write the feature columns as well.")
    ] = False,
    trusted: options.Trusted = None,
) -> None:
    """Predict the class of each row of a table, or the number.

    Columns are found by name, in any order, and a model that was trained with a schema reads the
    table by it. Columns that the model does not know, such as ids, are written in front of the
    prediction. Where the table has the column of classes, accuracy and AUROC are printed, with the
    share of the most frequent class beside them. A number has the ends of its 95 % interval beside
    it, as COLUMN_low and COLUMN_high.

    Example:
        permea predict model.permea new.csv --probabilities -o out.csv
    """
    tables.check_table_output(console, output, data, model)
    fitted = models.load_model(model, signatures.trusted_keys(trusted))
    classifies = hasattr(fitted, "classes_")
    if probabilities and not classifies:
        raise UsageError(f"{model} predicts numbers, which have no probabilities.")
    if distances and not signals.is_distance_based(fitted):
        raise UsageError(f"{model} has no distances to classes. Use --probabilities.")
    frame = models.read_rows(fitted, data)
    columns = models.feature_columns(fitted, frame, data)
    X = models.model_input(fitted, frame, data)
    answer = fitted.predict(X)
    result = tables.with_predictions(
        frame if keep else frame.drop(columns=columns), column, answer, data
    )
    if classifies:
        added, values, text = _classes(fitted, frame, X, answer, probabilities, distances)
    else:
        added, values, text = _numbers(fitted, frame, X, answer, column)
    certificate = getattr(fitted, "certificate_", None)
    tables.write_predictions(
        console,
        pd.concat([result, added.set_axis(result.index)], axis=1),
        output,
        "\n".join([*text, signatures.describe_certificate(certificate, model)]),
        {**values, **signatures.certificate_status(certificate)},
    )


def _classes(
    model: Any, frame: pd.DataFrame, X: Any, answer: Any, probabilities: bool, distances: bool
) -> Found:
    """Probabilities and distances, and how good the predictions are where classes are known."""
    scores = signals.class_probabilities(model, X)
    added: dict[str, Any] = {}
    for name, wanted in (("probability", probabilities), ("distance", distances)):
        if wanted:
            each = scores if name == "probability" else model.distances(X)
            added |= {f"{name}_{one}": each[:, at] for at, one in enumerate(model.classes_)}
    values: dict[str, Any] = {"predicted": tables.counts_by_class(answer)}
    values |= dict.fromkeys(("accuracy", "majority", "auroc"))
    text = []
    if models.output_column(model) in frame.columns:
        known, truth, classes = models.known_labels(model, frame)
        if known.any():
            predicted = np.asarray(answer)[known].astype(classes.dtype)
            found = accuracy_from(truth, predicted, scores[known], classes)
            values |= {"accuracy": found.value, "majority": found.majority, "auroc": found.auroc}
            text.append(str(found))
    return pd.DataFrame(added, index=range(len(frame))), values, text


def _numbers(model: Any, frame: pd.DataFrame, X: Any, answer: Any, column: str) -> Found:
    """Intervals, and how much of the spread of known numbers the predictions explain."""
    added: dict[str, Any] = {}
    if model.model_.vectors is not None:
        mean, deviation = model.predict(X, return_std=True)
        added = {f"{column}_low": mean - _DEVIATIONS * deviation,
                 f"{column}_high": mean + _DEVIATIONS * deviation}  # fmt: skip
    values: dict[str, Any] = {"r2": None}
    text = []
    target = models.output_column(model)
    if target in frame.columns:
        truth = pd.to_numeric(frame[target], errors="coerce").to_numpy(np.float64)
        known = np.isfinite(truth)
        if known.sum() > 1 and np.ptp(truth[known]) > 0:
            errors = np.mean((truth - np.asarray(answer))[known] ** 2)
            values["r2"] = 1 - errors / np.var(truth[known])
            text.append(
                f"R² {values['r2']:.3f}, root of the mean square error {errors**0.5:.4g}, "
                f"{known.sum()} rows with a number"
            )
    return pd.DataFrame(added, index=range(len(frame))), values, text
