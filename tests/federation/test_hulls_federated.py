"""Parties add up the moments of their classes: the hulls of one owner, in four rounds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_moments_federated import KEY, PROMISE, TRUSTED, party_of

from permea import HullClassifier, KAHMClassifier, MomentClassifier
from permea.federation import (
    Agreement,
    MissingPartiesWarning,
    MomentFederation,
    MomentParty,
    RefusedError,
)
from permea.federation.messages import (
    DropOutError,
    aggregate,
    loss_message,
    open_losses,
    open_scatter,
    scatter_message,
)
from permea.privacy import Budget, Ledger
from permea.privacy.moments import (
    SQUARE_STEPS,
    MeanNoise,
    add_noise,
    mean_from_steps,
    mean_noise,
    moment_noise,
    moments_from_steps,
    noised_mean_steps,
    plan_moments,
)
from permea.privacy.release import Release
from permea.privacy.sampling import SeededBits
from permea.privacy.scatter import (
    ClassScatter,
    loss_noise,
    loss_steps,
    losses_from_steps,
    scatter_from_steps,
    scatter_steps,
    sum_losses,
    sum_scatter,
)

LOUD = replace(PROMISE, epsilon=20.0)


def rows(n=1200, p=5):
    """Three classes close together, long in different directions."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    length = np.full((3, p), 0.04)
    length[np.arange(3), np.arange(3)] = 0.25
    centres = 0.5 + 0.05 * np.eye(p)[y]
    return np.clip(centres + rng.normal(size=(n, p)) * length[y], 0, 1), y


def wanted(**options):
    options = {"privacy": LOUD, "features": "identity", "classes": [0, 1, 2], **options}
    return HullClassifier(**{"n_directions": 5, "radius": 0.5, **options})


def agreed(n, estimator=wanted, p=5, **terms):
    names = [f"p{i}" for i in range(n)]
    return Agreement.of(estimator(), p, parties=names, **{"rounds": 3, **terms}).signed(by=KEY)


class Leaving(MomentParty):
    """A party that does not answer the rounds named in ``absent``."""

    absent = ()


def _leave(stage):
    def message(self, *args, **terms):
        if stage in self.absent:
            raise ConnectionError("gone")
        return getattr(MomentParty, stage)(self, *args, **terms)

    return message


for _stage in ("scatter_message", "loss_message"):
    setattr(Leaving, _stage, _leave(_stage))


def parties_of(X, y, n=4, kind=MomentParty, seeds=True, terms=None, **options):
    agreement = agreed(n, lambda: wanted(**options), **(terms or {}))
    return [
        party_of(
            f"p{i}", wanted(random_state=i if seeds else None, **options), X[i::n], y[i::n],
            agreement, kind=kind,
        )
        for i in range(n)
    ]  # fmt: skip


def pooled(X, y, n, **options):
    """One owner of all rows, with the noise whose shares n parties drew."""
    model = wanted(**options)
    plan = model.prepare(X.shape[1])
    sources = [SeededBits(seed) for seed in range(n)]
    first = [mean_noise(plan, source, shares=n) for source in sources]
    noise = MeanNoise(sum(one.features for one in first), sum(one.size for one in first))
    mean = mean_from_steps(noised_mean_steps(model.feature_sums(X, plan), noise, plan), plan)
    second = [moment_noise(plan, source, shares=n) for source in sources]
    exact = model.moment_sums(X, y, mean, plan)
    moments = moments_from_steps(add_noise(exact, sum(second[1:], second[0]), plan), plan)
    P = model.choose_directions(moments, plan.n_directions)
    sums = model.scatter_sums(X, y, mean, P, plan)
    fine = plan.refinement(plan.scales.scatter, SQUARE_STEPS)
    shares = [scatter_steps(0 * sums, plan, source, shares=n) for source in sources]
    scatter = scatter_from_steps(sums * fine + sum(shares), P, plan)
    model.learn(Release(moments=moments, mean=mean, scatter=scatter))
    losses = model.loss_sums(X, y, plan)
    fine = plan.refinement(plan.scales.losses, SQUARE_STEPS)
    drawn = sum(loss_steps(0 * losses, plan, source, shares=n) for source in sources)
    model.calibrate(losses_from_steps(losses * fine + drawn, plan), loss_noise(plan))
    return model


@pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
def test_a_federation_learns_the_hulls_of_one_owner_to_the_last_bit(neighbours):
    X, y = rows()
    model = MomentFederation(parties_of(X, y, neighbours=neighbours)).fit()
    whole = pooled(X, y, 4, neighbours=neighbours)
    for name in ("directions", "second", "noise"):
        assert np.array_equal(getattr(model.scatter_, name), getattr(whole.scatter_, name))
    assert np.array_equal(model.hulls_.values, whole.hulls_.values)
    assert np.array_equal(model.distances(X), whole.distances(X))
    assert np.array_equal(model.predict_proba(X), whole.predict_proba(X))
    assert model.temperature_ == whole.temperature_
    assert model.score(X, y) > 0.8  # the means are the same: it is the scatter that tells
    assert "second moments of each class" in model.certificate_.released
    assert not model.holds_private_rows_


def test_one_party_is_the_centralised_fit():
    X, y = rows()
    agreement = agreed(1)
    party = party_of("p0", wanted(random_state=7), X, y, agreement)
    model, whole = MomentFederation([party]).fit(), wanted(random_state=7).fit(X, y)
    assert np.array_equal(model.hulls_.vectors, whole.hulls_.vectors)
    assert np.array_equal(model.predict_proba(X), whole.predict_proba(X))


def test_all_four_stages_are_one_charge_and_private():
    X, y = rows()
    agreement = agreed(3)
    ledgers = [Ledger(Budget(epsilon=LOUD.epsilon, delta=1e-5, unit="record")) for _ in range(3)]
    federation = MomentFederation(
        [
            party_of(f"p{i}", wanted(), X[i::3], y[i::3], agreement, ledger=ledger)
            for i, ledger in enumerate(ledgers)
        ]
    )
    model = federation.fit()
    assert model.certificate_.is_private
    assert model.certificate_.privacy.epsilon == LOUD.epsilon
    assert [len(ledger) for ledger in ledgers] == [1, 1, 1]
    with pytest.raises(DropOutError, match="BudgetExceededError"):
        federation.fit()


def test_the_documents_families_learn_from_federated_moments():
    X, y = rows()
    model = MomentFederation(parties_of(X, y, seeds=False)).fit()
    family = KAHMClassifier(n_components=3, n_layers=2, rows_per_class=60).learn_drawn(model)
    assert family.score(X, y) > 0.8
    assert family.certificate_.is_private
    assert "drawn from the released moments" in str(family.certificate_.steps)


def test_people_are_parties_rows_too():
    X, y = rows()
    groups = np.arange(1200) // 2
    promise = replace(LOUD, unit="person")
    agreement = agreed(2, lambda: wanted(privacy=promise))
    parties = [
        MomentParty(
            f"p{i}", wanted(privacy=promise), X[half], y[half], groups=groups[half],
            agreement=agreement, trusted=TRUSTED, ledger=Ledger(),
        )
        for i, half in enumerate((slice(0, 600), slice(600, 1200)))
    ]  # fmt: skip
    model = MomentFederation(parties).fit()
    assert model.certificate_.privacy.unit == "person"
    assert model.moments_.size == 600
    assert model.score(X, y) > 0.7


# ---- drop-outs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["shared", "own"])
@pytest.mark.parametrize("when", ["scatter_message", "loss_message"])
def test_drop_outs_are_borne_by_the_agreement_or_fail(noise, when):
    X, y = rows()
    strict = parties_of(X, y, kind=Leaving, terms={"noise": noise})
    lenient = parties_of(X, y, kind=Leaving, terms={"noise": noise, "least_parties": 3})
    strict[3].absent = lenient[3].absent = (when,)
    with pytest.raises(DropOutError, match="3 of at least 4 parties replied"):
        MomentFederation(strict).fit()
    with pytest.warns(MissingPartiesWarning, match="p3: ConnectionError"):
        model = MomentFederation(lenient).fit()
    assert model.moments_.size == len(X)
    # the scatter of three parties stands for that of four
    everybody = MomentFederation(parties_of(X, y, terms={"noise": noise})).fit()
    traces = [m.scatter_.second.trace(axis1=1, axis2=2) for m in (model, everybody)]
    assert traces[0] == pytest.approx(traces[1], rel=0.25)
    assert model.score(X, y) > 0.75
    assert "3 parties added" in str(model.certificate_.steps)


def test_noise_of_more_parties_than_shares_is_known_to_the_model():
    X, y = rows()
    plan = wanted().prepare(5)
    one = plan.scales.scatter * plan.radius**2
    model = MomentFederation(parties_of(X, y, terms={"least_parties": 2})).fit()
    assert model.scatter_.noise == pytest.approx(one * np.sqrt(4 / 2))
    own = MomentFederation(parties_of(X, y, terms={"noise": "own"})).fit()
    assert own.scatter_.noise == pytest.approx(one * 2)


# ---- what a party refuses ------------------------------------------------------------------------


class Coordinator:
    """Goes through the rounds of one party under its own agreement."""

    def __init__(self, party, needed=1):
        self.party, self.needed = party, needed
        self.terms = {"agreement": party.agreement.digest}

    def moments(self, round_id="r"):
        self.party.mean_message(round_id, self.needed, **self.terms)
        return self.party.moment_message(round_id, self.needed, np.full(5, 0.3), **self.terms)

    def scatter(self, P, round_id="r", needed=None):
        needed = self.needed if needed is None else needed
        return self.party.scatter_message(round_id, needed, P, **self.terms)

    def losses(self, released, round_id="r"):
        return self.party.loss_message(round_id, self.needed, released, **self.terms)


def one_party(ledger=None, data=None):
    X, y = rows(400) if data is None else data
    options = {"n_directions": 4}
    agreement = agreed(1, lambda: wanted(**options))
    return party_of("p0", wanted(**options), X, y, agreement, ledger=ledger)


def totals(P, **changes):
    model = wanted()
    plan = model.prepare(5)
    moments = moments_from_steps(
        add_noise(
            model.moment_sums(*rows(400), np.full(5, 0.3), plan),
            moment_noise(plan, SeededBits(0)),
            plan,
        ),
        plan,
    )
    scatter = ClassScatter(P, np.stack([np.eye(P.shape[1])] * 3), 0.1)
    return Release(moments=replace(moments, **changes), scatter=scatter)


@pytest.mark.parametrize(
    ("directions", "text"),
    [
        (np.eye(5), "at most 4 columns"),
        (np.eye(5)[:, :0], "at most 4 columns"),
        (np.eye(4), "matrix of 5 rows"),
        (np.eye(9)[:, :2], "matrix of 5 rows, or 3 more"),
        (np.ones(5), "matrix of 5 rows"),
        (np.full((5, 2), np.nan), "finite"),
        (np.full((5, 2), np.inf), "finite"),
        ("east", "array of numbers"),
        ([[1], [2, 3]], "array of numbers"),
        (None, "finite|array of numbers"),
    ],
)
def test_other_directions_than_planned_are_refused(directions, text):
    ask = Coordinator(one_party())
    ask.moments()
    with pytest.raises(RefusedError, match=text):
        ask.scatter(directions)
    assert len(ask.scatter(np.eye(8)[:, :4]).values) == 3 * 10  # the round goes on


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e300])
def test_directions_of_any_length_move_the_scatter_within_the_bound(scale):
    """A row in them is shrunk to the radius again: no party can be made to send more."""
    party = one_party()
    ask = Coordinator(party)
    ask.moments()
    P = scale * np.eye(5)[:, :2]
    found = open_scatter(ask.scatter(P), P, party.plan).second
    trace, noise = found.trace(axis1=1, axis2=2).sum(), party.plan.scales.scatter
    assert trace <= (400 + 6 * noise * np.sqrt(6)) * party.plan.radius**2


def test_stages_come_in_order_once_and_about_one_question():
    ledger = Ledger()
    ask, P = Coordinator(one_party(ledger)), np.eye(5)[:, :2]
    released = totals(P)
    for early in (lambda: ask.scatter(P), lambda: ask.losses(released)):
        with pytest.raises(RefusedError, match="did not begin"):
            early()
    assert len(ledger) == 0
    ask.moments()
    with pytest.raises(RefusedError, match="did not begin"):
        ask.losses(released)
    first = ask.scatter(P)
    assert ask.scatter(P) is first  # a retry: the same noise
    with pytest.raises(RefusedError, match="other directions already"):
        ask.scatter(np.eye(5)[:, 1:3])
    with pytest.raises(RefusedError, match="another number of shares"):
        ask.scatter(P, needed=2)
    told = ask.losses(released)
    assert ask.losses(released) is told
    with pytest.raises(RefusedError, match="another model already"):
        ask.losses(totals(P, size=500.0))
    ask.moments("next")
    for over in (lambda: ask.scatter(P), lambda: ask.losses(released)):
        with pytest.raises(RefusedError, match="did not begin"):
            over()  # the round before is over
    with pytest.raises(RefusedError, match="is over"):
        ask.moments()
    assert len(ledger) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"second": np.eye(4)},
        {"cross": np.zeros((5, 2))},
        {"total": np.zeros(6)},
        {"size": np.nan},
        {"size": None},
        {"squares": "many"},
        {"second_noise": [1.0, 2.0]},
    ],
)
def test_totals_of_another_shape_are_refused(change):
    ask, P = Coordinator(one_party()), np.eye(5)[:, :2]
    ask.moments()
    ask.scatter(P)
    with pytest.raises(RefusedError, match="totals"):
        ask.losses(totals(P, **change))
    wrong = totals(P)
    for other in (
        None,
        replace(wrong, scatter=None),
        replace(wrong, scatter=replace(wrong.scatter, second=np.zeros((2, 2, 2)))),
    ):
        with pytest.raises(RefusedError, match="totals"):
            ask.losses(other)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")
@pytest.mark.parametrize("scale", [1e-200, 1e100, 1e200, -1e200])
def test_whether_absurd_totals_are_refused_does_not_depend_on_the_rows(scale):
    """Where a model follows from them, what cannot be computed counts as the largest loss."""
    P, outcomes = np.eye(5)[:, :2], set()
    released = totals(P)
    bad = replace(released.scatter, second=scale * released.scatter.second)
    for data in (rows(400), (np.zeros((9, 5)), np.zeros(9, int)), (np.ones((9, 5)), np.ones(9))):
        party = one_party(data=data)
        ask = Coordinator(party)
        ask.moments()
        ask.scatter(P)
        try:
            found = open_losses(ask.losses(replace(released, scatter=bad)), party.plan)
        except RefusedError as error:
            outcomes.add(str(error))
        else:
            outcomes.add("losses")
            assert np.all(np.abs(found) <= len(data[1]) + 6 * loss_noise(party.plan))
    assert outcomes in ({"losses"}, {"No model can be learned from these totals."})


def test_what_was_not_agreed_on_is_not_released():
    X, y = rows(200)
    plain = MomentClassifier(privacy=PROMISE, features="identity", classes=[0, 1, 2])
    agreement = Agreement.of(plain, 5, parties=["p0"]).signed(by=KEY)
    ask = Coordinator(party_of("p0", plain, X, y, agreement))
    ask.moments()
    with pytest.raises(RefusedError, match="No scatter"):
        ask.scatter(np.eye(5)[:, :2])
    with pytest.raises(RefusedError, match="No losses"):
        ask.losses(totals(np.eye(5)[:, :2]))


def test_an_agreement_says_how_much_follows():
    agreement = agreed(2)
    assert (agreement.n_directions, agreement.n_losses) == (5, HullClassifier.n_losses)
    assert agreement.plan == wanted().prepare(5)
    for name in ("n_directions", "n_losses"):
        assert replace(agreement, **{name: 1}).digest != agreement.digest
        assert replace(agreement, **{name: 1}).signers(TRUSTED) == ()
    assert Agreement.from_json(agreement.to_json()) == agreement
    assert "5 directions" in agreement.describe()


# ---- what one row adds ---------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32 - 1),
    power=st.floats(-300, 300),
    centred=st.booleans(),
    same=st.booleans(),
)
def test_a_row_moves_the_scatter_within_the_bound_whatever_the_directions(
    seed, power, centred, same
):
    """For any P, with centres or without: by 1 in units of the plan, by √2 when it is replaced."""
    rng = np.random.default_rng(seed)
    plan = plan_moments(PROMISE, 6, 2, n_directions=3)
    P = rng.normal(size=(8 if centred else 6, 3)) * 10.0**power
    Z, Y = rng.normal(size=(5, 6)) * 10.0 ** rng.uniform(-3, 3, (5, 1)), np.eye(2)[[0, 1, 0, 1, 0]]
    whole = sum_scatter(Z, Y, P, plan).astype(object)
    without = sum_scatter(Z[1:], Y[1:], P, plan).astype(object)
    assert _norm(whole - without) <= SQUARE_STEPS
    other, label = -3 * rng.normal(size=(1, 6)), np.eye(2)[[0 if same else 1]]
    replaced = sum_scatter(np.r_[other, Z[1:]], np.r_[label, Y[1:]], P, plan).astype(object)
    assert _norm(whole - replaced) <= np.sqrt(2) * SQUARE_STEPS
    assert plan.scales.scatter < np.inf


def _norm(difference):
    """Frobenius norm over all classes of a difference of sums, in steps."""
    return float(np.sqrt(float((difference * difference).sum())))


@given(st.integers(0, 2**32 - 1))
def test_a_row_moves_the_losses_by_one_step_whatever_they_are(seed):
    rng = np.random.default_rng(seed)
    plan = plan_moments(PROMISE, 6, 2, n_losses=7)
    losses = rng.choice([0.0, 0.3, 1.0, -5.0, 1e300, np.inf, -np.inf, np.nan], (4, 7))
    other = np.r_[rng.choice([0.0, 1.0, np.nan], (1, 7)), losses[1:]]
    whole, without = (sum_losses(part, plan).astype(object) for part in (losses, losses[1:]))
    assert _norm(whole - without) <= SQUARE_STEPS
    assert _norm(whole - sum_losses(other, plan).astype(object)) <= SQUARE_STEPS


def test_shares_add_up_to_the_noise_of_the_plan():
    plan = plan_moments(PROMISE, 6, 2, n_directions=3, n_losses=7)
    P, source = np.eye(6)[:, :3], SeededBits(0)
    zero, none = np.zeros((2, 3, 3), np.int64), np.zeros(7, np.int64)
    scatter, losses, own = [], [], []
    for _ in range(80):
        parts = [scatter_message(zero, 0, plan, 10, source) for _ in range(10)]
        scatter.append(open_scatter(aggregate(parts), P, plan).second)
        own.append(open_scatter(parts[0], P, plan).second)
        parts = [loss_message(none, plan, 10, source) for _ in range(10)]
        losses.append(open_losses(aggregate(parts), plan))
    noise = plan.scales.scatter * plan.radius**2
    diagonal = np.array(scatter)[:, :, [0, 1, 2], [0, 1, 2]]
    off = np.array(scatter)[:, :, [0, 0, 1], [1, 2, 2]]
    width = 6 / np.sqrt(2 * 80 * 6)
    assert np.std(diagonal) / noise == pytest.approx(1, abs=width)
    assert np.std(off) / noise == pytest.approx(np.sqrt(0.5), abs=width)
    assert np.array_equal(scatter, np.swapaxes(scatter, 2, 3))
    assert np.std(losses) / loss_noise(plan) == pytest.approx(1, abs=width)
    one = np.array(own)[:, :, [0, 1, 2], [0, 1, 2]]
    assert np.std(one) / noise < 0.5  # the control: one share is not the noise
