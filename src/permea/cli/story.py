"""What ``permea demo`` plays: three hospitals learn together, and nobody hands over a row."""

from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from permea.audit import AttackReport, attack
from permea.audit.synthetic import SyntheticRisks, synthetic_risks
from permea.audit.tables import RowsOfTable
from permea.compose import KAHMClassifier, MomentClassifier, fabricate_records
from permea.datasets import HOSPITALS, VISITS_SCHEMA, make_visits
from permea.fabricate.tables import FabricatedTable
from permea.federation import Agreement, MomentFederation, MomentParty
from permea.privacy import Budget, Ledger, Privacy
from permea.privacy.signing import SigningKey, TrustedKeys
from permea.report import Accuracy, content

PEOPLE, MOST_VISITS = 6000, 6
BUDGET = 3.0  # per person, for each hospital
_ATTACKED = 1500  # rows of either kind
_NEW = 4  # every fourth patient is new: no model has seen her


@dataclass(frozen=True)
class Way:
    """One way to learn from the same rows, and what came of it.

    Attributes
    ----------
    name : str
    promise : str
        In words, with the figure per record or per person.
    accuracy : Accuracy
        On the rows of new patients.
    attacks : AttackReport
    """

    name: str
    promise: str
    accuracy: Accuracy
    attacks: AttackReport


class Story:
    """The rows of the demo and what is made of them, each part when it is first asked for.

    Parameters
    ----------
    epsilon, delta : float
        The promise per person.
    """

    def __init__(self, epsilon: float = 1.0, delta: float = 1e-6) -> None:
        self.privacy = Privacy(
            epsilon=epsilon, delta=delta, unit="person", rows_per_person=MOST_VISITS
        )
        self.key = SigningKey.generate("steering-committee")
        self.trusted = TrustedKeys([self.key.public])
        budget = Budget(epsilon=max(BUDGET, 2 * epsilon), delta=10 * delta, unit="person")
        self.ledgers = {name: Ledger(budget) for name in HOSPITALS}
        visits = pd.DataFrame(make_visits(PEOPLE))
        new = pd.Series(visits["patient"].unique()[::_NEW])
        is_new = visits["patient"].isin(new)
        self.members = visits[~is_new].reset_index(drop=True)
        self.outside = visits[is_new].reset_index(drop=True)

    def rows_of(self, hospital: str, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows of one hospital, as its own table."""
        own = rows[rows["hospital"] == hospital]
        return own.drop(columns="hospital").reset_index(drop=True)

    @property
    def noise(self) -> Any:
        """Shares of one noise where the encryption is installed, else everybody adds it all."""
        return "shared" if find_spec("seal") is not None else "own"

    @cached_property
    def model(self) -> MomentClassifier:
        """The federated model: every hospital charges its ledger and sends noised sums."""
        wanted = MomentClassifier(privacy=self.privacy, schema=VISITS_SCHEMA)
        agreed = Agreement.of(
            wanted, len(VISITS_SCHEMA.features), parties=HOSPITALS, noise=self.noise
        ).signed(by=self.key)
        parties = [
            MomentParty(
                name, wanted, self.rows_of(name, self.members), agreement=agreed,
                trusted=self.trusted, ledger=self.ledgers[name], dataset=f"visits to {name}",
            )
            for name in HOSPITALS
        ]  # fmt: skip
        model: MomentClassifier = MomentFederation(parties).fit()
        return model

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """Predictions for new patients, with the probability of coming back."""
        features = self.outside[list(VISITS_SCHEMA.features)]
        return self.outside[["patient", "hospital"]].assign(
            readmitted=self.model.predict(features),
            probability=self.model.predict_proba(features)[:, 1].round(3),
        )

    @cached_property
    def synthetic(self) -> FabricatedTable:
        """A synthetic table of the first hospital: a release of its own, charged to its ledger."""
        name = HOSPITALS[0]
        return fabricate_records(
            self.rows_of(name, self.members), schema=VISITS_SCHEMA, privacy=self.privacy,
            ledger=self.ledgers[name], dataset=f"visits to {name}",
        )  # fmt: skip

    @cached_property
    def risks(self) -> SyntheticRisks:
        """What attacks on the synthetic table reach."""
        name = HOSPITALS[0]
        real, other = self.rows_of(name, self.members), self.rows_of(name, self.outside)
        return synthetic_risks(real, self.synthetic.data, other, VISITS_SCHEMA)

    # ---- three ways to learn from the same rows --------------------------------------------------

    def federated(self) -> Way:
        """The model of this demo."""
        table = RowsOfTable(self.model, pd.concat([self.members, self.outside], ignore_index=True))
        return self._way("noise on sums, federated", self.privacy.describe(), table, self._places)

    def noise_on_rows(self) -> Way:
        """The entry-level way of the documents at the same ε, on the same rows as numbers."""
        promise = replace(self.privacy, unit="entry", domain=(0.0, 1.0), rows_per_person=None)
        model = KAHMClassifier(privacy=promise, branch_size=1000)  # as the documents have it
        model.fit(self._numbers(self.members), self.members["readmitted"])
        paper = model.certificate_
        assert paper is not None
        told = f"{promise.describe()}; for one row of it ε = {paper.record_epsilon:.3g} per record"
        return self._way("noise on every number", told, model, self._numbers)

    def ordinary(self) -> Way:
        """A random forest on the rows as they are."""
        model = RandomForestClassifier(100, random_state=0, n_jobs=1)
        model.fit(self._numbers(self.members), self.members["readmitted"])
        return self._way("random forest, no privacy", "nothing is promised", model, self._numbers)

    def _places(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        """Rows as `RowsOfTable` takes them: by their numbers."""
        start = 0 if rows is self.members else len(self.members)
        return np.arange(start, start + len(rows), dtype=np.float64)[:, None]

    def _numbers(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        """Rows in [0, 1]: a number by its place in the declared range, a choice as indicators."""
        scale = np.sqrt(len(VISITS_SCHEMA.features))
        return np.asarray(np.clip(scale * VISITS_SCHEMA.encoder(bins=2).transform(rows), 0, 1))

    def _way(self, name: str, promise: str, model: Any, as_input: Any) -> Way:
        rng = np.random.default_rng(0)
        sides: list[tuple[Any, Any]] = []
        for rows in (self.members, self.outside):
            chosen = np.sort(rng.choice(len(rows), min(_ATTACKED, len(rows)), replace=False))
            sides.append((as_input(rows)[chosen], rows["readmitted"].to_numpy()[chosen]))
        kinds = [one for one in content.METRIC_ATTACKS if one != "distance"]
        found = attack(model, *sides[0], *sides[1], kinds=kinds)
        outside = as_input(self.outside), self.outside["readmitted"].to_numpy()
        return Way(name, promise, content.accuracy_of(model, *outside), found)
