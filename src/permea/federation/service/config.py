"""Configuration files of an aggregator (``federation.toml``) and a party (``clinic-a.toml``)."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from permea.federation.party import Guard, Party
from permea.federation.transport import RetryPolicy
from permea.privacy import Privacy
from permea.privacy.signing import TrustedKeys

_FEDERATION_KEYS = {
    "parties", "topology", "aggregation", "drop", "quorum", "timeout", "attempts", "backoff",
    "batch_size", "records", "suspects", "classes", "encrypted", "scheme", "bits", "scale",
    "n_jobs",
}  # fmt: skip
_SERVER_KEYS = {"host", "port", "ca", "certificate", "key", "folder"}
_PARTY_KEYS = {"name", "model", "trusted", "consent", "encrypted_only", "client_keys"}
_LINK_KEYS = {"address", "ca", "key", "folder"}
_GUARD_KEYS = {"max_batch", "per_minute", "log"}
_TRAIN_KEYS = {
    "data", "epsilon", "delta", "unit", "low", "high", "n_components", "n_layers", "branch_size",
}  # fmt: skip


class ConfigError(ValueError):
    """A configuration file has an unknown or a missing entry."""


@dataclass(frozen=True, kw_only=True)
class FederationConfig:
    """Contents of ``federation.toml``.

    Parameters
    ----------
    keys : dict
        Public key file of each party; the names are those of the parties.
    settings : dict
        Keywords for `Federation.over`.
    host, port : str, int
        Where the SuperLink listens.
    ca, certificate, key : Path
        TLS files of the SuperLink.
    folder : Path
        State of the SuperLink, the queue of jobs and the logs.
    path : Path
        The file itself.
    """

    keys: Mapping[str, Path]
    settings: Mapping[str, Any]
    host: str
    port: int
    ca: Path
    certificate: Path
    key: Path
    folder: Path
    path: Path

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read and check a file; paths in it are relative to its folder."""
        path, tables = _tables(path, {"federation", "server"})
        chosen = _table(tables, "federation", _FEDERATION_KEYS, path)
        server = _table(tables, "server", _SERVER_KEYS, path)
        keys = _need(chosen, "parties", path)
        if not isinstance(keys, dict) or not keys:
            raise ConfigError(
                f"{path}: [federation.parties] must give the public key file of each party, e.g. "
                'clinic-a = "keys/clinic-a.pub".'
            )
        return cls(
            keys={name: _file(key, path) for name, key in keys.items()},
            settings=_settings(chosen),
            host=str(server.get("host", "127.0.0.1")),
            port=int(_need(server, "port", path)),
            ca=_file(_need(server, "ca", path), path),
            certificate=_file(_need(server, "certificate", path), path),
            key=_file(_need(server, "key", path), path),
            folder=_file(server.get("folder", "federation-state"), path),
            path=path,
        )


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a party trains its model, once, when it has none yet."""

    data: Path
    privacy: Privacy
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PartyConfig:
    """Contents of ``clinic-a.toml``.

    Parameters
    ----------
    name : str
        Name of the party.
    model : Path
        Model file written by `permea.save`.
    trusted : Path or None
        File of the keys whose signature on the model counts. Without one, the certificate of a
        model from a file is an unverified claim.
    consent : tuple of str
        Objections that the owner accepts, see `permea.federation.party.OBJECTIONS`.
    encrypted_only, client_keys : bool, tuple of str
        Whether and for whom to encrypt, see `permea.federation.Party`.
    address : str
        ``host:port`` of the aggregator.
    ca, key : Path
        Certificate of the authority that signed the aggregator's, and the party's private key.
    folder : Path
        State of the SuperNode and its logs.
    guard : dict
        Keywords for `Guard`.
    training : Training or None
        How to make the model when there is none.
    path : Path
        The file itself.
    """

    name: str
    model: Path
    consent: tuple[str, ...]
    address: str
    ca: Path
    key: Path
    folder: Path
    guard: Mapping[str, Any]
    training: Training | None
    path: Path
    encrypted_only: bool = False
    client_keys: tuple[str, ...] = ()
    trusted: Path | None = None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read and check a file; paths in it are relative to its folder."""
        path, tables = _tables(path, {"party", "server", "guard", "train"})
        party = _table(tables, "party", _PARTY_KEYS, path)
        link = _table(tables, "server", _LINK_KEYS, path)
        guard = dict(_table(tables, "guard", _GUARD_KEYS, path))
        name = str(_need(party, "name", path))
        guard["log"] = _file(guard.get("log", f"{name}-audit.jsonl"), path)
        consent = party.get("consent", ())
        return cls(
            name=name,
            model=_file(_need(party, "model", path), path),
            trusted=_file(party["trusted"], path) if "trusted" in party else None,
            consent=(consent,) if isinstance(consent, str) else tuple(consent),
            encrypted_only=bool(party.get("encrypted_only", False)),
            client_keys=tuple(str(digest) for digest in party.get("client_keys", ())),
            address=str(_need(link, "address", path)),
            ca=_file(_need(link, "ca", path), path),
            key=_file(_need(link, "key", path), path),
            folder=_file(link.get("folder", f"{name}-state"), path),
            guard=guard,
            training=_training(tables, path) if "train" in tables else None,
            path=path,
        )

    def party(self, *, guard: Guard | None = None) -> Party:
        """The party of the model file; raises when it may not join."""
        return Party.from_file(
            self.name,
            self.model,
            trusted=None if self.trusted is None else TrustedKeys.load(self.trusted),
            consent=self.consent,
            guard=guard,
            encrypted_only=self.encrypted_only,
            client_keys=self.client_keys,
        )

    def make_guard(self) -> Guard:
        """The guard that the file configures."""
        return Guard(**self.guard)


def _training(tables: Mapping[str, Any], path: Path) -> Training:
    train = dict(_table(tables, "train", _TRAIN_KEYS, path))
    low, high = (_columns(_need(train, end, path)) for end in ("low", "high"))
    privacy = Privacy(
        epsilon=_need(train, "epsilon", path),
        delta=train.get("delta", 0.0),
        unit=train.get("unit", "entry"),
        domain=(low, high),
    )
    names = ("n_components", "n_layers", "branch_size")
    options: dict[str, Any] = {name: train[name] for name in names if name in train}
    return Training(data=_file(_need(train, "data", path), path), privacy=privacy, options=options)


def _settings(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of `Federation.over`, with a `RetryPolicy`."""
    wait = {key: chosen[key] for key in ("timeout", "attempts", "backoff") if key in chosen}
    plain = {
        key: value
        for key, value in chosen.items()
        if key not in ("parties", "timeout", "attempts", "backoff")
    }
    if "scale" in plain:
        plain["scale"] = tuple(plain["scale"])
    return {**plain, "retry": RetryPolicy(**{"timeout": 120.0, "attempts": 2, **wait})}


def _tables(path: str | os.PathLike[str], known: set[str]) -> tuple[Path, dict[str, Any]]:
    path = Path(path).resolve()
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist. Check the path given with --config.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    if unknown := sorted(set(tables) - known):
        raise ConfigError(f"{path}: unknown tables {unknown}; known are {sorted(known)}.")
    return path, tables


def _table(tables: Mapping[str, Any], name: str, known: set[str], path: Path) -> dict[str, Any]:
    table = tables.get(name, {})
    if unknown := sorted(set(table) - known):
        raise ConfigError(f"{path}: unknown keys {unknown} in [{name}]; known: {sorted(known)}.")
    return dict(table)


def _need(table: Mapping[str, Any], key: str, path: Path) -> Any:
    if key not in table:
        raise ConfigError(f"{path}: {key} is missing.")
    return table[key]


def _file(value: Any, path: Path) -> Path:
    return (path.parent / Path(str(value)).expanduser()).resolve()


def _columns(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
