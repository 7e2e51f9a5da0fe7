"""``permea export``: a model for programs that have no Python."""

from typing import Annotated

from typer import Option

from permea.cli import options, signatures, tables
from permea.cli.app import LEARN, command
from permea.cli.console import Console
from permea.cli.models import load_model
from permea.storage import to_onnx


@command("export", panel=LEARN)
def export(
    console: Console,
    model: options.ModelFile,
    output: Annotated[str, Option("--output", "-o", help="ONNX file to write.")],
    trusted: options.Trusted = None,
) -> None:
    """Write a moment classifier as an ONNX model, with its certificate inside.

    With a schema the graph has one input per column: numbers and days as doubles, NaN where they
    are missing, and texts, empty where they are missing. It gives labels and probabilities. Only
    what was released is in it. Needs the extra permea[onnx].

    Example:
        permea export model.permea -o model.onnx
    """
    tables.check_output(output, (".onnx",), inputs=(model,))
    fitted = load_model(model, signatures.trusted_keys(trusted))
    made = to_onnx(fitted)
    tables.write_result(output, made.SerializeToString())
    names = [one.name for one in made.graph.input]
    certificate = getattr(fitted, "certificate_", None)
    console.result(
        f"{len(names)} inputs; {signatures.describe_certificate(certificate, model)}\n"
        f"written to {output}",
        {"output": output, "inputs": names, **signatures.certificate_status(certificate)},
    )
