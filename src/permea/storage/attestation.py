"""Certificates in a model file: bound to its numbers, and perhaps signed by their owner.

A certificate is worth something for the numbers that it was written about. For each certificate of
a model the manifest has an attestation: the certificate in plain words, the SHA-256 of the message

    {"certificate": …, "number": …, "weights": …}

and, if its owner wishes, her signature of that message. The weights are the digest of the digests
of all tensors and of the object tree, so neither a number nor a class nor a parameter can change
under a certificate unnoticed. Whoever can rewrite the file can write digests that fit; what she
cannot write is the signature of a key that the reader trusts. Everything else is read as an
unverified claim.
"""

import hashlib
import math
import types
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from permea.privacy import Certificate, Privacy
from permea.privacy.signing import (
    PublicKey,
    Signature,
    SigningError,
    SigningKey,
    TrustedKeys,
    canonical,
)
from permea.storage.container import parse_json
from permea.storage.errors import StorageError

_PURPOSE = "certificate"
_LONGEST = 20_000  # characters of an entry of a certificate
_ENTRIES = {"certificate", "sha256", "signature"}


def digest_of_weights(tensors: Mapping[str, str], model: str) -> str:
    """Digest of the digests of all that a certificate speaks of: tensors and object tree."""
    content = canonical({"tensors": dict(tensors), "model": model})
    return hashlib.sha256(content).hexdigest()


def attest(
    certificate: Certificate, number: int, weights: str, sign: SigningKey | None
) -> dict[str, Any]:
    """The attestation of one certificate of a model.

    Parameters
    ----------
    certificate : Certificate
        What is promised.
    number : int
        Its place among the certificates of the model.
    weights : str
        `digest_of_weights` of the model.
    sign : SigningKey or None
        Key of the owner who vouches for the certificate.
    """
    values = parse_json(canonical(certificate.to_dict()))
    read_certificate(values)  # what is written can be read
    message = _message(values, number, weights)
    signature = None if sign is None else sign.sign(message, purpose=_PURPOSE).to_dict()
    return {
        "certificate": values,
        "sha256": hashlib.sha256(message).hexdigest(),
        "signature": signature,
    }


def verify(entry: Any, number: int, weights: str, trusted: TrustedKeys | None) -> Certificate:
    """The certificate of an attestation, with the name of the trusted key that signed it.

    Raises
    ------
    StorageError
        When the attestation belongs to other numbers, or its signature is wrong.
    """
    if not isinstance(entry, dict) or set(entry) != _ENTRIES:
        raise StorageError("The certificate cannot be read.")
    certificate = read_certificate(entry["certificate"])
    message = _message(entry["certificate"], number, weights)
    if entry["sha256"] != hashlib.sha256(message).hexdigest():
        raise StorageError(
            "The certificate does not belong to these weights: one of them was exchanged. Get a "
            "fresh copy from the owner."
        )
    return replace(certificate, signer=_signer(entry["signature"], message, trusted))


def _message(values: Any, number: int, weights: str) -> bytes:
    return canonical({"certificate": values, "number": number, "weights": weights})


def _signer(values: Any, message: bytes, trusted: TrustedKeys | None) -> str | None:
    """Name of the trusted key that signed, None for none; a wrong signature is an error."""
    if values is None:
        return None
    try:
        signature = Signature.from_dict(values)
        right = PublicKey("unknown", signature.key).verifies(message, signature, purpose=_PURPOSE)
    except SigningError as reason:
        raise StorageError("The signature of the certificate cannot be read.") from reason
    if not right:
        raise StorageError(
            "The certificate was altered after signing. Get a fresh copy from the owner."
        )
    return None if trusted is None else trusted.signer(message, signature, purpose=_PURPOSE)


def read_certificate(values: Any) -> Certificate:
    """A certificate from plain values of a stranger: every entry of its type, and no other entry.

    Examples
    --------
    >>> read_certificate({"privacy": "good"})
    Traceback (most recent call last):
        ...
    permea.storage.StorageError: The certificate cannot be read.
    """
    try:
        if not isinstance(values, dict):
            raise TypeError("not a table")
        certificate = Certificate.from_dict(values)
        written = certificate.to_dict()
        exact = canonical({name: written[name] for name in values}) == canonical(values)
        hints = get_type_hints(Certificate)
        typed = all(
            _conforms(getattr(certificate, field.name), hints[field.name])
            for field in fields(certificate)
        )
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError):
        exact = typed = False
    if not (exact and typed):
        raise StorageError("The certificate cannot be read.")
    return certificate


def _conforms(value: Any, hint: Any) -> bool:
    """Whether a value is of the type that an annotation names, and of a sane size."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_conforms(value, choice) for choice in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if origin is tuple:
        each = get_args(hint)[0]
        return isinstance(value, tuple) and all(_conforms(item, each) for item in value)
    if hint is float:
        return type(value) in (int, float) and not math.isnan(value) and value >= 0
    if hint is int:
        return type(value) is int and 0 <= value < 1 << 63
    if hint is str:
        return isinstance(value, str) and len(value) <= _LONGEST
    if hint is type(None):
        return value is None
    return type(value) is hint and hint in (bool, Privacy)
