"""Encrypted federation: same labels, and each role sees what it should and nothing else."""

import json
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest
from federation_world import PRIVACY, SEEDED, blobs, private_party, train

pytest.importorskip("seal")

from permea.federation import (
    Federation,
    Guard,
    MissingPartiesWarning,
    Party,
    QuorumError,
    RefusedError,
    ScaleWarning,
    SchemaError,
)
from permea.federation.encryption import EncryptionError, EvaluationKey, get_scheme
from permea.federation.encryption.protocol import EncryptedQuery, KeyHolder, Terms
from permea.federation.encryption.scheme import pack, unpack
from permea.federation.service.queue import (
    EncryptedQueue,
    JobFailedError,
    Spool,
    load_keys,
    pack_array,
    pack_query,
    save_keys,
    serve,
    wait_for,
)

X, Y = blobs(n_rows=40)
PARTIES = [private_party(f"p{i}", X[i::3], Y[i::3], seed=i) for i in range(3)]
SECRET = {"encrypted": True, "bits": 6}


def wrapped(party, **options):
    return Party(party.name, party._classifier, consent=SEEDED, **options)


class Failing(Party):
    """A party that breaks when it is asked in secret."""

    asked = 0

    def encrypted_distances(self, X, query, *, client="unknown"):
        self.asked += 1
        return self.answer(super().encrypted_distances(X, query, client=client))


def failing(answer, index=1):
    party = Failing(PARTIES[index].name, PARTIES[index]._classifier, consent=SEEDED)
    party.answer = answer
    return party


def dead(message):
    raise ConnectionError("the line is down")


def clear(parties, queries, bits):
    """Labels of the open federation, and which of them are more than a step from a tie."""
    opened = Federation(parties)
    distances = np.sort(opened.distances(queries), axis=1)
    return opened.predict(queries), distances[:, 1] - distances[:, 0] > 2.0 / (2**bits - 2)


def same_where_clear(labels, parties, queries, bits=6):
    expected, sure = clear(parties, queries, bits)
    assert sure.mean() > 0.5
    assert np.array_equal(labels[sure], expected[sure])


# ---- in one process --------------------------------------------------------------------------


def test_batches_do_not_change_the_labels():
    """Batches of 50 do not fill a ciphertext, so they are padded."""
    secret = Federation(PARTIES, **SECRET, batch_size=50)
    labels = secret.predict(X)
    assert secret.last_answer.is_complete
    same_where_clear(labels, PARTIES, X)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (dead, "the line is down"),
        (lambda message: message[:-3], "invalid reply: a ciphertext of"),
        (lambda message: 7, "invalid reply: it is not a ciphertext"),
    ],
)
def test_a_missing_party_counts_as_one_that_knows_no_class(answer, reason):
    """Its place is filled by the aggregator: nobody is asked twice and no new keys are needed."""
    broken = failing(answer)
    others = [wrapped(PARTIES[i], guard=Guard(per_minute=len(X))) for i in (0, 2)]
    secret = Federation([others[0], broken, others[1]], **SECRET, quorum=2)
    with pytest.warns(MissingPartiesWarning, match=reason):
        labels = secret.predict(X)
    assert broken.asked == 1
    assert secret.who_answered == ("p0", "p2")
    same_where_clear(labels, [PARTIES[0], PARTIES[2]], X)
    with pytest.raises(QuorumError, match=reason):
        Federation([PARTIES[0], failing(answer), PARTIES[2]], **SECRET).predict(X)


def test_an_answer_for_another_place_is_not_taken():
    """A replayed ciphertext of another party is found by its header."""
    stolen = []

    class Thief(Party):
        def encrypted_distances(self, X, query, *, client="unknown"):
            message = super().encrypted_distances(X, query, client=client)
            stolen.append(message)
            return stolen[0]

    thieves = [Thief(p.name, p._classifier, consent=SEEDED) for p in PARTIES]
    answer = Federation(thieves, **SECRET, quorum=1).ask(X[:20])
    assert answer.who_answered == ("p0",)
    assert all("party of a ciphertext" in answer.missing[name] for name in ("p1", "p2"))


def test_parties_that_encrypt_only_say_nothing_in_the_clear():
    party = wrapped(PARTIES[0], encrypted_only=True)
    with pytest.raises(RefusedError, match="encrypted queries only"):
        party.distances(X)
    with pytest.raises(RefusedError, match="its model stays"):
        party.hand_over("model.permea")
    assert Federation([party, PARTIES[1]], **SECRET).ask(X[:30]).is_complete
    plain = Federation([party, PARTIES[1]], quorum=1).ask(X)
    told = "This party replies to encrypted queries only; its model stays."
    assert plain.missing == {"p0": told}


def test_a_party_encrypts_for_clients_it_knows():
    """An aggregator that puts its own key in place of the client's gets nothing."""
    terms = Federation(PARTIES, **SECRET).terms()
    known, impostor = KeyHolder(terms), KeyHolder(terms)
    party = wrapped(PARTIES[0], client_keys=[known.keys.public.digest])
    assert isinstance(party.encrypted_distances(X[:3], known.query()), bytes)
    with pytest.raises(RefusedError, match="not among the client keys"):
        party.encrypted_distances(X[:3], impostor.query())


def test_ciphertexts_need_models_at_home():
    with pytest.raises(ValueError, match="topology"):
        Federation(PARTIES, **SECRET, topology="models")


def test_no_label_beyond_the_scale_without_a_warning():
    """All distances would be clipped to the same code, and the first class would win the tie."""
    narrow = Federation(PARTIES, **SECRET, scale=(0.0, 0.05))
    distances = Federation(PARTIES).distances(X).min(axis=1)
    step = 0.05 / (2**6 - 2)
    beyond = int(np.sum(distances >= 0.05 - step))
    assert 0 < beyond < len(X)
    with pytest.warns(ScaleWarning, match=f"{beyond} of {len(X)} queries"):
        labels = narrow.predict(X)
    near = distances < 0.05 - step
    agree = labels[near] == Federation(PARTIES).predict(X)[near]
    assert agree.mean() > 0.9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Federation(PARTIES, **SECRET).predict(X[:20])


# ---- roles -----------------------------------------------------------------------------------


def test_terms_and_queries_survive_serialisation():
    terms = Federation(PARTIES, **SECRET, n_jobs=2).terms()
    assert terms.scheme.n_jobs == 2  # how many cores evaluate is nobody else's business:
    again = Terms.from_json(terms.to_json())
    assert again.scheme.n_jobs == 1
    assert again.scheme.fingerprint == terms.scheme.fingerprint
    assert (again.schema, again.parties) == (terms.schema, ("p0", "p1", "p2"))
    query = KeyHolder(again).query()
    read = EncryptedQuery.from_record(query.to_record())
    assert read.to_record() == query.to_record()
    with pytest.raises(EncryptionError, match="public parameters"):
        EncryptedQuery.from_record({**query.to_record(), "scheme": "{}"})


def test_a_few_queries_take_the_circuit_that_is_fastest_for_few():
    federation = Federation(PARTIES, encrypted=True, bits=12)
    assert federation.terms().scheme.circuit == "bits"
    assert federation.terms(n_queries=2).scheme.circuit == "digits"


def test_a_query_under_other_terms_is_refused():
    federation = Federation(PARTIES, **SECRET)
    other = KeyHolder(Federation(PARTIES, encrypted=True, bits=5).terms())
    with pytest.raises(SchemaError, match="other terms"):
        federation.ask_encrypted(X, other.query(), other.keys.evaluation)


def test_declared_classes_fix_the_terms_before_all_parties_are_known():
    only = private_party("p0", X[Y < 2], Y[Y < 2])
    federation = Federation([only], **SECRET, classes=(0, 1, 2))
    assert federation.terms().schema.classes == (0, 1, 2)
    assert set(federation.predict(X)) <= {0, 1}


def test_a_scheme_without_public_keys_cannot_fill_a_place():
    scheme = get_scheme("tfhe")(n_parties=2, n_classes=2, bits=3)
    with pytest.raises(EncryptionError, match="no public-key encryption"):
        scheme.absent(None, 0, 3)


# ---- through the queue -----------------------------------------------------------------------


@pytest.fixture
def served(tmp_path):
    """An aggregator's queue with a service behind it."""
    spool = Spool(tmp_path / "queue")
    federation = Federation(PARTIES, **SECRET, batch_size=100)
    service = threading.Thread(target=serve, args=(federation, spool), daemon=True)
    service.start()
    yield spool
    spool.stop()
    service.join(60)
    assert not service.is_alive()


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pieces(key):
    body = key.parts[0][-4096:]
    return [body[i : i + 64] for i in range(0, len(body), 64)]


def test_the_queue_holds_everything_but_the_secret(served, tmp_path):
    queue = EncryptedQueue(served.folder, keys=tmp_path / "mine")
    result = queue.ask(X, client="me", timeout=120)
    same_where_clear(result.labels, PARTIES, X)
    assert result.distances is None
    assert result.report["beyond_scale"] == 0
    assert result.report["who_answered"] == ["p0", "p1", "p2"]

    mine = load_keys(next((tmp_path / "mine").iterdir()))
    held = files(served.folder)
    assert served.store.key(mine.evaluation.digest) == mine.evaluation.to_bytes()
    assert not any(piece in data for piece in pieces(mine.secret) for data in held.values())
    own = files(tmp_path / "mine")
    assert any(pieces(mine.secret)[0] in data for data in own.values())  # the search can find
    assert all(path.stat().st_mode & 0o077 == 0 for path in own)

    again = EncryptedQueue(served.folder, keys=tmp_path / "mine")  # another program, same keys
    assert np.array_equal(again.ask(X[:30], client="me", timeout=120).labels, result.labels[:30])
    assert served.store.database.rows("SELECT count(*) FROM keys") == [(1,)]


def test_plain_queries_are_refused_and_others_cannot_decrypt_an_answer(served):
    job = served.submit(X, client="me")
    with pytest.raises(JobFailedError, match="encrypted queries only"):
        served.wait(job, 60)
    queue, other = EncryptedQueue(served.folder), EncryptedQueue(served.folder)
    job = queue.submit(X[:10], client="me")
    with pytest.raises(KeyError, match="not submitted here"):
        other.wait(job, 1)
    assert len(queue.wait(job, 120).labels) == 10


def test_damaged_keys_and_questions_go_to_quarantine_and_the_next_one_is_answered(served):
    queue = EncryptedQueue(served.folder)
    assert len(queue.ask(X[:4], client="me", timeout=120).labels) == 4
    holder = queue._holder
    evaluation = holder.keys.evaluation
    good = pack_query(holder.query(), evaluation.digest)
    served.store.keep_key("damaged", evaluation.to_bytes()[:-7])
    record = json.loads(good["query"])
    damaged = {
        "null": {"query": b"null"},
        "no JSON": {"query": b"PK\x03\x04"},
        "deep": {"query": b"[" * 100_000},
        "no key": {"query": json.dumps({**record, "key": "unknown"}).encode()},
        "damaged key": {"query": json.dumps({**record, "key": "damaged"}).encode()},
        "other scheme": {"query": json.dumps({**record, "scheme": "{}"}).encode()},
        "public key": {"public_key": good["public_key"][:-1]},
        "queries": {"queries": b"\x93NUMPY"},
    }
    whole = {**good, "queries": pack_array(X[:4])}
    parts = ({**whole, **part} for part in damaged.values())
    names = [served.store.submit(one, rows=4, client="x") for one in parts]
    assert len(queue.ask(X[:4], client="me", timeout=120).labels) == 4
    wait_for(lambda: not served.waiting(), "the end of all jobs", 60, lambda: None)
    for name in names:
        job = served.store.job(name)
        assert (job.state, len(job.reason) > 10) == ("quarantined", True)


def test_secret_keys_do_not_lie_in_the_queue(tmp_path):
    Spool(tmp_path)
    with pytest.raises(ValueError, match="Keep the keys elsewhere"):
        EncryptedQueue(tmp_path, keys=tmp_path / "keys")


def test_without_enough_parties_there_are_no_terms(tmp_path):
    with pytest.raises(TimeoutError, match="waiting for the terms"):
        EncryptedQueue(tmp_path).submit(X, client="me", timeout=0.0)


def test_keys_of_other_terms_are_refused(tmp_path):
    terms = Federation(PARTIES, **SECRET).terms()
    save_keys(KeyHolder(terms).keys, tmp_path / "keys")
    other = replace(terms, scheme=get_scheme("bfv")(n_parties=3, n_classes=3, bits=5))
    with pytest.raises(EncryptionError, match="must be the same for all"):
        KeyHolder(other, load_keys(tmp_path / "keys"))


# ---- digits, end to end ----------------------------------------------------------------------


def digits_world(digits):
    X, queries, y, _ = digits
    models = [train(X[i::3], y[i::3], privacy=PRIVACY, random_state=i) for i in range(3)]
    return [Party(f"p{i}", m, consent=SEEDED) for i, m in enumerate(models)], queries


def check_digits(digits, n_queries, bits, least, **settings):
    """Encrypted labels are the plain ones, or less than a step from a tie."""
    parties, queries = digits_world(digits)
    queries = queries[:n_queries]
    secret = Federation(parties, encrypted=True, bits=bits, **settings)
    labels = secret.predict(queries)
    opened = Federation(parties)
    distances = opened.distances(queries)
    assert np.mean(labels == opened.predict(queries)) >= least
    chosen = distances[np.arange(n_queries), np.searchsorted(opened.classes_, labels)]
    step = secret.terms().scheme.quantiser.step
    assert np.all(chosen - distances.min(axis=1) < step)


def test_digits_in_one_ciphertext(digits):
    check_digits(digits, 64, 8, 0.95)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_500_digits_at_12_bits(digits):
    check_digits(digits, 500, 12, 0.995, n_jobs=2)


# ---- what arrives is parsed at once ------------------------------------------------------------


def bad_body(message):
    """The right header, a right checksum, and ciphertexts that are none."""
    header, parts = unpack(message, "ciphertext")
    header = {name: header[name] for name in header.keys() - {"kind", "sizes"}}
    return pack("ciphertext", header, [part[:200] + bytes(len(part) - 200) for part in parts])


def too_few(message):
    header, parts = unpack(message, "ciphertext")
    header = {name: header[name] for name in header.keys() - {"kind", "sizes"}}
    return pack("ciphertext", header, parts[:-1])


@pytest.mark.parametrize("damage", [bad_body, too_few, lambda message: b"junk"])
def test_the_sender_of_a_bad_ciphertext_is_named_and_left_out(damage):
    federation = Federation([PARTIES[0], failing(damage), PARTIES[2]], **SECRET, quorum=2)
    answer = federation.ask(X[:10])
    assert answer.who_answered == ("p0", "p2")
    assert answer.missing["p1"].startswith("invalid reply")
    same_where_clear(answer.labels, [PARTIES[0], PARTIES[2]], X[:10])


def test_a_damaged_evaluation_key_is_refused_before_any_party_is_asked():
    party = failing(lambda message: message)
    federation = Federation([PARTIES[0], party, PARTIES[2]], **SECRET)
    holder = KeyHolder(federation.terms())
    key = holder.keys.evaluation
    for parts in (key.parts[:2], [], [key.parts[0], b"junk", key.parts[2]]):
        damaged = EvaluationKey.of(key.header["parameters"], key.key_id, parts)
        with pytest.raises(EncryptionError):
            federation.ask_encrypted(X[:3], holder.query(), damaged)
    assert party.asked == 0
