"""``permea show``: what is inside a model file."""

from typing import Annotated

from typer import Option

from permea.cli import options, signatures
from permea.cli.app import CHECK, command
from permea.cli.console import Console
from permea.storage import contents


@command("show", panel=CHECK)
def show(
    console: Console,
    model: options.ModelFile,
    trusted: options.Trusted = None,
    certificates: Annotated[
        bool, Option("--certificates", help="Print the certificates in full.")
    ] = False,
) -> None:
    """List the classes, arrays and certificates of a model file. Nothing in it is run or built.

    Read it before you load a file that somebody sent: every class that loading would build is
    listed, each array with its type and shape, and what its certificates are worth with the keys of
    --trusted.

    Example:
        permea show model.permea
        permea show model.permea --certificates --trusted trusted.keys
    """
    found = contents(model, trusted=signatures.trusted_keys(trusted))
    parts = [str(found), *(str(one) for one in found.certificates if certificates)]
    console.result("\n\n".join(parts), found.to_dict())
