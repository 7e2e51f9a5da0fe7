"""Kinds of fields: what a value in a model file may be, checked before anything is built.

The list of storable classes (`permea.storage.classes`) is written with these kinds. Sizes are
written as letters: ``floats("N", "p")`` and ``floats("p")`` in one class must agree on p,
``size("p")`` must equal it, and ``One("Encoding", p="p")`` passes the p of a part on to the whole.
A letter with a question mark may be zero; a star is any size.

In the manifest a value is what JSON has for it, or a table with one entry that says what it is:
``{"array": "t3"}``, ``{"fortran": "t3"}`` (its transpose), ``{"words": "t4"}``,
``{"objects": "t4"}``, ``{"list": […]}``, ``{"tuple": […]}``, ``{"dict": {…}}``,
``{"float": "inf"}``, ``{"certificate": 0}``, ``{"schema": text}``; or an object,
``{"class": name, field: value, …}``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from permea.privacy import Certificate
from permea.storage.container import RefusedError
from permea.tables import Schema

DEEPEST = 32
REGISTERED = "registered family"  # among names of classes: every class of `REGISTERED_FAMILIES`
REGISTERED_FAMILIES: dict[str, "Stored"] = {}
LONGEST_TEXT = 2000
LONGEST_SCHEMA = 20_000_000
LONGEST_WORD = 1000  # characters of a class label or a column name
MOST_WORDS = 10_000_000
MOST_OBJECTS = 100_000  # words that are stored as Python objects
_MOST_ITEMS = 100_000
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}

Sizes = dict[str, int]


def bind(sizes: Sizes, name: str, size: int) -> None:
    """Note the size that a letter stands for; refuse another one than before."""
    if name == "*":
        return
    letter = name.removesuffix("?")
    if size == 0 and letter == name:
        raise RefusedError(f"its size {letter} is zero")
    if sizes.setdefault(letter, size) != size:
        raise RefusedError(f"its size {letter} is {size}, and {sizes[letter]} elsewhere")


@dataclass
class Draft:
    """An object of a file, checked and not yet built; ``draft[name]`` is the value of a field."""

    stored: "Stored"
    values: dict[str, Any]
    sizes: Sizes
    fitted: bool

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@dataclass
class Source:
    """What the values of a manifest refer to."""

    classes: Mapping[str, "Stored"]
    tensors: Mapping[str, NDArray[Any]]
    finite: Mapping[str, bool]  #: whether all entries of a tensor are finite
    certificates: Sequence[Certificate]
    used: set[str] = field(default_factory=set)
    depth: int = 0
    n_objects: int = 0

    def tensor(self, name: Any) -> NDArray[Any]:
        """The tensor of that name."""
        if not isinstance(name, str) or name not in self.tensors:
            raise RefusedError("a tensor that the file does not have")
        self.used.add(name)
        return self.tensors[name]


class Kind:
    """What a field may be; its text says what was expected."""

    tags: Sequence[str] = ()
    expected: ClassVar[str]

    def __str__(self) -> str:
        return self.expected

    def matches(self, node: Any) -> bool:
        """Whether a node has the form of this kind: chooses among alternatives."""
        return isinstance(node, dict) and len(node) == 1 and next(iter(node)) in self.tags

    def read(self, node: Any, sizes: Sizes, source: Source) -> Any:
        """The value, or an object's draft; `RefusedError` when it is not allowed."""
        if not self.matches(node):
            raise RefusedError(f"expected {self}")
        return self._value(node, sizes, source)

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        """The value of a node of the right form."""
        return node


def _content(node: dict[str, Any]) -> Any:
    """What a node holds, without its tag."""
    return next(iter(node.values()))


class Plain(Kind):
    """None, truth values and words of a short list."""

    def __init__(self, *choices: Any) -> None:
        self.choices = choices

    def __str__(self) -> str:
        return " or ".join(map(repr, self.choices))

    def matches(self, node: Any) -> bool:
        """Whether a node is one of the choices."""
        return any(type(node) is type(choice) and node == choice for choice in self.choices)


@dataclass(frozen=True)
class Text(Kind):
    """Any text up to a length."""

    longest: int = LONGEST_TEXT

    def __str__(self) -> str:
        return f"a text of at most {self.longest} characters"

    def matches(self, node: Any) -> bool:
        """Whether a node is a text that is not too long."""
        return isinstance(node, str) and len(node) <= self.longest

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        if any("\ud800" <= character <= "\udfff" for character in node):
            raise RefusedError("half of a character")
        return node


@dataclass(frozen=True)
class Number(Kind):
    """A number; infinity and NaN only where they are listed."""

    low: float = -math.inf
    high: float = math.inf
    special: tuple[str, ...] = ()

    tags = ("float",)

    def __str__(self) -> str:
        extra = "".join(f" or {word}" for word in self.special)
        return f"a finite number from {self.low:g} to {self.high:g}{extra}"

    def matches(self, node: Any) -> bool:
        """Whether a node is a number within the limits, or a special one that is listed."""
        if super().matches(node):
            return isinstance(_content(node), str) and _content(node) in self.special
        if type(node) is int:
            return abs(node) < 1 << 63 and self.low <= node <= self.high
        return type(node) is float and math.isfinite(node) and self.low <= node <= self.high

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        return _SPECIAL[_content(node)] if isinstance(node, dict) else node


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number; with a letter, one that equals that size."""

    low: int = 0
    high: int = 1 << 40
    size: str = "*"

    def __str__(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def matches(self, node: Any) -> bool:
        """Whether a node is a whole number within the limits."""
        return type(node) is int and self.low <= node <= self.high

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        bind(sizes, self.size, node)
        return node


class Array(Kind):
    """An array of numbers; ``types`` are letters of NumPy's kinds of types."""

    tags = ("array", "fortran")

    def __init__(
        self,
        types: str,
        *shape: str,
        low: float = -math.inf,
        high: float = math.inf,
        finite: bool = True,
    ) -> None:
        self.types, self.shape, self.finite = types, shape, finite
        self.low, self.high = low, high

    def __str__(self) -> str:
        return f"an array of shape ({', '.join(self.shape)})"

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        name = _content(node)
        array = source.tensor(name).T if "fortran" in node else source.tensor(name)
        if array.dtype.kind not in self.types or array.ndim != len(self.shape):
            raise RefusedError(f"expected {self}, got {array.ndim} dimensions of {array.dtype}")
        for letter, size in zip(self.shape, array.shape, strict=True):
            bind(sizes, letter, size)
        if self.finite and not source.finite[name]:
            raise RefusedError("NaN, infinity or absurdly large numbers")
        if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
            raise RefusedError("truth values that are neither true nor false")
        bounded = math.isfinite(self.low) or math.isfinite(self.high)
        if bounded and array.size and not self._within(array):
            raise RefusedError(f"numbers outside of {self.low:g} to {self.high:g}")
        return array

    def _within(self, array: NDArray[Any]) -> bool:
        return self.low <= float(array.min()) and float(array.max()) <= self.high


@dataclass(frozen=True)
class Words(Kind):
    """A row of words, kept as code points."""

    size: str

    tags = ("words", "objects")
    expected = "a row of words"

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        codes = source.tensor(_content(node))
        if codes.dtype != np.dtype("<u4") or codes.ndim != 2:
            raise RefusedError(f"expected {self}")
        bind(sizes, self.size, codes.shape[0])
        if not 1 <= codes.shape[1] <= LONGEST_WORD:
            raise RefusedError(f"words longer than {LONGEST_WORD} characters")
        if len(codes) > MOST_WORDS:
            raise RefusedError(f"more than {MOST_WORDS} words")
        if codes.max() > 0x10FFFF or any(_surrogates(row) for row in np.array_split(codes, 16)):
            raise RefusedError("characters that do not exist")
        words = codes.view(f"<U{codes.shape[1]}")[:, 0]
        if "words" in node:
            return words
        source.n_objects += len(words)
        if source.n_objects > MOST_OBJECTS:
            raise RefusedError(f"more than {MOST_OBJECTS} words as Python objects")
        return words.astype(object)


def _surrogates(codes: NDArray[Any]) -> bool:
    return bool(np.any((codes >= 0xD800) & (codes <= 0xDFFF)))


@dataclass(frozen=True)
class Items(Kind):
    """A list or tuple of values of one kind."""

    each: Kind
    tags: Sequence[str] = ("list", "tuple")
    size: str = "*"
    least: int = 0
    most: int = _MOST_ITEMS

    def __str__(self) -> str:
        return f"a {' or '.join(self.tags)}"

    def matches(self, node: Any) -> bool:
        """Whether a node has one of the tags and holds items."""
        return super().matches(node) and isinstance(_content(node), list)

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        items = _content(node)
        if not self.least <= len(items) <= self.most:
            raise RefusedError(f"expected {self.least} to {self.most} items, got {len(items)}")
        bind(sizes, self.size, len(items))
        values = [self.each.read(item, sizes, source) for item in items]
        return values if "list" in node else tuple(values)


@dataclass(frozen=True)
class Table(Kind):
    """A table from texts to values of one kind."""

    each: Kind

    tags = ("dict",)
    expected = "a table"

    def matches(self, node: Any) -> bool:
        """Whether a node is a table."""
        return super().matches(node) and isinstance(_content(node), dict)

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        return {
            Text(LONGEST_WORD).read(key, sizes, source): self.each.read(value, sizes, source)
            for key, value in _content(node).items()
        }


class Either(Kind):
    """The first of several kinds whose form a node has."""

    def __init__(self, *kinds: Kind) -> None:
        self.kinds = kinds

    def __str__(self) -> str:
        return " or ".join(map(str, self.kinds))

    def matches(self, node: Any) -> bool:
        """Whether a node has the form of one of the kinds."""
        return any(kind.matches(node) for kind in self.kinds)

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        kind = next(kind for kind in self.kinds if kind.matches(node))
        return kind.read(node, sizes, source)


class CertificateKind(Kind):
    """One of the certificates that the manifest lists."""

    tags = ("certificate",)
    expected = "a certificate"

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Certificate:
        number = _content(node)
        if type(number) is not int or not 0 <= number < len(source.certificates):
            raise RefusedError("a certificate that the file does not have")
        return source.certificates[number]


class SchemaKind(Kind):
    """The schema of a table, as the text of its file."""

    tags = ("schema",)
    expected = "the schema of a table"

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Schema:
        text = _content(node)
        if not isinstance(text, str) or len(text) > LONGEST_SCHEMA:
            raise RefusedError(f"expected {self} of at most {LONGEST_SCHEMA} characters")
        try:
            return Schema.from_toml(text)
        except (ValueError, TypeError, RecursionError):
            raise RefusedError("a schema that cannot be read") from None


class One(Kind):
    """An object of one of the classes that are named: fitted, or with its parameters only.

    ``sizes`` say which letter of the whole a letter of the part stands for.
    """

    def __init__(self, *names: str, parameters_only: bool = False, **sizes: str) -> None:
        self.names, self.parameters_only, self.sizes = names, parameters_only, sizes

    def __str__(self) -> str:
        state = "an unfitted" if self.parameters_only else "a fitted"
        names = " or ".join(self.names) if len(self.names) < 6 else "object of a listed class"
        return f"{state} {names}"

    def matches(self, node: Any) -> bool:
        """Whether a node names one of the classes."""
        name = node.get("class") if isinstance(node, dict) else None
        own = REGISTERED_FAMILIES if REGISTERED in self.names else ()
        return isinstance(name, str) and name != REGISTERED and (name in self.names or name in own)

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Draft:
        draft = source.classes[node["class"]].read(node, source)
        if draft.fitted is self.parameters_only:
            raise RefusedError(f"expected {self}")
        for inner, outer in self.sizes.items():
            if inner in draft.sizes:
                size = draft.sizes[inner]
                bind(sizes, outer if size else f"{outer}?", size)
        return draft


@dataclass(frozen=True)
class Stored:
    """A class that may be in a model file, and all its fields.

    An estimator has all of its ``fitted`` fields, or, as the parameter of another one, none.
    ``optional`` are fitted fields that may be missing; ``caches`` are attributes that are computed
    again and not stored. The ``checks`` see the draft when every field by itself is right.
    """

    name: str
    module: str
    parameters: Mapping[str, Kind]
    fitted: Mapping[str, Kind] = field(default_factory=dict)
    optional: Mapping[str, Kind] = field(default_factory=dict)
    caches: Sequence[str] = ()
    checks: Sequence[Callable[[Draft], None]] = ()
    call: bool = False  #: built by its constructor, which checks more

    def read(self, node: Mapping[str, Any], source: Source) -> Draft:
        """A draft from the node of an object of this class."""
        given = set(node) - {"class"}
        fitted = not self.fitted or not given <= set(self.parameters)
        kinds = {**self.parameters, **(self.fitted if fitted else {})}
        needed = set(kinds)
        kinds.update((name, kind) for name, kind in self.optional.items() if name in given)
        if not needed <= given <= set(kinds):
            missing, unknown = sorted(needed - given)[:3], sorted(given - set(kinds))[:3]
            raise RefusedError(f"{self.name} lacks {missing} or has unknown {ascii(unknown)[:200]}")
        source.depth += 1
        if source.depth > DEEPEST:
            raise RefusedError("objects are nested too deeply")
        draft = Draft(self, {}, {}, fitted)
        for name, kind in kinds.items():
            try:
                draft.values[name] = kind.read(node[name], draft.sizes, source)
            except RefusedError as refused:
                refused.where.append(name)
                raise
        for check in self.checks if fitted else ():
            check(draft)
        source.depth -= 1
        return draft
