"""A party answers with distances and nothing else, and joins only when it may."""

import json

import numpy as np
import pytest
from federation_world import PLAIN, PRIVACY, SEEDED, blobs, plain_party, private_party, train

from permea.federation import ConsentError, Guard, Party, RefusedError, SchemaError
from permea.federation.party import OBJECTIONS
from permea.storage import StorageError, save


@pytest.fixture(scope="module")
def rows():
    return blobs()


def test_a_private_model_joins_without_a_word(rows):
    party = Party("a", train(*rows, privacy=PRIVACY))
    assert party.objections == ()
    assert party.certificate.is_private


@pytest.mark.parametrize(
    ("options", "words"),
    [({}, PLAIN), ({"privacy": PRIVACY, "random_state": 0}, (SEEDED,))],
)
def test_others_join_only_when_their_owner_says_so_in_words(rows, options, words):
    clf = train(*rows, **options)
    with pytest.raises(ConsentError) as refused:
        Party("a", clf)
    for word in words:
        assert word in str(refused.value)
        assert OBJECTIONS[word] in str(refused.value)
        fewer = tuple(other for other in words if other != word)
        with pytest.raises(ConsentError):
            Party("a", clf, consent=fewer)
    assert Party("a", clf, consent=words).objections == words


def test_a_voided_certificate_is_an_objection(rows):
    clf = train(*rows, privacy=PRIVACY)
    clf.certificate_ = clf.certificate_.void("somebody looked at the rows")
    with pytest.raises(ConsentError, match="not private"):
        Party("a", clf)


def test_words_that_nobody_defined_are_refused(rows):
    with pytest.raises(ValueError, match="knows the words"):
        Party("a", train(*rows), consent="yes, whatever")


def test_distances_are_those_of_the_model_and_infinite_for_classes_it_lacks(rows):
    X, y = rows
    party = plain_party("a", X[y != 1], y[y != 1])
    clf = party._classifier
    wide = party.distances(X, classes=(2, 1, 0, 7))
    own = clf.distances(X)
    assert np.array_equal(wide[:, 0], own[:, 1])
    assert np.array_equal(wide[:, 2], own[:, 0])
    assert np.isposinf(wide[:, [1, 3]]).all()


def test_queries_are_checked_before_they_are_counted(rows):
    X, y = rows
    guard = Guard(max_batch=10)
    party = Party("a", train(X, y), consent=PLAIN, guard=guard)
    for wrong in (X[:, :3], np.full((2, 4), np.nan), np.array([["a"] * 4]), X[0], X[:0]):
        with pytest.raises(SchemaError) as error:
            party.distances(wrong)
        assert "nan" not in str(error.value).replace("NaN", "")
    with pytest.raises(RefusedError, match="at most 10"):
        party.distances(X[:11])
    assert party.distances(X[:10]).shape == (10, 3)


def test_a_model_travels_through_a_file_only_with_consent(rows, tmp_path):
    private = private_party("a", *rows)
    again = Party.from_file("a", private.hand_over(tmp_path / "a.permea"), consent=SEEDED)
    assert np.array_equal(again.distances(rows[0]), private.distances(rows[0]))
    with pytest.raises(StorageError):
        save(train(*rows), tmp_path / "b.permea")


class TestGuard:
    def test_the_rate_is_counted_over_a_sliding_minute(self):
        now = [0.0]
        guard = Guard(per_minute=100, clock=lambda: now[0])
        guard.admit("a", 60)
        now[0] = 30.0
        with pytest.raises(RefusedError, match="60 of 100"):
            guard.admit("a", 41)
        guard.admit("b", 40)
        now[0] = 60.5  # the first batch is older than a minute, the second is not
        guard.admit("a", 60)
        with pytest.raises(RefusedError):
            guard.admit("a", 1)

    def test_refused_batches_cost_nothing(self):
        guard = Guard(max_batch=50, per_minute=60, clock=lambda: 0.0)
        for _ in range(5):
            with pytest.raises(RefusedError):
                guard.admit("a", 51)
        guard.admit("a", 50)

    def test_a_log_carries_the_rate_over_a_restart(self, tmp_path):
        log = tmp_path / "audit.jsonl"
        Guard(per_minute=100, log=log, clock=lambda: 5.0).admit("a", 80)
        with pytest.raises(RefusedError, match="80 of 100"):
            Guard(per_minute=100, log=log, clock=lambda: 6.0).admit("a", 21)

    def test_a_line_cut_short_by_a_crash_is_passed_over(self, tmp_path):
        log = tmp_path / "audit.jsonl"
        log.write_text('{"time": 1.0, "asker": "a", "quer')
        guard = Guard(per_minute=10, log=log, clock=lambda: 2.0)
        guard.admit("a", 10)
        with pytest.raises(RefusedError):
            guard.admit("a", 1)

    def test_the_log_says_who_and_how_much_and_nothing_of_the_queries(self, rows, tmp_path):
        X, y = rows
        log = tmp_path / "audit.jsonl"
        party = Party("a", train(X, y), consent=PLAIN, guard=Guard(max_batch=20, log=log))
        party.distances(X[:7], asker="hospital")
        with pytest.raises(RefusedError):
            party.distances(X[:21], asker="hospital")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert [line["outcome"] for line in lines] == ["accepted", "refused"]
        assert [line["queries"] for line in lines] == [7, 21]
        assert all(set(line) == {"time", "asker", "queries", "outcome"} for line in lines)
        assert log.stat().st_mode & 0o077 == 0
