"""``permea keys``: keys that sign certificates, and the keys that a reader trusts."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from permea._files import write_atomically
from permea.cli import options, signatures, tables
from permea.cli.app import LEARN, command
from permea.cli.console import AuditError, Console, InputError, OutputError
from permea.privacy import Certificate
from permea.privacy.signing import PublicKey, SigningError, SigningKey, TrustedKeys
from permea.storage import load

KeyFile = Annotated[Path, Argument(metavar="KEY", help="Private key file.")]
TrustedFile = Annotated[Path, Argument(metavar="TRUSTED", help="File of trusted keys.")]


@command("keys create", panel=LEARN)
def create(
    console: Console,
    name: Annotated[str, Argument(help="Name of the owner, such as clinic-vienna.")],
    output: Annotated[str, Option("--output", "-o", help="Private key file to write.")],
    locked: Annotated[
        bool, Option("--passphrase", help="Ask for a passphrase and encrypt the key.")
    ] = False,
) -> None:
    """Create a key pair: sign with --sign OUTPUT, and give the public line to your readers.

    Only you can read the file. Nobody can sign in your name without it, and a lost key cannot be
    restored.

    Example:
        permea keys create clinic --output clinic.key
    """
    tables.check_output(output, ())
    key = SigningKey.generate(name)
    try:
        key.save(output, passphrase=_new_passphrase() if locked else None)
    except SigningError as error:
        raise OutputError(error) from error
    console.say(f"private key written to {output}; your readers need this line:")
    console.result(str(key.public), {**_public_values(key.public), "private_key": output})


@command("keys public", panel=LEARN)
def public(console: Console, key: KeyFile) -> None:
    """Print the public line of a private key, which your readers add to their trusted keys.

    Example:
        permea keys public clinic.key > clinic.pub
    """
    found = signatures.signing_key(key)
    assert found is not None
    console.result(str(found.public), _public_values(found.public))


@command("keys trust", panel=LEARN)
def trust(
    console: Console,
    trusted: TrustedFile,
    key: Annotated[str, Argument(metavar="PUBLIC", help="File with the public line; - for stdin.")],
    name: Annotated[
        str | None, Option(help="Name under which you know the owner; theirs by default.")
    ] = None,
) -> None:
    """Add a public key to the keys that you trust.

    Compare the fingerprint with the owner first, in person or on the telephone: anybody who has
    this key can sign certificates that are then shown to you as PRIVATE.

    Example:
        permea keys trust trusted.keys clinic.pub
    """
    found = _read_public(key)
    if name is not None:
        found = PublicKey(name, found.raw)
    known = list(TrustedKeys.load(trusted)) if trusted.exists() else []
    keys = TrustedKeys([*known, found])
    tables.check_output(str(trusted), ())
    before = trusted.read_text(encoding="utf-8") if trusted.exists() else ""
    joint = "" if not before or before.endswith("\n") else "\n"
    write_atomically(trusted, f"{before}{joint}{found}\n".encode())
    text = f"{found.name} is now trusted; fingerprint {found.fingerprint}"
    console.result(text, {**_public_values(found), "trusted": len(keys)})


@command("keys list", panel=LEARN)
def list_keys(console: Console, trusted: TrustedFile) -> None:
    """List the trusted keys in a file, with their fingerprints.

    Example:
        permea keys list trusted.keys
    """
    keys = TrustedKeys.load(trusted)
    lines = [f"{key.name:<24}{key.fingerprint}" for key in keys] or ["no key is trusted"]
    console.result("\n".join(lines), {"keys": [_public_values(key) for key in keys]})


@command("keys verify", panel=LEARN)
def verify(
    console: Console,
    file: Annotated[str, Argument(help="Model, or table with its certificate beside it.")],
    trusted: options.Trusted = None,
    certificate: Annotated[
        str | None, Option(help="Certificate of a table, if it is elsewhere.")
    ] = None,
) -> None:
    """Check who signed a model or a fabricated table.

    The exit code is 7 when no trusted key has signed it.

    Example:
        permea keys verify model.permea --trusted trusted.keys
        permea keys verify private.csv --trusted trusted.keys
    """
    keys = signatures.trusted_keys(trusted)
    if Path(file).suffix.lower() in tables.FORMATS:
        found: Certificate | None = signatures.read_certificate(file, certificate, keys)
    else:
        found = getattr(load(file, trusted=keys), "certificate_", None)
    status = signatures.certificate_status(found)
    console.result(signatures.describe_certificate(found, file), {"file": file, **status})
    if not status["verified"]:
        raise AuditError(f"No trusted key has signed {file}.")


def _new_passphrase() -> str:
    return str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True))


def _read_public(path: str) -> PublicKey:
    if path == tables.STREAM:
        return PublicKey.from_text(sys.stdin.readline(4096))
    keys = list(TrustedKeys.load(path))
    if len(keys) != 1:
        raise InputError(
            f"{path} must hold one public key, the line that permea keys public prints; it holds "
            f"{len(keys)}."
        )
    return keys[0]


def _public_values(key: PublicKey) -> dict[str, str]:
    return {"name": key.name, "public": str(key), "fingerprint": key.fingerprint}
