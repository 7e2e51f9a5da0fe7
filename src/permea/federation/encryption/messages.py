"""Framed messages: the only thing that asker, parties and aggregator exchange.

A message is ``magic ‖ header length ‖ JSON header ‖ parts ‖ SHA-256 of all before``. The header
says what the message is (`kind`), for which public parameters (`parameters`, a hash) and which key
(`key`, an identifier), so that a message in the wrong place is refused before any cryptography is
tried. The digest finds damage, not forgery: whoever can rewrite a message can rewrite its digest.
Send messages over an authenticated channel (TLS) when an active attacker is feared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

MAGIC = b"PERMEA-ENC-1\n"
DIGEST = hashlib.sha256().digest_size


class EncryptionError(ValueError):
    """Base class of everything that the encrypted federation refuses to do."""


class DamagedMessageError(EncryptionError):
    """A message was truncated, altered, or is no message of this library."""


class MismatchError(EncryptionError):
    """A message is intact but belongs elsewhere: other kind, parameters, key, party or query."""


class WrongKeyError(EncryptionError):
    """A ciphertext cannot be decrypted with this key."""


def pack(kind: str, header: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    """Frame `parts` under a header.

    Examples
    --------
    >>> header, parts = unpack(pack("note", {"n": 1}, [b"a", b"bc"]), "note")
    >>> header["n"], parts
    (1, [b'a', b'bc'])
    """
    fields = {"kind": kind, "sizes": [len(part) for part in parts], **header}
    text = json.dumps(fields, sort_keys=True).encode()
    body = b"".join([MAGIC, len(text).to_bytes(4, "big"), text, *parts])
    return body + hashlib.sha256(body).digest()


def unpack(message: bytes, kind: str) -> tuple[dict[str, Any], list[bytes]]:
    """Open a message, or say what is wrong with it."""
    if not isinstance(message, bytes | bytearray | memoryview):
        raise TypeError(f"expected the bytes of a {kind}, got {type(message).__name__}")
    message = bytes(message)
    start = len(MAGIC) + 4
    if len(message) < start + DIGEST or not message.startswith(MAGIC):
        raise DamagedMessageError(
            f"these {len(message)} bytes are not a permea {kind}: send it again"
        )
    body = memoryview(message)[:-DIGEST]
    if hashlib.sha256(body).digest() != message[-DIGEST:]:
        raise DamagedMessageError(
            f"a {kind} of {len(message)} bytes fails its checksum (truncated or altered): "
            "send it again"
        )
    end = start + int.from_bytes(message[len(MAGIC) : start], "big")
    try:
        header = json.loads(message[start:end])
        found, sizes = str(header["kind"]), [int(size) for size in header["sizes"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedMessageError(
            f"the header of a {kind} cannot be read: send it again"
        ) from error
    if found != kind:
        raise MismatchError(f"expected a {kind}, got a {found}")
    ends = list(accumulate(sizes, initial=end))
    if ends[-1] != len(body) or min(sizes, default=0) < 0:
        raise DamagedMessageError(f"the parts of a {kind} do not fill it: send it again")
    return header, [message[a:b] for a, b in pairwise(ends)]


def require_same(what: str, found: object, expected: object, advice: str) -> None:
    """Raise `MismatchError` unless a header field is the expected one."""
    if found != expected:
        raise MismatchError(f"{what} is {found!r}, expected {expected!r}: {advice}")
