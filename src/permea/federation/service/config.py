"""Configuration files of an aggregator (``federation.toml``) and a party (``clinic-a.toml``)."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from permea.compose import FuzzyClassifier, KAHMClassifier, MembershipClassifier
from permea.federation.party import Guard, Party
from permea.federation.transport import RetryPolicy
from permea.models.hull import HullClassifier
from permea.privacy import Privacy
from permea.privacy.signing import TrustedKeys

_RETRY_KEYS = {"timeout", "attempts", "backoff"}
_FEDERATION_KEYS = {
    "parties", "topology", "aggregation", "drop", "quorum", "batch_size", "records", "suspects",
    "classes", "encrypted", "scheme", "bits", "scale", "n_jobs",
}  # fmt: skip
_SERVER_KEYS = {"host", "port", "ca", "certificate", "key", "folder"}
_PARTY_KEYS = {"name", "model", "trusted", "consent", "encrypted_only", "client_keys"}
_LINK_KEYS = {"address", "ca", "key", "folder"}
_GUARD_KEYS = {"max_batch", "per_minute", "log"}
FAMILIES: dict[str, type] = {
    "kahm": KAHMClassifier,
    "membership": MembershipClassifier,
    "fuzzy": FuzzyClassifier,
    "hulls": HullClassifier,
}
_MODEL_KEYS = {
    "n_components", "n_layers", "branch_size", "classes", "features", "neighbours", "release",
    "rows_per_class", "n_directions", "n_rules", "max_inducing", "disturbance", "nu", "kappa",
    "fabricate", "partition_on",
}  # fmt: skip
_TRAIN_KEYS = {
    "data",
    "family",
    "epsilon",
    "delta",
    "unit",
    "rows_per_person",
    "low",
    "high",
    "bound",
}


class ConfigError(ValueError):
    """A configuration file has an unknown or a missing entry."""


class _File:
    """A TOML file whose tables and entries are checked; paths in it are relative to its folder."""

    def __init__(self, path: str | os.PathLike[str], known: Mapping[str, set[str]]) -> None:
        self.path = Path(path).resolve()
        try:
            self._tables = tomllib.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            text = f"{self.path} does not exist. Check the path given with --config."
            raise ConfigError(text) from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{self.path} is not valid TOML: {error}") from None
        self._check("tables", self._tables, set(known))
        for name, keys in known.items():
            self._check(f"keys in [{name}]", self._tables.get(name, {}), keys)

    def _check(self, what: str, found: Mapping[str, Any], known: set[str]) -> None:
        if unknown := sorted(set(found) - known):
            raise ConfigError(f"{self.path}: unknown {what}: {unknown}; known: {sorted(known)}.")

    def table(self, name: str) -> dict[str, Any]:
        """A table; empty when it is not there."""
        return dict(self._tables.get(name, {}))

    def value(self, table: str, key: str, default: Any = None) -> Any:
        """An entry, or the default; an error when there is neither."""
        found = self.table(table).get(key, default)
        if found is None:
            raise ConfigError(f"{self.path}: {key} is missing in [{table}].")
        return found

    def file(self, table: str, key: str, default: str | None = None) -> Path:
        """An entry that is a path."""
        return self.resolve(self.value(table, key, default))

    def resolve(self, value: Any) -> Path:
        """A path relative to the folder of this file."""
        return (self.path.parent / Path(str(value)).expanduser()).resolve()


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

    @property
    def local_address(self) -> str:
        """``host:port`` of the SuperLink as this machine reaches it."""
        return f"{'127.0.0.1' if self.host in ('0.0.0.0', '') else self.host}:{self.port}"

    @property
    def secret_file(self) -> Path:
        """Secret that the aggregator's programs prove themselves with to the SuperLink."""
        return self.folder / "superlink.secret"

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read and check a file; paths in it are relative to its folder."""
        known = {"federation": _FEDERATION_KEYS | _RETRY_KEYS, "server": _SERVER_KEYS}
        file = _File(path, known)
        settings = file.table("federation")
        keys = settings.pop("parties", None)
        if not isinstance(keys, dict) or not keys:
            raise ConfigError(
                f"{path}: [federation.parties] must give the public key file of each party, e.g. "
                'clinic-a = "keys/clinic-a.pub".'
            )
        retry = {key: settings.pop(key) for key in _RETRY_KEYS & set(settings)}
        settings["retry"] = RetryPolicy(**{"timeout": 120.0, "attempts": 2, **retry})
        if "scale" in settings:
            settings["scale"] = tuple(settings["scale"])
        return cls(
            keys={name: file.resolve(key) for name, key in keys.items()},
            settings=settings,
            host=str(file.value("server", "host", "127.0.0.1")),
            port=int(file.value("server", "port")),
            ca=file.file("server", "ca"),
            certificate=file.file("server", "certificate"),
            key=file.file("server", "key"),
            folder=file.file("server", "folder", "federation-state"),
            path=file.path,
        )


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a party trains its model, once, when it has none yet."""

    data: Path
    privacy: Privacy
    options: Mapping[str, Any]
    family: type = KAHMClassifier

    @classmethod
    def of(cls, file: _File) -> Self:
        """Read the table [train]."""
        table = file.table("train")
        low, high = (_column_values(file.value("train", end)) for end in ("low", "high"))
        privacy = Privacy(
            epsilon=file.value("train", "epsilon"),
            delta=table.get("delta", 0.0),
            unit=table.get("unit", "entry"),
            rows_per_person=table.get("rows_per_person"),
            domain=(low, high),
            bound=_column_values(table.get("bound")),
        )
        name, options = table.get("family", "kahm"), {k: table[k] for k in _MODEL_KEYS & set(table)}
        if name not in FAMILIES:
            raise ConfigError(f"{file.path}: family in [train] must be one of {sorted(FAMILIES)}.")
        family = FAMILIES[name]
        if unknown := sorted(set(options) - set(family().get_params())):
            raise ConfigError(f"{file.path}: family {name!r} in [train] has no {unknown}.")
        if privacy.unit != "entry" and options.get("release") != "rows" and "classes" not in table:
            raise ConfigError(
                f"{file.path}: classes is missing in [train]. With unit = {privacy.unit!r} which "
                "labels occur is protected too: declare those that may, or give release = 'rows'."
            )
        return cls(data=file.file("train", "data"), privacy=privacy, options=options, family=family)

    def model(self) -> Any:
        """An unfitted model; a party of one class is accepted where classes are not declared."""
        single = {"allow_single_class": True} if self.family is not HullClassifier else {}
        return self.family(privacy=self.privacy, **single, **self.options)


def _column_values(value: Any) -> Any:
    """One number for all columns, or one for each."""
    return tuple(value) if isinstance(value, list) else value


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
    options : dict
        Further keywords for `Party`: ``consent``, ``encrypted_only``, ``client_keys``.
    address : str
        ``host:port`` of the aggregator.
    ca, key : Path
        Certificate of the authority that signed the aggregator's, and the party's private key.
    folder : Path
        State of the node and its logs.
    guard : dict
        Keywords for `Guard`.
    training : Training or None
        How to make the model when there is none.
    path : Path
        The file itself.
    """

    name: str
    model: Path
    trusted: Path | None
    options: Mapping[str, Any]
    address: str
    ca: Path
    key: Path
    folder: Path
    guard: Mapping[str, Any]
    training: Training | None
    path: Path

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read and check a file; paths in it are relative to its folder."""
        known = {"party": _PARTY_KEYS, "server": _LINK_KEYS, "guard": _GUARD_KEYS}
        file = _File(path, {**known, "train": _TRAIN_KEYS | _MODEL_KEYS})
        party, name = file.table("party"), str(file.value("party", "name"))
        own = ("consent", "encrypted_only", "client_keys")
        return cls(
            name=name,
            model=file.file("party", "model"),
            trusted=file.file("party", "trusted") if "trusted" in party else None,
            options={key: party[key] for key in own if key in party},
            address=str(file.value("server", "address")),
            ca=file.file("server", "ca"),
            key=file.file("server", "key"),
            folder=file.file("server", "folder", f"{name}-state"),
            guard={**file.table("guard"), "log": file.file("guard", "log", f"{name}-audit.jsonl")},
            training=Training.of(file) if file.table("train") else None,
            path=file.path,
        )

    def party(self) -> Party:
        """The party of the model file, with its guard; raises when it may not join."""
        trusted = None if self.trusted is None else TrustedKeys.load(self.trusted)
        guard = Guard(**self.guard)
        return Party.from_file(self.name, self.model, trusted=trusted, guard=guard, **self.options)
