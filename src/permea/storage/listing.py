"""What is inside a model file, without building anything from it.

A reader who got a file from somebody else sees every class, array and certificate in it, and its
size, before a model is loaded.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from permea._html import definitions, table
from permea._text import safe_text
from permea.privacy import Certificate
from permea.privacy.signing import TrustedKeys
from permea.storage.container import StorageError, Tensors
from permea.storage.model_file import check_parts, read_parts

_TAGS = ("array", "words", "objects", "fortran")
_LONGEST = 60  # characters of a value


@dataclass(frozen=True)
class Entry:
    """One thing in a file.

    Attributes
    ----------
    place : str
        Where in the model, such as ``MomentClassifier.moments_.second``.
    kind : str
        Name of a class, or ``"array"``, ``"schema"``, ``"certificate"``, ``"value"``.
    text : str
        Type and shape of an array, or the value.
    size : int
        Bytes of an array.
    """

    place: str
    kind: str
    text: str = ""
    size: int = 0


@dataclass(frozen=True)
class Contents:
    """What a model file holds.

    Attributes
    ----------
    path : str
    model : str
        Class of the model.
    version : str
        Version of permea that wrote the file.
    size : int
        Bytes of the file.
    classes : tuple of str
        Every class that loading would build, all from a fixed list.
    entries : tuple of Entry
    certificates : tuple of Certificate
        Each with its ``signer``: None for an unverified claim.
    """

    path: str
    model: str
    version: str
    size: int
    classes: tuple[str, ...]
    entries: tuple[Entry, ...]
    certificates: tuple[Certificate, ...]

    @property
    def numbers(self) -> int:
        """How many bytes of numbers there are."""
        return sum(entry.size for entry in self.entries)

    def facts(self) -> list[tuple[str, str]]:
        """The file in a few lines."""
        found = [
            ("model", self.model),
            ("written by", f"permea {self.version}"),
            ("size", f"{self.size:,} bytes, {self.numbers:,} of them numbers"),
            ("classes", ", ".join(self.classes)),
            ("code", "none: numbers and JSON; loading builds the classes above and no other"),
        ]
        for paper in self.certificates or (None,):
            told = "none" if paper is None else f"{paper.status}: {paper.privacy.describe()}"
            signer = "" if paper is None or not paper.signer else f", signed by {paper.signer}"
            found.append(("certificate", told + signer))
        return [(name, safe_text(text)) for name, text in found]

    def __str__(self) -> str:
        lines = [f"{name:<12} {text}" for name, text in self.facts()]
        width = max((len(entry.place) for entry in self.entries), default=0)
        rows = [
            f"{safe_text(entry.place):<{width}}  {entry.kind:<12} {safe_text(entry.text)}".rstrip()
            for entry in self.entries
        ]
        return "\n".join([*lines, "", *rows])

    def _repr_html_(self) -> str:
        rows = [(entry.place, entry.kind, entry.text) for entry in self.entries]
        return definitions(self.facts()) + table(("place", "kind", "what"), rows, open=False)

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {
            "path": self.path,
            "model": self.model,
            "version": self.version,
            "size": self.size,
            "classes": list(self.classes),
            "entries": [vars(entry) for entry in self.entries],
            "certificates": [
                {"status": one.status, "signer": one.signer, **one.to_dict()}
                for one in self.certificates
            ],
        }


def contents(path: str | os.PathLike[str], *, trusted: TrustedKeys | None = None) -> Contents:
    """List what is inside a model file. Nothing is built from it, and nothing in it is run.

    Parameters
    ----------
    path : path
        A file that `save` wrote; it may come from an untrusted source.
    trusted : TrustedKeys, optional
        Keys whose signatures on certificates count.

    Returns
    -------
    Contents

    Raises
    ------
    StorageError
        For every file that is not a complete and consistent model of this version of permea.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from permea import MomentRegressor, Privacy, save
    >>> promise = Privacy(epsilon=8, delta=1e-5, unit="record", domain=(0, 1))
    >>> X = np.random.default_rng(0).random((500, 2))
    >>> model = MomentRegressor(privacy=promise, output_domain=(0, 2), features="identity")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = contents(save(model.fit(X, X.sum(axis=1)), folder + "/model.permea"))
    >>> found.model, found.certificates[0].status
    ('MomentRegressor', 'unverified claim')
    """
    parts = read_parts(Path(path), trusted)
    try:
        check_parts(parts)
    except StorageError as reason:
        raise StorageError(f"{path}: {reason}") from reason.__cause__
    root = str(parts.tree["class"])
    entries = tuple(_entries(parts.tree, root, parts.tensors))
    kinds = ("array", "schema", "certificate", "value")
    return Contents(
        path=str(path),
        model=root,
        version=ascii(parts.manifest["permea"])[1:-1][:_LONGEST],
        size=Path(path).stat().st_size,
        classes=tuple(sorted({entry.kind for entry in entries} - set(kinds))),
        entries=entries,
        certificates=tuple(parts.certificates),
    )


def _entries(node: Any, place: str, tensors: Tensors) -> Iterator[Entry]:
    """Everything below a node of the object tree, in its order."""
    if not isinstance(node, dict):
        if node is not None:
            yield Entry(place, "value", _short(node))
        return
    if "class" in node:
        yield Entry(place, str(node["class"]))
        for name, value in node.items():
            if name != "class":
                yield from _entries(value, f"{place}.{name}", tensors)
        return
    (tag, held), *_ = node.items()
    if tag in _TAGS:
        array = tensors[held]
        shape = " × ".join(str(length) for length in array.shape) or "one number"
        text = "text" if tag in ("words", "objects") else f"{array.dtype.name}, {shape}"
        yield Entry(place, "array", text, int(np.asarray(array).nbytes))
    elif tag in ("list", "tuple"):
        for number, item in enumerate(held):
            yield from _entries(item, f"{place}[{number}]", tensors)
    elif tag == "dict":
        for name, item in held.items():
            yield from _entries(item, f"{place}[{name!r}]", tensors)
    elif tag == "schema":
        yield Entry(place, "schema", f"{held.count('[columns.')} columns")
    elif tag == "certificate":
        yield Entry(place, "certificate", f"number {held}")
    else:
        yield Entry(place, "value", _short(held))


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
