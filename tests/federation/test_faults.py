"""Each fault a party can have, and what the user sees of it: the fault table of the docs.

`docs/methods/federation.md` shows the table; the last test makes it from what happens here.
"""

import threading
from pathlib import Path

import numpy as np
import pytest
from federation_world import Fake, blobs, plain_party

import permea
from permea.federation import (
    Federation,
    Guard,
    MissingPartiesWarning,
    Party,
    QuorumError,
    RetryPolicy,
    Schema,
    SuspicionWarning,
)
from permea.federation.errors import RefusedError
from permea.federation.service.queue import JobFailedError, Spool, serve
from permea.federation.transport import Failure, LocalChannel

DOCS = Path(permea.__file__).parents[2] / "docs" / "methods" / "federation.md"
X, Y = blobs(n_rows=40)
HONEST = [plain_party(name, X[i::3], Y[i::3]) for i, name in enumerate(("a", "b", "c"))]
RELEASE = threading.Event()  # lets slow parties go when the test is over


def dead(distances, call):
    raise ConnectionError("the line is down")


def restarting(distances, call):
    if call == 1:
        raise ConnectionError("starting up")
    return distances


def slow(distances, call):
    RELEASE.wait(30)
    return distances


def refusing(distances, call):
    raise RefusedError("too many queries")


OTHER = Schema(n_features=3, classes=(0, 1, 2))
UNKNOWN = Schema(n_features=4, classes=(0, 1, 99))

# fault: (what the party does, its schema, what the user reads about it)
FAULTS = {
    "slow": (slow, None, "no reply within 0.3 s"),
    "dead": (dead, None, "ConnectionError: the line is down"),
    "refuses": (refusing, None, "too many queries"),
    "wrong shape": (lambda d, _: d[:, :2], None, "invalid reply: distances of shape"),
    "NaN": (lambda d, _: np.where(d > 0, np.nan, d), None, "invalid reply: NaN"),
    "negative distances": (lambda d, _: -d, None, "invalid reply: negative"),
    "not numbers": (
        lambda d, _: d.astype(str),
        None,
        "invalid reply: distances are not floating-point",
    ),
    "unknown classes": (None, UNKNOWN, "claims 1 classes that this federation does not have"),
    "other schema": (None, OTHER, "do not have the same features"),
}


@pytest.fixture(autouse=True)
def _let_go():
    RELEASE.clear()
    yield
    RELEASE.set()


def federation(fault, **settings):
    answer, schema, _ = FAULTS[fault]
    faulty = Fake("c", HONEST[2], answer, schema)
    retry = RetryPolicy(timeout=0.3 if fault == "slow" else None)
    settings = {"retry": retry, "classes": (0, 1, 2), **settings}
    return Federation.over(LocalChannel([*HONEST[:2], faulty]), **settings), faulty


@pytest.mark.parametrize("fault", FAULTS)
def test_with_a_quorum_the_answer_arrives_and_says_on_whom_it_rests(fault):
    without = Federation(HONEST[:2]).predict(X)
    faulty, _ = federation(fault, quorum=2)
    answer = faulty.ask(X)
    assert np.array_equal(answer.labels, without)
    assert answer.who_answered == ("a", "b")
    assert list(answer.missing) == ["c"]
    assert FAULTS[fault][2] in answer.missing["c"]
    assert "missing: c" in str(answer)


@pytest.mark.parametrize("fault", FAULTS)
def test_without_one_nothing_is_answered_and_the_reason_is_given(fault):
    faulty, _ = federation(fault)
    with pytest.raises(QuorumError, match="2 parties answered, 3 are needed") as error:
        faulty.ask(X)
    assert FAULTS[fault][2] in str(error.value)


def test_predict_warns_when_it_rests_on_fewer_parties():
    faulty, _ = federation("dead", quorum=2)
    with pytest.warns(MissingPartiesWarning, match="the line is down"):
        faulty.predict(X)


def test_a_restarting_party_is_asked_again_after_a_pause():
    pauses = []
    party = Fake("c", HONEST[2], restarting)
    whole = Federation.over(
        LocalChannel([*HONEST[:2], party]),
        retry=RetryPolicy(attempts=3, backoff=0.25, sleep=pauses.append),
    )
    answer = whole.ask(X)
    assert answer.is_complete
    assert party.calls == 2
    assert pauses == [0.25]
    assert np.array_equal(answer.labels, Federation(HONEST).predict(X))


def test_pauses_double_and_end():
    pauses = []
    retry = RetryPolicy(attempts=4, backoff=1.0, sleep=pauses.append)
    outcomes = retry.run(lambda names, timeout: {}, ["x"])
    assert pauses == [1.0, 2.0, 4.0]
    assert outcomes == {"x": Failure("no reply")}


@pytest.mark.parametrize("fault", ["refuses", "other schema"])
def test_what_would_fail_again_is_not_asked_again(fault):
    pauses = []
    retry = RetryPolicy(attempts=5, backoff=1, sleep=pauses.append)
    faulty, party = federation(fault, quorum=2, retry=retry)
    faulty.ask(X)
    assert pauses == []
    assert party.calls <= 1


def test_a_party_that_dies_between_batches_is_left_alone_and_may_come_back():
    party = Fake("c", HONEST[2], lambda d, call: d if call in (1, 3, 4, 5) else dead(d, call))
    whole = Federation.over(LocalChannel([*HONEST[:2], party]), quorum=2, batch_size=40)
    first = whole.ask(X)  # three batches: answered, died, not asked
    assert party.calls == 2
    assert first.partly == ("c",)
    assert first.answered[:40, 2].all()
    assert not first.answered[40:, 2].any()
    assert np.array_equal(first.labels[:40], Federation(HONEST).predict(X[:40]))
    assert np.array_equal(first.labels[40:], Federation(HONEST[:2]).predict(X[40:]))
    assert whole.ask(X).is_complete


def test_a_party_that_changes_its_schema_must_introduce_itself_again():
    honest = HONEST[2]
    party = Fake("c", honest)
    whole = Federation.over(LocalChannel([*HONEST[:2], party]), quorum=2)
    assert whole.ask(X).is_complete
    party.schema = Schema(n_features=4, classes=(0, 1, 3))
    changed = whole.ask(X)
    assert "another schema" in changed.missing["c"]
    assert changed.classes.tolist() == [0, 1, 2]
    party.schema = honest.schema
    assert whole.ask(X).is_complete


def test_a_class_known_to_the_missing_party_alone_cannot_win():
    only = plain_party("c", X[Y == 2], Y[Y == 2])
    others = [plain_party(n, X[Y < 2][i::2], Y[Y < 2][i::2]) for i, n in enumerate(("a", "b"))]
    party = Fake("c", only, dead)
    answer = Federation.over(LocalChannel([*others, party]), quorum=2).ask(X)
    assert np.isinf(answer.distances[:, 2]).all()
    assert set(answer.labels) <= {0, 1}


class TestPoison:
    """A party that always answers 0 wins everything, and is noticed."""

    LIES = {  # noqa: RUF012
        "always 0": (lambda d, _: np.zeros_like(d), "exactly 0"),
        "always the same": (lambda d, _: np.full_like(d, 1e-9), "same distance"),
        "a hundredth": (lambda d, _: d / 100, "ten times nearer"),
    }

    def poisoned(self, lie, **settings):
        return Federation([*HONEST[:2], Fake("c", HONEST[2], self.LIES[lie][0])], **settings)

    @pytest.mark.parametrize("lie", LIES)
    def test_it_is_reported(self, lie):
        with pytest.warns(SuspicionWarning, match="c: "):
            self.poisoned(lie).predict(X)
        doubts = self.poisoned(lie).ask(X).suspicions
        assert {doubt.party for doubt in doubts} == {"c"}
        assert any(self.LIES[lie][1] in doubt.reason for doubt in doubts)

    @pytest.mark.parametrize("lie", LIES)
    def test_it_can_be_excluded(self, lie):
        answer = self.poisoned(lie, suspects="exclude", quorum=2).ask(X)
        assert answer.who_answered == ("a", "b")
        assert "excluded" in answer.missing["c"]
        assert np.array_equal(answer.labels, Federation(HONEST[:2]).predict(X))

    def test_exclusion_respects_the_quorum(self):
        with pytest.raises(QuorumError, match="excluded"):
            self.poisoned("always 0", suspects="exclude").ask(X)

    def test_it_wins_everything_under_the_plain_minimum(self):
        assert set(self.poisoned("always 0").ask(X).nearest_party) == {2}

    def test_honest_parties_are_not_doubted(self):
        assert Federation(HONEST).ask(X).suspicions == ()
        by_class = [plain_party(f"k{k}", X[k == Y], Y[k == Y]) for k in range(3)]
        assert Federation(by_class).ask(X).suspicions == ()
        assert Federation(by_class).ask(X[Y == 1]).suspicions == ()  # one of them wins them all

    def test_repeated_queries_are_no_evidence(self):
        assert Federation(HONEST).ask(np.repeat(X[:1], 100, axis=0)).suspicions == ()

    def test_a_subtle_liar_is_not_noticed(self):
        half = Fake("c", HONEST[2], lambda d, _: d / 2)
        assert Federation([*HONEST[:2], half]).ask(X).suspicions == ()


class TestQueue:
    """Nothing is lost that was accepted."""

    def test_answers_are_those_of_the_federation(self, tmp_path):
        spool = Spool(tmp_path)
        job = spool.submit(X, client="me")
        assert spool.result(job) is None
        whole = Federation(HONEST)
        assert spool.answer_next(whole) == job
        assert spool.answer_next(whole) is None
        result = spool.result(job)
        assert np.array_equal(result.labels, whole.predict(X))
        assert np.array_equal(result.distances, whole.distances(X))
        assert result.report["who_answered"] == ["a", "b", "c"]

    def test_a_crash_in_the_middle_of_a_job_does_not_lose_it(self, tmp_path):
        class Crash(BaseException):
            pass

        def crash(distances, call):
            raise Crash

        spool = Spool(tmp_path)
        jobs = [spool.submit(X[:30], client="me"), spool.submit(X[30:], client="me")]
        with pytest.raises(Crash):
            spool.answer_next(Federation([*HONEST[:2], Fake("c", HONEST[2], crash)]))
        again = Spool(tmp_path)  # after a restart
        assert again.waiting() == jobs
        assert again.store.recover() == 1
        for job in jobs:
            assert again.answer_next(Federation(HONEST)) == job
            assert again.result(job) is not None

    def test_below_the_quorum_a_job_waits_until_its_deadline_and_says_why(self, tmp_path):
        now = [1000.0]
        spool = Spool(tmp_path, clock=lambda: now[0])
        faulty = Federation([*HONEST[:2], Fake("c", HONEST[2], dead)])
        late, job = (spool.submit(X, client="me", patience=seconds) for seconds in (60, 3600))
        assert [spool.answer_next(faulty), spool.answer_next(faulty)] == [late, job]
        assert spool.answer_next(faulty) is None  # both pause
        assert spool.waiting() == [late, job]
        now[0] += 61
        assert spool.answer_next(Federation(HONEST)) == job
        assert spool.result(job).report["complete"]
        with pytest.raises(JobFailedError, match=r"deadline.*the line is down"):
            spool.result(late)

    def test_one_bad_job_does_not_stop_the_service(self, tmp_path):
        spool = Spool(tmp_path)
        bad, good = spool.submit(X[:, :2], client="me"), spool.submit(X, client="me")
        service = threading.Thread(target=serve, args=(Federation(HONEST), spool), daemon=True)
        service.start()
        try:
            assert spool.wait(good, 60).report["complete"]
            with pytest.raises(JobFailedError, match="SchemaError"):
                spool.wait(bad, 60)
            assert spool.last_beat() < 60
        finally:
            spool.stop()
            service.join(30)
        assert not service.is_alive()

    def test_reports_hold_no_queries_and_answered_queries_are_gone(self, tmp_path):
        spool = Spool(tmp_path)
        job = spool.submit(X, client="me")
        spool.answer_next(Federation(HONEST))
        known = {"who_answered", "partly", "missing", "suspicions", "complete"}
        found = spool.store.job(job)
        assert set(found.report) == known | {"private", "verified", "status", "parties"}
        assert set(spool.store.contents(found)) == {"labels", "classes", "distances"}
        spool.store.database.shrink()
        held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert X.tobytes()[:64] not in held


def test_a_rate_limit_is_one_more_reason():
    clf = HONEST[0]._classifier
    limited = Party("a", clf, consent=("not private", "raw rows"), guard=Guard(per_minute=150))
    whole = Federation([limited, HONEST[1]], quorum=1)
    assert whole.ask(X).is_complete
    assert "120 of 150 queries per minute are used up" in whole.ask(X).missing["a"]


HEADER = """\
| fault | reason given in the answer | retried? | the answer |
|---|---|---|---|
"""
WORDS = {  # further remarks in the table
    "unknown classes": " (with `classes=…` given)",
    "always 0": " (`answer.suspicions`)",
}


def observed(fault):
    """A row of the fault table, from what happens."""
    pauses = []
    timeout = 0.3 if fault == "slow" else None
    retry = RetryPolicy(timeout=timeout, attempts=2, backoff=0.1, sleep=pauses.append)
    told = {"quorum": 2, "retry": retry, "classes": (0, 1, 2)}
    if fault in FAULTS:
        faulty, _ = federation(fault, **told)
    else:
        lie = {"restarting": restarting, "always 0": TestPoison.LIES["always 0"][0]}[fault]
        channel = LocalChannel([*HONEST[:2], Fake("c", HONEST[2], lie)])
        faulty = Federation.over(channel, **told)
    answer = faulty.ask(X)
    said = [*answer.missing.values(), *(doubt.reason for doubt in answer.suspicions)]
    text = f"`{said[0]}`" if said else "nothing"
    rests = "complete" if answer.is_complete else f"based on {' and '.join(answer.who_answered)}"
    again = "yes" if pauses else "no"
    return f"| {fault} | {text}{WORDS.get(fault, '')} | {again} | {rests} |\n"


def test_the_documented_table_is_what_happens():
    table = HEADER + "".join(observed(fault) for fault in [*FAULTS, "restarting", "always 0"])
    page = DOCS.read_text(encoding="utf-8")
    assert table in page, f"the fault table of {DOCS.name} should read:\n{table}"
