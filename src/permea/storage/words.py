"""Short words for the kinds of fields that the list of storable classes is written in."""

from permea.storage.fields import (
    Array,
    CertificateKind,
    Either,
    Items,
    Kind,
    Number,
    One,
    Plain,
    Text,
    Whole,
    Words,
)

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
