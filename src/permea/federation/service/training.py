"""Learning one model over a network: the files of parties, reader and aggregator, and the run.

All roles hold the same training file (what is learned, under which promise) and the same agreement,
which the owners of the rows have signed. Everybody checks one against the other.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from permea.federation.agreement import Agreement, AgreementError
from permea.federation.errors import FederationError
from permea.federation.flower.app import FlowerChannel
from permea.federation.flower.moments import FlowerMoments, moment_replies, reader_replies
from permea.federation.flower.replies import Replies
from permea.federation.guard import AuditLog
from permea.federation.moment_party import MomentParty
from permea.federation.moment_rounds import Journal
from permea.federation.moments import MomentFederation
from permea.federation.service.config import (
    ConfigError,
    FederationConfig,
    MomentFiles,
    ReaderConfig,
)
from permea.federation.service.direct import connected
from permea.models.hull import HullClassifier
from permea.models.moments import MomentClassifier, MomentRegressor
from permea.privacy import Privacy
from permea.privacy.ledger import Ledger
from permea.privacy.signing import SigningKey, TrustedKeys
from permea.tables import Schema

LEARNERS: dict[str, type] = {
    "classifier": MomentClassifier,
    "regressor": MomentRegressor,
    "hulls": HullClassifier,
}
PASSPHRASE = "PERMEA_KEY_PASSPHRASE"
_OWN = {"privacy", "ledger", "dataset", "random_state", "schema"}
_PRIVACY = {"epsilon", "delta", "unit", "rows_per_person", "low", "high", "bound"}


@dataclass(frozen=True)
class Wanted:
    """Contents of a training file: an estimator without rows, and the number of its columns."""

    estimator: Any
    n_columns: int

    @classmethod
    def from_file(cls, path: Path) -> "Wanted":
        """Read ``[model]`` (what, columns or schema, its parameters) and ``[privacy]``."""
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
            model, promise = dict(tables["model"]), dict(tables["privacy"])
        except FileNotFoundError:
            raise ConfigError(f"{path} does not exist.") from None
        except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} is no training file with [model] and [privacy]: {error}"
            ) from None
        learner = LEARNERS.get(str(model.pop("learn", "classifier")))
        if learner is None:
            raise ConfigError(f"{path}: learn must be one of {sorted(LEARNERS)}.")
        columns, schema = model.pop("columns", None), model.pop("schema", None)
        if (columns is None) == (schema is None):
            raise ConfigError(f"{path}: [model] needs columns (a number) or schema (a file).")
        if unknown := sorted(set(promise) - _PRIVACY):
            raise ConfigError(f"{path}: unknown keys in [privacy]: {unknown}.")
        allowed = set(learner().get_params()) - _OWN
        if unknown := sorted(set(model) - allowed):
            raise ConfigError(f"{path}: {learner.__name__} takes no {unknown} in [model].")
        options = {name: _plain(value) for name, value in model.items()}
        declared = None if schema is None else Schema.load((path.parent / schema).resolve())
        if declared is not None:
            options["schema"] = declared
        n_columns = int(columns) if declared is None else len(declared.features)
        return cls(learner(privacy=_privacy(promise), **options), n_columns)

    def agreement(self, parties: list[str], **terms: Any) -> Agreement:
        """An agreement for the owners to read and sign; see `Agreement.of`."""
        return Agreement.of(self.estimator, self.n_columns, parties=parties, **terms)


def _plain(value: Any) -> Any:
    """TOML writes lists where parameters are tuples or lists; tuples serve for both."""
    return tuple(value) if isinstance(value, list) else value


def _privacy(promise: Mapping[str, Any]) -> Privacy:
    values = {name: _plain(value) for name, value in promise.items()}
    low, high = values.pop("low", None), values.pop("high", None)
    domain = None if low is None and high is None else (low, high)
    return Privacy(**values, domain=domain)


def read_agreement(path: Path) -> Agreement:
    """An agreement from a file."""
    try:
        return Agreement.from_json(path.read_text(encoding="utf-8"))
    except OSError:
        raise AgreementError(f"{path} cannot be read: the owners' agreement is missing.") from None


def moment_party(name: str, files: MomentFiles) -> MomentParty:
    """The party that a configuration file describes, with its rows in memory."""
    wanted = Wanted.from_file(files.training)
    X, y, groups = _rows(files.data, wanted.estimator.schema)
    return MomentParty(
        name, wanted.estimator, X, y, groups=groups, agreement=read_agreement(files.agreement),
        trusted=TrustedKeys.load(files.trusted), ledger=Ledger(files.ledger),
        dataset=files.dataset,
    )  # fmt: skip


def _rows(path: Path, schema: Schema | None) -> tuple[Any, Any, Any]:
    """Rows, outputs and people of a file."""
    if schema is not None:
        import pandas as pd

        from permea.tables.reading import read_chunks

        return pd.concat(list(read_chunks(path)()), ignore_index=True), None, None
    with np.load(path, allow_pickle=False) as arrays:
        people = arrays["groups"] if "groups" in arrays.files else None
        return arrays["X"], arrays["y"], people


def party_moments(name: str, files: MomentFiles, log: Path | None = None) -> Replies:
    """What a party with rows replies; every question is logged."""
    readers = None if files.reader is None else TrustedKeys.load(files.reader)
    note = None if log is None else AuditLog(log)
    return moment_replies(moment_party(name, files), readers, log=note)


def reader_of(config: ReaderConfig) -> Replies:
    """What the reader of a configuration file replies."""
    from permea.federation.sum_reader import SumReader

    key = SigningKey.load(config.sign, passphrase=os.environ.get(PASSPHRASE))
    trusted = TrustedKeys.load(config.trusted)
    return reader_replies(SumReader(read_agreement(config.agreement), trusted, key))


@dataclass(frozen=True)
class Trained:
    """What a training over the network gives.

    Parameters
    ----------
    model : estimator
        Fitted, with its certificate.
    seen : dict
        What each role was sent.
    missing : dict
        Parties that left, and why.
    resumed : bool
        Whether a round that was begun before was finished.
    """

    model: Any
    seen: Mapping[str, list[str]]
    missing: Mapping[str, str]
    resumed: bool


def train(path: str | os.PathLike[str], *, wait: float = 120.0, anew: bool = False) -> Trained:
    """Run one round with the parties of ``federation.toml``; what ``permea federate train`` does.

    Parameters
    ----------
    path : path
        The file; its table ``[training]`` names the training file and the agreement.
    wait : float
        Seconds to wait for the parties.
    anew : bool, default=False
        Begin a new round, which is charged, although an earlier one was not finished.

    Returns
    -------
    Trained
        The model and what happened.
    """
    config = FederationConfig.from_file(path)
    if config.training is None:
        raise ConfigError(f"{config.path}: [training] is missing: training, agreement.")
    agreement = read_agreement(config.training.agreement)
    wanted = Wanted.from_file(config.training.training)
    if unknown := sorted(set(agreement.parties) - set(config.keys)):
        raise FederationError(
            f"The agreement names parties without a key in [federation.parties]: {unknown}."
        )
    journal = Journal(config.folder / "training" / f"{agreement.digest[:32]}.json")
    if anew:
        journal.remove()
    resumed = journal.path is not None and journal.path.exists()
    retry, least = config.settings["retry"], agreement.least_parties
    with connected(config, needed=least, timeout=wait, names=agreement.parties) as channel:
        moments = FlowerMoments(
            FlowerChannel(channel.grid, agreement.parties), agreement, wanted.estimator,
            timeout=retry.timeout,
        )  # fmt: skip
        federation = MomentFederation(moments, retry=retry, journal=journal)
        model = federation.fit()
    return Trained(model, moments.seen, federation.missing, resumed)
