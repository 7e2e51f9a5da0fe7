"""A round of questions whose distances nobody but their own party sees (001 ch. 2)."""

import secrets
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from permea.federation.encryption import PublicKey, Quantiser, Scheme, get_scheme
from permea.federation.errors import SchemaError
from permea.federation.party import Party
from permea.federation.schema import Label, Schema
from permea.models.base import Array


@dataclass(frozen=True)
class EncryptedQuestion:
    """What a party needs to answer in secret: public things only."""

    scheme: Scheme
    public_key: PublicKey
    classes: tuple[Label, ...]
    query_id: str


def make_scheme(
    name: str,
    n_parties: int,
    schema: Schema,
    bits: int,
    scale: tuple[float, float] | None,
) -> Scheme:
    """Scheme on a public scale: the one given, or the diameter of the declared domain."""
    if scale is None:
        if schema.diameter is None:
            raise SchemaError(
                "An encrypted federation needs a public scale of distances. Give "
                "scale=(low, high), or let the parties declare the domain of their features; never "
                "take it from data."
            )
        scale = (0.0, schema.diameter)
    return get_scheme(name)(
        n_parties=n_parties, n_classes=len(schema.classes), bits=bits, scale=scale
    )


def encrypt_reply(
    party: Party, index: int, queries: Array, question: EncryptedQuestion, asker: str
) -> bytes:
    """At the party: distances, quantised on the public scale and encrypted.

    A distance beyond the scale gets the last finite code; such a class is farther than any that
    counts.
    """
    distances = party.distances(queries, question.classes, asker=asker)
    low, high = question.scheme.quantiser.low, question.scheme.quantiser.high
    quantiser = Quantiser(bits=question.scheme.bits, low=low, high=high, overflow="clip")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # clipping is what is wanted here
        codes = quantiser.codes(distances)
    return question.scheme.encrypt(
        question.public_key, codes, party=index, query_id=question.query_id
    )


def encrypted_round(
    scheme: Scheme, classes: tuple[Label, ...], ask: Any, names: Sequence[str]
) -> tuple[NDArray[np.intp] | None, dict[str, Any]]:
    """Keys, question, aggregation and decryption of one batch.

    Parameters
    ----------
    scheme : Scheme
        For exactly as many parties as ``names`` has.
    classes : tuple of labels
        Classes of the federation.
    ask : callable
        Takes a question and names, returns an outcome (ciphertext or failure) for each name.
    names : sequence of str
        Parties, in the order of their index.

    Returns
    -------
    labels : ndarray of shape (m,) or None
        Class indices; None when some party failed, for then nothing can be decrypted.
    outcomes : dict
        What came back from each party.
    """
    keys = scheme.keygen()  # the asker
    question = EncryptedQuestion(scheme, keys.public, classes, secrets.token_hex(8))
    outcomes = ask(question, names)  # the parties
    ciphertexts = [outcomes[name] for name in names]
    if not all(isinstance(ciphertext, bytes) for ciphertext in ciphertexts):
        return None, outcomes
    result = scheme.aggregate(keys.evaluation, ciphertexts)  # the aggregator
    labels = scheme.decrypt(keys.secret, result, query_id=question.query_id)  # the asker
    return labels, outcomes
