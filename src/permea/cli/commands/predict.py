"""``permea predict``: labels for new rows."""

from typing import Annotated

import pandas as pd
import typer

from permea.cli.app import LEARN, command
from permea.cli.console import Console
from permea.cli.models import feature_columns, load_model
from permea.cli.options import Data, ModelFile, NewColumn, TableOutput, Trusted
from permea.cli.signatures import certificate_status, describe_certificate, trusted_keys
from permea.cli.tables import (
    STREAM,
    check_table_output,
    counts_by_class,
    numbers,
    read_table,
    with_predictions,
    write_table,
)


@command("predict", panel=LEARN, examples=["permea predict model.permea new.csv -o out.csv"])
def predict(
    console: Console,
    model: ModelFile,
    data: Data,
    output: TableOutput = STREAM,
    column: NewColumn = "prediction",
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
    are written in front of the prediction.
    """
    check_table_output(console, output, data, model)
    classifier = load_model(model, trusted_keys(trusted))
    frame = read_table(data)
    columns = feature_columns(classifier, frame, data)
    X = numbers(frame, columns, data)
    answer = classifier.predict(X)
    result = with_predictions(frame if keep else frame.drop(columns=columns), column, answer, data)
    if distances:
        names = [f"distance_{name}" for name in classifier.classes_]
        found = pd.DataFrame(classifier.distances(X), columns=names, index=result.index)
        result = pd.concat([result, found], axis=1)
    write_table(result, output)
    certificate = getattr(classifier, "certificate_", None)
    console.result(
        f"{len(frame)} rows predicted, written to {output}\n"
        f"{describe_certificate(certificate, model)}",
        {
            "output": output,
            "rows": len(frame),
            "predicted": counts_by_class(answer),
            **certificate_status(certificate),
        },
        stdout_taken=output == STREAM,
    )
