"""Ten parties add up their moments: the same model as if their rows lay in one house."""

from dataclasses import replace

import numpy as np
import pytest

from permea import MomentClassifier, MomentRegressor
from permea.federation import (
    Agreement,
    Federation,
    FederationError,
    MissingPartiesWarning,
    MomentFederation,
    MomentParty,
    SchemaError,
)
from permea.federation.encryption import MismatchError
from permea.federation.encryption.engine import (
    FLOOD_BITS,
    SPARE_BITS,
    context_of,
    import_seal,
    load_ciphertext,
)
from permea.federation.encryption.scheme import unpack
from permea.federation.encryption.secure_sum import SecureSum
from permea.federation.messages import (
    DropOutError,
    add_released,
    aggregate,
    mean_message,
    moment_message,
    open_mean,
    open_moments,
)
from permea.models.features import RandomFourier
from permea.models.linear import ridge
from permea.privacy import Budget, Ledger, Privacy
from permea.privacy.moments import (
    ChargedMoments,
    MeanNoise,
    MomentNoise,
    add_noise,
    mean_from_steps,
    mean_noise,
    moment_noise,
    moments_from_steps,
    noised_mean_steps,
    plan_moments,
    sum_features,
    sum_moments,
)
from permea.privacy.release import Release
from permea.privacy.sampling import SeededBits
from permea.privacy.signing import SigningKey, TrustedKeys

KEY = SigningKey.generate("committee")
TRUSTED = TrustedKeys([KEY.public])
PROMISE = Privacy(epsilon=1.0, delta=1e-5, unit="record", domain=(0, 1))


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(5000, 12)) / 6
    labels = (phi @ rng.normal(size=(12, 3))).argmax(axis=1)
    return phi, np.eye(3)[labels], np.array_split(rng.permutation(5000), 10)


@pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
def test_ten_parties_equal_one_house(world, neighbours):
    phi, Y, parties = world
    plan = plan_moments(PROMISE, 12, 3, neighbours=neighbours)
    first = [
        mean_message(sum_features(phi[rows], plan), plan, 10, SeededBits(i))
        for i, rows in enumerate(parties)
    ]
    mean = open_mean(aggregate(first), plan)
    sums = [sum_moments(phi[rows] - mean, Y[rows], plan) for rows in parties]
    second = [moment_message(s, plan, 10, SeededBits(100 + i)) for i, s in enumerate(sums)]
    federated = open_moments(aggregate(second), plan)

    # one house with the same total noise
    noise = moment_noise(plan, SeededBits(100), shares=10)
    for i in range(1, 10):
        noise = noise + moment_noise(plan, SeededBits(100 + i), shares=10)
    whole = sum_moments(phi - mean, Y, plan)
    central = moments_from_steps(add_noise(whole, noise, plan), plan)
    for name in ("second", "cross", "total", "outputs", "size", "second_noise"):
        assert np.array_equal(getattr(federated, name), getattr(central, name))
    assert np.array_equal(ridge(federated).weights, ridge(central).weights)


def test_the_total_carries_one_noise_and_fully_noised_parties_carry_more(world):
    phi, Y, parties = world
    plan = plan_moments(PROMISE, 12, 3)
    mean = phi.mean(axis=0)
    exact = moments_from_steps(
        add_noise(sum_moments(phi - mean, Y, plan), _no_noise(plan), plan), plan
    )
    together, apart = [], []
    for trial in range(40):
        messages, released = [], []
        for i, rows in enumerate(parties):
            sums = sum_moments(phi[rows] - mean, Y[rows], plan)
            bits = SeededBits(1000 * trial + i)
            messages.append(moment_message(sums, plan, 10, bits))
            released.append(
                moments_from_steps(add_noise(sums, moment_noise(plan, bits), plan), plan)
            )
        together.append(open_moments(aggregate(messages), plan).cross - exact.cross)
        apart.append(add_released(released).cross - exact.cross)
    deviation = plan.scales.cross * plan.radius
    width = 6 / np.sqrt(2 * 40 * 36)
    assert np.std(together) / deviation == pytest.approx(1, abs=width)
    assert np.std(apart) / (deviation * np.sqrt(10)) == pytest.approx(1, abs=width)
    assert add_released(released).cross_noise == pytest.approx(deviation * np.sqrt(10))


def test_drop_outs_within_the_shares_are_borne_and_beyond_them_fail(world):
    phi, Y, parties = world
    plan = plan_moments(PROMISE, 12, 3)
    messages = [
        moment_message(sum_moments(phi[rows], Y[rows], plan), plan, 8, SeededBits(i))
        for i, rows in enumerate(parties)
    ]
    left = open_moments(aggregate(messages[:8]), plan)
    assert left.size == sum(len(rows) for rows in parties[:8])
    with pytest.raises(DropOutError, match="7 of at least 8"):
        aggregate(messages[:7])
    with pytest.raises(DropOutError):
        add_released([])
    with pytest.raises(ValueError, match="different numbers of parties"):
        aggregate([messages[0], replace(messages[1], needed=2)])
    with pytest.raises(DropOutError, match="8 of at least 9"):
        aggregate(messages[:8], least=9)
    with pytest.raises(DropOutError, match="No party"):
        aggregate([])
    for change in ({"agreement": "other"}, {"round_id": "other"}):
        with pytest.raises(ValueError, match="different agreements or rounds"):
            aggregate([*messages[:9], replace(messages[9], **change)])
    with pytest.raises(ValueError, match="different lengths"):
        aggregate([replace(m, needed=1, values=m.values[i:]) for i, m in enumerate(messages[:2])])


def test_a_single_party_is_the_centralised_release(world):
    phi, Y, _ = world
    plan = plan_moments(PROMISE, 12, 3)
    wall = ChargedMoments(plan, random_state=3)
    mean = wall.release_mean(sum_features(phi, plan))
    central = wall.release(sum_moments(phi - mean, Y, plan)).moments
    bits = SeededBits(3)
    alone = open_mean(aggregate([mean_message(sum_features(phi, plan), plan, 1, bits)]), plan)
    assert np.array_equal(alone, mean)
    sums = sum_moments(phi - mean, Y, plan)
    again = open_moments(aggregate([moment_message(sums, plan, 1, bits)]), plan)
    assert np.array_equal(again.second, central.second)


def _no_noise(plan):
    D, C = plan.n_features, plan.n_outputs
    shapes = (D, D), (D, C), (plan.n_counts,)
    return MomentNoise(*(np.zeros(shape, dtype=np.int64) for shape in shapes))


# ---- through a federation --------------------------------------------------------------------


def rows(n=2000, p=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, p))
    return X, (X @ rng.normal(size=(p, 3))).argmax(axis=1)


def wanted(**options):
    options = {"privacy": PROMISE, "features": "identity", "classes": [0, 1, 2], **options}
    return MomentClassifier(**options)


def agreed(estimator, p, n, **terms):
    """What n parties p0, p1, … agreed on, signed."""
    names = [f"p{i}" for i in range(n)]
    return Agreement.of(estimator, p, parties=names, **terms).signed(by=KEY)


def party_of(name, estimator, X, y, agreement, kind=MomentParty, ledger=None):
    ledger = Ledger() if ledger is None else ledger
    return kind(
        name, estimator, X, y, agreement=agreement, trusted=TRUSTED, ledger=ledger, dataset=name
    )


def parties_of(X, y, n=10, kind=MomentParty, estimator=wanted, terms=None, **options):
    targets = y.shape[1] if y.ndim == 2 else 1
    agreement = agreed(
        estimator(**options), X.shape[1], n, n_targets=targets, **{"rounds": 3, **(terms or {})}
    )
    return [
        party_of(
            f"p{i}", estimator(random_state=i, **options), X[i::n], y[i::n], agreement, kind=kind
        )
        for i in range(n)
    ]


class Leaving(MomentParty):
    """A party that does not answer the rounds named in ``absent``."""

    absent = ()

    def mean_message(self, *args, **terms):
        if "mean" in self.absent:
            raise ConnectionError("gone")
        return super().mean_message(*args, **terms)

    def moment_message(self, *args, **terms):
        if "moments" in self.absent:
            raise ConnectionError("gone")
        return super().moment_message(*args, **terms)


def centralised(X, y, shares, seeds, **options):
    """One house with all rows and the noise whose shares the parties drew."""
    estimator = wanted(**options)
    plan = estimator.prepare(X.shape[1])
    sources = [SeededBits(seed) for seed in seeds]
    first = [mean_noise(plan, source, shares=shares) for source in sources]
    noise = MeanNoise(sum(n.features for n in first), sum(n.size for n in first))
    mean = mean_from_steps(noised_mean_steps(estimator.feature_sums(X, plan), noise, plan), plan)
    second = [moment_noise(plan, source, shares=shares) for source in sources]
    total = second[0]
    for part in second[1:]:
        total = total + part
    exact = estimator.moment_sums(X, y, mean, plan)
    moments = moments_from_steps(add_noise(exact, total, plan), plan)
    return estimator.learn(Release(moments=moments, mean=mean))


@pytest.mark.parametrize("neighbours", ["replace", "add/remove"])
def test_a_federation_of_ten_learns_the_centralised_model(neighbours):
    X, y = rows()
    model = MomentFederation(parties_of(X, y, neighbours=neighbours)).fit()
    house = centralised(X, y, 10, range(10), neighbours=neighbours)
    assert np.array_equal(model.mean_, house.mean_)
    assert np.array_equal(model.moments_.second, house.moments_.second)
    assert np.array_equal(model.moments_.cross, house.moments_.cross)
    # equal numbers in, equal numbers out, to the last bit
    assert np.array_equal(model.model_.weights, house.model_.weights)
    assert np.array_equal(model.predict(X), house.predict(X))
    assert "shares of the noise" in str(model.certificate_)
    assert model.certificate_.seeded
    assert not model.holds_private_rows_


def test_without_seeds_the_certificate_is_private_and_each_ledger_pays_once():
    X, y = rows()
    agreement = agreed(wanted(), X.shape[1], 4, rounds=5)
    ledgers = [Ledger(Budget(epsilon=1.0, delta=1e-5, unit="record")) for _ in range(4)]
    federation = MomentFederation(
        [
            party_of(f"p{i}", wanted(), X[i::4], y[i::4], agreement, ledger=ledger)
            for i, ledger in enumerate(ledgers)
        ]
    )
    model = federation.fit()
    assert model.certificate_.is_private
    assert model.certificate_.n_rows == len(X)
    assert agreement.digest in str(model.certificate_.steps)
    assert [len(ledger) for ledger in ledgers] == [1, 1, 1, 1]
    with pytest.raises(DropOutError, match="BudgetExceededError"):
        federation.fit()  # the next model would cost more than the owners allow
    assert [len(ledger) for ledger in ledgers] == [1, 1, 1, 1]


def test_parties_that_trust_nobody_carry_more_noise():
    X, y = rows()
    own = MomentFederation(parties_of(X, y, terms={"noise": "own"})).fit()
    shared = MomentFederation(parties_of(X, y)).fit()
    ratio = own.moments_.second_noise / shared.moments_.second_noise
    assert ratio == pytest.approx(np.sqrt(10))
    assert own.moments_.size == shared.moments_.size == len(X)
    assert "each on its own" in str(own.certificate_)
    assert "learn no more" in str(own.certificate_)


@pytest.mark.parametrize("noise", ["shared", "own"])
@pytest.mark.parametrize("when", ["mean", "moments"])
def test_drop_outs_are_borne_by_the_agreement_or_fail_loudly(noise, when):
    X, y = rows()
    strict = parties_of(X, y, kind=Leaving, terms={"noise": noise})
    lenient = parties_of(X, y, kind=Leaving, terms={"noise": noise, "least_parties": 8})
    for party in [*strict[8:], *lenient[8:]]:
        party.absent = (when,)
    with pytest.raises(DropOutError, match="8 of at least 10 parties replied"):
        MomentFederation(strict).fit()
    with pytest.warns(MissingPartiesWarning, match="p8: ConnectionError"):
        model = MomentFederation(lenient).fit()
    assert model.moments_.size == sum(len(X[i::10]) for i in range(8))
    with pytest.raises(DropOutError, match="8 of at least 9"):
        MomentFederation(lenient, quorum=9).fit()  # a federation may ask for more, not for less
    lenient[0].absent = (when,)
    with pytest.raises(DropOutError, match="7 of at least 8"):
        MomentFederation(lenient, quorum=2).fit()


def test_shares_for_eight_suffice_when_eight_answer_and_are_too_much_when_ten_do():
    X, y = rows()
    plan = wanted().prepare(X.shape[1])
    one = plan.scales.second * plan.radius**2
    parties = parties_of(X, y, kind=Leaving, terms={"least_parties": 8})
    everybody = MomentFederation(parties).fit()
    assert everybody.moments_.second_noise == pytest.approx(one * np.sqrt(10 / 8))
    assert "up to 2 colluding parties" in str(everybody.certificate_.steps)
    for party in parties[8:]:
        party.absent = ("mean",)
    with pytest.warns(MissingPartiesWarning):
        eight = MomentFederation(parties).fit()
    assert eight.moments_.second_noise == pytest.approx(one)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"radius": 0.3}, "radius"),
        ({"features": RandomFourier(n_frequencies=4, seed=1)}, "features"),
        ({"classes": [0, 1, 2, 3]}, "classes"),
        ({"privacy": replace(PROMISE, epsilon=2.0)}, "privacy"),
        ({"privacy": replace(PROMISE, domain=(0, 2))}, "privacy"),
        ({"neighbours": "add/remove"}, "neighbours"),
        ({"split": (0.1, 0.4, 0.4, 0.1)}, "split"),
        ({"strength": 0.3}, "settings"),
    ],
)
def test_parties_must_want_what_was_agreed_on(change, field):
    X, y = rows(100)
    agreement = agreed(wanted(), X.shape[1], 2)
    with pytest.raises(SchemaError, match=f"differ in .*{field}"):
        party_of("p0", wanted(**change), X, y, agreement)
    one = party_of("p0", wanted(), X, y, agreement)
    other = party_of("p1", wanted(**change), X, y, agreed(wanted(**change), X.shape[1], 2))
    with pytest.raises(SchemaError, match=f"different agreements.*{field}|declared domain"):
        MomentFederation([one, other]).fit()


def test_what_a_party_of_moments_refuses():
    X, y = rows(100)
    agreement = agreed(wanted(), X.shape[1], 2)
    with pytest.raises(ValueError, match="privacy="):
        party_of("p0", wanted(privacy=None), X, y, agreement)
    with pytest.raises(ValueError, match="classes"):
        party_of("p0", wanted(classes=None), X, y, agreement)
    with pytest.raises(ValueError, match="as many rows"):
        party_of("p0", wanted(), X, y[:3], agreement)
    with pytest.raises(ValueError, match="matrix of numbers") as caught:
        party_of("p0", wanted(), [["Smith"]], y[:1], agreement)
    assert "Smith" not in str(caught.value)
    with pytest.raises(TypeError, match="use MomentFederation"):
        Federation(parties_of(X, y, 2))
    from federation_world import plain_party

    with pytest.raises(FederationError, match="MomentParty"):
        MomentFederation([plain_party("a", X, y)])


def test_regressors_federate_too():
    X, _ = rows(3000)
    y = 3 * X[:, 0] - X[:, 1]
    promise = replace(PROMISE, epsilon=8.0)

    def regressor(**options):
        return MomentRegressor(
            privacy=promise, features="identity", output_domain=(-1, 3), **options
        )

    parties = parties_of(X, y, 3, estimator=regressor)
    model = MomentFederation(parties).fit()
    assert model.score(X, y) > 0.9
    assert model.predict(X[:5]).shape == (5,)
    both = parties_of(X, np.column_stack([y, -y]), 3, estimator=regressor, terms={"noise": "own"})
    assert MomentFederation(both).fit().predict(X[:5]).shape == (5, 2)


class TestSecureSum:
    """Additive encryption: exact sums, and nothing but sums."""

    def test_sums_are_exact_modulo_two_to_the_64(self):
        rng = np.random.default_rng(0)
        values = rng.integers(-(2**63), 2**63 - 1, size=(5, 5000), dtype=np.int64)
        scheme = SecureSum(n_parties=5, n_values=5000)  # two ciphertexts each
        secret, public = scheme.keygen()
        sent = [scheme.encrypt(public, row, i) for i, row in enumerate(values)]
        with np.errstate(over="ignore"):
            expected = values.sum(axis=0)
        assert np.array_equal(scheme.decrypt(secret, scheme.aggregate(public, sent)), expected)

    def test_the_noise_of_summands_is_flooded(self):
        """Before flooding 55 bits more budget are left than after: their noise cannot be seen."""
        scheme = SecureSum(n_parties=40, n_values=10)
        secret, public = scheme.keygen()
        sent = [scheme.encrypt(public, np.arange(10), i) for i in range(40)]
        seal, context = import_seal(), context_of(scheme.parameters)
        reader = seal.Decryptor(context, context.from_secret_str(secret.parts[0]))
        terms = [load_ciphertext(context, unpack(m, "summand")[1][0]) for m in sent]
        before = reader.invariant_noise_budget(seal.Evaluator(context).add_many(terms))
        total = unpack(scheme.aggregate(public, sent), "sum")[1][0]
        after = reader.invariant_noise_budget(load_ciphertext(context, total))
        assert before >= FLOOD_BITS + SPARE_BITS
        assert 1 <= after <= SPARE_BITS + 1
        bits = (scheme.parameters.n_primes + 1) * scheme.parameters.prime_bits
        assert bits <= seal.CoeffModulus.MaxBitCount(8192, seal.sec_level_type.tc128)

    def test_what_does_not_belong_is_refused(self):
        scheme = SecureSum(n_parties=2, n_values=4)
        (secret, public), (stranger, other) = scheme.keygen(), scheme.keygen()
        values = np.arange(4)
        one, two = (scheme.encrypt(public, values, i) for i in range(2))
        foreign = scheme.encrypt(other, values, 1)
        total = scheme.aggregate(public, [one, two])
        for summands, text in [
            ([one, one], "twice"),
            ([one, foreign], "one key for all"),
            ([], "no party"),
        ]:
            with pytest.raises(MismatchError, match=text):
                scheme.aggregate(public, summands)
        with pytest.raises(MismatchError, match="one key for all"):
            scheme.decrypt(stranger, total)
        with pytest.raises(MismatchError, match="keys for this sum"):
            SecureSum(n_parties=3, n_values=4).encrypt(public, values, 0)
        with pytest.raises(ValueError, match="whole numbers"):
            scheme.encrypt(public, values[:3], 0)
        with pytest.raises(ValueError, match="at least one value"):
            SecureSum(n_parties=2, n_values=0)
        assert np.array_equal(scheme.decrypt(secret, total), 2 * values)
