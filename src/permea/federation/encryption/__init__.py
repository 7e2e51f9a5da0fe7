"""Encrypted federation: the winning class, without a single distance in the clear (001 ch. 2).

>>> get_scheme("bfv").__name__
'BFV'
"""

from permea.federation.encryption.scheme import (
    DamagedMessageError,
    EncryptionError,
    EvaluationKey,
    Keys,
    MismatchError,
    PublicKey,
    Quantiser,
    Scheme,
    SecretKey,
    WrongKeyError,
    infinity_code,
    plain_labels,
)

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


def get_scheme(name: str = "bfv") -> type[Scheme]:
    """Class of a scheme by name; its library is imported when the scheme is used.

    Parameters
    ----------
    name : {"bfv", "tfhe"}
        "bfv" (extra ``permea[encrypted]``) has public-key encryption and is the default; "tfhe"
        (extra ``permea[tfhe]``) is the bootstrapped scheme of 001 with secret-key encryption.
    """
    if name == "bfv":
        from permea.federation.encryption.bfv import BFV

        return BFV
    if name == "tfhe":
        from permea.federation.encryption.tfhe import TFHE

        return TFHE
    raise ValueError(f"unknown scheme {name!r}: choose one of ['bfv', 'tfhe']")
