"""Configuration files of an aggregator (``federation.toml``) and a party (``clinic-a.toml``)."""

import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from permea.compose import FuzzyClassifier, KAHMClassifier, MembershipClassifier
from permea.federation.guard import Guard
from permea.federation.party import Party
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
_PARTY_KEYS = {
    "name", "model", "trusted", "consent", "permits", "encrypted_only", "client_keys",
}  # fmt: skip
_LINK_KEYS = {"address", "ca", "key", "folder"}
_MOMENT_KEYS = {"training", "agreement", "trusted", "reader", "data", "ledger", "dataset"}
_READER_KEYS = {"name", "agreement", "trusted", "sign"}
_TRAINING_KEYS = {"training", "agreement", "reader"}
_GUARD_KEYS = {
    "max_batch", "per_minute", "per_client_per_minute", "answers", "per_client", "log",
}  # fmt: skip
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
class TrainingFiles:
    """Table ``[training]`` of ``federation.toml``: what is learned, and what the owners signed."""

    training: Path
    agreement: Path
    reader: Path | None


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
    training : TrainingFiles or None
        What ``permea federate train`` needs.
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
    training: TrainingFiles | None = None

    @property
    def node_keys(self) -> dict[str, Path]:
        """Public key files of all nodes: the parties', and the reader's."""
        if self.training is None or self.training.reader is None:
            return dict(self.keys)
        return {**self.keys, READER: self.training.reader}

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
        file = _File(path, {**known, "training": _TRAINING_KEYS})
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
            training=_training_files(file) if file.table("training") else None,
        )


READER = "reader"
"""Name of the node of the reader of secure sums."""


def _training_files(file: _File) -> TrainingFiles:
    reader = "reader" in file.table("training")
    return TrainingFiles(
        training=file.file("training", "training"),
        agreement=file.file("training", "agreement"),
        reader=file.file("training", "reader") if reader else None,
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


def _party_options(path: str | os.PathLike[str], party: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords for `Party`: what the owner permits, with the defaults of a deployed party."""
    found = {"permits": ["distances"]}
    found |= {key: party[key] for key in ("consent", "permits", "encrypted_only") if key in party}
    if found.get("encrypted_only") or "encrypted" in found["permits"]:
        keys = party.get("client_keys")
        if keys is None:
            raise ConfigError(
                f"{path}: client_keys is missing in [party]. Encrypted distances are for the "
                "clients whose public keys are named there, by their digests; an empty list "
                'accepts nobody yet, and "any" everybody, also an aggregator that makes a key of '
                "its own and reads the distances."
            )
        if keys != "any":
            found["client_keys"] = keys
    return found


@dataclass(frozen=True, kw_only=True)
class MomentFiles:
    """Table ``[moments]`` of a party: rows that are learned from together with other parties.

    Parameters
    ----------
    training, agreement : Path
        What is learned, and what the owners signed.
    trusted, reader : Path
        Keys of owners whose signature counts, and of the reader that messages are encrypted for.
    data, ledger, dataset : Path, str, str
        The rows, the ledger that each round is charged to, and their name in it.
    """

    training: Path
    agreement: Path
    trusted: Path
    reader: Path | None
    data: Path
    ledger: str
    dataset: str | None

    @classmethod
    def of(cls, file: _File) -> Self:
        """Read the table."""
        table = file.table("moments")
        ledger = str(file.value("moments", "ledger"))
        return cls(
            training=file.file("moments", "training"),
            agreement=file.file("moments", "agreement"),
            trusted=file.file("moments", "trusted"),
            reader=file.file("moments", "reader") if "reader" in table else None,
            data=file.file("moments", "data"),
            ledger=ledger if "://" in ledger else str(file.resolve(ledger)),
            dataset=table.get("dataset"),
        )


@dataclass(frozen=True, kw_only=True)
class ReaderConfig:
    """Contents of ``reader.toml``: who opens the totals of secure sums.

    Parameters
    ----------
    name, address, ca, key, folder, path
        As for `PartyConfig`.
    agreement, trusted, sign : Path
        What the owners signed, whose signature counts, and the key that signs the reader's keys.
    """

    name: str
    agreement: Path
    trusted: Path
    sign: Path
    address: str
    ca: Path
    key: Path
    folder: Path
    path: Path

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read and check a file; paths in it are relative to its folder."""
        file = _File(path, {"reader": _READER_KEYS, "server": _LINK_KEYS})
        return cls(
            name=str(file.value("reader", "name", READER)),
            agreement=file.file("reader", "agreement"),
            trusted=file.file("reader", "trusted"),
            sign=file.file("reader", "sign"),
            address=str(file.value("server", "address")),
            ca=file.file("server", "ca"),
            key=file.file("server", "key"),
            folder=file.file("server", "folder", "reader-state"),
            path=file.path,
        )


def node_config(path: Path) -> "PartyConfig | ReaderConfig":
    """Read the file of a node: a party's, or with a table ``[reader]`` a reader's."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        tables = {}  # the party's reader says what is wrong
    return ReaderConfig.from_file(path) if "reader" in tables else PartyConfig.from_file(path)


@dataclass(frozen=True, kw_only=True)
class PartyConfig:
    """Contents of ``clinic-a.toml``.

    Parameters
    ----------
    name : str
        Name of the party.
    model : Path or None
        Model file written by `permea.save`; None for a party that has ``[moments]`` alone.
    trusted : Path or None
        File of the keys whose signature on the model counts. Without one, the certificate of a
        model from a file is an unverified claim.
    options : dict
        Further keywords for `Party`: ``consent``, ``permits``, ``encrypted_only``,
        ``client_keys``. Distances alone are permitted unless the file says more; for encrypted
        ones it must name the clients' keys.
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
    moments : MomentFiles or None
        Rows that are learned from together with other parties.
    """

    name: str
    model: Path | None
    trusted: Path | None
    options: Mapping[str, Any]
    address: str
    ca: Path
    key: Path
    folder: Path
    guard: Mapping[str, Any]
    training: Training | None
    path: Path
    moments: MomentFiles | None = None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read and check a file; paths in it are relative to its folder."""
        known = {"party": _PARTY_KEYS, "server": _LINK_KEYS, "guard": _GUARD_KEYS}
        tables = {"train": _TRAIN_KEYS | _MODEL_KEYS, "moments": _MOMENT_KEYS}
        file = _File(path, {**known, **tables})
        party, name = file.table("party"), str(file.value("party", "name"))
        moments = MomentFiles.of(file) if file.table("moments") else None
        alone = moments is not None and "model" not in party
        return cls(
            name=name,
            model=None if alone else file.file("party", "model"),
            trusted=file.file("party", "trusted") if "trusted" in party else None,
            options=_party_options(path, party),
            address=str(file.value("server", "address")),
            ca=file.file("server", "ca"),
            key=file.file("server", "key"),
            folder=file.file("server", "folder", f"{name}-state"),
            guard={**file.table("guard"), "log": file.file("guard", "log", f"{name}-audit.jsonl")},
            training=Training.of(file) if file.table("train") else None,
            path=file.path,
            moments=moments,
        )

    def party(self) -> Party:
        """The party of the model file, with its guard; raises when it may not join."""
        if self.model is None:
            raise ConfigError(f"{self.path}: model is missing in [party].")
        trusted = None if self.trusted is None else TrustedKeys.load(self.trusted)
        guard = Guard(**self.guard)
        guard.model = hashlib.sha256(self.model.read_bytes()).hexdigest()[:32]
        return Party.from_file(self.name, self.model, trusted=trusted, guard=guard, **self.options)
