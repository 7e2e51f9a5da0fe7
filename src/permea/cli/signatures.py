"""Signing what a command writes, and checking the certificate of what it reads.

A certificate that no trusted key has signed is an *unverified claim*: anybody can write a
certificate into a file.
"""

import hashlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from permea._files import open_regular
from permea._text import safe_text
from permea.cli.console import Console, InputError, json_file
from permea.privacy import Certificate
from permea.privacy.signing import Signature, SigningKey, TrustedKeys, canonical

PASSPHRASE_VARIABLE = "PERMEA_KEY_PASSPHRASE"
HOW_TO_VERIFY = (
    "The certificate is an unverified claim: no trusted key has signed it. The owner signs with "
    "--sign KEY; list the owner's public key in a file and pass it with --trusted."
)
_HOW_TO_SIGN = (
    "Not signed: for other commands and other people the certificate is an unverified claim. "
    "Sign it with --sign KEY (permea keys create makes one)."
)
_TABLE = "permea table signature 1"
_LARGEST = 1 << 24


def signing_key(path: Path | None) -> SigningKey | None:
    """Read the key of ``--sign`` before any work is done; prompt for its passphrase if needed."""
    if path is None:
        return None
    phrase = _passphrase(path) if SigningKey.needs_passphrase(path) else None
    return SigningKey.load(path, passphrase=phrase)


def _passphrase(path: Path) -> str:
    """The passphrase of a key: from the environment, or typed at the terminal."""
    given = os.environ.get(PASSPHRASE_VARIABLE)
    if given:
        return given
    if not sys.stdin.isatty():
        raise InputError(
            f"The signing key {path} needs its passphrase; set {PASSPHRASE_VARIABLE}, or run the "
            "command in a terminal."
        )
    return str(typer.prompt(f"Passphrase of {path}", hide_input=True, err=True))


def trusted_keys(path: Path | None) -> TrustedKeys | None:
    """Read the file of ``--trusted``; without one no key is trusted."""
    return None if path is None else TrustedKeys.load(path)


def certificate_status(certificate: Certificate | None) -> dict[str, Any]:
    """What a certificate is worth, for ``--json``: an unverified claim is never private."""
    if certificate is None:
        return {"private": False, "verified": False, "status": "not private", "signer": None}
    return {
        "private": certificate.is_private and certificate.is_verified,
        "verified": certificate.is_verified,
        "status": certificate.status,
        "signer": certificate.signer or None,
    }


def describe_certificate(certificate: Certificate | None, what: str) -> str:
    """What the certificate of a file is worth, in one sentence."""
    if certificate is None:
        return f"{what} is not private: it has no certificate."
    if not certificate.is_private:
        reasons = safe_text("; ".join(certificate.reasons_not_private))
        return f"{what} is not private: {reasons}."
    if not certificate.is_verified:
        return f"{what}: {certificate.privacy.describe()}. {HOW_TO_VERIFY}"
    signed = f", signed by {certificate.signer}" if certificate.signer else ""
    return f"{what} is PRIVATE: {certificate.privacy.describe()}{signed}."


def certified_result(
    console: Console,
    certificate: Certificate,
    text: str,
    values: dict[str, Any],
    key: SigningKey | None,
    *,
    stdout_taken: bool = False,
) -> None:
    """Print the result of a command that wrote something with a certificate."""
    signed = _HOW_TO_SIGN if key is None else f"signed by {key.name} ({key.public.fingerprint})"
    console.result(
        f"{certificate}\n{text}\n{signed}",
        {
            **values,
            **certificate_status(certificate),
            "signed_by": None if key is None else key.name,
            "certificate": certificate.to_dict(),
        },
        stdout_taken=stdout_taken,
    )


# ---- tables: the certificate and the signature are files beside the table ------------------------


def certificate_path(table: str) -> str:
    """Where the certificate of a table is."""
    return f"{table}.certificate.json"


def signature_path(table: str) -> str:
    """Where the signature of a table and its certificate is."""
    return f"{table}.signature.json"


def sign_table(table: bytes, certificate: bytes, key: SigningKey) -> bytes:
    """The file with the signature of a table together with its certificate."""
    signature = key.sign(_message(table, certificate), purpose="table")
    return json_file({"schema": _TABLE, **signature.to_dict()})


def read_certificate(
    table: str, certificate: str | None, trusted: TrustedKeys | None
) -> Certificate:
    """The certificate beside a table, verified if a trusted key has signed both."""
    path = certificate or certificate_path(table)
    text = _small_file(path)
    try:
        found = Certificate.from_json(text.decode("utf-8"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is not a certificate.") from error
    if trusted is None or not Path(signature_path(table)).exists():
        return found
    signature = _read_signature(signature_path(table))
    signer = trusted.signer(_message(_regular_file(table), text), signature, purpose="table")
    return replace(found, signer=signer)


def _message(table: bytes, certificate: bytes) -> bytes:
    digests = {"table": table, "certificate": certificate}
    return canonical({name: hashlib.sha256(data).hexdigest() for name, data in digests.items()})


def _read_signature(path: str) -> Signature:
    try:
        values = json.loads(_small_file(path))
        if not isinstance(values, dict) or values.pop("schema", None) != _TABLE:
            raise ValueError
        return Signature.from_dict(values)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a signature of a table.") from error


def _small_file(path: str) -> bytes:
    data = _regular_file(path, _LARGEST + 1)
    if len(data) > _LARGEST:
        raise InputError(f"{path} is too large.")
    return data


def _regular_file(path: str, size: int = -1) -> bytes:
    """Content of a regular file; never waits for a pipe."""
    try:
        with open_regular(path) as file:
            return bytes(file.read(size))
    except OSError as error:
        reason = error.strerror or "it does not exist or is not a file"
        raise InputError(f"{path} cannot be read: {reason}.") from error
