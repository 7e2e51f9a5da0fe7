"""``permea predict``: labels for new rows."""

from typing import Annotated

import pandas as pd
from typer import Option

from permea.cli import models, options, signatures, tables
from permea.cli.app import LEARN, command
from permea.cli.console import Console


@command("predict", panel=LEARN)
def predict(
    console: Console,
    model: options.ModelFile,
    data: options.Data,
    output: options.TableOutput = tables.STREAM,
    column: options.NewColumn = "prediction",
    distances: Annotated[
        bool, Option("--distances", help="Add the distance to each class.")
    ] = False,
    keep: Annotated[
        bool, Option("--keep-features", help="Write the feature columns as well.")
    ] = False,
    trusted: options.Trusted = None,
) -> None:
    """Predict the class of each row of a table.

    Columns are found by name, in any order. Columns that the model does not know, such as ids,
    are written in front of the prediction.

    Example:
        permea predict model.permea new.csv -o out.csv
    """
    tables.check_table_output(console, output, data, model)
    classifier = models.load_model(model, signatures.trusted_keys(trusted))
    frame = tables.read_table(data)
    columns = models.feature_columns(classifier, frame, data)
    X = tables.numbers(frame, columns, data)
    answer = classifier.predict(X)
    result = tables.with_predictions(
        frame if keep else frame.drop(columns=columns), column, answer, data
    )
    if distances:
        names = [f"distance_{name}" for name in classifier.classes_]
        found = pd.DataFrame(classifier.distances(X), columns=names, index=result.index)
        result = pd.concat([result, found], axis=1)
    certificate = getattr(classifier, "certificate_", None)
    tables.write_predictions(
        console,
        result,
        output,
        signatures.describe_certificate(certificate, model),
        {
            "predicted": tables.counts_by_class(answer),
            **signatures.certificate_status(certificate),
        },
    )
