"""Kinds of fields: what a value in a model file may be, checked before anything is built.

The list of storable classes (`permea.storage.classes`) is written in these words. Sizes are written
as letters: ``floats("N", "p")`` and ``floats("p")`` in one class must agree on p, ``whole("p")``
must equal it, and ``one("Encoding", p="p")`` hands the p of a part on to the whole. A letter with a
question mark may be zero; a star is any size.

In the manifest a value is what JSON has for it, or a table with one entry that says what it is:
``{"array": "t3"}``, ``{"fortran": "t3"}`` (its transpose), ``{"words": "t4"}``,
``{"objects": "t4"}``, ``{"list": […]}``, ``{"tuple": […]}``, ``{"dict": {…}}``,
``{"float": "inf"}``, ``{"certificate": 0}``; or an object, ``{"class": name, field: value, …}``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from permea.privacy import Certificate
from permea.storage.container import RefusedError, all_finite

DEEPEST = 32
LONGEST_TEXT = 2000
LONGEST_WORD = 1000  # characters of a class label or a column name
MOST_WORDS = 10_000_000
MOST_CLASSES = 1_000_000
MOST_OBJECTS = 100_000  # words that are stored as Python objects
_MOST_ITEMS = 100_000
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}

Sizes = dict[str, int]


@dataclass
class Draft:
    """An object of a file, checked and not yet built."""

    stored: "Stored"
    values: dict[str, Any]
    sizes: Sizes
    fitted: bool

    @property
    def name(self) -> str:
        """Name of its class."""
        return self.stored.name


@dataclass
class Source:
    """What the values of a manifest refer to."""

    classes: Mapping[str, "Stored"]
    tensors: Mapping[str, NDArray[Any]]
    certificates: Sequence[Certificate]
    used: set[str] = field(default_factory=set)
    depth: int = 0
    n_objects: int = 0
    _finite: dict[str, bool] = field(default_factory=dict)

    def tensor(self, name: Any) -> NDArray[Any]:
        """The tensor of that name."""
        if not isinstance(name, str) or name not in self.tensors:
            raise RefusedError("a tensor that the file does not have")
        self.used.add(name)
        return self.tensors[name]

    def finite(self, name: str) -> bool:
        """Whether a tensor has finite entries only; each is looked at once."""
        if name not in self._finite:
            self._finite[name] = all_finite(self.tensors[name])
        return self._finite[name]


class Kind:
    """What a field may be."""

    def matches(self, node: Any) -> bool:
        """Whether a node has the form of this kind: chooses among alternatives."""
        raise NotImplementedError

    def read(self, node: Any, sizes: Sizes, source: Source) -> Any:
        """The value, or an object's draft; `RefusedError` when it is not allowed."""
        if not self.matches(node):
            raise RefusedError(f"expected {self}")
        return self._value(node, sizes, source)

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        """The value of a node of the right form."""
        raise NotImplementedError


def _tagged(node: Any, *tags: str) -> bool:
    return isinstance(node, dict) and len(node) == 1 and next(iter(node)) in tags


def _content(node: Any) -> Any:
    """What a node holds, without its tag."""
    return next(iter(node.values())) if isinstance(node, dict) else node


def bind(sizes: Sizes, name: str, size: int) -> None:
    """Note the size that a letter stands for; refuse another one than before."""
    if name == "*":
        return
    letter = name.removesuffix("?")
    if size == 0 and letter == name:
        raise RefusedError(f"its size {letter} is zero")
    if sizes.setdefault(letter, size) != size:
        raise RefusedError(f"its size {letter} is {size}, and {sizes[letter]} elsewhere")


@dataclass(frozen=True)
class Plain(Kind):
    """None, truth values and words of a short list."""

    choices: tuple[Any, ...]

    def __str__(self) -> str:
        return " or ".join(map(repr, self.choices))

    def matches(self, node: Any) -> bool:
        """Whether a node has the form of this kind."""
        return any(type(node) is type(choice) and node == choice for choice in self.choices)

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        return _content(node)


@dataclass(frozen=True)
class Text(Kind):
    """Any text up to a length."""

    longest: int = LONGEST_TEXT

    def __str__(self) -> str:
        return f"a text of at most {self.longest} characters"

    def matches(self, node: Any) -> bool:
        """Whether a node has the form of this kind."""
        return isinstance(node, str) and len(node) <= self.longest

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        text = _content(node)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RefusedError("half of a character") from None
        return text


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number; with a letter, one that equals that size."""

    low: int = 0
    high: int = 1 << 40
    size: str | None = None

    def __str__(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def matches(self, node: Any) -> bool:
        """Whether a node has the form of this kind."""
        return type(node) is int and self.low <= node <= self.high

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        number = _content(node)
        if self.size is not None:
            bind(sizes, self.size, number)
        return number


@dataclass(frozen=True)
class Number(Kind):
    """A number; infinity and NaN only where they are listed."""

    low: float = -math.inf
    high: float = math.inf
    special: tuple[str, ...] = ()

    def __str__(self) -> str:
        extra = "".join(f" or {word}" for word in self.special)
        return f"a finite number from {self.low:g} to {self.high:g}{extra}"

    def matches(self, node: Any) -> bool:
        """Whether a node has the form of this kind."""
        if _tagged(node, "float"):
            word = node["float"]
            return isinstance(word, str) and word in self.special
        if type(node) is int:
            return abs(node) < 1 << 63 and self.low <= node <= self.high
        return type(node) is float and math.isfinite(node) and self.low <= node <= self.high

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        number = _content(node)
        return _SPECIAL[number] if isinstance(number, str) else number


@dataclass(frozen=True)
class Array(Kind):
    """An array of numbers of given types and sizes."""

    types: str  #: letters of NumPy's kinds of types
    shape: tuple[str, ...]
    low: float = -math.inf
    high: float = math.inf
    finite: bool = True

    def __str__(self) -> str:
        return f"an array of shape ({', '.join(self.shape)})"

    def matches(self, node: Any) -> bool:
        """Whether a node has the form of this kind."""
        return _tagged(node, "array", "fortran")

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        name = _content(node)
        array = source.tensor(name).T if "fortran" in node else source.tensor(name)
        if array.dtype.kind not in self.types or array.ndim != len(self.shape):
            raise RefusedError(f"expected {self}, got {array.ndim} dimensions of {array.dtype}")
        for letter, size in zip(self.shape, array.shape, strict=True):
            bind(sizes, letter, size)
        if self.finite and not source.finite(name):
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

    def __str__(self) -> str:
        return "a row of words"

    def matches(self, node: Any) -> bool:
        """Whether a node has the form of this kind."""
        return _tagged(node, "words", "objects")

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
class Labels(Kind):
    """Class labels in order: numbers, truth values or words, none twice."""

    size: str

    def __str__(self) -> str:
        return "a row of class labels"

    def matches(self, node: Any) -> bool:
        """Whether a node has the form of this kind."""
        return _tagged(node, "array", "words", "objects")

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        kind: Kind = Array("biuf", (self.size,)) if "array" in node else Words(self.size)
        labels = kind.read(node, sizes, source)
        if len(labels) > MOST_CLASSES:
            raise RefusedError(f"more than {MOST_CLASSES} classes")
        if not bool(np.all(labels[1:] > labels[:-1])):
            raise RefusedError("class labels out of order, or one of them twice")
        return labels


@dataclass(frozen=True)
class Items(Kind):
    """A list or tuple of values of one kind."""

    each: Kind
    tags: tuple[str, ...] = ("list", "tuple")
    size: str | None = None
    least: int = 0
    most: int = _MOST_ITEMS

    def __str__(self) -> str:
        return f"a {' or '.join(self.tags)}"

    def matches(self, node: Any) -> bool:
        """Whether a node has the form of this kind."""
        return _tagged(node, *self.tags) and isinstance(next(iter(node.values())), list)

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        items = _content(node)
        if not self.least <= len(items) <= self.most:
            raise RefusedError(f"expected {self.least} to {self.most} items, got {len(items)}")
        if self.size is not None:
            bind(sizes, self.size, len(items))
        values = [self.each.read(item, sizes, source) for item in items]
        return values if "list" in node else tuple(values)


@dataclass(frozen=True)
class Table(Kind):
    """A table from texts to values of one kind."""

    each: Kind

    def __str__(self) -> str:
        return "a table"

    def matches(self, node: Any) -> bool:
        """Whether a node has the form of this kind."""
        return _tagged(node, "dict") and isinstance(node["dict"], dict)

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        return {
            Text(LONGEST_WORD).read(key, sizes, source): self.each.read(value, sizes, source)
            for key, value in _content(node).items()
        }


@dataclass(frozen=True)
class Either(Kind):
    """The first of several kinds whose form a node has."""

    kinds: tuple[Kind, ...]

    def __str__(self) -> str:
        return " or ".join(str(kind) for kind in self.kinds)

    def matches(self, node: Any) -> bool:
        """Whether a node has the form of this kind."""
        return any(kind.matches(node) for kind in self.kinds)

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Any:
        kind = next(kind for kind in self.kinds if kind.matches(node))
        return kind.read(node, sizes, source)


@dataclass(frozen=True)
class CertificateKind(Kind):
    """One of the certificates that the manifest lists."""

    def __str__(self) -> str:
        return "a certificate"

    def matches(self, node: Any) -> bool:
        """Whether a node has the form of this kind."""
        return _tagged(node, "certificate")

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Certificate:
        number = _content(node)
        if type(number) is not int or not 0 <= number < len(source.certificates):
            raise RefusedError("a certificate that the file does not have")
        return source.certificates[number]


@dataclass(frozen=True)
class One(Kind):
    """An object of one of the classes that are named, and of no other."""

    names: tuple[str, ...]
    sizes: tuple[tuple[str, str], ...] = ()  #: letter of the part, letter of the whole
    parameters_only: bool = False

    def __str__(self) -> str:
        state = "an unfitted" if self.parameters_only else "a fitted"
        names = " or ".join(self.names) if len(self.names) < 6 else "object of a listed class"
        return f"{state} {names}"

    def matches(self, node: Any) -> bool:
        """Whether a node has the form of this kind."""
        name = node.get("class") if isinstance(node, dict) else None
        return isinstance(name, str) and name in self.names

    def _value(self, node: Any, sizes: Sizes, source: Source) -> Draft:
        draft = source.classes[node["class"]].read(node, source)
        if draft.fitted is self.parameters_only:
            raise RefusedError(f"expected {self}")
        for inner, outer in self.sizes:
            if inner in draft.sizes:
                size = draft.sizes[inner]
                bind(sizes, outer if size else f"{outer}?", size)
        return draft


@dataclass(frozen=True)
class Stored:
    """A class that may be in a model file, and all its fields.

    An estimator has all of its ``fitted`` fields, or, as the parameter of another one, none.
    ``optional`` are fitted fields that may be missing; ``caches`` are attributes that are computed
    again and not stored. ``check`` sees the draft when all fields are right each for itself.
    """

    name: str
    module: str
    parameters: Mapping[str, Kind]
    fitted: Mapping[str, Kind] = field(default_factory=dict)
    optional: Mapping[str, Kind] = field(default_factory=dict)
    caches: frozenset[str] = frozenset()
    check: Callable[[Draft], None] | None = None
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
        return self._draft(node, kinds, fitted, source)

    def _draft(
        self, node: Mapping[str, Any], kinds: Mapping[str, Kind], fitted: bool, source: Source
    ) -> Draft:
        draft = Draft(self, {}, {}, fitted)
        source.depth += 1
        if source.depth > DEEPEST:
            raise RefusedError("objects are nested too deeply")
        for name, kind in kinds.items():
            try:
                draft.values[name] = kind.read(node[name], draft.sizes, source)
            except RefusedError as refused:
                refused.where.append(name)
                raise
        if fitted and self.check is not None:
            self.check(draft)
        source.depth -= 1
        return draft


TINY = 5e-324
NONE, FLAG, TEXT = Plain((None,)), Plain((True, False)), Text()
LEDGER = Plain((None,))  # an account belongs to a process, not to a model


def word(*choices: str) -> Kind:
    """One of a few words."""
    return Plain(choices)


def maybe(kind: Kind) -> Kind:
    """None, or a value of that kind."""
    return Either((NONE, kind))


def floats(*shape: str, low: float = float("-inf"), finite: bool = True) -> Kind:
    """Floating-point numbers."""
    return Array("f", shape, low=low, finite=finite)


def one(*names: str, **sizes: str) -> Kind:
    """A fitted object of one of these classes."""
    return One(names, tuple(sizes.items()))


def template(*names: str) -> Kind:
    """An unfitted estimator of one of these classes; its parameters alone are stored."""
    return One(names, parameters_only=True)


def size(letter: str) -> Kind:
    """A whole number that equals a size."""
    return Whole(size=letter)


def tuple_of(kind: Kind, length: int | None = None) -> Kind:
    """A tuple."""
    most = 100_000 if length is None else length
    return Items(kind, ("tuple",), least=length or 0, most=most)


NUMBER, ANY_NUMBER = Number(), Number(special=("inf", "-inf", "nan"))
POSITIVE, NOT_NEGATIVE, SHARE = Number(low=TINY), Number(low=0), Number(low=0, high=1)
NORM = Number(low=1e-100, high=1e100)
UNBOUNDED = Number(low=0, special=("inf",))
COUNT = Whole(low=1)
SEED, JOBS = maybe(Whole(0, 2**32 - 1)), maybe(Whole(-1024, 1024))
COLUMN_NUMBERS = Either((NUMBER, Items(NUMBER), Array("fiu", ("*",))))
RANGES = Items(COLUMN_NUMBERS, least=2, most=2)
ANY_LABEL = Either((FLAG, NUMBER, Text(1000)))
ROW_OF_LABELS = Either((Array("biuf", ("N",)), Words("N")))
PRIVACY, CERTIFICATE = maybe(one("Privacy")), maybe(CertificateKind())
FEATURE_NAMES = {"feature_names_in_": Words("p")}
