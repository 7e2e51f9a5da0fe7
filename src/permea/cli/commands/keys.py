"""``permea keys``: keys that sign certificates, and the keys that a reader trusts."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from permea._files import write_atomically
from permea.cli.app import LEARN, command
from permea.cli.console import CommandError, Console, ExitCode
from permea.cli.tables import STREAM, check_output
from permea.cli.trust import (
    Trusted,
    checked_certificate,
    remark,
    signing_key,
    standing,
    trusted_keys,
)
from permea.privacy import Certificate
from permea.privacy.signing import PublicKey, SigningError, SigningKey, TrustedKeys
from permea.storage import load

KeyFile = Annotated[Path, typer.Argument(metavar="KEY", help="Private key file.")]
TrustedFile = Annotated[Path, typer.Argument(metavar="TRUSTED", help="File of trusted keys.")]


@command("keys create", panel=LEARN, examples=["permea keys create clinic --output clinic.key"])
def create(
    console: Console,
    name: Annotated[str, typer.Argument(help="Name of the owner, such as clinic-vienna.")],
    output: Annotated[str, typer.Option("--output", "-o", help="Private key file to write.")],
    locked: Annotated[
        bool, typer.Option("--passphrase", help="Ask for a passphrase and encrypt the key.")
    ] = False,
) -> None:
    """Make a key pair: sign with --sign OUTPUT, give the public line to your readers.

    The file can be read by you alone. Nobody who lacks it can sign in your name, and a key that is
    lost cannot be made again.
    """
    check_output(output, ())
    key = SigningKey.generate(name)
    try:
        key.save(output, passphrase=_new_passphrase() if locked else None)
    except SigningError as error:
        raise CommandError(str(error), ExitCode.OUTPUT) from error
    console.say(f"private key written to {output}; your readers need this line:")
    console.result(str(key.public), {**_public_values(key.public), "private_key": output})


@command("keys public", panel=LEARN, examples=["permea keys public clinic.key > clinic.pub"])
def public(console: Console, key: KeyFile) -> None:
    """Print the public line of a private key: what your readers put among their trusted keys."""
    found = signing_key(key, console)
    assert found is not None
    console.result(str(found.public), _public_values(found.public))


@command("keys trust", panel=LEARN, examples=["permea keys trust trusted.keys clinic.pub"])
def trust(
    console: Console,
    trusted: TrustedFile,
    key: Annotated[
        str, typer.Argument(metavar="PUBLIC", help="File with the public line, or - to read it.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name under which you know the owner; theirs by default.")
    ] = None,
) -> None:
    """Add a public key to the keys that you trust.

    Compare the fingerprint with the owner first, in person or over the telephone: whoever holds
    this key can sign certificates that you will read as PRIVATE.
    """
    found = _read_public(key)
    if name is not None:
        found = PublicKey(name, found.raw)
    known = list(TrustedKeys.load(trusted)) if trusted.exists() else []
    keys = TrustedKeys([*known, found])
    check_output(str(trusted), ())
    before = trusted.read_text(encoding="utf-8") if trusted.exists() else ""
    joint = "" if not before or before.endswith("\n") else "\n"
    write_atomically(trusted, f"{before}{joint}{found}\n".encode())
    text = f"{found.name} is trusted from now on; fingerprint {found.fingerprint}"
    console.result(text, {**_public_values(found), "trusted": len(keys)})


@command("keys list", panel=LEARN, examples=["permea keys list trusted.keys"])
def list_keys(console: Console, trusted: TrustedFile) -> None:
    """Show the keys of a file of trusted keys with their fingerprints."""
    keys = TrustedKeys.load(trusted)
    lines = [f"{key.name:<24}{key.fingerprint}" for key in keys] or ["no key is trusted"]
    console.result("\n".join(lines), {"keys": [_public_values(key) for key in keys]})


@command(
    "keys verify",
    panel=LEARN,
    examples=[
        "permea keys verify model.permea --trusted trusted.keys",
        "permea keys verify private.csv --trusted trusted.keys",
    ],
)
def verify(
    console: Console,
    file: Annotated[str, typer.Argument(help="Model, or table with its certificate beside it.")],
    trusted: Trusted = None,
    certificate: Annotated[
        str | None, typer.Option(help="Certificate of a table, where it lies elsewhere.")
    ] = None,
) -> None:
    """Check whose signature a model or a fabricated table carries.

    The exit code is 7 when no trusted key has signed it.
    """
    keys = trusted_keys(trusted)
    if Path(file).suffix.lower() in (".csv", ".parquet"):
        found: Certificate | None = checked_certificate(file, certificate, keys)
    else:
        found = getattr(load(file, trusted=keys), "certificate_", None)
    console.result(remark(found, file), {"file": file, **standing(found)})
    if not standing(found)["verified"]:
        raise CommandError(f"No trusted key has signed {file}.", ExitCode.AUDIT)


def _new_passphrase() -> str:
    return str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True))


def _read_public(path: str) -> PublicKey:
    if path == STREAM:
        return PublicKey.from_text(sys.stdin.readline(4096))
    keys = list(TrustedKeys.load(path))
    if len(keys) != 1:
        raise CommandError(
            f"{path} must hold one public key, the line that permea keys public prints; it holds "
            f"{len(keys)}.",
            ExitCode.INPUT,
        )
    return keys[0]


def _public_values(key: PublicKey) -> dict[str, str]:
    return {"name": key.name, "public": str(key), "fingerprint": key.fingerprint}
