"""``permea predict``: labels, probabilities or numbers for new rows."""

from typing import Annotated, Any

import numpy as np
import pandas as pd
from typer import Option

from permea.audit import signals
from permea.cli import models, options, signatures, tables
from permea.cli.app import LEARN, command
from permea.cli.console import Console, UsageError
from permea.report.content import Accuracy, accuracy_from


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
    """Predict the class of each row of a table.

    Columns are found by name, in any order. Columns that the model does not know, such as ids, are
    written in front of the prediction. Where the table has the column of classes, accuracy and
    AUROC are printed, with the share of the most frequent class beside them.

    Example:
        permea predict model.permea new.csv --probabilities -o out.csv
    """
    tables.check_table_output(console, output, data, model)
    classifier = models.load_model(model, signatures.trusted_keys(trusted))
    if distances and not signals.is_distance_based(classifier):
        raise UsageError(f"{model} has no distances to the classes. Use --probabilities.")
    frame = models.read_rows(classifier, data)
    columns = models.feature_columns(classifier, frame, data)
    X = models.model_input(classifier, frame, data)
    answer = classifier.predict(X)
    result = tables.with_predictions(
        frame if keep else frame.drop(columns=columns), column, answer, data
    )
    scores = signals.class_probabilities(classifier, X)
    parts = [result]
    if probabilities:
        parts.append(_per_class("probability", scores, classifier, result))
    if distances:
        parts.append(_per_class("distance", classifier.distances(X), classifier, result))
    found = _accuracy(classifier, frame, answer, scores)
    certificate = getattr(classifier, "certificate_", None)
    text = signatures.describe_certificate(certificate, model)
    tables.write_predictions(
        console,
        pd.concat(parts, axis=1),
        output,
        text if found is None else f"{found}\n{text}",
        {
            "predicted": tables.counts_by_class(answer),
            "accuracy": None if found is None else found.value,
            "majority": None if found is None else found.majority,
            "auroc": None if found is None else found.auroc,
            **signatures.certificate_status(certificate),
        },
    )


def _per_class(name: str, values: Any, classifier: Any, result: pd.DataFrame) -> pd.DataFrame:
    names = [f"{name}_{one}" for one in classifier.classes_]
    return pd.DataFrame(np.asarray(values), columns=names, index=result.index)


def _accuracy(classifier: Any, frame: pd.DataFrame, answer: Any, scores: Any) -> Accuracy | None:
    """How good the predictions are, where the table has the classes of some rows."""
    label = models.label_column(classifier)
    if label is None or label not in frame.columns:
        return None
    known = frame[label].notna().to_numpy()
    if not known.any():
        return None
    truth, classes = models.comparable_labels(classifier, frame[known])
    predicted = classes[np.searchsorted(classifier.classes_, np.asarray(answer)[known])]
    return accuracy_from(truth, predicted, scores[known], classes)
