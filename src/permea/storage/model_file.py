"""Save and load fitted models: object tree, manifest, and certificates bound to the numbers.

The object tree names a class of `permea.storage.classes` for every object and a tensor for every
array. The manifest has digests of the tree and of all tensors, and for each certificate of the
model an entry: the certificate as plain values, the SHA-256 of the message

    {"certificate": …, "number": …, "weights": …}

and, if the owner signed it, the signature of that message. The weights are the digest of the
digests of all tensors and of the object tree, so neither a number nor a class nor a parameter can
change under a certificate unnoticed. Whoever can rewrite the file can write digests that fit, but
not the signature of a key that the reader trusts. Every other certificate is read as an unverified
claim.
"""

import hashlib
import importlib
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from permea._files import write_atomically
from permea._version import __version__
from permea.privacy import Certificate, signing
from permea.privacy.signing import SigningKey, TrustedKeys, canonical
from permea.storage import container
from permea.storage.classes import LEDGER, ROOTS, SEED, STORABLE
from permea.storage.container import RefusedError, StorageError, Tensors, checksum, parse_json
from permea.storage.fields import LONGEST_WORD, REGISTERED_FAMILIES, Draft, One, Source
from permea.tables import Schema

SCHEMA = 2
_INCLUDE = "include"
_ROOT = One(*ROOTS)
_PURPOSE = "certificate"
_MOST_CERTIFICATES = 100
_NOT_STORED = frozenset({"_sklearn_output_config", "_metadata_request"})  # scikit-learn's own


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    private_rows: str | None = None,
    sign: SigningKey | None = None,
) -> Path:
    """Write a fitted model to one file.

    A model that was fitted without privacy contains its training rows, and so would the file: it is
    refused unless ``private_rows="include"`` says that this is meant.

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
        Key of the owner, which signs the certificates of the model. Without it, and for readers who
        do not trust the key, a certificate is an unverified claim.

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

    With the owner's key among the trusted keys the certificate is verified:

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
    writer = _Writer()
    tree = writer.encode_object(model, type(model).__name__)
    if sign is not None and not writer.certificates:
        raise StorageError("There is no certificate to sign: the model was fitted without privacy.")
    try:
        _draft(tree, writer.tensors, writer.certificates)
    except RefusedError as reason:
        raise StorageError(f"This model cannot be saved. {reason}.") from reason
    metadata = _metadata(tree, writer, sign)
    if not path.absolute().parent.is_dir():
        raise StorageError(f"The folder {path.parent} does not exist. Create it first.")
    write_atomically(path, container.pieces(writer.tensors, metadata), private=bool(holds_rows))
    return path


class _Writer:
    """Turns an object tree into nodes, a table of arrays and a list of certificates."""

    def __init__(self) -> None:
        self.tensors: Tensors = {}
        self.certificates: list[Certificate] = []
        # By identity, which is unique only while the array lives.
        self._written: dict[int, tuple[str, NDArray[Any]]] = {}

    def encode_object(self, value: Any, where: str, *, parameters_only: bool = False) -> Any:
        """Node of an object of a listed class; ``where`` names it in errors."""
        module, name = type(value).__module__, type(value).__qualname__
        stored = STORABLE.get(name) or REGISTERED_FAMILIES.get(name)
        if stored is None or stored.module != module:
            raise StorageError(
                f"{where} is a {module}.{name}; only models of this library, made of the classes "
                "that it lists, can be saved."
            )
        state = dict(vars(value) if hasattr(value, "__dict__") else value._asdict())
        kinds = dict(stored.parameters)
        if not parameters_only:
            kinds |= stored.fitted
            if missing := sorted(set(kinds) - set(state)):
                raise StorageError(f"{where} lacks {', '.join(missing)}: fit it before saving it.")
            kinds |= {name: kind for name, kind in stored.optional.items() if name in state}
            if unknown := sorted(set(state) - {*kinds, *stored.caches, *_NOT_STORED}):
                raise StorageError(
                    f"{where} has attributes that {stored.name} does not declare for files: "
                    f"{', '.join(unknown)}."
                )
        node: dict[str, Any] = {"class": stored.name}
        for name, kind in kinds.items():
            generator = kind is SEED and not isinstance(state[name], int | np.integer)
            dropped = kind is LEDGER or generator  # they belong to a run, not to a model
            field = None if dropped else state[name]
            node[name] = self._encode(field, f"{where}.{name}", _is_template(kind))
        return node

    def _encode(self, value: Any, where: str, template: bool) -> Any:
        """Node of any value; of estimators in a ``template`` only the parameters are kept."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if isinstance(value, Certificate):
            if value not in self.certificates:
                self.certificates.append(value)
            return {"certificate": self.certificates.index(value)}
        if isinstance(value, Schema):
            return {"schema": value.to_toml()}
        if type(value) in (list, tuple, range):
            tag = "tuple" if isinstance(value, tuple) else "list"
            items = [self._encode(item, f"{where}[{i}]", template) for i, item in enumerate(value)]
            return {tag: items}
        if type(value) is dict:
            return {"dict": {str(k): self._encode(v, where, template) for k, v in value.items()}}
        return self.encode_object(value, where, parameters_only=template)

    def _array(self, array: NDArray[Any], where: str) -> dict[str, str]:
        tag, content = "array", array
        if array.dtype.kind in "UO":
            tag, content = "words" if array.dtype.kind == "U" else "objects", _codes(array, where)
        elif array.flags.f_contiguous and not array.flags.c_contiguous:
            tag, content = "fortran", array.T
        little = content.dtype.newbyteorder("<")
        if little.str not in container.DTYPES.values():
            raise StorageError(f"{where} is an array of {array.dtype}, which cannot be saved.")
        if id(array) not in self._written:
            name = f"t{len(self.tensors)}"
            self._written[id(array)] = name, array
            self.tensors[name] = np.ascontiguousarray(content, dtype=little)
        return {tag: self._written[id(array)][0]}


def _codes(array: NDArray[Any], where: str) -> NDArray[Any]:
    """Code points of a row of words, one word per row."""
    if array.ndim != 1 or not all(isinstance(item, str) for item in array):
        raise StorageError(f"{where} is an array of {array.dtype}, which cannot be saved.")
    words = array.astype(str)
    width = max(words.dtype.itemsize // 4, 1)
    if width > LONGEST_WORD:
        raise StorageError(f"{where} has words of more than {LONGEST_WORD} characters.")
    codes: NDArray[Any] = words.astype(f"<U{width}").view("<u4").reshape(len(words), width)
    return codes


def _is_template(kind: Any) -> bool:
    """Whether a field holds estimators that serve as parameters."""
    if isinstance(kind, One):
        return kind.parameters_only
    choices = getattr(kind, "kinds", ()) or [getattr(kind, "each", None)]
    return any(_is_template(choice) for choice in choices if choice is not None)


def _metadata(tree: Any, writer: _Writer, sign: SigningKey | None) -> dict[str, str]:
    """The texts of a file: object tree, manifest and its digest."""
    model = _json(tree)
    manifest: dict[str, Any] = {
        "schema": SCHEMA,
        "permea": __version__,
        "model": _sha256(model),
        "tensors": {name: checksum(array) for name, array in writer.tensors.items()},
        "certificates": [],
    }
    weights = _weights(manifest)
    for number, certificate in enumerate(writer.certificates):
        values = parse_json(canonical(certificate.to_dict()))
        _certificate_from(values)  # what is written can be read
        message = _message(values, number, weights)
        signature = None if sign is None else sign.sign(message, purpose=_PURPOSE).to_dict()
        manifest["certificates"].append(
            {"certificate": values, "sha256": _sha256(message), "signature": signature}
        )
    text = _json(manifest)
    return {"permea": text, "model": model, "sha256": _sha256(text)}


def _json(values: Any) -> str:
    return json.dumps(values, separators=(",", ":"), allow_nan=False)


def _sha256(content: str | bytes) -> str:
    if isinstance(content, str):
        content = content.encode("utf-8", errors="replace")
    return hashlib.sha256(content).hexdigest()


def _weights(manifest: dict[str, Any]) -> str:
    """Digest of the digests of all that a certificate is about: tensors and object tree."""
    return _sha256(canonical({"tensors": manifest["tensors"], "model": manifest["model"]}))


def _message(values: Any, number: int, weights: str) -> bytes:
    """What the owner signs: a certificate, its number in the model, and the digest of the rest."""
    return canonical({"certificate": values, "number": number, "weights": weights})


class Parts(NamedTuple):
    """What a file holds, with all digests checked and nothing built from it."""

    manifest: dict[str, Any]
    tree: Any
    tensors: Tensors
    certificates: list[Certificate]


def read_parts(path: Path, trusted: TrustedKeys | None) -> Parts:
    """The parts of a file whose digests are right; StorageError for any other file."""
    metadata, tensors = container.read_container(path)
    if not {"permea", "sha256"} <= set(metadata) <= {"permea", "sha256", "model"}:
        raise StorageError(f"{path} is a safetensors file, but permea did not write it.")
    try:
        manifest, tree = _checked(metadata, tensors)
        return Parts(manifest, tree, tensors, _certificates(manifest, trusted))
    except StorageError as reason:
        raise StorageError(f"{path}: {reason}") from reason.__cause__


def load(path: str | os.PathLike[str], *, trusted: TrustedKeys | None = None) -> Any:
    """Read a model that `save` wrote; the file may come from an untrusted source.

    A file can name the classes of a fixed list and no others, its values are checked before
    anything is built, and reading it takes little more memory than the file is large.

    Parameters
    ----------
    path : path
        The file.
    trusted : TrustedKeys, optional
        Keys of owners that you trust. A certificate that none of them signed is an unverified
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
    found = read_parts(path, trusted)
    try:
        return _build(_draft(found.tree, found.tensors, found.certificates))
    except RefusedError as reason:
        raise StorageError(f"{path} is not a model of this version of permea. {reason}.") from None
    except ImportError as reason:
        raise StorageError(f"{path} needs a part of permea that is not installed.") from reason
    except (TypeError, ValueError) as reason:  # the constructor of Privacy
        raise StorageError(f"{path} declares a privacy that cannot be: {reason}") from None
    except (RecursionError, MemoryError) as reason:
        raise StorageError(f"{path} is too large for this machine.") from reason


def _checked(metadata: dict[str, str], tensors: Tensors) -> tuple[dict[str, Any], Any]:
    """Manifest and object tree of a file whose digests are right."""
    if _sha256(metadata["permea"]) != metadata["sha256"]:
        raise StorageError("the manifest was changed after saving. Get a fresh copy.")
    n_bytes = sum(array.nbytes for array in tensors.values())
    manifest = _manifest(_from_json(metadata["permea"], n_bytes))
    if _sha256(metadata.get("model", "")) != manifest["model"]:
        raise StorageError("the model was changed after saving. Get a fresh copy.")
    if set(manifest["tensors"]) != set(tensors):
        raise StorageError("numbers were added or removed. Get a fresh copy.")
    if any(checksum(array) != manifest["tensors"][name] for name, array in tensors.items()):
        raise StorageError("the numbers were changed after saving. Get a fresh copy.")
    return manifest, _from_json(metadata["model"], n_bytes)


def _from_json(text: str, n_bytes: int) -> Any:
    """The values of a text, None where it is not JSON or has too many parts."""
    try:
        content = text.encode("ascii")
        return parse_json(content) if container.is_sparse(content, n_bytes) else None
    except ValueError:
        return None


def _manifest(values: Any) -> dict[str, Any]:
    """The manifest, with entries of the right types."""
    unreadable = StorageError("the manifest cannot be read. Get a fresh copy.")
    if not isinstance(values, dict) or type(values.get("schema")) is not int:
        raise unreadable
    version = ascii(values.get("permea", ""))[:40]
    if values["schema"] > SCHEMA:
        raise StorageError(
            f"written by permea {version} in a newer format than permea {__version__} reads. "
            "Update permea."
        )
    if values["schema"] < SCHEMA:
        raise StorageError(
            f"written by permea {version} in an older format that is no longer read; train the "
            "model again with this version of permea and save it."
        )
    types = {"schema": int, "permea": str, "model": str, "tensors": dict, "certificates": list}
    right = (
        set(values) == set(types)
        and all(isinstance(values[name], kind) for name, kind in types.items())
        and len(values["certificates"]) <= _MOST_CERTIFICATES
        and all(isinstance(value, str) for value in values["tensors"].values())
    )
    if not right:
        raise unreadable
    return values


def _certificates(manifest: dict[str, Any], trusted: TrustedKeys | None) -> list[Certificate]:
    """All certificates of a file, each checked to belong to its numbers, with its signer."""
    found = []
    try:
        weights = _weights(manifest)
        for number, entry in enumerate(manifest["certificates"]):
            if not isinstance(entry, dict) or set(entry) != {"certificate", "sha256", "signature"}:
                raise StorageError("The certificate cannot be read.")
            certificate = _certificate_from(entry["certificate"])
            message = _message(entry["certificate"], number, weights)
            if entry["sha256"] != _sha256(message):
                raise StorageError(
                    "The certificate does not belong to these weights: one of them was exchanged. "
                    "Get a fresh copy from the owner."
                )
            found.append(replace(certificate, signer=_signer(entry["signature"], message, trusted)))
    except (signing.SigningError, RecursionError) as reason:
        raise StorageError("the manifest cannot be read. Get a fresh copy.") from reason
    return found


def _certificate_from(values: Any) -> Certificate:
    """A certificate from untrusted plain values: every entry of its type, and no other entry.

    Examples
    --------
    >>> _certificate_from({"privacy": "good"})
    Traceback (most recent call last):
        ...
    permea.storage.StorageError: The certificate cannot be read.
    """
    try:
        certificate = Certificate.from_dict(values)
        written = certificate.to_dict()
        exact = canonical({name: written[name] for name in values}) == canonical(values)
    except (ValueError, KeyError):
        exact = False
    if not exact:
        raise StorageError("The certificate cannot be read.")
    return certificate


def _signer(values: Any, message: bytes, trusted: TrustedKeys | None) -> str | None:
    """Name of the trusted key that signed, None for none; a wrong signature is an error."""
    if values is None:
        return None
    try:
        signature = signing.Signature.from_dict(values)
        right = signing.PublicKey("unknown", signature.key).verifies(
            message, signature, purpose=_PURPOSE
        )
    except signing.SigningError as reason:
        raise StorageError("The signature of the certificate cannot be read.") from reason
    if not right:
        raise StorageError(
            "The certificate was altered after signing. Get a fresh copy from the owner."
        )
    return None if trusted is None else trusted.signer(message, signature, purpose=_PURPOSE)


def _draft(tree: Any, tensors: Tensors, certificates: list[Certificate]) -> Draft:
    """The whole model, checked and not yet built."""
    finite = {name: container.all_finite(array) for name, array in tensors.items()}
    source = Source({**STORABLE, **REGISTERED_FAMILIES}, tensors, finite, certificates)
    draft: Draft = _ROOT.read(tree, {}, source)
    if source.used != set(tensors):
        raise RefusedError("the file holds numbers that no part of the model uses")
    return draft


def check_parts(parts: Parts) -> None:
    """Raise `StorageError` unless the parts of a file are a model that could be built."""
    try:
        _draft(parts.tree, parts.tensors, parts.certificates)
    except RefusedError as reason:
        raise StorageError(f"not a model of this version of permea. {reason}.") from None
    except (TypeError, ValueError) as reason:  # the constructor of Privacy
        raise StorageError(f"it declares a privacy that cannot be: {reason}") from None
    except (RecursionError, MemoryError) as reason:
        raise StorageError("it is too large for this machine.") from reason


def _build(value: Any) -> Any:
    """The object of a draft; only classes of the list are imported, and no constructor is run.

    `Privacy` is the exception: its constructor checks the promise and does nothing else.
    """
    if isinstance(value, list | tuple):
        return type(value)(_build(item) for item in value)
    if not isinstance(value, Draft):
        return value
    values = {name: _build(item) for name, item in value.values.items()}
    kind: Any = getattr(importlib.import_module(value.stored.module), value.stored.name)
    if value.stored.call or issubclass(kind, tuple):
        return kind(**values)
    made: Any = object.__new__(kind)
    vars(made).update(values)
    return made
