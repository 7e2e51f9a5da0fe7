"""From fitted objects to the nodes of a manifest, and from checked drafts to objects."""

import importlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from permea.privacy import Certificate
from permea.storage.classes import STORABLE
from permea.storage.container import DTYPES, Tensors
from permea.storage.errors import StorageError
from permea.storage.fields import LONGEST_WORD, Draft, One, Stored
from permea.storage.words import LEDGER, SEED

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
