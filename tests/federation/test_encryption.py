"""The default scheme: correctness, what each role can see, bad input."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from permea.federation.encryption import (
    DamagedMessageError,
    EncryptionError,
    MismatchError,
    SecretKey,
    WrongKeyError,
    get_scheme,
    infinity_code,
    plain_labels,
)
from permea.federation.encryption import engine as engine_module
from permea.federation.encryption.bfv import CIRCUITS, fastest_circuit
from permea.federation.encryption.engine import (
    FLOOD_BITS,
    RINGS,
    SPARE_BITS,
    Engine,
    context_of,
    import_seal,
    load_ciphertext,
    random_nonzero,
)
from permea.federation.encryption.scheme import pack, unpack

ALPHA = 1e-6
BFV = get_scheme("bfv")


def cases(generator, n_parties, n_queries, n_classes, bits):
    """Codes with all that is awkward: ties, missing classes, all equal, everything missing."""
    top = infinity_code(bits)
    shape = (n_parties, n_queries, n_classes)
    codes = generator.integers(0, top + 1, shape)
    kind = np.arange(n_queries) % 6
    few = generator.integers(0, 3, shape) + generator.integers(0, top - 2, (1, n_queries, 1))
    codes = np.where((kind == 1)[None, :, None], few, codes)  # many ties
    missing = generator.random(shape) < 0.5
    codes[missing & (kind == 2)[None, :, None]] = top
    codes[:, kind == 3] = generator.integers(0, top + 1, (1, (kind == 3).sum(), 1))  # all equal
    codes[:, kind == 4] = top - generator.integers(0, 2, codes[:, kind == 4].shape)
    codes[:, (kind == 5) & (np.arange(n_queries) % 4 == 1)] = top  # nobody knows any class
    return codes


def ask(scheme, keys, codes, **more):
    answers = [scheme.encrypt(keys.public, row, i, **more) for i, row in enumerate(codes)]
    return scheme.aggregate(keys.evaluation, answers)


# ---- the circuits in the clear -------------------------------------------------------------------
class Clear:
    """A slot vector that behaves like a ciphertext."""

    def __init__(self, slots):
        self.slots = slots

    def to_string(self):
        return self.slots.tobytes()


class ClearEngine(Engine):
    """The aggregator's operations on plain slots modulo t: the circuits without encryption."""

    def __init__(self, degree, modulus):
        self.degree, self.modulus = degree, modulus

    def load(self, data):
        return Clear(np.frombuffer(data, dtype=np.int64))

    def multiply(self, left, right):
        return Clear(left.slots * right.slots % self.modulus)

    def add(self, terms):
        return Clear(sum(term.slots for term in terms) % self.modulus)

    def subtract(self, left, right):
        return Clear((left.slots - right.slots) % self.modulus)

    def one_minus(self, ciphertext):
        return Clear((1 - ciphertext.slots) % self.modulus)

    def rotate(self, ciphertext, steps):
        return Clear(np.roll(ciphertext.slots.reshape(2, -1), -steps, axis=1).ravel())

    def at_level(self, ciphertext, remaining):
        return ciphertext

    def mask(self, ciphertext, positions):
        values = np.zeros(self.degree, dtype=np.int64)
        values[positions] = random_nonzero(self.modulus, int(positions.sum()))
        return Clear(ciphertext.slots * values % self.modulus)

    def finish(self, ciphertext):
        return ciphertext.to_string()


def clear_labels(scheme, codes):
    """Labels by the scheme's own circuit in the clear, with its checks on the decrypted vector."""
    engine = ClearEngine(scheme.layout.degree, scheme.seal_parameters.plain_modulus)
    labels = []
    for start in range(0, codes.shape[1], scheme.batch):
        part = codes[:, start : start + scheme.batch]
        full = np.zeros((len(codes), scheme.batch, scheme.n_classes), dtype=np.int64)
        full[:, : part.shape[1]] = part
        sent = [
            [s.astype(np.int64).tobytes() for s in scheme.layout.encode(x, party)]
            for party, x in enumerate(full)
        ]
        results = scheme.layout.evaluate(engine, sent, part.shape[1])
        slots = np.concatenate([np.frombuffer(r, dtype=np.int64) for r in results])
        values = scheme._read(slots.astype(np.uint64), part.shape[1])
        labels.append(np.argmax(values == 0, axis=1))
    return np.concatenate(labels)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    st.sampled_from(sorted(CIRCUITS)),
    st.integers(1, 6),
    st.integers(2, 12),
    st.integers(2, 9),
    st.integers(0, 2**32 - 1),
)
def test_both_circuits_compute_the_arg_min(circuit, n_parties, n_classes, bits, seed):
    scheme = BFV(n_parties=n_parties, n_classes=n_classes, bits=bits, circuit=circuit)
    codes = cases(np.random.default_rng(seed), n_parties, 24, n_classes, max(bits, 3))
    codes = np.minimum(codes, infinity_code(bits))
    assert (clear_labels(scheme, codes) == plain_labels(codes)).all()


@pytest.mark.parametrize("bits", [8, 12])
@pytest.mark.parametrize(("n_parties", "n_classes"), [(2, 25), (3, 10), (5, 2), (10, 10), (50, 3)])
def test_the_chosen_circuit_computes_the_arg_min(n_parties, n_classes, bits):
    scheme = BFV(n_parties=n_parties, n_classes=n_classes, bits=bits)
    codes = cases(np.random.default_rng(bits), n_parties, 12, n_classes, bits)
    assert (clear_labels(scheme, codes) == plain_labels(codes)).all()


# ---- encrypted -----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def small():
    """3 parties × 4 classes × 4 bits: batches of 1024 queries, and two key sets."""
    scheme = BFV(n_parties=3, n_classes=4, bits=4, circuit="bits")
    return scheme, scheme.keygen(), scheme.keygen()


@pytest.mark.parametrize(
    ("n_parties", "n_classes", "bits", "n_queries", "circuit"),
    [
        (3, 10, 8, 18, "digits"),  # three batches
        (2, 3, 12, 6, "digits"),
        (1, 2, 4, 24, "digits"),
        (3, 10, 16, 1, "digits"),
        (5, 9, 3, 24, "digits"),  # more classes than values of a digit: several results
        (2, 3, 4, 200, "bits"),
        (3, 10, 4, 100, "bits"),  # three results
        (1, 2, 5, 100, "bits"),
    ],
)
def test_encrypted_labels_equal_plain_ones(n_parties, n_classes, bits, n_queries, circuit):
    scheme = BFV(n_parties=n_parties, n_classes=n_classes, bits=bits, circuit=circuit)
    keys = scheme.keygen()
    codes = cases(np.random.default_rng(0), n_parties, n_queries, n_classes, bits)
    labels = scheme.decrypt(keys.secret, ask(scheme, keys, codes))
    assert (labels == plain_labels(codes)).all()


def test_two_processes_give_the_same_labels(small):
    scheme, keys, _ = small
    twin = BFV.from_json(scheme.to_json(), n_jobs=2)
    for n_queries in (100, scheme.batch + 100):  # one batch, or one for each process
        codes = cases(np.random.default_rng(1), 3, n_queries, 4, 4)
        assert (twin.decrypt(keys.secret, ask(twin, keys, codes)) == plain_labels(codes)).all()


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("bits", [8, 12])
@pytest.mark.parametrize("n_classes", [2, 10, 25])
@pytest.mark.parametrize("n_parties", [2, 3, 5, 10])
def test_200_cases_per_setting(n_parties, n_classes, bits):
    circuit = fastest_circuit(n_parties, n_classes, bits, 200)
    scheme = BFV(n_parties=n_parties, n_classes=n_classes, bits=bits, circuit=circuit, n_jobs=2)
    keys = scheme.keygen()
    codes = cases(
        np.random.default_rng([n_parties, n_classes, bits]), n_parties, 200, n_classes, bits
    )
    labels = scheme.decrypt(keys.secret, ask(scheme, keys, codes))
    assert (labels == plain_labels(codes)).all()


# ---- parameters and noise ------------------------------------------------------------------------
@pytest.mark.parametrize("circuit", sorted(CIRCUITS))
def test_parameters_are_128_bit_secure(circuit):
    seal = import_seal()
    for degree, bits in RINGS.items():
        assert seal.CoeffModulus.MaxBitCount(degree, seal.sec_level_type.tc128) == bits
    for n_parties in (2, 10):
        scheme = BFV(n_parties=n_parties, n_classes=10, bits=8, circuit=circuit)
        chosen = scheme.seal_parameters
        assert chosen.prime_bits * (chosen.n_primes + 1) <= RINGS[chosen.degree]
        key_data = context_of(chosen).key_context_data()
        assert key_data.qualifiers().sec_level == seal.sec_level_type.tc128
        assert chosen.plain_modulus > scheme.layout.largest_value


def test_what_does_not_fit_is_refused():
    with pytest.raises(EncryptionError, match="fit into no"):
        BFV(n_parties=100, n_classes=2, bits=8, circuit="digits")


@pytest.mark.parametrize(
    ("n_parties", "n_classes", "bits", "circuit"),
    [
        (3, 4, 8, "digits"),
        (9, 2, 6, "digits"),
        (3, 10, 16, "digits"),
        (2, 3, 4, "bits"),
        (4, 5, 4, "bits"),
    ],
)
def test_the_noise_is_small_enough_to_be_flooded(n_parties, n_classes, bits, circuit, monkeypatch):
    """Before flooding at least FLOOD_BITS + SPARE_BITS of budget are left; after it, a few."""
    scheme = BFV(n_parties=n_parties, n_classes=n_classes, bits=bits, circuit=circuit)
    keys = scheme.keygen()
    codes = cases(np.random.default_rng(2), n_parties, min(scheme.batch, 300), n_classes, bits)
    context = context_of(scheme.seal_parameters)
    secret = context.from_secret_str(keys.secret.parts[0])
    decryptor = import_seal().Decryptor(context, secret)
    before = []
    flooded = Engine.finish

    def watch(self, ciphertext):
        before.append(decryptor.invariant_noise_budget(ciphertext))
        return flooded(self, ciphertext)

    monkeypatch.setattr(Engine, "finish", watch)
    result = ask(scheme, keys, codes)
    assert min(before) >= FLOOD_BITS + SPARE_BITS
    budgets = [
        decryptor.invariant_noise_budget(load_ciphertext(context, part))
        for part in unpack(result, "result")[1]
    ]
    assert all(1 <= budget <= SPARE_BITS + 1 for budget in budgets)


def test_random_masks_are_uniform_and_never_zero():
    values = random_nonzero(17, 160_000)
    counts = np.bincount(values.astype(int), minlength=17)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:]).pvalue > ALPHA


# ---- who learns what -----------------------------------------------------------------------------
def winners_with_different_margins():
    """1024 queries of class 2; the winner is party q mod 3, and its margin tells which."""
    winner = np.arange(1024) % 3
    codes = np.full((3, 1024, 4), 12)
    codes[winner, np.arange(1024), 2] = 1 + 4 * winner
    return winner, codes


def smallest_p_value(values, winner):
    """Uniformity of what the key holder sees, and equality of its distribution between winners."""
    losers = np.delete(values, 2, axis=1).astype(float)
    groups = [losers[winner == party].ravel() for party in range(3)]
    uniform = stats.kstest(losers.ravel(), stats.uniform(0.5, 65536).cdf).pvalue
    pairs = [stats.ks_2samp(groups[a], groups[b]).pvalue for a, b in [(0, 1), (0, 2), (1, 2)]]
    return min([uniform, *pairs])


def open_result(scheme, keys, codes):
    parts = unpack(ask(scheme, keys, codes), "result")[1]
    return scheme._open(keys.secret, parts, codes.shape[1])


def test_the_key_holder_cannot_see_which_party_won(small):
    scheme, keys, _ = small
    winner, codes = winners_with_different_margins()
    values = open_result(scheme, keys, codes)
    assert (values[:, 2] == 0).all()
    assert smallest_p_value(values, winner) > ALPHA


def test_without_the_mask_the_key_holder_would_see_it(small, monkeypatch):
    """Negative control: the same test finds the winner when the mask is all ones."""
    scheme, keys, _ = small
    winner, codes = winners_with_different_margins()
    ones = lambda modulus, size: np.ones(size, dtype=np.uint64)  # noqa: E731
    monkeypatch.setattr(engine_module, "random_nonzero", ones)
    assert smallest_p_value(open_result(scheme, keys, codes), winner) < ALPHA


def test_encryption_is_randomised(small):
    scheme, keys, _ = small
    codes = np.zeros((1, 4), dtype=int)
    first, second = (scheme.encrypt(keys.public, codes, 0) for _ in range(2))
    assert unpack(first, "ciphertext")[1][0] != unpack(second, "ciphertext")[1][0]


ROLE = """
import sys
from pathlib import Path
import numpy as np
from permea.federation.encryption import EvaluationKey, PublicKey, SecretKey, get_scheme
role, here = sys.argv[1], Path(sys.argv[2])
scheme = get_scheme("bfv").from_json((here / "scheme.json").read_text())
if role == "keygen":
    for name, key in scheme.keygen()._asdict().items():
        (here / name).write_bytes(key.to_bytes())
if role == "party":
    key = PublicKey.from_bytes((here / "public").read_bytes())
    codes, number = np.load(here / "codes.npy"), int(sys.argv[3])
    (here / "answer").write_bytes(scheme.encrypt(key, codes, number, query_id="q1"))
if role == "aggregator":
    key = EvaluationKey.from_bytes((here / "evaluation").read_bytes())
    answers = [path.read_bytes() for path in sorted(here.glob("answer*"))]
    (here / "result").write_bytes(scheme.aggregate(key, answers))
if role == "decrypt":
    key = SecretKey.from_bytes((here / "secret").read_bytes())
    np.save(here / "labels.npy", scheme.decrypt(key, (here / "result").read_bytes(), query_id="q1"))
"""


def test_roles_in_separate_processes_share_files_only(tmp_path):
    scheme = BFV(n_parties=2, n_classes=3, bits=4)
    names = ("holder", "party0", "party1", "aggregator")
    holder, *parties, aggregator = (tmp_path / name for name in names)
    for folder in (holder, *parties, aggregator):
        folder.mkdir()
        (folder / "scheme.json").write_text(scheme.to_json())

    def play(role, folder, *more):
        command = [sys.executable, "-c", textwrap.dedent(ROLE), role, str(folder), *more]
        subprocess.run(command, check=True, cwd=folder, timeout=120)

    def send(source, target):
        target.write_bytes(source.read_bytes())

    codes = cases(np.random.default_rng(3), 2, 20, 3, 4)
    play("keygen", holder)
    send(holder / "evaluation", aggregator / "evaluation")
    for number, folder in enumerate(parties):
        send(holder / "public", folder / "public")
        np.save(folder / "codes.npy", codes[number])
        play("party", folder, str(number))
        send(folder / "answer", aggregator / f"answer{number}")
    play("aggregator", aggregator)
    send(aggregator / "result", holder / "result")
    play("decrypt", holder)

    assert (np.load(holder / "labels.npy") == plain_labels(codes)).all()
    held = {path.name: path.read_bytes() for path in aggregator.rglob("*") if path.is_file()}
    assert sorted(held) == ["answer0", "answer1", "evaluation", "result", "scheme.json"]
    body = SecretKey.from_bytes((holder / "secret").read_bytes()).parts[0][-4096:]
    pieces = [body[i : i + 64] for i in range(0, len(body), 64)]
    for message in held.values():
        assert not any(piece in message for piece in pieces)
        with pytest.raises((DamagedMessageError, MismatchError)):
            SecretKey.from_bytes(message)
    assert any(piece in (holder / "secret").read_bytes() for piece in pieces)  # the search can find


# ---- bad input -----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def answers(small):
    scheme, keys, _ = small
    codes = cases(np.random.default_rng(4), 3, 12, 4, 4)
    return [scheme.encrypt(keys.public, codes[i], i, query_id="a") for i in range(3)], codes


def test_a_truncated_or_altered_ciphertext_is_refused(small, answers):
    scheme, keys, _ = small
    good, _ = answers
    altered = bytearray(good[1])
    altered[len(altered) // 2] ^= 1
    for bad in (good[1][:-100], good[1][:5], b"", bytes(altered)):
        with pytest.raises(DamagedMessageError):
            scheme.aggregate(keys.evaluation, [good[0], bad, good[2]])


def test_a_ciphertext_that_seal_cannot_read_is_refused(small, answers):
    scheme, keys, _ = small
    header, parts = unpack(answers[0][1], "ciphertext")
    del header["sizes"], header["kind"]
    for bad in ([parts[0][:-8], *parts[1:]], [b"", *parts[1:]]):
        message = pack("ciphertext", header, bad)
        with pytest.raises(DamagedMessageError, match="cannot be read"):
            scheme.aggregate(keys.evaluation, [answers[0][0], message, answers[0][2]])
    short = pack("ciphertext", header, parts[:-1])
    with pytest.raises(MismatchError, match="sent 12 ciphertexts, expected 13"):
        scheme.aggregate(keys.evaluation, [answers[0][0], short, answers[0][2]])


def test_missing_doubled_or_foreign_answers_are_refused(small, answers):
    scheme, keys, other = small
    good, codes = answers
    foreign = scheme.encrypt(other.public, codes[2], 2, query_id="a")
    late = scheme.encrypt(keys.public, codes[2], 2, query_id="b")
    fewer = scheme.encrypt(keys.public, codes[2, :5], 2, query_id="a")
    for last, message in [
        ([], "each party replies exactly once"),
        ([good[1]], "each party replies exactly once"),
        ([foreign], "use one key set"),
        ([late], "the same query"),
        ([fewer], "the same query"),
    ]:
        with pytest.raises(MismatchError, match=message):
            scheme.aggregate(keys.evaluation, [*good[:2], *last])


def test_the_order_of_answers_does_not_matter(small, answers):
    scheme, keys, _ = small
    good, codes = answers
    result = scheme.aggregate(keys.evaluation, good[::-1])
    assert (scheme.decrypt(keys.secret, result, query_id="a") == plain_labels(codes)).all()


def test_wrong_keys_are_refused_even_when_the_header_lies(small, answers):
    scheme, keys, other = small
    result = scheme.aggregate(keys.evaluation, answers[0])
    with pytest.raises(MismatchError, match="use one key set"):
        scheme.decrypt(other.secret, result)
    with pytest.raises(MismatchError, match="query"):
        scheme.decrypt(keys.secret, result, query_id="b")
    header = {"parameters": scheme.fingerprint, "key": keys.secret.key_id}
    lying = SecretKey(pack("secret key", header, other.secret.parts))
    with pytest.raises(WrongKeyError):
        scheme.decrypt(lying, result)
    with pytest.raises(TypeError, match="expected a secret key"):
        scheme.decrypt(keys.evaluation, result)


def test_parameters_that_differ_are_refused(small, answers):
    _, keys, _ = small
    for field, value in [("bits", 5), ("n_classes", 5), ("scale", (0.0, 1.0))]:
        settings_ = {"n_parties": 3, "n_classes": 4, "bits": 4, "circuit": "bits"}
        other = BFV(**{**settings_, field: value})
        with pytest.raises(MismatchError, match="must be the same for all"):
            other.encrypt(keys.public, np.zeros((1, other.n_classes), dtype=int), 0)
        with pytest.raises(MismatchError, match="must be the same for all"):
            other.aggregate(keys.evaluation, answers[0])


def test_a_dishonest_plaintext_gives_an_error_and_no_label(small):
    """A party that encrypts something else than its candidate is noticed when it matters."""
    scheme, keys, _ = small
    codes = np.full((3, 8, 4), 3)
    good = [scheme.encrypt(keys.public, row, i) for i, row in enumerate(codes)]
    context = context_of(scheme.seal_parameters)
    encryptor = import_seal().Encryptor(context, context.from_public_str(keys.public.parts[0]))
    header, _ = unpack(good[0], "ciphertext")
    del header["sizes"], header["kind"]
    noise = [bytes(encryptor.encrypt_zero().to_string()) for _ in range(13)]
    bad = pack("ciphertext", header, noise)
    with pytest.raises(WrongKeyError, match="one-hot"):
        scheme.decrypt(keys.secret, scheme.aggregate(keys.evaluation, [bad, *good[1:]]))


@pytest.mark.parametrize(
    ("codes", "party", "match"),
    [
        (np.full((1, 4), 15), 0, "overflow"),
        (np.full((1, 4), -1), 0, "overflow"),
        (np.zeros((1, 4)), 0, "integers"),
        (np.zeros((1, 3), dtype=int), 0, "shape"),
        (np.zeros((0, 4), dtype=int), 0, "shape"),
        (np.zeros((1, 4), dtype=int), 3, "party"),
    ],
)
def test_bad_codes_are_refused(small, codes, party, match):
    scheme, keys, _ = small
    with pytest.raises(ValueError, match=match):
        scheme.encrypt(keys.public, codes, party)


@pytest.mark.parametrize(
    "settings_",
    [{"n_parties": 0}, {"n_classes": 1}, {"bits": 1}, {"bits": 8.0}, {"circuit": "magic"}],
)
def test_bad_settings_are_refused(settings_):
    with pytest.raises(ValueError, match="must be"):
        BFV(**{"n_parties": 2, "n_classes": 2, **settings_})


def test_schemes_travel_as_json_and_by_name(small):
    scheme, keys, _ = small
    assert BFV.from_json(scheme.to_json()).fingerprint == scheme.fingerprint
    assert json.loads(scheme.to_json())["scheme"] == "bfv"
    assert keys.secret.parts[0][:32].hex() not in repr(keys.secret)
    with pytest.raises(ValueError, match="unknown scheme"):
        get_scheme("rot13")


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "seal", None)
    with pytest.raises(ImportError, match=r"permea\[encrypted\]"):
        import_seal()
