"""Rows that nobody named count against everybody; names and fingerprints tell nothing."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from permea import KAHMClassifier, SourceModel
from permea.privacy import Budget, BudgetExceededError, Ledger, Privacy, release
from permea.privacy.ledger import fingerprint

HALF = Privacy(epsilon=0.5, domain=(0, 1))
X = np.arange(12.0).reshape(6, 2) / 12
KEY = b"k" * 32


def test_sources_and_classifiers_add_up_when_nobody_names_the_rows():
    """Two places had two default names, and two releases of the same rows counted as disjoint."""
    rows, y = np.random.default_rng(0).random((40, 2)), np.arange(40) % 2
    ledger = Ledger(Budget(epsilon=1.5, unit="entry"))
    promise = Privacy(epsilon=1, domain=(0, 1))
    small = KAHMClassifier(n_components=2, n_layers=1)
    SourceModel(privacy=promise, classifier=small, ledger=ledger).fit(rows, y)
    with pytest.raises(BudgetExceededError, match="rows without a name"):
        KAHMClassifier(n_components=2, n_layers=1, privacy=promise, ledger=ledger).fit(rows, y)
    assert ledger.spent.epsilon == 1


def test_unnamed_rows_count_against_every_data_set():
    ledger = Ledger(Budget(epsilon=2, unit="entry"))
    release(X, HALF, ledger=ledger)
    release(X, HALF, ledger=ledger, dataset="north")
    release(X[:3], HALF, ledger=ledger)  # other rows, and nobody says that they are disjoint
    assert ledger.spent_on("north").epsilon == 1.5
    assert ledger.spent_on("south").epsilon == 1.0
    assert ledger.spent_on(None).epsilon == 1.5
    assert ledger.spent.epsilon == 1.5
    release(X, HALF, ledger=ledger, dataset="north")
    with pytest.raises(BudgetExceededError, match="rows without a name"):
        release(X[4:], HALF, ledger=ledger)  # north could not bear it
    release(X, HALF, ledger=ledger, dataset="south")
    assert ledger.datasets == ("north", "south")


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    plan=st.lists(
        st.tuples(st.sampled_from([None, "a", "b", "c"]), st.floats(0.05, 0.6)), max_size=14
    )
)
def test_no_data_set_ever_exceeds_the_budget_with_the_unnamed_ones(plan):
    ledger = Ledger(Budget(epsilon=1, unit="entry"))
    accepted = []
    for name, epsilon in plan:
        try:
            ledger.spend(Privacy(epsilon=epsilon, domain=(0, 1)), dataset=name, n_columns=2)
        except BudgetExceededError:
            continue
        accepted.append((name, epsilon))
    for name in ("a", "b", "c"):
        total = sum(epsilon for who, epsilon in accepted if who in (name, None))
        assert total <= 1 + 1e-8
        assert ledger.spent_on(name).epsilon == pytest.approx(total)


def test_tight_composition_counts_unnamed_rows_too():
    ledger = Ledger(Budget(epsilon=2, delta=1e-5, unit="entry"), composition="tight")
    small = Privacy(epsilon=0.1, domain=(0, 1))
    for name in ["north"] * 12 + [None] * 12:
        ledger.spend(small, dataset=name, n_columns=1)
    together = ledger.spent_on("north").epsilon
    assert ledger.spent_on("south").epsilon < together
    assert ledger.spent_on(None).epsilon == together


def test_a_fingerprint_is_shown_nowhere():
    ledger = Ledger(Budget(epsilon=1.2, unit="entry"))
    certificate = release(X, HALF, ledger=ledger).certificate
    release(X, HALF, ledger=ledger)
    with pytest.raises(BudgetExceededError) as refused:
        release(X, HALF, ledger=ledger)
    secret = ledger.events[0].dataset
    assert secret.startswith("rows-")
    texts = [str(ledger), repr(ledger.events), ledger.summary(secret), ledger.summary(None)]
    texts += [str(refused.value), str(certificate), certificate.to_json(), str(ledger.to_dict())]
    for text in texts:
        assert secret not in text
        assert "rows-" not in text
    assert "2 releases" in ledger.summary(None)


def test_names_are_checked_and_have_one_spelling():
    ledger = Ledger()
    for bad in ("", "  ", "a\nb", "a\x1b[1m", "zero\u200bwidth", "rows-1234", "\ud800"):
        with pytest.raises(ValueError, match="name of a data set"):
            release(X, HALF, ledger=ledger, dataset=bad)
    with pytest.raises(TypeError, match="text"):
        release(X, HALF, ledger=ledger, dataset=7)
    assert len(ledger) == 0
    release(X, HALF, ledger=ledger, dataset="caf\u00e9")
    release(X, HALF, ledger=ledger, dataset=" cafe\u0301 ")
    assert ledger.datasets == ("caf\u00e9",)
    assert ledger.spent_on("cafe\u0301").epsilon == 1


def test_the_same_rows_have_the_same_fingerprint():
    random = np.random.default_rng(1)
    rows = random.integers(-5, 5, size=(50, 3)).astype(float)
    rows[0, 0], rows[1, 1] = 0.0, np.nan
    same = rows.copy()
    same[0, 0] = -0.0
    same[1, 1] = np.copysign(np.nan, -1)
    known = fingerprint(rows, KEY)
    assert known.startswith("rows-")
    assert len(known) == 5 + 32
    for other in (
        same,
        rows[random.permutation(50)],
        rows.astype(np.float32),
        np.asfortranarray(rows),
        rows.astype(">f8"),
        rows.astype(object),
        rows.tolist(),
        pd.DataFrame(rows),
        sparse.csr_array(rows),
    ):
        assert fingerprint(other, KEY) == known
    assert fingerprint(rows, b"other") != known
    assert fingerprint(rows[:-1], KEY) != known
    assert fingerprint(np.vstack([rows, rows[:1]]), KEY) != known
    whole = rows[2:].astype(np.int64)
    assert fingerprint(whole, KEY) == fingerprint(whole.astype(float), KEY)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    rows=st.lists(
        st.lists(
            st.one_of(
                st.none(),
                st.text(),
                st.integers(),
                st.floats(),
                st.binary(),
                st.dates(),
                st.lists(st.integers(), max_size=2),
            ),
            min_size=2,
            max_size=2,
        ),
        max_size=5,
    ),
    order=st.randoms(use_true_random=False),
)
def test_any_content_has_a_fingerprint_in_any_order(rows, order):
    table = np.empty((len(rows), 2), dtype=object)
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            table[i, j] = cell
    shuffled = table[order.sample(range(len(rows)), len(rows))]
    found = fingerprint(table, KEY)
    assert found.startswith("rows-")
    assert found == fingerprint(shuffled, KEY)


def test_what_is_no_table_still_has_a_name():
    class Hostile:
        def __str__(self):
            raise RuntimeError("secret")

        __repr__ = __array__ = __str__

    ragged = [[1.0], [2.0, 3.0]]
    for odd in (None, 3, Hostile(), [Hostile()], ragged, iter([1]), {"a": 1}, "rows"):
        assert fingerprint(odd, KEY).startswith("rows-")
    assert fingerprint(np.array(["2020-01-01"], dtype="M8[D]"), KEY) != "rows-unnamed"


def test_two_ledgers_give_the_same_rows_different_fingerprints():
    names = {Ledger().name_for(None, X) for _ in range(5)}
    assert len(names) == 5
    ledger = Ledger()
    assert ledger.name_for(None, X, y=[1]) == ledger.name_for(None, X, y=[2])
    assert ledger.name_for(" ward ", X) == "ward"
