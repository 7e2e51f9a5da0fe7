"""Save and load fitted models: arrays as safetensors, everything else as JSON, never pickle.

A file is a safetensors container. Its metadata hold a manifest: schema version, the object tree,
the certificate in plain JSON, and SHA-256 sums of the tensors and of the manifest itself. The sums
find damage and careless edits; they are no signature, and whoever can rewrite the file can rewrite
them too.
"""

import hashlib
import importlib
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from permea._version import __version__
from permea.privacy import Ledger

SCHEMA = 1
_INCLUDE = "include"
_LEFT_OUT = (np.random.RandomState, np.random.Generator, Ledger)  # belong to a run, not to a model


class StorageError(ValueError):
    """A model file cannot be written or read, with the reason and what to do."""


def save(model: Any, path: str | os.PathLike[str], *, private_rows: str | None = None) -> Path:
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
        The word that allows a file with raw rows in it.

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
    >>> bool(np.all(again.distances(X) == clf.distances(X)))
    True
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
    tree = writer.encode(model, type(model).__name__)
    certificate = getattr(model, "certificate_", None)
    manifest = {
        "schema": SCHEMA,
        "permea": __version__,
        "holds_private_rows": bool(holds_rows),
        "certificate": None if certificate is None else certificate.to_dict(),
        "tensors": {name: _checksum(array) for name, array in writer.tensors.items()},
        "model": tree,
    }
    text = json.dumps(manifest, sort_keys=True, ensure_ascii=False)
    metadata = {"permea": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    _write_beside(writer.tensors, metadata, path)
    return path


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that `save` wrote.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    fitted model
        Equal to the one that was saved, to the last bit.
    """
    path = Path(path)
    manifest, tensors = _read(path)
    for name, expected in manifest["tensors"].items():
        if name not in tensors or _checksum(tensors[name]) != expected:
            raise StorageError(f"{path}: the numbers were changed after saving. Get a fresh copy.")
    return _decode(manifest["model"], tensors, path)


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Manifest of a model file: schema, certificate, whether it holds private rows.

    Nothing of the model is built.
    """
    return _read(Path(path))[0]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    if not path.is_file():
        raise StorageError(f"{path} is not a file. Check the path.")
    try:
        with safe_open(path, framework="numpy") as container:
            metadata = container.metadata() or {}
            tensors = {name: container.get_tensor(name) for name in container.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as reason:
        raise StorageError(
            f"{path} is damaged, cut short or not a model file. Get a fresh copy."
        ) from reason
    if "permea" not in metadata or "sha256" not in metadata:
        raise StorageError(f"{path} is a safetensors file, but permea did not write it.")
    if hashlib.sha256(metadata["permea"].encode()).hexdigest() != metadata["sha256"]:
        raise StorageError(f"{path}: the manifest was changed after saving. Get a fresh copy.")
    manifest: dict[str, Any] = json.loads(metadata["permea"])
    if manifest["schema"] > SCHEMA:
        raise StorageError(
            f"{path} was written by permea {manifest['permea']} in a newer format than "
            f"permea {__version__} reads. Update permea."
        )
    return manifest, tensors


def _write_beside(tensors: dict[str, NDArray[Any]], metadata: dict[str, str], path: Path) -> None:
    """Write a complete file beside the target, then rename: never a half-written model."""
    if not path.parent.is_dir():
        raise StorageError(f"The folder {path.parent} does not exist. Create it first.")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        save_file(tensors, name, metadata=metadata)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _checksum(array: NDArray[Any]) -> str:
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class _Writer:
    """Turns an object tree into JSON values and a table of arrays."""

    def __init__(self) -> None:
        self.tensors: dict[str, NDArray[Any]] = {}
        self._names: dict[int, str] = {}

    def encode(self, value: Any, where: str) -> Any:
        """JSON form of a value; ``where`` names it in errors."""
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, np.generic):
            return {"scalar": self.encode(np.asarray(value).reshape(1), where)}
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"object": self._name(value, where), "fields": self.encode(tuple(value), where)}
        if isinstance(value, list | tuple):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [self.encode(v, f"{where}[{i}]") for i, v in enumerate(value)]}
        if isinstance(value, dict):
            return {
                "dict": [[self.encode(k, where), self.encode(v, where)] for k, v in value.items()]
            }
        if isinstance(value, _LEFT_OUT):
            return None
        return self._object(value, where)

    def _array(self, array: NDArray[Any], where: str) -> dict[str, Any]:
        if array.dtype.kind in "fiub":
            if id(array) not in self._names:
                self._names[id(array)] = name = f"t{len(self.tensors)}"
                self.tensors[name] = np.ascontiguousarray(array)
            return {"array": self._names[id(array)], "shape": list(array.shape)}
        if array.dtype.kind in "UO" and all(isinstance(item, str) for item in array.ravel()):
            return {"strings": array.ravel().tolist(), "shape": list(array.shape),
                    "dtype": array.dtype.str}  # fmt: skip
        raise StorageError(f"{where} is an array of {array.dtype}, which cannot be saved.")

    def _name(self, value: Any, where: str) -> str:
        kind = type(value)
        if not kind.__module__.startswith("permea."):
            raise StorageError(
                f"{where} is a {kind.__module__}.{kind.__qualname__}; only models of this library "
                "can be saved."
            )
        return f"{kind.__module__}:{kind.__qualname__}"

    def _object(self, value: Any, where: str) -> dict[str, Any]:
        name = self._name(value, where)
        if hasattr(value, "to_dict") and hasattr(type(value), "from_dict"):
            return {"object": name, "plain": value.to_dict()}
        state = {key: self.encode(item, f"{where}.{key}") for key, item in vars(value).items()}
        return {"object": name, "state": state}


def _decode(node: Any, tensors: dict[str, NDArray[Any]], path: Path) -> Any:
    """Value of a JSON node."""
    if not isinstance(node, dict):
        return node
    if "float" in node:
        return float(node["float"])
    if "scalar" in node:
        return _decode(node["scalar"], tensors, path)[0]
    if "array" in node:
        return tensors[node["array"]].reshape(node["shape"])
    if "strings" in node:
        return np.array(node["strings"], dtype=node["dtype"]).reshape(node["shape"])
    if "list" in node:
        return [_decode(item, tensors, path) for item in node["list"]]
    if "tuple" in node:
        return tuple(_decode(item, tensors, path) for item in node["tuple"])
    if "dict" in node:
        return {_decode(k, tensors, path): _decode(v, tensors, path) for k, v in node["dict"]}
    return _build(node, tensors, path)


def _build(node: dict[str, Any], tensors: dict[str, NDArray[Any]], path: Path) -> Any:
    """An object of this library from its class name and state."""
    module, _, name = str(node.get("object", "")).partition(":")
    kind: Any = None
    if module.startswith("permea."):
        try:
            kind = getattr(importlib.import_module(module), name, None)
        except ImportError:
            kind = None
    if not isinstance(kind, type) or kind.__module__ != module:
        raise StorageError(
            f"{path} needs {module}.{name}, which this installation of permea {__version__} does "
            "not have."
        )
    if "plain" in node:
        return kind.from_dict(node["plain"])  # type: ignore[attr-defined]
    if "fields" in node:
        return kind(*_decode(node["fields"], tensors, path))
    built: Any = object.__new__(kind)
    state = {key: _decode(item, tensors, path) for key, item in node["state"].items()}
    vars(built).update(state)
    return built
