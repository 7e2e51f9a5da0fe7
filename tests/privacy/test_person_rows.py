"""Noise on rows per person, and what a ledger per person accepts."""

import json
import math

import numpy as np
import pytest
from privacy_checks import refutes

from permea import KAHMClassifier, SourceModel
from permea.privacy import Budget, BudgetExceededError, Certificate, Ledger, Privacy, release
from permea.privacy.composition import tight_epsilon
from permea.privacy.ledger_events import LedgerError, event_from_dict, event_to_json
from permea.privacy.moments import ChargedMoments, plan_moments
from permea.privacy.release import UnreadableRowsError, charge_rows, plan, release_pair
from permea.privacy.sampling import SeededBits

X = np.random.default_rng(0).random((6, 2))
GROUPS = ["ann", "ann", "bob", "cid", "cid", "cid"]


def promise(unit="person", rows=3, **options):
    settings = {"epsilon": 1.0, "delta": 1e-5, "domain": (0, 1), "mechanism": "gaussian"}
    return Privacy(**settings | options, unit=unit, rows_per_person=rows)


@pytest.mark.parametrize(("mechanism", "growth"), [("optimal", 3.0), ("gaussian", math.sqrt(3.0))])
@pytest.mark.parametrize("clip_norm", [None, 0.7])
def test_noise_is_scaled_to_all_rows_of_a_person(mechanism, growth, clip_norm):
    options = {"mechanism": mechanism, "clip_norm": clip_norm}
    record, person = plan(promise("record", **options), 2), plan(promise(**options), 2)
    assert person.sensitivity == pytest.approx(growth * record.sensitivity, rel=1e-6)
    if mechanism == "optimal":  # the point mass is shared by three times as many entries
        assert person.noise.delta == pytest.approx(record.noise.delta / 3)
    assert tight_epsilon(person.unit_losses, 1e-5) <= 1.0 + 1e-9


def test_all_rows_of_a_person_at_once_are_not_refuted_and_the_noise_of_one_row_is():
    """Her three rows move from one end of the domain to the other; the statistic is their sum."""

    def refuted(work):
        steps = work.sample(200_000 * 6, SeededBits(5)).reshape(2, 100_000, 6).astype(float)
        sums = steps.sum(axis=2) / (math.sqrt(6) * work.privacy.steps)
        return refutes(sums[0] + math.sqrt(6), sums[1], 1.0, 1e-3)

    assert not refuted(plan(promise(delta=1e-3), 2))
    assert refuted(plan(promise("record", delta=1e-3), 2))


def test_the_certificate_names_the_person_and_the_declared_most():
    certificate = release(X, promise(), groups=GROUPS).certificate
    text = " ".join(str(certificate).split())
    assert "ε = 1 per person" in text
    assert "all rows of one person, at most 3 as declared, are replaced" in text
    assert Certificate.from_json(certificate.to_json()) == certificate


def test_a_missing_declaration_is_told_before_the_charge():
    ledger = Ledger(Budget(epsilon=5, delta=1e-3, unit="person"))
    with pytest.raises(ValueError, match="groups is missing"):
        release(X, promise(), ledger=ledger)
    with pytest.raises(ValueError, match="groups is missing"):
        KAHMClassifier(privacy=promise(), release="rows", ledger=ledger).fit(X, [0, 1] * 3)
    with pytest.raises(ValueError, match="rows_per_person is missing"):
        release(X, promise(rows=None), groups=GROUPS, ledger=ledger)
    assert len(ledger) == 0


@pytest.mark.parametrize("groups", [["ann"] * 6, [*GROUPS[:5], None], GROUPS[:5]])
def test_what_is_wrong_with_persons_is_told_after_the_charge_and_without_values(groups):
    ledger = Ledger(Budget(epsilon=5, delta=1e-3, unit="person"))
    with pytest.raises(UnreadableRowsError) as told:
        release(X, promise(), groups=groups, ledger=ledger)
    assert "ann" not in str(told.value)
    assert [event.status for event in ledger.events] == ["charged"]
    with pytest.raises(UnreadableRowsError):
        charge_rows(X, promise(), groups=groups).release(X)


def test_classifiers_source_and_pairs_take_groups():
    rng = np.random.default_rng(1)
    rows, labels, groups = rng.random((60, 3)), np.repeat([0, 1], 30), np.arange(60) // 2
    wide = promise(rows=2, epsilon=8.0)
    model = KAHMClassifier(privacy=wide, release="rows", n_layers=1).fit(
        rows, labels, groups=groups
    )
    assert model.certificate_.privacy.unit == "person"
    source = SourceModel(privacy=wide, release="rows").fit(rows, labels, groups=groups)
    assert source.certificate_.privacy.unit == "person"
    pair = release_pair(X, X[:, :1], promise(), promise(), groups=GROUPS)
    assert pair.outputs.certificate.privacy.unit == "person"
    with pytest.raises(UnreadableRowsError):
        release_pair(X, X[:, :1], promise(), promise(rows=2), groups=GROUPS)


# --- the ledger ---


@pytest.mark.parametrize("unit", ["entry", "record"])
def test_a_budget_per_person_refuses_rows_of_unknown_number_before_anything_is_read(unit):
    ledger = Ledger(Budget(epsilon=50, delta=1e-3, unit="person"))
    with pytest.raises(LedgerError, match="rows_per_person"):
        release(X, promise(unit, rows=None), ledger=ledger)
    assert len(ledger) == 0
    release(X, promise(unit, rows=2), ledger=ledger)
    assert len(ledger) == 1
    assert ledger.spent.epsilon > 1.0


def test_rows_of_a_person_compose_in_an_account_per_person():
    spent = {}
    for mechanism in ("optimal", "gaussian"):
        for rows in (1, 4):
            ledger = Ledger(Budget(epsilon=1000, delta=0.5, unit="person"))
            release(X, promise("record", rows, mechanism=mechanism), ledger=ledger)
            spent[mechanism, rows] = ledger.spent
    assert spent["optimal", 4].epsilon == pytest.approx(4 * spent["optimal", 1].epsilon)
    assert spent["optimal", 4].delta == pytest.approx(4e-5)
    work = plan(promise("record", 4), 2)
    mu = work.record_losses[0].value
    assert tight_epsilon([work.record_losses[0]._replace(value=2 * mu)], 1e-5) == pytest.approx(
        spent["gaussian", 4].epsilon, rel=1e-3
    )  # independent noise on four rows: √4 times μ


def test_moments_per_record_move_by_all_rows_of_a_person():
    """Sums get noise once, so m rows move them m times as far, not √m times."""
    work = plan_moments(promise("record", 3), 2, 2)
    event = work.event("ward", "moments")
    assert event.person_losses[0].value == pytest.approx(3 * work.replace_loss.value)
    assert event.cost("person").epsilon > 3.0
    assert work.event("ward", "moments").cost("record").epsilon == 1.0


@pytest.mark.parametrize("unit", ["entry", "record", "person"])
@pytest.mark.parametrize("composition", ["basic", "tight"])
def test_a_person_event_counts_in_full_for_every_unit(unit, composition):
    ledger = Ledger(Budget(epsilon=1.5, delta=1e-4, unit=unit), composition=composition)
    ChargedMoments(plan_moments(promise(rows=None), 2, 2), ledger=ledger)
    assert ledger.events[0].unit == "person"
    assert 0.2 < ledger.spent.epsilon <= 1.0
    with pytest.raises(BudgetExceededError):
        release(X, promise(epsilon=1.4), groups=GROUPS, ledger=ledger)


def test_events_of_older_ledgers_keep_their_text():
    event = plan(promise("record", None), 2).event("ward", "rows")
    assert "person" not in event_to_json(event)
    assert event_from_dict(json.loads(event_to_json(event))) == event
    declared = plan(promise("record", 3), 2).event("ward", "rows")
    assert event_from_dict(json.loads(event_to_json(declared))) == declared
    with pytest.raises(ValueError, match="must be a list"):
        event_from_dict({**declared.to_dict(), "person_losses": "none"})


def test_a_ledger_per_person_goes_on_in_a_file(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", budget=Budget(epsilon=40, delta=1e-3, unit="person"))
    release(X, promise(), groups=GROUPS, ledger=ledger, dataset="ward")
    release(X, promise("record", 2), ledger=ledger, dataset="ward")
    again = Ledger(tmp_path / "ledger.db")
    assert again.events == ledger.events
    assert again.spent == ledger.spent
    assert again.spent.unit == "person"
    copied = Ledger.from_dict(json.loads(json.dumps(again.to_dict())))
    assert copied.spent_on("ward") == ledger.spent_on("ward")
