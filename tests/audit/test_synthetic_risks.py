"""Attacks on synthetic tables: they find copies, and blame nothing that copies nobody."""

import numpy as np
import pandas as pd
import pytest

from permea import Privacy, fabricate_records
from permea.audit.synthetic import synthetic_risks
from permea.fabricate.comparison import compare_tables
from permea.tables import Category, Number, Schema, YesNo

SCHEMA = Schema(
    {
        **{f"x{k}": Number(0, 1, missing=k == 0) for k in range(5)},
        "ward": Category(["a", "b", "c"]),
        "ill": YesNo(),
    },
    label="ill",
)


def rows(seed, n=800):
    rng = np.random.default_rng(seed)
    one = rng.random((n, 5))
    frame = pd.DataFrame({f"x{k}": one[:, k] for k in range(5)})
    frame.loc[rng.random(n) < 0.1, "x0"] = np.nan
    return frame.assign(ward=rng.choice(["a", "b", "c"], n), ill=one[:, 1] > rng.random(n))


REAL, OTHER, FRESH = rows(0), rows(1), rows(2)


def test_a_table_of_other_people_tells_nothing():
    found = synthetic_risks(REAL, FRESH, OTHER, SCHEMA)
    assert all(risk.is_explained_by_chance for risk in found.risks)
    assert found.membership_interval[0] < 0.5 < found.membership_interval[1]
    assert found.nearer_interval[0] < 0.5 < found.nearer_interval[1]


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_copies_are_found(share):
    """The control: a table that holds some of the real rows."""
    count = int(share * len(REAL))
    copied = pd.concat([REAL.head(count), FRESH.head(len(REAL) - count)], ignore_index=True)
    found = synthetic_risks(REAL, copied, OTHER, SCHEMA)
    assert not any(risk.is_explained_by_chance for risk in found.risks)
    assert [risk.excess for risk in found.risks[:2]] > [0.5 * share] * 2
    assert found.membership_interval[0] > 0.5
    assert found.nearer_interval[0] > 0.5


def test_ties_do_not_count_for_members():
    schema = Schema({"a": YesNo(), "b": YesNo(), "c": YesNo()})
    one, two, three = (
        {name: np.random.default_rng(seed).integers(0, 2, 3000) for name in "abc"}
        for seed in (0, 1, 2)
    )
    found = synthetic_risks(one, three, two, schema)
    assert found.nearer_interval[0] < 0.5 < found.nearer_interval[1]


def test_several_classes_and_targets_are_learned_too():
    wards = compare_tables(REAL, REAL.assign(ward="a"), Schema(SCHEMA.columns, label="ward"), OTHER)
    assert set(wards.learned) == {"real"}  # of one class nothing can be learned
    assert wards.learned["real"] == pytest.approx(0.5, abs=0.1)  # it depends on nothing
    doubled = [one.assign(x2=one["x1"]) for one in (REAL, FRESH, OTHER)]
    found = compare_tables(*doubled[:2], Schema(SCHEMA.columns, target="x2"), doubled[2])
    assert found.measure == "R²"
    assert min(found.learned["real"], found.learned["synthetic"]) > 0.95
    broken = compare_tables(doubled[0], FRESH, Schema(SCHEMA.columns, target="x2"), doubled[2])
    assert broken.learned["synthetic"] < 0.5


def test_comparison_has_known_answers():
    """All that it says can be computed by hand for a table that is the real one, or its mirror."""
    same = compare_tables(REAL, REAL, SCHEMA, OTHER)
    assert same.mean_pair == 0
    assert set(same.columns.values()) == {0.0}
    assert same.learned["real"] == same.learned["synthetic"] > 0.7
    assert "NOT FOR RELEASE" in same.to_dict()["note"]
    turned = compare_tables(REAL, REAL.assign(ill=~REAL["ill"]), SCHEMA, OTHER)
    share = REAL["ill"].mean()
    assert turned.columns["ill"] == pytest.approx(abs(1 - 2 * share))
    assert turned.learned["synthetic"] == pytest.approx(1 - same.learned["real"], abs=0.02)
    mirrored = compare_tables(REAL, REAL.assign(x1=1 - REAL["x2"]), SCHEMA)
    assert mirrored.correlations["x1", "x2"][1] == pytest.approx(-1)
    assert max(mirrored.worst_pairs, key=lambda item: item[1])[0] == ("x1", "x2")


@pytest.mark.parametrize("epsilon", [1, 1000])
def test_the_attack_on_the_generator_sees_what_it_has_learned_by_heart(epsilon):
    """Hardly any noise on few rows: the trees know them. With noise they do not."""
    promise = Privacy(epsilon=epsilon, delta=1e-6, unit="record")
    real, other = REAL.head(200), OTHER.head(200)
    made = fabricate_records(real, schema=SCHEMA, privacy=promise, seed=0, random_state=0)
    found = synthetic_risks(real, made.data, other, SCHEMA, generator=made.generator)
    assert found.generator_auc is not None
    assert found.generator_interval is not None
    assert (found.generator_interval[0] > 0.5) == (epsilon == 1000)
    assert "generator_auc" in found.to_dict()
    assert "NOT FOR RELEASE" in found.to_dict()["note"]


def test_a_likelihood_is_that_of_the_rows_that_are_drawn():
    """Over all tables of two columns the likelihoods sum to one."""
    schema = Schema({"a": Category(["x", "y", "z"]), "b": YesNo(), "ill": YesNo()}, label="ill")
    rng = np.random.default_rng(0)
    frame = {"a": rng.choice(["x", "y"], 500), "b": rng.integers(0, 2, 500)}
    frame["ill"] = frame["b"]
    promise = Privacy(epsilon=8, delta=1e-6, unit="record")
    generator = fabricate_records(frame, schema=schema, privacy=promise).generator
    every = pd.MultiIndex.from_product([["x", "y", "z"], ["no", "yes"], ["no", "yes"]])
    table = every.to_frame(index=False, name=["a", "b", "ill"])
    assert np.exp(generator.log_likelihood(table)).sum() == pytest.approx(1.0)


def test_of_persons_with_several_rows_one_row_is_attacked():
    """Many equal rows of a few persons are no more evidence than these few persons."""
    schema = Schema(SCHEMA.columns, label="ill", person="who")
    many = pd.concat([REAL.head(12)] * 50, ignore_index=True)
    people = np.tile(np.arange(12), 50)
    other = pd.concat([OTHER.head(12)] * 50, ignore_index=True).assign(who=people)
    found = synthetic_risks(many.assign(who=people), FRESH, other, schema)
    assert {risk.guesses for risk in found.risks[1:]} == {12}
