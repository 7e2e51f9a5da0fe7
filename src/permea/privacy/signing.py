"""Signatures of certificates (Ed25519), and a file of the keys that a reader trusts.

A certificate is a statement about data that nobody but its owner may see. What a reader can check
is who made the statement, and that it belongs to the model it came with. The owner of the data
signs with a private key; the reader lists the public keys to trust. A certificate that no trusted
key has signed is an *unverified claim*.

Every signed message begins with its purpose, so that a signature on one kind of document is not
valid on another.
"""

import base64
import binascii
import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from permea._files import open_regular

TRUSTED_KEYS_VARIABLE = "PERMEA_TRUSTED_KEYS"
KEY_SIZE = 32
SIGNATURE_SIZE = 64
LARGEST_FILE = 1 << 20
_SCHEMA = "permea signing key 1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_PURPOSE = re.compile(r"[a-z][a-z ]{0,31}")


class SigningError(ValueError):
    """A key, a signature or a file of trusted keys cannot be used."""


def canonical(values: Mapping[str, Any]) -> bytes:
    r"""Give the one JSON text that stands for ``values``: what is signed.

    Parameters
    ----------
    values : mapping
        Plain values: strings, finite numbers, booleans, None, and lists and mappings of these.

    Returns
    -------
    bytes
        UTF-8, keys sorted, no white space.

    Examples
    --------
    >>> canonical({"b": [1, 2.5], "a": "ε"})
    b'{"a":"\xce\xb5","b":[1,2.5]}'
    """
    try:
        _refuse_other_keys(values)
        text = json.dumps(
            values, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise SigningError(
            f"These values have no canonical JSON ({error}); use plain values with text as keys "
            "and finite numbers."
        ) from error


def _refuse_other_keys(value: Any) -> None:
    """JSON would write the keys 1 and "1" alike."""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a key is not text")
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            _refuse_other_keys(item)


@dataclass(frozen=True)
class Signature:
    """A signature, and the public key that made it.

    Parameters
    ----------
    key : bytes
        The raw public key, 32 bytes.
    signature : bytes
        The Ed25519 signature, 64 bytes.
    """

    key: bytes
    signature: bytes

    def __post_init__(self) -> None:
        _check_bytes("key", self.key, KEY_SIZE)
        _check_bytes("signature", self.signature, SIGNATURE_SIZE)

    def to_dict(self) -> dict[str, str]:
        """Text for JSON: both parts in base64."""
        return {"key": _to_base64(self.key), "signature": _to_base64(self.signature)}

    @classmethod
    def from_dict(cls, values: object) -> Self:
        """Read :meth:`to_dict`; anything else raises :class:`SigningError`."""
        if not isinstance(values, Mapping) or set(values) != {"key", "signature"}:
            raise SigningError('Not a signature: expected exactly the entries "key", "signature".')
        return cls(_from_base64(values["key"]), _from_base64(values["signature"]))


@dataclass(frozen=True)
class PublicKey:
    """A key that checks signatures, under the name that its reader gives to it.

    Parameters
    ----------
    name : str
        Whose key it is: letters, digits and ``. _ @ + -``.
    raw : bytes
        The raw Ed25519 public key, 32 bytes.

    Examples
    --------
    >>> key = SigningKey.generate("clinic").public
    >>> PublicKey.from_text(str(key)) == key
    True
    """

    name: str
    raw: bytes

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_bytes("public key", self.raw, KEY_SIZE)
        if _has_small_order(self.raw):
            raise SigningError(
                f"The public key named {self.name} is one of the few that accept forged "
                "signatures; ask its owner for a key made by permea keys create."
            )

    def __str__(self) -> str:
        return f"{self.name} {_to_base64(self.raw)}"

    @property
    def fingerprint(self) -> str:
        """A short text to compare over the telephone: half of the key's SHA-256."""
        digest = hashlib.sha256(self.raw).hexdigest()[:32]
        return ":".join(digest[start : start + 4] for start in range(0, len(digest), 4))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read one line ``name base64``."""
        parts = text.split()
        if len(parts) != 2:
            raise SigningError("Not a public key: expected one line with a name and the key.")
        return cls(parts[0], _from_base64(parts[1]))

    def verifies(self, message: bytes, signature: Signature, *, purpose: str = "document") -> bool:
        """Whether ``signature`` is this key's on this message for this purpose."""
        if signature.key != self.raw:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(
                signature.signature, _for_purpose(purpose, message)
            )
        except (InvalidSignature, UnsupportedAlgorithm, ValueError):
            return False
        return True


class SigningKey:
    """A private key with the name of its owner.

    Use :meth:`generate` or :meth:`load`; the key is never shown by ``repr``.

    Examples
    --------
    >>> key = SigningKey.generate("clinic")
    >>> signature = key.sign(b"what was promised", purpose="certificate")
    >>> trusted = TrustedKeys([key.public])
    >>> trusted.signer(b"what was promised", signature, purpose="certificate")
    'clinic'
    >>> trusted.signer(b"something else", signature, purpose="certificate") is None
    True
    >>> trusted.signer(b"what was promised", signature, purpose="agreement") is None
    True
    """

    def __init__(self, name: str, private: Ed25519PrivateKey) -> None:
        _check_name(name)
        self._name = name
        self._private = private

    def __repr__(self) -> str:
        return f"SigningKey({self._name!r}, {self.public.fingerprint})"

    def __reduce__(self) -> Any:
        raise TypeError("A signing key is not pickled; save it with SigningKey.save.")

    @property
    def name(self) -> str:
        """Name of the owner."""
        return self._name

    @property
    def public(self) -> PublicKey:
        """The key that others need to check what this one signed."""
        return PublicKey(self._name, self._private.public_key().public_bytes_raw())

    @classmethod
    def generate(cls, name: str) -> Self:
        """Make a fresh key from the system's secure source of random numbers."""
        return cls(name, Ed25519PrivateKey.generate())

    def sign(self, message: bytes, *, purpose: str = "document") -> Signature:
        """Sign a message for one purpose, such as ``"certificate"`` or ``"agreement"``."""
        made = self._private.sign(_for_purpose(purpose, message))
        return Signature(self.public.raw, made)

    def save(self, path: str | os.PathLike[str], *, passphrase: str | None = None) -> None:
        """Write the key to a file that its owner alone can read; an existing file is kept.

        Parameters
        ----------
        path : path
            Where to; must not exist, since a key that is overwritten is lost.
        passphrase : str or None
            Encrypts the key in the file.
        """
        if passphrase == "":
            raise SigningError("The passphrase is empty; give one, or none at all.")
        lock: KeySerializationEncryption = (
            NoEncryption()
            if passphrase is None
            else BestAvailableEncryption(passphrase.encode("utf-8"))
        )
        pem = self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)
        values = {"schema": _SCHEMA, "name": self._name, "key": pem.decode("ascii")}
        _write_new(Path(path), json.dumps(values, indent=2).encode() + b"\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, passphrase: str | None = None) -> Self:
        """Read a key that :meth:`save` wrote."""
        values = _key_values(path)
        try:
            private = load_pem_private_key(
                values["key"].encode("ascii"),
                None if passphrase is None else passphrase.encode("utf-8"),
            )
        except TypeError as error:
            have = "is not encrypted" if passphrase is not None else "needs its passphrase"
            raise SigningError(f"The signing key {path} {have}.") from error
        except (ValueError, UnsupportedAlgorithm) as error:
            wrong = "or the passphrase is wrong" if passphrase is not None else "or damaged"
            raise SigningError(f"{path} does not hold a signing key, {wrong}.") from error
        if not isinstance(private, Ed25519PrivateKey):
            raise SigningError(f"{path} holds another kind of key; an Ed25519 key is needed.")
        return cls(values["name"], private)

    @staticmethod
    def needs_passphrase(path: str | os.PathLike[str]) -> bool:
        """Whether the key in this file is encrypted."""
        return "BEGIN ENCRYPTED" in _key_values(path)["key"]


class TrustedKeys:
    """The public keys that a reader trusts, each under a name of its own.

    The file has one key per line, ``name base64``; empty lines and what follows ``#`` at the start
    of a line are ignored.

    Parameters
    ----------
    keys : iterable of PublicKey
        The keys; two keys of one name, or one key under two names, are refused.

    Examples
    --------
    >>> len(TrustedKeys())
    0
    """

    def __init__(self, keys: Iterable[PublicKey] = ()) -> None:
        self._keys: dict[bytes, PublicKey] = {}
        for key in keys:
            self._add(key)

    def _add(self, key: PublicKey) -> None:
        if key.raw in self._keys:
            other = self._keys[key.raw].name
            raise SigningError(f"The key of {key.name} is listed already, as {other}.")
        if any(key.name == other.name for other in self):
            raise SigningError(
                f"Two different keys are named {key.name}; give each a name of its own."
            )
        self._keys[key.raw] = key

    def __iter__(self) -> Iterator[PublicKey]:
        return iter(self._keys.values())

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"TrustedKeys({', '.join(key.name for key in self)})"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of trusted keys; anything that is not a key is an error with its line."""
        found = cls()
        text = _text_of(path, "a file of trusted keys")
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            try:
                found._add(PublicKey.from_text(line))
            except SigningError as error:
                raise SigningError(f"{path}, line {number}: {error}") from error
        return found

    def signer(
        self, message: bytes, signature: Signature, *, purpose: str = "document"
    ) -> str | None:
        """Give the name of the trusted key that signed this message for this purpose, or None."""
        key = self._keys.get(signature.key)
        if key is None or not key.verifies(message, signature, purpose=purpose):
            return None
        return key.name


def _for_purpose(purpose: str, message: bytes) -> bytes:
    """Give the bytes that are signed: what they are for, then the message."""
    if not _PURPOSE.fullmatch(purpose):
        raise SigningError("The purpose of a signature is one or more lower-case words.")
    return b"permea " + purpose.encode("ascii") + b" v1\n" + message


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SigningError(
            "The name of a key has 1 to 64 letters, digits or . _ @ + - and begins with a letter "
            "or digit, such as clinic-vienna."
        )


def _check_bytes(what: str, value: object, size: int) -> None:
    if not isinstance(value, bytes) or len(value) != size:
        raise SigningError(f"The {what} must be {size} bytes.")


def _to_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _from_base64(text: object) -> bytes:
    """Decode strictly: the one spelling that :func:`_to_base64` gives."""
    try:
        raw = base64.b64decode(str(text).encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise SigningError("The key or signature is not base64 text.") from error
    if _to_base64(raw) != text:
        raise SigningError("The key or signature is not base64 text in its usual spelling.")
    return raw


def _key_values(path: str | os.PathLike[str]) -> dict[str, str]:
    text = _text_of(path, "a signing key", secret=True)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SigningError(f"{path} is not a signing key made by permea.") from error
    if (
        not isinstance(values, dict)
        or set(values) != {"schema", "name", "key"}
        or values["schema"] != _SCHEMA
        or not all(isinstance(value, str) for value in values.values())
    ):
        raise SigningError(f"{path} is not a signing key made by this version of permea.")
    return values


def _text_of(path: str | os.PathLike[str], what: str, *, secret: bool = False) -> str:
    """Read a small regular file; never wait for a pipe."""
    try:
        with open_regular(path) as file:
            if secret and os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077:
                warnings.warn(
                    f"The signing key {path} can be read by others; run chmod 600 on it.",
                    stacklevel=4,
                )
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}." if error.strerror else str(error)
        raise SigningError(f"{path} {problem} Expected {what}.") from error
    if len(data) > LARGEST_FILE:
        raise SigningError(f"{path} is too large for {what}.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SigningError(f"{path} is not text; expected {what}.") from error


def _write_new(path: Path, data: bytes) -> None:
    """Write a file that did not exist, readable by its owner alone."""
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                path.unlink(missing_ok=True)
                raise
    except FileExistsError as error:
        raise SigningError(
            f"{path} exists, and a key that is overwritten is lost; choose another name."
        ) from error
    except OSError as error:
        raise SigningError(f"{path} cannot be written: {error.strerror}.") from error


# The y coordinates of the points whose order divides 8. With such a public key there are
# signatures that fit every message.
_FIELD = 2**255 - 19
_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER = {y % _FIELD for y in (1, -1, 0, _ORDER_8, -_ORDER_8)}  # orders 1, 2, 4, 8, 8


def _has_small_order(raw: bytes) -> bool:
    y = int.from_bytes(raw, "little") & ((1 << 255) - 1)  # the last bit is the sign of x
    return y % _FIELD in _SMALL_ORDER
