"""Moments of several parties per person: the sums are those of all rows in one place."""

from dataclasses import replace

import numpy as np
import pytest

from permea import MomentClassifier, MomentRegressor
from permea.federation import Agreement, MomentFederation, MomentParty
from permea.federation.agreement import AgreementError
from permea.federation.errors import RefusedError
from permea.federation.summary import summarise
from permea.privacy import Budget, Ledger, Privacy
from permea.privacy.moments import count_rows
from permea.privacy.signing import SigningKey, TrustedKeys
from permea.tables import Category, Number, Schema

KEY = SigningKey.generate("owner")
TRUSTED = TrustedKeys([KEY.public])
PERSON = Privacy(epsilon=8.0, delta=1e-5, unit="person", domain=(0, 1))
NAMES = ("a", "b", "c")


def visits(n_people=300, seed=0):
    rng = np.random.default_rng(seed)
    people = np.repeat(np.arange(n_people), rng.integers(1, 6, n_people))
    X = np.clip(rng.random((n_people, 3))[people] + 0.05 * rng.normal(size=(len(people), 3)), 0, 1)
    return X, (X[:, 0] > 0.5).astype(int), people


def federation(estimator, data, n_columns=3, ledgers=None, **terms):
    agreed = Agreement.of(estimator, n_columns, parties=NAMES, **terms).signed(by=KEY)
    return MomentFederation(
        [
            MomentParty(
                name, estimator, *data[i][:2], groups=data[i][2], agreement=agreed,
                trusted=TRUSTED, ledger=Ledger() if ledgers is None else ledgers[i],
            )
            for i, name in enumerate(NAMES)
        ]
    )  # fmt: skip


def split(X, y, people):
    return [tuple(part[people % 3 == i] for part in (X, y, people)) for i in range(3)]


@pytest.mark.parametrize("noise", ["shared", "own"])
@pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
def test_persons_of_several_parties_are_learned_from(noise, neighbours):
    X, y, people = visits()
    wanted = MomentClassifier(
        privacy=PERSON, features="identity", classes=[0, 1], neighbours=neighbours
    )
    ledgers = [Ledger(Budget(epsilon=40, delta=1e-3, unit="person")) for _ in NAMES]
    model = federation(wanted, split(X, y, people), noise=noise, ledgers=ledgers).fit()
    assert model.score(X, y) > 0.85
    assert model.certificate_.privacy.unit == "person"
    assert "per record" not in " ".join(model.certificate_.steps)
    assert (model.moments_.size == 300.0) == (neighbours == "replace")  # else it is noised
    assert all(ledger.events[0].unit == "person" for ledger in ledgers)


def test_sums_of_parties_are_the_sums_of_all_rows():
    X, y, people = visits()
    wanted = MomentRegressor(privacy=PERSON, features="identity", output_domain=(0, 1))
    plan = wanted.prepare(3)
    parts = [wanted.feature_sums(x, plan, groups=g) for x, _, g in split(X, y, people)]
    whole = wanted.feature_sums(X, plan, groups=people)
    total = parts[0] + parts[1] + parts[2]
    assert np.array_equal(total.features, whole.features)
    assert total.n_units == whole.n_units == len(count_rows(people))


def test_the_agreement_names_the_unit():
    wanted = MomentClassifier(privacy=PERSON, features="identity", classes=[0, 1])
    agreed = Agreement.of(wanted, 3, parties=NAMES, rounds=2)
    text = agreed.describe()
    assert "per person" in text
    assert "per record" not in text
    assert "all rows of a person are with one of them" in text
    assert Agreement.from_json(agreed.to_json()) == agreed
    record = wanted.set_params(privacy=replace(PERSON, unit="record"))
    X, y, _ = visits(20)
    with pytest.raises(AgreementError, match="privacy"):
        MomentParty(
            "a", record, X, y, agreement=agreed.signed(by=KEY), trusted=TRUSTED, ledger=Ledger()
        )


def test_a_party_says_whose_its_rows_are():
    X, y, people = visits(20)
    wanted = MomentClassifier(privacy=PERSON, features="identity", classes=[0, 1])
    with pytest.raises(ValueError, match="groups is missing"):
        federation(wanted, [(X, y, None)] * 3)
    unknown = people.astype(object)
    unknown[3] = None
    party = federation(wanted, [(X, y, unknown)] * 3)._channel.parties["a"]
    with pytest.raises(RefusedError, match="cannot be summed"):
        party.mean_message("r", 3, agreement=party.agreement.digest)
    assert [event.status for event in party._ledger.events] == ["charged"]


def test_class_weights_are_part_of_the_agreement():
    X, y, people = visits()
    wanted = MomentClassifier(
        privacy=PERSON, features="identity", classes=[0, 1], class_weight={0: 0.5, 1: 1.0}
    )
    agreed = Agreement.of(wanted, 3, parties=NAMES)
    assert agreed.plan == wanted.prepare(3)
    assert agreed.plan.weighted
    balanced = wanted.set_params(class_weight="balanced")
    assert Agreement.of(balanced, 3, parties=NAMES).plan == balanced.prepare(3)
    wanted.set_params(class_weight={0: 0.5, 1: 1.0})
    assert Agreement.from_json(agreed.to_json()).plan == agreed.plan
    model = federation(wanted, split(X, y, people)).fit()
    assert model.score(X, y) > 0.8


def test_tables_with_a_person_column():
    X, y, people = visits()
    columns = {"dose": Number(0, 1), "age": Number(0, 1), "who": Category(("x", "y"))}
    schema = Schema({**columns, "died": Category(("no", "yes"))}, label="died", person="id")
    frame = {
        "dose": X[:, 0], "age": X[:, 1], "who": np.where(X[:, 2] > 0.5, "x", "y"),
        "died": np.where(y == 1, "yes", "no"), "id": people,
    }  # fmt: skip
    wanted = MomentClassifier(privacy=replace(PERSON, domain=None), schema=schema)
    parts = [
        ({name: column[people % 3 == i] for name, column in frame.items()}, None, None)
        for i in range(3)
    ]
    model = federation(wanted, parts).fit()
    assert model.score(frame, frame["died"]) > 0.85
    assert model.certificate_.n_rows == 300


def test_the_summary_of_certificates_per_person():
    X, y, people = visits(60)
    wanted = MomentClassifier(privacy=PERSON, features="identity", classes=[0, 1])
    certificate = wanted.fit(X, y, groups=people).certificate_
    text = str(summarise({"a": certificate, "b": certificate}, "disjoint"))
    assert "together        ε = 8 per person" in text
    assert "whole record    ε = 8 per record" in text
