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
import importlib
import json
import math
import os
import types
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from permea._files import write_atomically
from permea._version import __version__
from permea.privacy import Certificate, Privacy
from permea.privacy.signing import (
    PublicKey,
    Signature,
    SigningError,
    SigningKey,
    TrustedKeys,
    canonical,
)
from permea.storage.classes import ROOTS, STORABLE
from permea.storage.container import (
    DTYPES,
    RefusedError,
    StorageError,
    Tensors,
    checksum,
    is_sparse,
    parse_json,
    pieces,
    read_container,
)
from permea.storage.fields import LEDGER, LONGEST_WORD, SEED, Draft, One, Source, Stored

_PURPOSE = "certificate"
_LONGEST = 20_000  # characters of an entry of a certificate
_ATTESTED = {"certificate", "sha256", "signature"}


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
    if not isinstance(entry, dict) or set(entry) != _ATTESTED:
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


_DTYPES = frozenset(DTYPES.values())
_NOT_STORED = frozenset({"_sklearn_output_config", "_metadata_request"})  # scikit-learn's own


class Writer:
    """Turns an object tree into nodes, a table of arrays and a list of certificates."""

    def __init__(self) -> None:
        self.tensors: Tensors = {}
        self.certificates: list[Certificate] = []
        self._names: dict[int, str] = {}
        self._kept: list[NDArray[Any]] = []  # an identity is good while its array lives

    def encode(self, value: Any, where: str) -> Any:
        """Node of a value; ``where`` names it in errors."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if isinstance(value, Certificate):
            return self._certificate(value)
        if type(value) in (list, tuple, range):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [self.encode(item, f"{where}[{i}]") for i, item in enumerate(value)]}
        if type(value) is dict:
            return {"dict": {str(k): self.encode(item, where) for k, item in value.items()}}
        return self.encode_object(value, where)

    def encode_object(self, value: Any, where: str, *, parameters_only: bool = False) -> Any:
        """Node of an object of a listed class."""
        stored = _listed(value, where)
        state = dict(vars(value) if hasattr(value, "__dict__") else value._asdict())
        names = _names_to_store(stored, state, where, parameters_only)
        kinds = {**stored.parameters, **stored.fitted, **stored.optional}
        node: dict[str, Any] = {"class": stored.name}
        for name in names:
            node[name] = self._field(kinds[name], state[name], f"{where}.{name}")
        return node

    def _field(self, kind: Any, value: Any, where: str) -> Any:
        if kind is LEDGER:
            return None
        if kind is SEED and not isinstance(value, int | np.integer):
            return None  # a generator belongs to a run, not to a model
        if _parameters_only(kind) and hasattr(value, "get_params"):
            return self.encode_object(value, where, parameters_only=True)
        if _parameters_only(getattr(kind, "each", None)) and type(value) in (list, tuple):
            tag = "tuple" if isinstance(value, tuple) else "list"
            return {tag: [self.encode_object(v, where, parameters_only=True) for v in value]}
        return self.encode(value, where)

    def _certificate(self, certificate: Certificate) -> dict[str, int]:
        if certificate not in self.certificates:
            self.certificates.append(certificate)
        return {"certificate": self.certificates.index(certificate)}

    def _array(self, array: NDArray[Any], where: str) -> dict[str, str]:
        if array.dtype.kind in "UO":
            return self._words(array, where)
        little = array.dtype.newbyteorder("<")
        if little.str not in _DTYPES:
            raise StorageError(f"{where} is an array of {array.dtype}, which cannot be saved.")
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        if id(array) not in self._names:
            self._add(array, np.ascontiguousarray(array.T if fortran else array, dtype=little))
        return {"fortran" if fortran else "array": self._names[id(array)]}

    def _words(self, array: NDArray[Any], where: str) -> dict[str, str]:
        texts = all(isinstance(item, str) for item in array.ravel())
        if array.ndim != 1 or not texts:
            raise StorageError(f"{where} is an array of {array.dtype}, which cannot be saved.")
        if id(array) not in self._names:
            words = np.ascontiguousarray(array.astype(str), dtype=array.astype(str).dtype)
            width = max(words.dtype.itemsize // 4, 1)
            if width > LONGEST_WORD:
                raise StorageError(f"{where} has words of more than {LONGEST_WORD} characters.")
            codes = words.astype(f"<U{width}").view("<u4").reshape(len(words), width)
            self._add(array, codes)
        return {"words" if array.dtype.kind == "U" else "objects": self._names[id(array)]}

    def _add(self, array: NDArray[Any], content: NDArray[Any]) -> None:
        name = f"t{len(self.tensors)}"
        self._names[id(array)], self.tensors[name] = name, content
        self._kept.append(array)


def _parameters_only(kind: Any) -> bool:
    """Whether a field is an estimator that serves as a parameter."""
    if isinstance(kind, One):
        return kind.parameters_only
    return any(_parameters_only(choice) for choice in getattr(kind, "kinds", ()))


def _listed(value: Any, where: str) -> Stored:
    kind = type(value)
    stored = STORABLE.get(kind.__qualname__)
    if stored is None or stored.module != kind.__module__:
        raise StorageError(
            f"{where} is a {kind.__module__}.{kind.__qualname__}; only models of this library, "
            "made of the classes that it lists, can be saved."
        )
    return stored


def _names_to_store(
    stored: Stored, state: dict[str, Any], where: str, parameters_only: bool
) -> list[str]:
    """Names of the attributes that are written; an attribute of another name is an error."""
    if parameters_only:
        return list(stored.parameters)
    known = {*stored.parameters, *stored.fitted, *stored.optional, *stored.caches, *_NOT_STORED}
    if missing := sorted({*stored.parameters, *stored.fitted} - set(state)):
        raise StorageError(f"{where} lacks {', '.join(missing)}: fit it before saving it.")
    if unknown := sorted(set(state) - known):
        raise StorageError(
            f"{where} has attributes that {stored.name} does not declare for files: "
            f"{', '.join(unknown)}."
        )
    return [
        *stored.parameters,
        *stored.fitted,
        *(name for name in stored.optional if name in state),
    ]


def build(value: Any) -> Any:
    """The object of a draft; only classes of the list are imported, and no constructor is run.

    `Privacy` is the exception: its constructor checks the promise and does nothing else.
    """
    if isinstance(value, list):
        return [build(item) for item in value]
    if isinstance(value, tuple):
        return tuple(build(item) for item in value)
    if not isinstance(value, Draft):
        return value
    values = {name: build(item) for name, item in value.values.items()}
    kind: Any = getattr(importlib.import_module(value.stored.module), value.stored.name)
    if value.stored.call or issubclass(kind, tuple):
        return kind(**values)
    made: Any = object.__new__(kind)
    vars(made).update(values)
    return made


SCHEMA = 2
_INCLUDE = "include"
_ROOT = One(ROOTS)
_MOST_CERTIFICATES = 100
_ENTRIES = {"schema", "permea", "tensors", "model", "attestations"}


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    private_rows: str | None = None,
    sign: SigningKey | None = None,
) -> Path:
    """Write a fitted model to one file.

    A model that was not fitted behind the wall contains its training rows, and so would the file:
    it is refused unless ``private_rows="include"`` says that this is meant.

    Parameters
    ----------
    model : fitted permea model
        Anything from this library with a ``fit``.
    path : path
        Where to write; the suffix ``.permea`` is customary. The file appears only when it is
        complete.
    private_rows : "include", optional
        The word that allows a file with raw rows in it. Such a file can be read by its owner alone.
    sign : SigningKey, optional
        Key of the owner, who vouches with it for the certificates of the model. Without it, and
        for readers who do not trust the key, a certificate is an unverified claim.

    Returns
    -------
    pathlib.Path
        The file.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from permea import KAHMClassifier, load
    >>> from permea.privacy import Privacy
    >>> X, y = np.random.default_rng(0).random((40, 3)), np.repeat([0, 1], 20)
    >>> private = Privacy(epsilon=4, domain=(0, 1))
    >>> clf = KAHMClassifier(n_components=2, n_layers=2, privacy=private).fit(X, y)
    >>> folder = tempfile.TemporaryDirectory()
    >>> again = load(save(clf, folder.name + "/model.permea"))
    >>> bool(np.all(again.distances(X) == clf.distances(X))), again.certificate_.status
    (True, 'unverified claim')

    Who trusts the key of the owner knows more:

    >>> from permea.privacy.signing import SigningKey, TrustedKeys
    >>> key = SigningKey.generate("clinic")
    >>> file = save(clf, folder.name + "/signed.permea", sign=key)
    >>> load(file, trusted=TrustedKeys([key.public])).certificate_.status
    'PRIVATE'
    >>> folder.cleanup()
    """
    path = Path(path)
    holds_rows = getattr(model, "holds_private_rows_", True)
    if private_rows not in (None, _INCLUDE):
        raise StorageError('private_rows must be None or the word "include".')
    if holds_rows and private_rows != _INCLUDE:
        raise StorageError(
            f"This {type(model).__name__} contains its training rows, so the file would release "
            'them. Fit it with privacy=Privacy(…), or say save(…, private_rows="include") and '
            "guard the file like the data."
        )
    writer = Writer()
    tree = writer.encode_object(model, type(model).__name__)
    if sign is not None and not writer.certificates:
        raise StorageError("There is no certificate to sign: the model promises nothing.")
    metadata = _metadata(tree, writer, sign)
    if not path.absolute().parent.is_dir():
        raise StorageError(f"The folder {path.parent} does not exist. Create it first.")
    write_atomically(path, pieces(writer.tensors, metadata), private=bool(holds_rows))
    return path


def _metadata(tree: Any, writer: Writer, sign: SigningKey | None) -> dict[str, str]:
    """The texts of a file: object tree, manifest and its digest, as a reader will check them."""
    try:
        _draft(tree, writer.tensors, writer.certificates)
    except RefusedError as reason:
        raise StorageError(f"This model cannot be saved. {reason}.") from reason
    model = _json(tree)
    tensors = {name: checksum(array) for name, array in writer.tensors.items()}
    weights = digest_of_weights(tensors, _sha256(model))
    manifest = {
        "schema": SCHEMA,
        "permea": __version__,
        "model": _sha256(model),
        "tensors": tensors,
        "attestations": [
            attest(certificate, number, weights, sign)
            for number, certificate in enumerate(writer.certificates)
        ],
    }
    text = _json(manifest)
    return {"permea": text, "model": model, "sha256": _sha256(text)}


def _json(values: Any) -> str:
    return json.dumps(values, separators=(",", ":"), allow_nan=False)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()


def load(path: str | os.PathLike[str], *, trusted: TrustedKeys | None = None) -> Any:
    """Read a model that `save` wrote, from anybody.

    The file may come from a stranger: it can name the classes of a fixed list and no others, its
    values are checked before anything is built, and reading it takes little more memory than the
    file is large.

    Parameters
    ----------
    path : path
        The file.
    trusted : TrustedKeys, optional
        Keys of owners who are believed. A certificate that none of them signed is an unverified
        claim: its ``signer`` is None.

    Returns
    -------
    fitted model
        Equal to the one that was saved, to the last bit.

    Raises
    ------
    StorageError
        For every file that is not a complete and consistent model of this version of permea.
    """
    path = Path(path)
    opened = _read(path, trusted)
    try:
        return build(_draft(opened.tree, opened.tensors, opened.certificates))
    except RefusedError as reason:
        raise StorageError(f"{path} is not a model of this version of permea. {reason}.") from None
    except ImportError as reason:
        raise StorageError(f"{path} needs a part of permea that is not installed.") from reason
    except (TypeError, ValueError) as reason:  # the constructor of Privacy
        raise StorageError(f"{path} declares a privacy that cannot be: {reason}") from None
    except (RecursionError, MemoryError) as reason:
        raise StorageError(f"{path} is too large for this machine.") from reason


def _draft(tree: Any, tensors: Tensors, certificates: list[Certificate]) -> Draft:
    """The whole model, checked and not yet built."""
    source = Source(STORABLE, tensors, certificates)
    draft: Draft = _ROOT.read(tree, {}, source)
    if source.used != set(tensors):
        raise RefusedError("the file holds numbers that no part of the model uses")
    return draft


def read_manifest(
    path: str | os.PathLike[str], *, trusted: TrustedKeys | None = None
) -> dict[str, Any]:
    """What a model file says about itself; its digests are checked, and nothing is built.

    Parameters
    ----------
    path : path
        The file.
    trusted : TrustedKeys, optional
        Keys of owners who are believed.

    Returns
    -------
    dict
        ``schema``, ``permea`` (version of the writer), ``class`` (name), ``holds_private_rows``,
        ``certificate`` (plain values of the outermost certificate, or None) and ``signer`` (name
        of the trusted key that signed it, or None).
    """
    opened = _read(Path(path), trusted)
    tree = opened.tree if isinstance(opened.tree, dict) else {}
    node = tree.get("certificate_", tree.get("certificate"))
    number = node.get("certificate") if isinstance(node, dict) else None
    known = type(number) is int and 0 <= number < len(opened.certificates)
    certificate = opened.certificates[number] if known else None  # type: ignore[index]
    return {
        "schema": SCHEMA,
        "permea": opened.version,
        "class": tree.get("class"),
        "holds_private_rows": tree.get("holds_private_rows_", True) is not False,
        "certificate": None if certificate is None else certificate.to_dict(),
        "signer": None if certificate is None else certificate.signer,
    }


class _Opened(NamedTuple):
    """A file whose digests are right."""

    version: str
    tree: Any
    tensors: Tensors
    certificates: list[Certificate]


def _read(path: Path, trusted: TrustedKeys | None) -> _Opened:
    metadata, tensors = read_container(path)
    if not {"permea", "sha256"} <= set(metadata) <= {"permea", "sha256", "model"}:
        raise StorageError(f"{path} is a safetensors file, but permea did not write it.")
    if _sha256(metadata["permea"]) != metadata["sha256"]:
        raise StorageError(f"{path}: the manifest was changed after saving. Get a fresh copy.")
    n_bytes = sum(array.nbytes for array in tensors.values())
    manifest = _parsed(metadata["permea"], path, n_bytes)
    if _sha256(metadata.get("model", "")) != manifest["model"]:
        raise StorageError(f"{path}: the model was changed after saving. Get a fresh copy.")
    sums = manifest["tensors"]
    if set(sums) != set(tensors):
        raise StorageError(f"{path}: numbers were added or removed. Get a fresh copy.")
    for name, array in tensors.items():
        if checksum(array) != sums[name]:
            raise StorageError(f"{path}: the numbers were changed after saving. Get a fresh copy.")
    certificates = _certificates(manifest, path, trusted)
    tree = _from_json(metadata["model"], n_bytes)
    return _Opened(manifest["permea"], tree, tensors, certificates)


def _certificates(
    manifest: dict[str, Any], path: Path, trusted: TrustedKeys | None
) -> list[Certificate]:
    """All certificates of a file, each found to belong to its numbers."""
    try:
        weights = digest_of_weights(manifest["tensors"], manifest["model"])
        return [
            verify(entry, number, weights, trusted)
            for number, entry in enumerate(manifest["attestations"])
        ]
    except (SigningError, RecursionError) as reason:
        raise StorageError(f"{path}: the manifest cannot be read.") from reason
    except StorageError as reason:
        raise StorageError(f"{path}: {reason}") from None


def _from_json(text: str, n_bytes: int) -> Any:
    """The values of a text, None where it is not JSON or has too many parts."""
    try:
        content = text.encode("ascii")
        return parse_json(content) if is_sparse(content, n_bytes) else None
    except ValueError:
        return None


def _parsed(text: str, path: Path, n_bytes: int) -> dict[str, Any]:
    """The manifest, with entries of the right types."""
    manifest = _from_json(text, n_bytes)
    if not isinstance(manifest, dict) or type(manifest.get("schema")) is not int:
        raise StorageError(f"{path}: the manifest cannot be read.")
    version = ascii(manifest.get("permea", ""))[:40]
    if manifest["schema"] > SCHEMA:
        raise StorageError(
            f"{path} was written by permea {version} in a newer format than permea {__version__} "
            "reads. Update permea."
        )
    if manifest["schema"] < SCHEMA:
        raise StorageError(
            f"{path} was written by permea {version} in an older format, which binds its "
            f"certificate to nothing and is no longer read. Train the model again with permea "
            f"{__version__} and save it."
        )
    right = (
        set(manifest) == _ENTRIES
        and isinstance(manifest["permea"], str)
        and isinstance(manifest["model"], str)
        and isinstance(manifest["attestations"], list)
        and len(manifest["attestations"]) <= _MOST_CERTIFICATES
        and isinstance(manifest["tensors"], dict)
        and all(isinstance(value, str) for value in manifest["tensors"].values())
    )
    if not right:
        raise StorageError(f"{path}: the manifest cannot be read.")
    return manifest
