"""A party answers with distances and nothing else, and joins only when it may."""

import json

import numpy as np
import pytest
from federation_world import PLAIN, PRIVACY, SEEDED, blobs, plain_party, private_party, train

from permea.federation import ConsentError, Federation, Guard, Party, RefusedError, SchemaError
from permea.federation.party import OBJECTIONS
from permea.federation.service.config import PartyConfig
from permea.federation.service.queue import Spool
from permea.privacy import Certificate, SigningKey, TrustedKeys
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
    with pytest.raises(ValueError, match="must be among"):
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
        log.write_text('{"time": 1.0, "client": "a", "quer')
        guard = Guard(per_minute=10, log=log, clock=lambda: 2.0)
        guard.admit("a", 10)
        with pytest.raises(RefusedError):
            guard.admit("a", 1)

    def test_the_log_says_who_and_how_much_and_nothing_of_the_queries(self, rows, tmp_path):
        X, y = rows
        log = tmp_path / "audit.jsonl"
        party = Party("a", train(X, y), consent=PLAIN, guard=Guard(max_batch=20, log=log))
        party.distances(X[:7], client="hospital")
        with pytest.raises(RefusedError):
            party.distances(X[:21], client="hospital")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert [line["outcome"] for line in lines] == ["accepted", "refused"]
        assert [line["queries"] for line in lines] == [7, 21]
        known = {"time", "boot", "up", "client", "kind", "model", "queries", "outcome", "chain"}
        assert all(set(line) == known for line in lines)
        assert log.stat().st_mode & 0o077 == 0


def forged(clf):
    """The model with a certificate that somebody wrote: ε = 0.01, and no word of the rows in it."""
    honest = train(*blobs(), privacy=PRIVACY).certificate_
    values = honest.to_dict() | {"record_epsilon": 0.01, "simple_record_epsilon": 0.01}
    values["privacy"] = {**values["privacy"], "epsilon": 0.01}
    clf.certificate_, clf.holds_private_rows_ = Certificate.from_dict(values), False
    return clf


class TestWhoVouches:
    """A certificate from outside is an unverified claim until a trusted key has signed it."""

    def test_a_model_that_this_process_trained_is_private(self, rows):
        party = Party("a", train(*rows, privacy=PRIVACY))
        assert party.status == "PRIVATE"
        assert "PRIVATE" in repr(party)
        summary = Federation([party]).summary()
        assert (summary.status, summary.is_verified) == ("PRIVATE", True)

    def test_a_grafted_certificate_is_never_shown_as_private(self, rows, tmp_path):
        path = save(forged(train(*rows)), tmp_path / "forged.permea")
        party = Party.from_file("a", path)
        assert party.status == "unverified claim"
        assert party.objections == ("unverified",)
        assert "PRIVATE" not in repr(party)
        assert "unverified claim" in repr(party)
        summary = Federation([party]).summary()
        assert (summary.status, summary.is_verified) == ("unverified claim", False)
        assert summary.unverified == ("a",)
        assert "PRIVATE" not in str(summary)
        assert str(summary).count("unverified claim") == 2  # the whole, and the party

    def test_one_unverified_party_is_named_among_others(self, rows, tmp_path):
        path = save(train(*rows, privacy=PRIVACY), tmp_path / "b.permea")
        mixed = Federation([Party("a", train(*rows, privacy=PRIVACY)), Party.from_file("b", path)])
        summary = mixed.summary()
        assert summary.is_private
        assert (summary.status, summary.unverified) == ("unverified claim", ("b",))
        line_a, line_b = str(summary).splitlines()[2:4]
        assert "unverified" not in line_a
        assert "unverified" in line_b

    def test_a_signature_of_a_trusted_key_counts_and_another_does_not(self, rows, tmp_path):
        key, other = SigningKey.generate("clinic"), SigningKey.generate("clinic")
        party = Party("a", train(*rows, privacy=PRIVACY))
        path = party.hand_over(tmp_path / "signed.permea", sign=key)
        trusted = TrustedKeys([key.public])
        again = Party.from_file("a", path, trusted=trusted)
        assert (again.status, again.certificate.signer) == ("PRIVATE", "clinic")
        for keys in (None, TrustedKeys(), TrustedKeys([other.public])):
            assert Party.from_file("a", path, trusted=keys).status == "unverified claim"

    def test_the_queue_says_what_its_answers_rest_on(self, rows, tmp_path):
        path = save(forged(train(*rows)), tmp_path / "forged.permea")
        spool = Spool(tmp_path / "queue")
        job = spool.submit(rows[0][:3], client="me")
        spool.answer_next(Federation([Party.from_file("a", path)]))
        report = spool.result(job).report
        assert (report["private"], report["verified"]) == (False, False)
        assert report["status"] == "unverified claim"
        assert report["parties"] == {"a": "unverified claim"}

    def test_the_file_of_a_party_names_the_keys_that_count(self, rows, tmp_path):
        key = SigningKey.generate("clinic")
        save(train(*rows, privacy=PRIVACY), tmp_path / "a.permea", sign=key)
        (tmp_path / "trusted.keys").write_text(f"{key.public}\n")
        text = (
            '[party]\nname = "a"\nmodel = "a.permea"\n{}'
            '[server]\naddress = "x:1"\nca = "ca"\nkey = "k"\n'
        )
        for line, status in (("", "unverified claim"), ('trusted = "trusted.keys"\n', "PRIVATE")):
            (tmp_path / "a.toml").write_text(text.format(line))
            assert PartyConfig.from_file(tmp_path / "a.toml").party().status == status

    @pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "\u202eevil"])
    def test_a_name_that_a_terminal_obeys_is_refused(self, rows, name):
        with pytest.raises(ValueError, match="control characters"):
            Party(name, train(*rows), consent=PLAIN)


def test_the_log_is_not_written_through_a_planted_link(rows, tmp_path):
    (tmp_path / "treasure").write_text("mine")
    (tmp_path / "log.jsonl").symlink_to(tmp_path / "treasure")
    with pytest.raises(OSError, match="log"):
        Guard(log=tmp_path / "log.jsonl").admit("me", 1)
    assert (tmp_path / "treasure").read_text() == "mine"
