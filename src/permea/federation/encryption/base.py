"""The interface of a scheme: `keygen`, `encrypt`, `aggregate`, `decrypt`, on bytes.

Three roles share nothing but messages (bytes or files):

* the **asker** calls `keygen` and `decrypt` and keeps `Keys.secret`;
* a **party** calls `encrypt` with `Keys.public` on its quantised distances;
* the **aggregator** calls `aggregate` with `Keys.evaluation`.

Every scheme computes arg min over classes of the minimum over parties (004 eq. 104, 001 ch. 2).
"""

from __future__ import annotations

import hashlib
import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .messages import EncryptionError, MismatchError, pack, require_same, unpack
from .quantise import MIN_BITS, Quantiser, infinity_code


class Key:
    """A key as it travels: a framed message that knows its kind, parameters and identifier."""

    kind: ClassVar[str]

    def __init__(self, message: bytes) -> None:
        self._message = bytes(message)
        self.header, self.parts = unpack(self._message, self.kind)

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
        return str(self.header["key"])

    @property
    def digest(self) -> str:
        """SHA-256 of the key as it travels, to be compared over another line (a telephone)."""
        return hashlib.sha256(self._message).hexdigest()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(key_id={self.key_id!r}, {len(self._message)} bytes)"


class SecretKey(Key):
    """Decrypts; stays with the asker."""

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
        The public scale. It enters the fingerprint, so that parties with different scales are found
        out.
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
        if self.scale is not None:
            low, high = self.scale
            object.__setattr__(self, "scale", (float(low), float(high)))
            Quantiser(bits=self.bits, low=low, high=high)  # validates the scale

    @classmethod
    def for_queries(cls, n_queries: int | None, **fields: Any) -> Self:
        """The scheme that answers so many queries soonest; None: many."""
        return cls(**fields)

    # ---- public parameters -----------------------------------------------------------------------
    def parameters(self) -> dict[str, Any]:
        """Public parameters, as they are agreed upon in the handshake."""
        scale = None if self.scale is None else list(self.scale)
        return {
            "scheme": self.name,
            "n_parties": self.n_parties,
            "n_classes": self.n_classes,
            "bits": self.bits,
            "scale": scale,
        }

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
                "this scheme was made without scale=(low, high): nothing to quantise on"
            )
        return Quantiser(bits=self.bits, low=self.scale[0], high=self.scale[1])

    # ---- the four operations ---------------------------------------------------------------------
    def keygen(self) -> Keys:
        """Asker: draw a fresh key set."""
        header = {"parameters": self.fingerprint, "key": secrets.token_hex(16)}
        secret, public, evaluation = self._keygen()
        return Keys(
            SecretKey(pack(SecretKey.kind, header, secret)),
            PublicKey(pack(PublicKey.kind, header, public)),
            EvaluationKey(pack(EvaluationKey.kind, header, evaluation)),
        )

    def encrypt(
        self, public_key: PublicKey, codes: ArrayLike, party: int, *, query_id: str = ""
    ) -> bytes:
        """Party: encrypt its quantised distances, shape (queries, classes).

        `query_id` is a name of the question, chosen by the asker; the aggregator refuses to mix
        answers to different questions.
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
        return pack("ciphertext", header, self._encrypt(public_key, array))

    def aggregate(self, evaluation_key: EvaluationKey, ciphertexts: Sequence[bytes]) -> bytes:
        """Aggregator: one ciphertext per party (in any order) to the encrypted labels."""
        self._check_key(evaluation_key, EvaluationKey)
        opened = [unpack(message, "ciphertext") for message in ciphertexts]
        for header, _ in opened:
            self._check_header("a ciphertext", header, evaluation_key.key_id)
        parties = sorted(header["party"] for header, _ in opened)
        require_same(
            "the list of parties that answered",
            parties,
            list(range(self.n_parties)),
            "each party answers exactly once",
        )
        first = opened[0][0]
        for header, _ in opened:
            for field, what in (("query", "the question"), ("n_queries", "the number of queries")):
                where = f"{what} answered by party {header['party']}"
                require_same(where, header[field], first[field], "all answer the same question")
        opened.sort(key=lambda item: int(item[0]["party"]))
        parts = self._aggregate(evaluation_key, [p for _, p in opened], first["n_queries"])
        fields = ("parameters", "key", "n_queries", "query")
        return pack("result", {field: first[field] for field in fields}, parts)

    def decrypt(
        self, secret_key: SecretKey, result: bytes, *, query_id: str | None = None
    ) -> NDArray[np.intp]:
        """Asker: the class index of every query."""
        self._check_key(secret_key, SecretKey)
        header, parts = unpack(result, "result")
        self._check_header("the result", header, secret_key.key_id)
        if query_id is not None:
            require_same("the question of the result", header["query"], query_id, "ask again")
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
            "the aggregator could fill its place: ask when all parties are there, or use 'bfv'"
        )

    # ---- what a scheme writes --------------------------------------------------------------------
    @abstractmethod
    def _keygen(self) -> tuple[list[bytes], list[bytes], list[bytes]]:
        """Parts of the secret, public and evaluation key."""

    @abstractmethod
    def _encrypt(self, public_key: PublicKey, codes: NDArray[np.int64]) -> list[bytes]:
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
        """Raise unless a ciphertext is intact and answers this question for this party."""
        header, _ = unpack(message, "ciphertext")
        self._check_header("a ciphertext", header, key.key_id)
        expected = {"party": party, "n_queries": n_queries, "query": query_id}
        for name, value in expected.items():
            require_same(f"{name} of a ciphertext", header.get(name), value, "answer the question")

    def _check_key(self, key: Key, kind: type[Key]) -> None:
        if not isinstance(key, kind):
            raise TypeError(f"expected a {kind.kind}, got {type(key).__name__}")
        self._check_header(f"the {kind.kind}", key.header, key.key_id)

    def _check_header(self, what: str, header: dict[str, Any], key_id: str) -> None:
        require_same(
            f"the parameter hash of {what}",
            header["parameters"],
            self.fingerprint,
            "parties, classes, bits, scale and scheme must be the same for all",
        )
        require_same(f"the key of {what}", header["key"], key_id, "use one key set for all")

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


def check_labels(labels: NDArray[np.intp], n_queries: int, n_classes: int) -> NDArray[np.intp]:
    """Refuse decrypted labels that no honest evaluation can produce."""
    if labels.shape != (n_queries,) or labels.min() < 0 or labels.max() >= n_classes:
        raise MismatchError("the decrypted labels are not class indices: the result is not usable")
    return labels
