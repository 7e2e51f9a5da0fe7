"""Encrypted federation: the winning class, without a single distance in the clear (001 ch. 2).

>>> get_scheme("bfv").__name__
'BFV'
"""

from __future__ import annotations

from .base import EvaluationKey, Keys, PublicKey, Scheme, SecretKey
from .messages import DamagedMessageError, EncryptionError, MismatchError, WrongKeyError
from .quantise import Quantiser, infinity_code, plain_labels

__all__ = [
    "DamagedMessageError",
    "EncryptionError",
    "EvaluationKey",
    "Keys",
    "MismatchError",
    "PublicKey",
    "Quantiser",
    "Scheme",
    "SecretKey",
    "WrongKeyError",
    "get_scheme",
    "infinity_code",
    "plain_labels",
]

SCHEMES = ("bfv", "tfhe")


def get_scheme(name: str = "bfv") -> type[Scheme]:
    """Class of a scheme by name; its library is imported when the scheme is used.

    Parameters
    ----------
    name : {"bfv", "tfhe"}
        "bfv" (extra ``permea[encrypted]``) has public-key encryption and is the default; "tfhe"
        (extra ``permea[tfhe]``) is the seed's bootstrapped scheme with secret-key encryption.
    """
    if name == "bfv":
        from .bfv import BFV

        return BFV
    if name == "tfhe":
        from .tfhe import TFHE

        return TFHE
    raise ValueError(f"unknown scheme {name!r}: choose one of {list(SCHEMES)}")
