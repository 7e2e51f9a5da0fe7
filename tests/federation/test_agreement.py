"""Whoever owns the rows decides the noise: attacks of a coordinator on a party, all refused."""

import copy
import json
import os
import pickle
import re
import threading
import warnings
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from permea import MomentClassifier, MomentRegressor
from permea.federation import (
    Agreement,
    AgreementError,
    MomentFederation,
    MomentParty,
    RefusedError,
)
from permea.federation.agreement import canonical_description, collusion_epsilon
from permea.federation.messages import DropOutError, open_mean
from permea.models.features import RandomFourier
from permea.privacy import Budget, BudgetExceededError, Ledger, Privacy
from permea.privacy.composition import Loss, tight_epsilon
from permea.privacy.moments import plan_moments
from permea.privacy.noise import gaussian_mu
from permea.privacy.signing import PublicKey, SigningKey, TrustedKeys

ROOT = Path(__file__).parents[2]
KEY, STRANGER = SigningKey.generate("owner"), SigningKey.generate("stranger")
TRUSTED = TrustedKeys([KEY.public])
PROMISE = Privacy(epsilon=1.0, delta=1e-5, unit="record", domain=(0, 1))
NAMES = ("a", "b", "c")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def wanted(**options):
    return MomentClassifier(
        **{"privacy": PROMISE, "features": "identity", "classes": [0, 1, 2], **options}
    )


def agree(estimator=None, **terms):
    terms = {"parties": NAMES, "rounds": 3, **terms}
    return Agreement.of(wanted() if estimator is None else estimator, 4, **terms)


def rows(n=60):
    rng = np.random.default_rng(0)
    return rng.random((n, 4)), rng.integers(0, 3, n)


def make_party(agreement=None, *, ledger=None, name="a", data=None, estimator=None, **options):
    X, y = rows() if data is None else data
    agreement = agree().signed(by=KEY) if agreement is None else agreement
    options = {"trusted": TRUSTED, "dataset": "ward", **options}
    return MomentParty(
        name,
        wanted() if estimator is None else estimator,
        X,
        y,
        agreement=agreement,
        ledger=Ledger() if ledger is None else ledger,
        **options,
    )


class Coordinator:
    """Asks one party under its own agreement."""

    def __init__(self, party):
        self.party = party
        self.terms = {"agreement": party.agreement.digest}
        self.needed = party.agreement.noise_shares

    def mean(self, round_id, needed=None):
        needed = self.needed if needed is None else needed
        return self.party.mean_message(round_id, needed, **self.terms)

    def moments(self, round_id, mean=None, needed=None):
        mean = np.zeros(4) if mean is None else mean
        needed = self.needed if needed is None else needed
        return self.party.moment_message(round_id, needed, mean, **self.terms)


def in_fork(work):
    """What ``work`` returns in a forked child, by pickle."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads may exist in pytest
        child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(work(), pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pickle.load(pipe)
    os.waitpid(child, 0)
    return answer


# ---- a coordinator that wants less noise -----------------------------------------------------


@pytest.mark.parametrize("needed", [10**12, 4, 2, 1, 0, -3, True, 3.5, "3", None])
def test_a_coordinator_cannot_choose_the_number_of_shares(needed):
    ledger = Ledger()
    party = make_party(ledger=ledger)
    digest = party.agreement.digest
    with pytest.raises(RefusedError, match="another number of shares than the 3"):
        party.mean_message("round", needed, agreement=digest)
    assert len(ledger) == 0
    party.mean_message("round", 3, agreement=digest)
    with pytest.raises(RefusedError, match="another number of shares"):
        party.moment_message("round", needed, np.zeros(4), agreement=digest)


def test_the_counts_leave_with_the_noise_that_was_agreed_on():
    """What 10**12 shares gave away: class counts to 1e-5. The share now is the agreed one."""
    data = rows(4000)
    party = make_party(agree(rounds=40).signed(by=KEY), data=data)
    ask, plan, errors = Coordinator(party), party.plan, []
    step = plan.refinement(plan.scales.counts, 2**32) * 2**32
    for k in range(40):
        ask.mean(f"r{k}")
        counts = ask.moments(f"r{k}").values[-3:] / step
        errors.extend(counts - np.bincount(data[1]))
    expected = plan.scales.counts / np.sqrt(3)
    assert np.std(errors) == pytest.approx(expected, rel=6 / np.sqrt(2 * len(errors)))


def test_every_round_is_charged_and_no_more_are_answered_than_agreed():
    ledger = Ledger()
    ask, answered = Coordinator(make_party(ledger=ledger)), []
    for k in range(3):
        answered.append(ask.mean(f"round-{k}"))
        assert len(ledger) == k + 1
    for k in range(3, 400):
        with pytest.raises(RefusedError, match="All 3 rounds"):
            ask.mean(f"round-{k}")
    assert len(ledger) == 3
    assert all(not np.array_equal(answered[0].values, other.values) for other in answered[1:])
    assert ledger.spent_on("ward").epsilon == pytest.approx(3.0)


def test_a_budget_ends_rounds_before_the_agreement_does():
    ledger = Ledger(Budget(epsilon=2.0, delta=1e-4, unit="record"))
    ask = Coordinator(make_party(ledger=ledger))
    ask.mean("r0")
    ask.mean("r1")
    with pytest.raises(BudgetExceededError):
        ask.mean("r2")
    assert len(ledger) == 2


def test_a_repeated_request_gets_the_same_words_for_one_charge():
    ledger = Ledger()
    ask = Coordinator(make_party(ledger=ledger))
    first = ask.mean("round")
    second = ask.moments("round")
    assert ask.mean("round") is first
    assert ask.moments("round") is second
    assert len(ledger) == 1
    assert first.agreement == second.agreement == ask.party.agreement.digest
    assert first.round_id == second.round_id == "round"
    with pytest.raises(ValueError, match="read-only"):
        first.values[0] = 0


def test_each_stage_of_a_round_is_answered_once_and_in_order():
    ask = Coordinator(make_party())
    with pytest.raises(RefusedError, match="did not begin"):
        ask.moments("round")
    mean = 0.01 + 0.1 * open_mean(ask.mean("round"), ask.party.plan)
    ask.moments("round", 0.1 * mean)
    with pytest.raises(RefusedError, match="another mean"):
        ask.moments("round", 0.2 * mean)
    with pytest.raises(RefusedError, match="did not begin"):
        ask.moments("other", 0.1 * mean)
    ask.mean("next")
    with pytest.raises(RefusedError, match="did not begin"):
        ask.moments("round", 0.1 * mean)
    with pytest.raises(RefusedError, match="over"):
        ask.mean("round")


@pytest.mark.parametrize(
    "mean",
    [
        np.full(4, np.nan),
        np.array([np.inf, 0, 0, 0]),
        np.zeros(3),
        np.zeros((1, 4)),
        np.full(4, 0.6),
        np.full(4, 1e300),
        "mean",
        [[0], [0, 1]],
    ],
)
def test_a_mean_that_cannot_be_one_is_refused(mean):
    ask = Coordinator(make_party())
    ask.mean("round")
    with pytest.raises(RefusedError, match="The mean"):
        ask.moments("round", mean)
    ask.moments("round", np.full(4, 0.49))


@pytest.mark.parametrize("round_id", ["", "x" * 65, "a b", "a\n", "ä", 7, None])
def test_a_round_has_a_plain_name(round_id):
    ledger = Ledger()
    with pytest.raises(RefusedError, match="A round is named"):
        Coordinator(make_party(ledger=ledger)).mean(round_id)
    assert len(ledger) == 0


@pytest.mark.parametrize("digest", ["", "0" * 64, None, 5])
def test_a_request_names_the_agreement(digest):
    ledger = Ledger()
    party = make_party(ledger=ledger)
    with pytest.raises(RefusedError, match="another agreement"):
        party.mean_message("round", 3, agreement=digest)
    assert len(ledger) == 0


# ---- the account -----------------------------------------------------------------------------


def test_a_party_needs_a_ledger():
    X, y = rows()
    signed = agree().signed(by=KEY)
    with pytest.raises(ValueError, match="A party that keeps no account"):
        MomentParty("a", wanted(), X, y, agreement=signed, trusted=TRUSTED)
    own = Ledger()
    party = MomentParty("a", wanted(ledger=own), X, y, agreement=signed, trusted=TRUSTED)
    Coordinator(party).mean("round")
    assert len(own) == 1


def test_rounds_are_counted_in_the_ledger_and_survive_a_restart():
    ledger = Ledger()
    Coordinator(make_party(ledger=ledger)).mean("r0")
    again = Coordinator(make_party(ledger=ledger))
    with pytest.raises(RefusedError, match="over"):
        again.mean("r0")
    with pytest.raises(RefusedError, match="did not begin"):
        again.moments("r0")
    again.mean("r1")
    again.mean("r2")
    with pytest.raises(RefusedError, match="All 3 rounds"):
        Coordinator(make_party(ledger=ledger)).mean("r3")
    assert len(ledger) == 3
    other = make_party(ledger=ledger, name="b")  # another party has rounds of its own
    Coordinator(other).mean("r0")


def test_the_release_is_noted_after_the_second_stage():
    noted = []

    class Watched(Ledger):
        def released(self, receipt):
            noted.append(receipt)
            return super().released(receipt)

    ask = Coordinator(make_party(ledger=Watched()))
    ask.mean("round")
    assert noted == []
    ask.moments("round")
    ask.moments("round")
    assert len(noted) == 1


@pytest.mark.parametrize("fault", ["missing value", "foreign label"])
def test_errors_about_rows_come_after_the_charge_and_tell_nothing(fault):
    X, y = rows()
    if fault == "missing value":
        X[17, 2] = np.nan
    else:
        y[17] = 7
    ledger = Ledger()
    ask = Coordinator(make_party(ledger=ledger, data=(X, y)))

    def whole_round():
        ask.mean("round")
        ask.moments("round")

    for _ in range(2):
        with pytest.raises(RefusedError) as caught:
            whole_round()
        assert not re.search(r"17|NaN|label|\b2\b|\b7\b", str(caught.value))
        assert len(ledger) == 1


def test_threads_that_ask_at_once_get_one_answer():
    ledger = Ledger()
    ask, start, answers = Coordinator(make_party(ledger=ledger)), threading.Barrier(6), []

    def work():
        start.wait()
        answers.append(ask.mean("round"))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert all(answer is answers[0] for answer in answers)
    assert len(ledger) == 1


# ---- copies and forks ------------------------------------------------------------------------


def test_a_copy_does_not_finish_the_round_of_its_original():
    ledger = Ledger()
    ask = Coordinator(make_party(ledger=ledger))
    ask.mean("round")
    for copied in (copy.copy(ask.party), copy.deepcopy(ask.party)):
        with pytest.raises(RefusedError, match="did not begin"):
            Coordinator(copied).moments("round", np.full(4, 0.1))
        with pytest.raises(RefusedError, match="over"):
            Coordinator(copied).mean("round")
    ask.moments("round")
    assert len(ledger) == 1


@needs_fork
def test_a_fork_between_the_stages_does_not_finish_the_round(tmp_path):
    ask = Coordinator(make_party(ledger=Ledger(tmp_path / "ledger.db")))
    ask.mean("round")

    def child():
        try:
            return ask.moments("round", np.full(4, 0.1)).values.tolist()
        except RefusedError as error:
            return str(error)

    assert "did not begin" in in_fork(child)
    ask.moments("round")


@needs_fork
def test_rounds_of_a_fork_are_charged_and_have_noise_of_their_own(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ask = Coordinator(make_party(ledger=ledger))
    first = ask.mean("r0").values
    forked = in_fork(lambda: (ask.mean("r1").values.tolist(), ask.moments("r1").values.tolist()))
    assert len(ledger) == 2
    own = ask.mean("r2").values, ask.moments("r2").values
    assert len(ledger) == 3
    for ours, theirs in zip(own, forked, strict=True):
        assert np.mean(ours[:-1] == np.array(theirs)[:-1]) < 0.5
    assert not np.array_equal(first, forked[0])
    with pytest.raises(RefusedError, match="All 3 rounds"):
        ask.mean("r3")


@needs_fork
def test_processes_that_race_answer_no_more_rounds_than_agreed(tmp_path):
    """Six processes with one ledger ask their party for five rounds each, all at once."""
    ledger = Ledger(tmp_path / "ledger.db")
    ask = Coordinator(make_party(ledger=ledger))
    answered = []

    def try_rounds(process):
        count = 0
        for k in range(5):
            try:
                ask.mean(f"p{process}-{k}")
            except RefusedError:
                continue
            count += 1
        return count

    def worker(process):
        answered.append(in_fork(lambda: try_rounds(process)))

    threads = [threading.Thread(target=worker, args=(process,)) for process in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(answered) == 3
    assert len(ledger) >= 3


@needs_fork
def test_a_fork_cannot_charge_a_ledger_in_memory():
    ledger = Ledger()
    ask = Coordinator(make_party(ledger=ledger))
    ask.mean("r0")

    def child():
        try:
            return ask.mean("r1").values.tolist()
        except RuntimeError as error:
            return type(error).__name__

    assert isinstance(in_fork(child), str)
    assert len(ledger) == 1


# ---- the document ----------------------------------------------------------------------------


def test_an_agreement_survives_a_trip_through_json():
    regressor = MomentRegressor(
        privacy=PROMISE, features="identity", output_domain=([0, 1], [2, 3]), radius=1
    )
    scaled = wanted(privacy=replace(PROMISE, domain=([0.0] * 4, [1.0, 2.0, 3.0, 4.0])))
    for made in (
        agree(),
        agree(wanted(features="fourier", classes=["ill", "well"])),
        agree(scaled, noise="own", least_parties=2),
        agree(regressor, n_targets=2, noise_shares=2),
    ):
        signed = made.signed(by=KEY).signed(by=STRANGER).signed(by=KEY)
        read = Agreement.from_json(signed.to_json())
        assert read == signed
        assert hash(read) == hash(signed)
        assert read.digest == made.digest
        assert len(read.signatures) == 2
        assert read.signers(TRUSTED) == ("owner",)
        assert read.plan == made.plan


def test_the_plan_follows_from_the_document_alone():
    made = Agreement.from_json(agree(wanted(features="fourier")).to_json())
    assert made.plan == wanted(features="fourier").prepare(4)


def test_gradients_are_not_part_of_a_round():
    with pytest.raises(ValueError, match="logistic loss"):
        agree(wanted(loss="logistic"))


def test_who_has_not_signed_is_not_believed():
    made = agree()
    foreign = made.signed(by=STRANGER)
    renamed = TrustedKeys([PublicKey("owner", KEY.public.raw)])
    make_party(made.signed(by=KEY), trusted=renamed)
    make_party(foreign.signed(by=KEY))
    for unsigned in (made, foreign):
        with pytest.raises(AgreementError, match="No trusted key"):
            make_party(unsigned)
    with pytest.raises(AgreementError, match="No trusted key"):
        make_party(made.signed(by=KEY), trusted=TrustedKeys())
    signature = KEY.sign(json.dumps(made.to_dict()).encode(), purpose="certificate")
    with pytest.raises(AgreementError, match="No trusted key"):
        make_party(replace(made, signatures=(signature,)))


def test_a_party_is_named_in_its_agreement():
    with pytest.raises(AgreementError, match="does not name the party 'd'"):
        make_party(name="d")


CHANGES = {
    "model": st.sampled_from(["MomentRegressor", "Other"]),
    "settings": st.just('{"strength":0.5}'),
    "features": st.sampled_from(['{"class":"RandomFourier"}', '{"class":"ScaledIdentity"}']),
    "n_columns": st.integers(1, 100),
    "n_features": st.integers(1, 100),
    "classes": st.lists(st.integers(0, 5), min_size=2, max_size=5, unique=True).map(tuple),
    "output_domain": st.tuples(st.floats(-5, 0), st.floats(1, 5)),
    "n_targets": st.integers(1, 3),
    "privacy": st.floats(0.5, 8).map(lambda epsilon: replace(PROMISE, epsilon=epsilon)),
    "neighbours": st.just("add/remove"),
    "radius": st.floats(0.01, 10),
    "feature_norm": st.floats(0.01, 10),
    "split": st.floats(0.01, 0.4).map(lambda mean: (mean, 0.5 - mean, 0.3, 0.2)),
    "n_directions": st.integers(-1, 8),
    "n_losses": st.integers(-1, 8),
    "noise": st.just("own"),
    "noise_shares": st.integers(1, 10**12),
    "least_parties": st.integers(1, 5),
    "rounds": st.integers(1, 10**6),
    "parties": st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True).map(tuple),
}


def test_the_changes_cover_every_entry():
    assert set(CHANGES) == {field.name for field in fields(Agreement)} - {"signatures"}


@given(data=st.data(), name=st.sampled_from(sorted(CHANGES)))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_an_agreement_altered_in_one_entry_is_refused(data, name):
    signed = agree().signed(by=KEY)
    value = data.draw(CHANGES[name])
    try:
        altered = replace(signed, **{name: value})
    except AgreementError:
        return
    if altered.digest == signed.digest:
        return
    assert altered.differences(signed)
    with pytest.raises(AgreementError, match="No trusted key"):
        make_party(altered)
    party = make_party(signed)
    with pytest.raises(RefusedError, match="another agreement"):
        party.mean_message("round", altered.noise_shares, agreement=altered.digest)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(data=st.data(), name=st.sampled_from(["schema", "signatures", "extra", *CHANGES]), junk=JUNK)
@settings(max_examples=300, deadline=None)
def test_what_is_no_agreement_is_refused_cleanly(data, name, junk):
    signed = agree().signed(by=KEY)
    values = json.loads(signed.to_json())
    inner = values.get(name)
    if isinstance(inner, dict) and data.draw(st.booleans()):
        inner[data.draw(st.sampled_from([*inner, "more"]))] = junk
    else:
        values[name] = junk
    try:
        read = Agreement.from_dict(values)
    except AgreementError:
        return
    assert read.to_dict() == values
    assert read.digest == signed.digest or not read.signers(TRUSTED)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{", '{"schema": 1, "schema": 1}', "[" * 100_000, '{"a": NaN}', "7"],
)
def test_what_is_no_document_is_refused_cleanly(text):
    with pytest.raises(AgreementError, match="Not an agreement"):
        Agreement.from_json(text)


def test_a_document_written_otherwise_is_refused():
    values = json.loads(agree(wanted(radius=1.0)).to_json())
    with pytest.raises(AgreementError, match="not written as permea writes"):
        Agreement.from_dict({**values, "radius": 1})
    without = {name: value for name, value in values.items() if name != "rounds"}
    with pytest.raises(AgreementError, match="missing or unknown"):
        Agreement.from_dict(without)


@pytest.mark.parametrize(
    "terms",
    [
        {"noise_shares": 4},
        {"least_parties": 4},
        {"least_parties": 2, "noise_shares": 3},
        {"noise": "own", "noise_shares": 3},
        {"noise": "none"},
        {"rounds": 0},
        {"rounds": True},
        {"parties": ()},
        {"parties": ("a", "a")},
        {"parties": ("a", "b\x1b[31m")},
    ],
)
def test_terms_that_cannot_be_kept_are_refused(terms):
    with pytest.raises(AgreementError, match="Not an agreement"):
        agree(**terms)


# ---- public descriptions of features ---------------------------------------------------------


def test_transformers_are_told_apart_by_what_they_were_fitted_on():
    public = np.random.default_rng(1).random((50, 4))
    one, other = StandardScaler().fit(public), StandardScaler().fit(public[:49])
    agreement = agree(wanted(features=one, feature_norm=3.0)).signed(by=KEY)
    party = make_party(agreement, estimator=wanted(features=one, feature_norm=3.0))
    Coordinator(party).mean("round")
    assert hasattr(party.blank().features, "mean_")  # the transformer stays fitted
    with pytest.raises(AgreementError, match="differ in features"):
        make_party(agreement, estimator=wanted(features=other, feature_norm=3.0))


def test_what_has_no_name_has_no_description():
    named = FunctionTransformer(np.tanh).fit(np.zeros((2, 4)))
    assert "numpy.tanh" in agree(wanted(features=named)).features
    nameless = FunctionTransformer(lambda X: X).fit(np.zeros((2, 4)))
    with pytest.raises(TypeError, match="no description"):
        agree(wanted(features=nameless))
    assert canonical_description(RandomFourier(seed=1)) != canonical_description(
        RandomFourier(seed=2)
    )
    assert canonical_description(np.arange(3)) != canonical_description(np.arange(3.0))
    assert canonical_description(np.arange(3)) == canonical_description(np.arange(3).astype(">i8"))


# ---- collusion -------------------------------------------------------------------------------


def test_the_figures_of_collusion_are_those_of_the_gaussian_left_over():
    plan = plan_moments(PROMISE, 100, 10)
    for n, expected in [(2, 1.47), (5, 2.44), (10, 3.62), (50, 9.36)]:
        left = collusion_epsilon(plan, noise_shares=n, n_parties=n, colluding=n - 1)
        assert round(left, 2) == expected
        mu = gaussian_mu(1.0, 1e-5) * np.sqrt(n)
        assert left == pytest.approx(tight_epsilon([Loss("gaussian", mu)], 1e-5), rel=1e-3)
    assert collusion_epsilon(plan, noise_shares=5, n_parties=9, colluding=4) == pytest.approx(1.0)
    assert collusion_epsilon(plan, noise_shares=5, n_parties=9, colluding=0) < 1
    for wrong in ({"colluding": 9}, {"colluding": -1}, {"noise_shares": 0}):
        with pytest.raises(ValueError, match="one honest party"):
            collusion_epsilon(plan, **{"noise_shares": 5, "n_parties": 9, "colluding": 1, **wrong})


@pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
def test_one_share_less_for_every_party_that_may_collude(neighbours):
    """Shares for 2 of 3 parties: the promise holds though one of them colludes."""
    agreement = agree(wanted(neighbours=neighbours), noise_shares=2)
    assert agreement.least_parties == 3
    assert agreement.collusion_epsilon(1) == pytest.approx(1.0, rel=2e-3)
    assert agreement.collusion_epsilon(2) == pytest.approx(1.47, abs=0.005)
    assert agree(noise="own").collusion_epsilon(2) == pytest.approx(1.0, rel=2e-3)


def test_the_page_shows_the_figures_that_the_code_computes():
    page = (ROOT / "docs" / "methods" / "moments.md").read_text(encoding="utf-8")
    table = page[page.index("| parties, one share each |") :].split("\n\n")[0]
    found = [
        [float(cell) for cell in line.strip("| ").split("|")] for line in table.split("\n")[2:]
    ]
    assert [line[0] for line in found] == [2, 5, 10, 50]
    plan = plan_moments(PROMISE, 100, 10)
    for n, *figures in found:
        n = int(n)
        left = [
            collusion_epsilon(plan, noise_shares=n, n_parties=n, colluding=k)
            for k in (1, n // 2, n - 1)
        ]
        assert figures == [round(value, 2) for value in left]


def test_agreement_certificate_and_ledger_print_the_figures():
    X, y = rows(300)
    names = [f"p{i}" for i in range(10)]
    agreement = agree(parties=names, rounds=1).signed(by=KEY)
    text = agreement.describe()
    assert "9 of 10 colluding: ε = 3.62 per record" in text
    assert "1 allowed" in text
    ledgers = [Ledger() for _ in names]
    parties = [
        make_party(agreement, name=name, ledger=ledger, data=(X[i::10], y[i::10]))
        for i, (name, ledger) in enumerate(zip(names, ledgers, strict=True))
    ]
    certificate = MomentFederation(parties).fit().certificate_
    steps = " ".join(certificate.steps)
    assert "9 of 10 colluding: ε = 3.62 per record" in steps
    assert agreement.digest in steps
    assert certificate.is_private
    for ledger in ledgers:
        assert "1 of 10 shares of the noise (by itself ε = 3.62)" in ledger.events[0].description
    with pytest.raises(DropOutError, match="All 1 rounds"):
        MomentFederation(parties).fit()


# ---- a coordinator that is honest, and parties that are not ------------------------------------


@pytest.mark.parametrize("field", ["agreement", "round_id", "needed"])
def test_an_answer_to_something_else_is_left_out(field):
    class Confused(MomentParty):
        def mean_message(self, *args, **terms):
            message = super().mean_message(*args, **terms)
            return replace(message, **{field: 1 if field == "needed" else "other"})

    X, y = rows()
    agreement = agree().signed(by=KEY)
    parties = [make_party(agreement, name=name) for name in "ab"]
    odd = Confused("c", wanted(), X, y, agreement=agreement, trusted=TRUSTED, ledger=Ledger())
    with pytest.raises(DropOutError, match=r"2 of at least 3 .* c: replied to another round"):
        MomentFederation([*parties, odd]).fit()


def test_a_mean_that_noise_carried_too_far_is_pulled_back():
    """Few rows and much noise: the opened mean is longer than any row of features can be."""
    promise = replace(PROMISE, epsilon=0.05)
    X, y = rows(6)
    agreement = agree(wanted(privacy=promise), parties=("a",)).signed(by=KEY)
    party = make_party(agreement, data=(X, y), estimator=wanted(privacy=promise, random_state=1))
    model = MomentFederation([party]).fit()
    assert np.linalg.norm(model.mean_) == pytest.approx(1.0)
