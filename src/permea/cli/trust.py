"""Signing what a command writes, and telling how far the certificate of what it reads is believed.

Whatever no trusted key has signed is an *unverified claim*: anybody can write a certificate into a
file.
"""

import hashlib
import json
import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from permea._text import safe_text
from permea.cli.console import CommandError, Console, ExitCode
from permea.privacy import Certificate
from permea.privacy.signing import (
    TRUSTED_KEYS_VARIABLE,
    Signature,
    SigningKey,
    TrustedKeys,
    canonical,
)

PASSPHRASE_VARIABLE = "PERMEA_KEY_PASSPHRASE"
HOW_TO_VERIFY = (
    "The certificate is an unverified claim: no trusted key has signed it. Its owner signs with "
    "--sign KEY; you list the public key in a file and give it with --trusted."
)
HOW_TO_SIGN = (
    "Not signed: to other commands and to other people the certificate is an unverified claim. "
    "Sign it with --sign KEY (permea keys create makes one)."
)
_TABLE = "permea table signature 1"
_LARGEST = 1 << 24

Sign = Annotated[
    Path | None,
    typer.Option("--sign", metavar="KEY", help="Sign the certificate with this private key."),
]
Trusted = Annotated[
    Path | None,
    typer.Option(
        "--trusted",
        metavar="FILE",
        envvar=TRUSTED_KEYS_VARIABLE,
        help="File of the public keys that you trust.",
    ),
]


def signing_key(path: Path | None, console: Console) -> SigningKey | None:
    """Read the key of ``--sign`` before any work is done; ask for its passphrase if it has one."""
    if path is None:
        return None
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        phrase = passphrase(path) if SigningKey.needs_passphrase(path) else None
        key = SigningKey.load(path, passphrase=phrase)
    for text in dict.fromkeys(str(note.message) for note in noted):
        console.say(f"warning: {text}")
    return key


def passphrase(path: Path) -> str:
    """The passphrase of a key: from the environment, or typed by a person."""
    given = os.environ.get(PASSPHRASE_VARIABLE)
    if given:
        return given
    if not sys.stdin.isatty():
        raise CommandError(
            f"The signing key {path} needs its passphrase; set {PASSPHRASE_VARIABLE}, or run the "
            "command in a terminal.",
            ExitCode.INPUT,
        )
    return str(typer.prompt(f"Passphrase of {path}", hide_input=True, err=True))


def trusted_keys(path: Path | None) -> TrustedKeys | None:
    """Read the file of ``--trusted``; without one nothing is trusted."""
    return None if path is None else TrustedKeys.load(path)


def standing(certificate: Certificate | None) -> dict[str, Any]:
    """How far a promise is believed, for ``--json``: an unverified claim is never private."""
    if certificate is None:
        return {"private": False, "verified": False, "status": "not private", "signer": None}
    return {
        "private": certificate.is_private and certificate.is_verified,
        "verified": certificate.is_verified,
        "status": certificate.status,
        "signer": certificate.signer or None,
    }


def remark(certificate: Certificate | None, what: str) -> str:
    """How far the promise about a file is believed, in a sentence for a person."""
    if certificate is None:
        return f"{what} is not private: it has no certificate."
    if not certificate.is_private:
        reasons = safe_text("; ".join(certificate.reasons_not_private))
        return f"{what} is not private: {reasons}."
    if not certificate.is_verified:
        return f"{what}: {certificate.privacy.describe()}. {HOW_TO_VERIFY}"
    signed = f", signed by {certificate.signer}" if certificate.signer else ""
    return f"{what} is PRIVATE: {certificate.privacy.describe()}{signed}."


def signed_by(key: SigningKey | None) -> str:
    """The last line about a file that was written: who signed it, or how to."""
    if key is None:
        return HOW_TO_SIGN
    return f"signed by {key.name} ({key.public.fingerprint})"


# ---- tables: the certificate and the signature lie beside the file -----------------------------


def certificate_place(table: str) -> str:
    """Where the certificate of a table lies."""
    return f"{table}.certificate.json"


def signature_place(table: str) -> str:
    """Where the signature on a table and its certificate lies."""
    return f"{table}.signature.json"


def signed_table(table: Path, certificate: bytes, key: SigningKey) -> str:
    """Sign a table together with the text of its certificate."""
    signature = key.sign(_table_message(table, certificate), purpose="table")
    return json.dumps({"schema": _TABLE, **signature.to_dict()}, indent=2) + "\n"


def checked_certificate(
    table: str, certificate: str | None, trusted: TrustedKeys | None
) -> Certificate:
    """The certificate beside a table, verified if a trusted key has signed both."""
    text = _small_file(certificate or certificate_place(table))
    try:
        found = Certificate.from_json(text.decode("utf-8"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CommandError(
            f"{certificate or certificate_place(table)} is not a certificate.", ExitCode.INPUT
        ) from error
    place = Path(signature_place(table))
    if trusted is None or not place.exists():
        return found
    signature = _signature(_small_file(str(place)), place)
    message = _table_message(Path(table), text)
    return replace(found, signer=trusted.signer(message, signature, purpose="table"))


def _table_message(table: Path, certificate: bytes) -> bytes:
    if not table.is_file():
        raise CommandError(f"{table} does not exist or is no file.", ExitCode.INPUT)
    try:
        with table.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CommandError(f"{table} cannot be read: {error.strerror}.", ExitCode.INPUT) from error
    return canonical({"table": digest, "certificate": hashlib.sha256(certificate).hexdigest()})


def _signature(text: bytes, place: Path) -> Signature:
    try:
        values = json.loads(text)
        if not isinstance(values, dict) or values.pop("schema", None) != _TABLE:
            raise ValueError
        return Signature.from_dict(values)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{place} is not a signature of a table.", ExitCode.INPUT) from error


def _small_file(path: str) -> bytes:
    """Content of a file beside a table; never waits for a pipe."""
    try:
        if not Path(path).is_file():
            raise CommandError(f"{path} does not exist or is no file.", ExitCode.INPUT)
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.", ExitCode.INPUT) from error
    if len(data) > _LARGEST:
        raise CommandError(f"{path} is too large.", ExitCode.INPUT)
    return data
