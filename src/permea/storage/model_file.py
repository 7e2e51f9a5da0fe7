"""Write and read model files."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from permea._files import write_atomically
from permea._version import __version__
from permea.privacy import Certificate
from permea.privacy.signing import SigningError, SigningKey, TrustedKeys
from permea.storage.attestation import attest, digest_of_weights, verify
from permea.storage.classes import ROOTS, STORABLE
from permea.storage.container import (
    Tensors,
    checksum,
    is_sparse,
    parse_json,
    pieces,
    read_container,
)
from permea.storage.encode import Writer, build
from permea.storage.errors import RefusedError, StorageError
from permea.storage.fields import Draft, One, Source

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
