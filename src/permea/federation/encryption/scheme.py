"""The interface of a scheme: `keygen`, `encrypt`, `aggregate`, `decrypt`, on bytes.

Three roles exchange messages (bytes or files) and nothing else:

* the **key holder** calls `keygen` and `decrypt` and keeps `Keys.secret`;
* a **party** calls `encrypt` with `Keys.public` on its quantised distances;
* the **aggregator** calls `aggregate` with `Keys.evaluation`.

Every scheme computes arg min over classes of the minimum over parties (004 eq. 104, 001 ch. 2).

A message is ``magic ‖ header length ‖ JSON header ‖ parts ‖ SHA-256 of all before``. The header
states what the message is (`kind`), for which public parameters (`parameters`, a hash) and which
key (`key`, an identifier), so that a message in the wrong place is refused before any cryptography
is tried. The digest detects damage, not forgery: whoever can rewrite a message can rewrite its
digest. Send messages over an authenticated channel (TLS) against active attackers.

Homomorphic comparison works on small integers, so distances are quantised. All parties must use one
scale, and the scale must be public: a bound of the feature domain or a figure agreed upon in
advance, never the largest distance in some party's data, which would reveal that data.
"""

import hashlib
import json
import operator
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

MAGIC = b"PERMEA-ENC-1\n"
DIGEST = hashlib.sha256().digest_size
MIN_BITS = 2
MOST, MOST_BITS = 2**16, 32  # parties, classes and processes of a scheme; bits of a distance


class EncryptionError(ValueError):
    """Base class of everything that the encrypted federation refuses to do."""


class DamagedMessageError(EncryptionError):
    """A message was truncated, altered, or is no message of this library."""


class MismatchError(EncryptionError):
    """A message is intact but of another kind, parameters, key, party or query."""


class WrongKeyError(EncryptionError):
    """A ciphertext cannot be decrypted with this key."""


def pack(kind: str, header: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    """Frame `parts` under a header.

    Examples
    --------
    >>> header, parts = unpack(pack("note", {"n": 1}, [b"a", b"bc"]), "note")
    >>> header["n"], parts
    (1, [b'a', b'bc'])
    """
    fields = {"kind": kind, "sizes": [len(part) for part in parts], **header}
    text = json.dumps(fields, sort_keys=True).encode()
    body = b"".join([MAGIC, len(text).to_bytes(4, "big"), text, *parts])
    return body + hashlib.sha256(body).digest()


def unpack(message: bytes, kind: str) -> tuple[dict[str, Any], list[bytes]]:
    """Read a message; raises an error that states what is wrong with it."""
    if not isinstance(message, bytes | bytearray | memoryview):
        raise TypeError(f"expected the bytes of a {kind}, got {type(message).__name__}")
    message = bytes(message)
    start = len(MAGIC) + 4
    if len(message) < start + DIGEST or not message.startswith(MAGIC):
        raise DamagedMessageError(
            f"these {len(message)} bytes are not a permea {kind}: send it again"
        )
    body = memoryview(message)[:-DIGEST]
    if hashlib.sha256(body).digest() != message[-DIGEST:]:
        raise DamagedMessageError(
            f"a {kind} of {len(message)} bytes fails its checksum (truncated or altered): "
            "send it again"
        )
    end = start + int.from_bytes(message[len(MAGIC) : start], "big")
    try:
        header = json.loads(message[start:end])
        found, sizes = str(header["kind"]), [operator.index(size) for size in header["sizes"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedMessageError(
            f"the header of a {kind} cannot be read: send it again"
        ) from error
    if found != kind:
        raise MismatchError(f"expected a {kind}, got a {found}")
    ends = list(accumulate(sizes, initial=end))
    if ends[-1] != len(body) or min(sizes, default=0) < 0:
        raise DamagedMessageError(f"the parts of a {kind} do not fill it: send it again")
    return header, [message[a:b] for a, b in pairwise(ends)]


def require_same(what: str, found: object, expected: object, advice: str) -> None:
    """Raise `MismatchError` unless a header field is the expected one."""
    if found != expected:
        raise MismatchError(f"{what} is {found!r}, expected {expected!r}: {advice}")


def infinity_code(bits: int) -> int:
    """Code of an infinite distance (a class that the party has never seen): 2^bits − 2.

    The all-ones code stays free: both circuits of `bfv` use it as a sentinel, which is what makes
    ties come out by class order at no extra depth.
    """
    return int(2**bits - 2)


@dataclass(frozen=True, kw_only=True)
class Quantiser:
    """Map distances on the public interval [low, high] to codes 0, …, 2^bits − 2.

    With n = 2^bits − 2 cells of width step = (high − low)/n,

        code(d) = min(⌊(d − low)/step⌋, n − 1) for low ≤ d ≤ high,        code(∞) = n,

    so d ↦ code(d) is non-decreasing, code(d) < code(∞) for every finite d, and two distances with
    different codes are ordered as their codes are. Distances in one cell tie, and **a tie goes to
    the lowest class index**, as in `numpy.argmin`; so an encrypted label can differ from the label
    of the exact distances only when the two distances are less than one step apart.

    Parameters
    ----------
    bits : int
        Number of bits k ≥ 2 of a code.
    high, low : float
        The public scale.

    Examples
    --------
    >>> import numpy as np
    >>> quantiser = Quantiser(bits=3, high=6.0)
    >>> quantiser.codes(np.array([[0.0, 0.99, 1.0, 6.0, np.inf]]))
    array([[0, 0, 1, 5, 6]])
    """

    bits: int
    high: float
    low: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.bits, int | np.integer) or self.bits < MIN_BITS:
            raise ValueError(f"bits must be an integer of at least {MIN_BITS}, got {self.bits!r}")
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise ValueError(
                f"the scale must be finite, low < high, got low={self.low!r}, high={self.high!r}"
            )

    @property
    def step(self) -> float:
        """Width of a cell."""
        return (self.high - self.low) / infinity_code(self.bits)

    def codes(self, distances: ArrayLike) -> NDArray[np.int64]:
        """Quantise distances of any shape on the scale; +∞ is allowed, NaN is not."""
        values = np.asarray(distances, dtype=np.float64)
        if np.isnan(values).any():
            raise ValueError("distances contain NaN: use +inf for a missing class")
        finite = np.isfinite(values)
        outside = (finite & ((values < self.low) | (values > self.high))) | (values == -np.inf)
        if outside.any():
            raise ValueError(
                f"{outside.sum()} of {values.size} distances lie outside the public scale "
                f"[{self.low}, {self.high}]: agree on a wider scale with all parties"
            )
        cells = np.floor((np.where(finite, values, self.low) - self.low) / self.step)
        last = infinity_code(self.bits) - 1
        codes = np.clip(cells, 0, last).astype(np.int64)
        return np.where(values == np.inf, last + 1, codes)


def plain_labels(codes: ArrayLike) -> NDArray[np.intp]:
    """What every scheme must reproduce: arg min over classes of the minimum over parties.

    This is the global classifier of 004 eq. 104 on quantised distances.

    Parameters
    ----------
    codes : array of shape (parties, queries, classes)

    Examples
    --------
    >>> plain_labels([[[3, 1, 2]], [[1, 6, 6]]])  # classes 0 and 1 tie at 1: the lower index wins
    array([0])
    """
    return np.asarray(np.argmin(np.min(codes, axis=0), axis=1), dtype=np.intp)


class Key:
    """A key in its serialised form: a message with kind, parameters and identifier."""

    kind: ClassVar[str]

    def __init__(self, message: bytes) -> None:
        self._message = bytes(message)
        self.header, self.parts = unpack(self._message, self.kind)

    @classmethod
    def of(cls, parameters: str, key_id: str, parts: Sequence[bytes]) -> Self:
        """The key with these parts; ``parameters`` and ``key_id`` go into its header."""
        return cls(pack(cls.kind, {"parameters": parameters, "key": key_id}, parts))

    def to_bytes(self) -> bytes:
        """Serialise."""
        return self._message

    @classmethod
    def from_bytes(cls, message: bytes) -> Self:
        """Open a serialised key; another kind of message is refused."""
        return cls(message)

    @property
    def key_id(self) -> str:
        """Identifier shared by the three keys of one `keygen` and by all that is made with them."""
        return str(self.header.get("key"))

    @property
    def digest(self) -> str:
        """SHA-256 of the serialised key, to be compared over another line (a telephone)."""
        return hashlib.sha256(self._message).hexdigest()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(key_id={self.key_id!r}, {len(self._message)} bytes)"


class SecretKey(Key):
    """Decrypts; stays with the key holder."""

    kind = "secret key"


class PublicKey(Key):
    """Encrypts; goes to the parties."""

    kind = "public key"


class EvaluationKey(Key):
    """Computes on ciphertexts; goes to the aggregator."""

    kind = "evaluation key"


class Keys(NamedTuple):
    """What `Scheme.keygen` returns, one key per role."""

    secret: SecretKey
    public: PublicKey
    evaluation: EvaluationKey


@dataclass(frozen=True, kw_only=True)
class Scheme(ABC):
    """Public parameters of one encrypted federation, and what can be done with them.

    Parameters
    ----------
    n_parties, n_classes : int
        Numbers of parties (at least 1) and classes (at least 2).
    bits : int, default=8
        Bits of a quantised distance (see `Quantiser`).
    scale : (low, high), optional
        The public scale. It is part of the fingerprint, so that different scales are detected.
    n_jobs : int, default=1
        Processes of `aggregate`. Not a public parameter.
    """

    n_parties: int
    n_classes: int
    bits: int = 8
    scale: tuple[float, float] | None = None
    n_jobs: int = 1

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for field, least in (("n_parties", 1), ("n_classes", 2), ("bits", MIN_BITS), ("n_jobs", 1)):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{field} must be an integer of at least {least}, got {value!r}")
            most = MOST_BITS if field == "bits" else MOST
            if value > most:  # public parameters may come from outside
                raise ValueError(f"{field} must be at most {most}, got {value!r}")
        if self.scale is not None:
            low, high = self.scale
            object.__setattr__(self, "scale", (float(low), float(high)))
            Quantiser(bits=self.bits, low=low, high=high)  # validates the scale

    @classmethod
    def for_queries(cls, n_queries: int | None, **fields: Any) -> Self:
        """The fastest scheme for so many queries; None: many."""
        return cls(**fields)

    # ---- public parameters -----------------------------------------------------------------------
    def parameters(self) -> dict[str, Any]:
        """Public parameters, as they are agreed upon in advance."""
        names = ("n_parties", "n_classes", "bits")
        scale = None if self.scale is None else list(self.scale)
        return {"scheme": self.name, "scale": scale, **{n: getattr(self, n) for n in names}}

    def to_json(self) -> str:
        """Serialise the public parameters."""
        return json.dumps(self.parameters(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str, *, n_jobs: int = 1) -> Self:
        """Rebuild a scheme from its public parameters."""
        fields = json.loads(text)
        require_same("the scheme", fields.pop("scheme"), cls.name, "use get_scheme of that name")
        if fields["scale"] is not None:
            fields["scale"] = tuple(fields["scale"])
        return cls(**fields, n_jobs=n_jobs)

    @property
    def fingerprint(self) -> str:
        """Hash of the public parameters; every key and message carries it."""
        text = json.dumps([self.parameters(), self._derived()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _derived(self) -> list[int]:
        """Numbers that follow from the public parameters and must agree too, such as the ring."""
        return []

    @property
    def quantiser(self) -> Quantiser:
        """The quantiser on the public scale."""
        if self.scale is None:
            raise ValueError(
                "this scheme was made without scale=(low, high), which quantisation needs"
            )
        return Quantiser(bits=self.bits, low=self.scale[0], high=self.scale[1])

    # ---- the four operations ---------------------------------------------------------------------
    def keygen(self) -> Keys:
        """Key holder: draw a fresh key set."""
        name = self.fingerprint, secrets.token_hex(16)
        secret, public, evaluation = self._keygen()
        keys = SecretKey.of(*name, secret), PublicKey.of(*name, public)
        return Keys(*keys, EvaluationKey.of(*name, evaluation))

    def encrypt(
        self, public_key: PublicKey, codes: ArrayLike, party: int, *, query_id: str = ""
    ) -> bytes:
        """Party: encrypt its quantised distances, shape (queries, classes).

        `query_id` is chosen by the key holder; the aggregator refuses to mix replies to different
        queries.
        """
        self._check_key(public_key, PublicKey)
        if isinstance(party, bool) or not 0 <= int(party) < self.n_parties:
            raise ValueError(f"party must lie in 0..{self.n_parties - 1}, got {party!r}")
        array = self._check_codes(codes)
        header = {
            "parameters": self.fingerprint,
            "key": public_key.key_id,
            "party": int(party),
            "n_queries": len(array),
            "query": str(query_id),
        }
        return pack("ciphertext", header, self._encrypt(public_key, array, int(party)))

    def aggregate(self, evaluation_key: EvaluationKey, ciphertexts: Sequence[bytes]) -> bytes:
        """Aggregator: one ciphertext per party (in any order) to the encrypted labels."""
        self._check_key(evaluation_key, EvaluationKey)
        opened = [unpack(message, "ciphertext") for message in ciphertexts]
        for header, _ in opened:
            self._check_header("a ciphertext", header, evaluation_key.key_id)
        parties = sorted(header["party"] for header, _ in opened)
        require_same(
            "the list of parties that replied",
            parties,
            list(range(self.n_parties)),
            "each party replies exactly once",
        )
        first = opened[0][0]
        for header, _ in opened:
            for field, what in (("query", "the query"), ("n_queries", "the number of queries")):
                where = f"{what} of party {header['party']}"
                require_same(where, header[field], first[field], "all reply to the same query")
        opened.sort(key=lambda item: int(item[0]["party"]))
        parts = self._aggregate(evaluation_key, [p for _, p in opened], first["n_queries"])
        fields = ("parameters", "key", "n_queries", "query")
        return pack("result", {field: first[field] for field in fields}, parts)

    def decrypt(
        self, secret_key: SecretKey, result: bytes, *, query_id: str | None = None
    ) -> NDArray[np.intp]:
        """Key holder: the class index of every query."""
        self._check_key(secret_key, SecretKey)
        header, parts = unpack(result, "result")
        self._check_header("the result", header, secret_key.key_id)
        if query_id is not None:
            require_same(
                "the query of the result", header["query"], query_id, "send the query again"
            )
        return self._decrypt(secret_key, parts, header["n_queries"])

    def absent(
        self, evaluation_key: EvaluationKey, party: int, n_queries: int, *, query_id: str = ""
    ) -> bytes:
        """Aggregator: a ciphertext in place of a party that is missing, ∞ for every class.

        Only a scheme with public-key encryption can do this; others refuse.
        """
        codes = np.full((n_queries, self.n_classes), infinity_code(self.bits))
        return self.encrypt(self._public_part(evaluation_key), codes, party, query_id=query_id)

    def _public_part(self, evaluation_key: EvaluationKey) -> PublicKey:
        """The public key that an evaluation key contains, when the scheme has such a thing."""
        raise EncryptionError(
            f"a party is missing, and scheme={self.name!r} has no public-key encryption by which "
            "the aggregator could fill its place: wait for all parties, or use scheme='bfv'"
        )

    # ---- what a scheme implements ----------------------------------------------------------------
    @abstractmethod
    def _keygen(self) -> tuple[list[bytes], list[bytes], list[bytes]]:
        """Parts of the secret, public and evaluation key."""

    @abstractmethod
    def _encrypt(self, public_key: PublicKey, codes: NDArray[np.int64], party: int) -> list[bytes]:
        """Ciphertexts of one party."""

    @abstractmethod
    def _aggregate(
        self, evaluation_key: EvaluationKey, parties: list[list[bytes]], n_queries: int
    ) -> list[bytes]:
        """Ciphertexts of the labels."""

    @abstractmethod
    def _decrypt(
        self, secret_key: SecretKey, parts: list[bytes], n_queries: int
    ) -> NDArray[np.intp]:
        """Class index per query."""

    # ---- checks ----------------------------------------------------------------------------------
    def check_keys(self, keys: Keys) -> None:
        """Raise `MismatchError` unless a key set was made for these parameters."""
        for key, kind in zip(keys, (SecretKey, PublicKey, EvaluationKey), strict=True):
            self._check_key(key, kind)
            require_same("the key set", key.key_id, keys.secret.key_id, "use one key set for all")

    def check_ciphertext(
        self, key: EvaluationKey, message: bytes, party: int, n_queries: int, query_id: str
    ) -> None:
        """Raise unless a ciphertext is intact and replies to this query for this party."""
        header, parts = unpack(message, "ciphertext")
        self._check_header("a ciphertext", header, key.key_id)
        expected = {"party": party, "n_queries": n_queries, "query": query_id}
        for name, value in expected.items():
            require_same(f"{name} of a ciphertext", header.get(name), value, "reply to the query")
        self._check_parts(parts, n_queries)

    def check_evaluation_key(self, key: EvaluationKey) -> None:
        """Aggregator: raise unless a key can be used; called when it arrives."""
        self._check_key(key, EvaluationKey)
        self._load_key(key)

    def _check_parts(self, parts: list[bytes], n_queries: int) -> None:
        """Raise unless the parts of a ciphertext can be read and are as many as needed."""
        if not parts:
            raise DamagedMessageError("a ciphertext without contents: send it again")

    def _load_key(self, key: EvaluationKey) -> None:
        """Raise `DamagedMessageError` unless an evaluation key can be read."""
        if not key.parts:
            raise DamagedMessageError("an evaluation key without contents: send it again")

    def _check_key(self, key: Key, kind: type[Key]) -> None:
        if not isinstance(key, kind):
            raise TypeError(f"expected a {kind.kind}, got {type(key).__name__}")
        self._check_header(f"the {kind.kind}", key.header, key.key_id)

    def _check_header(self, what: str, header: dict[str, Any], key_id: str) -> None:
        require_same(
            f"the parameter hash of {what}",
            header.get("parameters"),
            self.fingerprint,
            "parties, classes, bits, scale and scheme must be the same for all",
        )
        require_same(f"the key of {what}", header.get("key"), key_id, "use one key set for all")

    def _check_codes(self, codes: ArrayLike) -> NDArray[np.int64]:
        array = np.asarray(codes)
        if array.ndim != 2 or array.shape[1] != self.n_classes or len(array) == 0:
            raise ValueError(
                f"codes must have shape (queries ≥ 1, {self.n_classes} classes), got {array.shape}"
            )
        if not np.issubdtype(array.dtype, np.integer):
            raise ValueError(f"codes must be integers from a Quantiser, got dtype {array.dtype}")
        top = infinity_code(self.bits)
        if array.min() < 0 or array.max() > top:
            raise ValueError(
                f"codes overflow the scale 0..{top} of {self.bits} bits: use a Quantiser"
            )
        return array.astype(np.int64)
