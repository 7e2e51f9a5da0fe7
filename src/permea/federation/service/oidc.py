"""Bearer tokens of an identity provider (OpenID Connect), checked against its published keys."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from permea._text import safe_text
from permea.federation.service.askers import SCOPES, Asker, Askers, DeniedError

ALGORITHMS = ("RS256", "PS256", "ES256", "ES384", "EdDSA")
"""Signatures that count; none is made with a shared secret."""
_LEEWAY = 30.0  # seconds by which two clocks may differ


@dataclass(frozen=True, kw_only=True)
class Provider:
    """An identity provider whose tokens are taken.

    Parameters
    ----------
    issuer : str
        The ``iss`` of its tokens.
    audience : str
        The ``aud`` that stands for this service.
    keys : Path
        Its public keys (JWKS), from its ``jwks_uri``. The file is read again when it changes.
    limits : dict
        ``budget`` and ``per_minute`` of each asker that comes this way.
    """

    issuer: str
    audience: str
    keys: Path
    limits: dict[str, Any] = field(default_factory=dict)
    _read: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)

    def check(self) -> None:
        """Read the keys, or raise with what is wrong with the file."""
        import jwt

        try:
            found = self._key_set()
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, OSError) as error:
            raise ValueError(f"{self.keys} is not a set of public keys (JWKS).") from error
        if not found:
            raise ValueError(f"{self.keys} holds no public key.")

    def find(self, token: str, askers: Askers) -> Asker:
        """The asker whom a token names; raises `DeniedError` for anything but a valid one.

        The claim ``scope`` says what the token is for, among the scopes of `Askers`.
        """
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            key = self._key_set()[str(header.get("kid"))]
            claims = jwt.decode(
                token,
                key,
                algorithms=[one for one in ALGORITHMS if one == header.get("alg")],
                issuer=self.issuer,
                audience=self.audience,
                leeway=_LEEWAY,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            subject = str(claims["sub"])
            scopes = set(str(claims.get("scope", "ask jobs")).split()) & set(SCOPES)
        except (jwt.PyJWTError, KeyError, ValueError, TypeError, RecursionError):
            raise DeniedError("The token is not valid. Ask the operator for one.") from None
        if not scopes:
            raise DeniedError("The token is not valid. Ask the operator for one.")
        digest = hashlib.sha256(json.dumps([self.issuer, subject]).encode()).hexdigest()
        name = safe_text(claims.get("preferred_username") or subject)[:100] or "unnamed"
        asker = askers.admit(f"oidc-{digest[:24]}", name, **self.limits)
        return Asker(**{**vars(asker), "scopes": frozenset(scopes)})

    def _key_set(self) -> dict[str, Any]:
        """Public keys by their id, read again when the file has changed."""
        import jwt

        stamp = self.keys.stat().st_mtime_ns
        if stamp not in self._read:
            found = jwt.PyJWKSet.from_json(self.keys.read_text(encoding="utf-8"))
            self._read.clear()
            self._read[stamp] = {str(one.key_id): one for one in found.keys}
        found_keys: dict[str, Any] = self._read[stamp]
        return found_keys
