"""A federation on the network as a backend: its jobs go through the queue of its aggregator."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from permea.federation.errors import FederationError
from permea.federation.service.backends import Answered, Takes
from permea.federation.service.decode import Rows
from permea.federation.service.deploy import Aggregator

_FRESH = 2.0  # seconds for which the list of connected parties is kept
_CHECK = 1.0  # seconds between two looks whether the processes run


@dataclass(frozen=True)
class Training:
    """What the parties learn together: the agreement that they signed, and the round that is open.

    Parameters
    ----------
    agreement : str
        As it is printed, with ε, δ and their unit.
    round : str
        Its number; nothing when no round is open.
    stages : dict
        Stages that are over, and how many parties replied.
    missing : dict
        Parties that left the round, and why.
    """

    agreement: str
    round: str = ""
    stages: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


class NetworkBackend:
    """Parties that are reached through the aggregator of ``federation.toml``, which is run here.

    Parameters
    ----------
    config : path
        Configuration of the aggregator.
    """

    def __init__(self, config: Path) -> None:
        self.aggregator = Aggregator(config)
        self.spool = self.aggregator.spool
        self.name = f"federation of {len(self.aggregator.config.keys)} parties"
        self.encrypted = bool(self.aggregator.config.settings.get("encrypted"))
        self._online: tuple[float, frozenset[str]] = (0.0, frozenset())
        self._ended = threading.Event()

    def start(self, on_failure: Callable[[str], None]) -> None:
        """Start the aggregator, and say when it cannot be kept alive."""
        self.aggregator.start()

        def watch() -> None:
            while not self._ended.wait(_CHECK):
                try:
                    self.aggregator.keep_alive()
                except (FederationError, OSError) as error:
                    on_failure(str(error).splitlines()[0].partition(" Its log")[0])
                    return

        threading.Thread(target=watch, daemon=True).start()

    def stop(self) -> None:
        """Stop the aggregator and its processes."""
        self._ended.set()
        self.aggregator.stop()

    def connected(self) -> frozenset[str]:
        """Names of the parties that are connected."""
        when, names = self._online
        if time.monotonic() - when > _FRESH:
            try:
                names = frozenset(self.aggregator.control.online())
            except Exception:  # whatever the control connection raises while it starts or ends
                names = frozenset()
            self._online = (time.monotonic(), names)
        return names

    def training(self) -> Training | None:
        """What the parties learn together; None where they do not."""
        from permea.federation.service.training import read_agreement

        config = self.aggregator.config
        if config.training is None:
            return None
        try:
            agreement = read_agreement(config.training.agreement)
        except (FederationError, ValueError, OSError) as error:
            return Training(f"cannot be read: {type(error).__name__}")
        path = config.folder / "training" / f"{agreement.digest[:32]}.json"
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            stages = {name: int(one["replied"]) for name, one in values["stages"].items()}
            return Training(str(agreement), str(values["round"]), stages, dict(values["missing"]))
        except (OSError, ValueError, KeyError, TypeError):
            return Training(str(agreement))

    def _about(self) -> dict[str, Any]:
        text = self.spool.store.database.fact("about")
        found: dict[str, Any] = json.loads(text) if text else {}
        return found

    @property
    def takes(self) -> Takes | None:
        """The rows that it takes; None until enough parties have introduced themselves."""
        found = self._about().get("takes")
        if found is None:
            return None
        names = found["columns"]
        return Takes(
            n_features=found["n_features"],
            columns=None if names is None else tuple(names),
            classes=tuple(found["classes"]),
        )

    @property
    def parties(self) -> Mapping[str, str]:
        """All parties, and the status of those that have introduced themselves."""
        known = self._about().get("parties", {})
        return {name: known.get(name, "unknown") for name in self.aggregator.config.keys}

    @property
    def certificates(self) -> Mapping[str, str]:
        """Certificates of the parties that have introduced themselves."""
        found: dict[str, str] = self._about().get("certificates", {})
        return found

    def rows(self, rows: Rows) -> Any:
        """Numbers; their columns are checked when the parties are known."""
        takes = self.takes
        if takes is None:
            return rows.numbers(None, rows.n_columns)
        return rows.numbers(takes.columns, takes.n_features)

    def ask(self, X: Any, client: str) -> Answered:
        """Not used: what goes over the network is a job."""
        raise FederationError("A federation on the network answers jobs.")
