"""One model over real processes: SuperLink, parties with rows, a reader of sums, TLS and keys."""

import json

import numpy as np
import pytest
from flower_world import make_training_trial
from scipy.stats import chi2

pytest.importorskip("flwr")
pytest.importorskip("seal")

from permea.cli.app import run
from permea.federation import MissingPartiesWarning, PartyTimeoutError
from permea.federation.flower.moments import FlowerMoments
from permea.federation.service.deploy import PartyNode
from permea.federation.service.training import Wanted, train
from permea.privacy import Ledger
from permea.privacy.moments import MomentNoise, add_noise, moments_from_steps
from permea.storage import load

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(600)]


def rows(n, p, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    length = 0.05 + 0.1 * np.eye(2, p)[y]
    return np.clip(0.4 + 0.2 * y[:, None] + length * rng.normal(size=(n, p)), 0, 1), y


def shares_of(X, y, n):
    return {f"p{i}": (X[i::n], y[i::n]) for i in range(n)}


class Crash(BaseException):
    """The end of the server, at a moment that a test chooses."""


def train_until(stage, config, monkeypatch):
    """Train, and let the server end when a stage was answered, before its total is opened."""
    inherited = FlowerMoments.ask

    def ask(self, question, *rest):
        found = inherited(self, question, *rest)
        if question.stage == stage:
            raise Crash
        return found

    with monkeypatch.context() as patch:
        patch.setattr(FlowerMoments, "ask", ask)
        with pytest.raises(Crash):
            train(config, wait=300)


def charges(folder, name, agreement):
    """Rounds of an agreement in the ledger of a party."""
    events = Ledger(folder / f"{name}-ledger.db").events
    return [event for event in events if agreement.digest in event.description]


def test_the_server_ends_in_the_middle_a_party_leaves_and_the_round_is_finished(
    tmp_path, monkeypatch, capsys
):
    """Four stages over the network; what was charged is not charged again, nor drawn again."""
    X, y = rows(1500, 4)
    shares = shares_of(X, y, 3)
    agreement = make_training_trial(
        tmp_path, shares, learn="hulls", more="n_directions = 4", epsilon=20,
        noise_shares=2, least_parties=2,
    )  # fmt: skip
    config = tmp_path / "federation.toml"
    nodes = {name: PartyNode(tmp_path / f"{name}.toml") for name in [*shares, "reader"]}
    try:
        for node in nodes.values():  # nobody is there yet: they wait for the aggregator
            node.start()
        train_until("moments", config, monkeypatch)
        assert [len(charges(tmp_path, name, agreement)) for name in shares] == [1, 1, 1]
        nodes["p2"].stop(kill=True)
        output = str(tmp_path / "model.permea")
        told = run(["federate", "train", "--config", str(config), "-o", output, "--json"])
        assert told == 0
    finally:
        for node in nodes.values():
            node.stop()
    said = json.loads(capsys.readouterr().out)
    assert said["resumed"]
    assert set(said["missing"]) == {"p2"}
    assert [len(charges(tmp_path, name, agreement)) for name in shares] == [1, 1, 1]
    assert not list((tmp_path / "state" / "training").iterdir())  # the round is over

    model = load(tmp_path / "model.permea")
    assert model.score(X, y) > 0.95
    assert model.certificate_.is_private
    assert "2 parties added shares of the noise sized for 2" in str(model.certificate_)

    server, reader = said["seen"]["server"], said["seen"]["reader"]
    assert [line.split(":")[0] for line in reader] == ["moments", "scatter", "losses"]
    assert all("1 ciphertext" in line and "total of 2 parties" in line for line in reader)
    assert sum("2 ciphertexts" in line for line in server) == 3


@pytest.mark.slow
def test_ten_parties_two_drop_out_and_the_noise_is_that_of_one_owner(tmp_path, monkeypatch):
    """Exact sums of the eight that stayed, plus noise of the agreed law: nothing else is in it."""
    X, y = rows(4000, 12)
    shares = shares_of(X, y, 10)
    agreement = make_training_trial(
        tmp_path, shares, learn="classifier", noise_shares=8, least_parties=8
    )
    nodes = {name: PartyNode(tmp_path / f"{name}.toml").start() for name in [*shares, "reader"]}
    try:
        train_until("moments", tmp_path / "federation.toml", monkeypatch)
        for name in ("p3", "p7"):
            nodes[name].stop(kill=True)
        with pytest.warns(MissingPartiesWarning):
            done = train(tmp_path / "federation.toml", wait=300)
        nodes["p5"].stop(kill=True)
        with pytest.raises(PartyTimeoutError, match="of 8 parties are connected"):
            train(tmp_path / "federation.toml", wait=15)
    finally:
        for node in nodes.values():
            node.stop()
    assert set(done.missing) == {"p3", "p7"}
    for role, lines in done.seen.items():
        print(f"what {role} saw:", *lines, sep="\n  ")
    assert [len(charges(tmp_path, name, agreement)) for name in shares] == [1] * 10

    kept = np.concatenate([np.arange(i, len(X), 10) for i in range(10) if i not in (3, 7)])
    wanted = Wanted.from_file(tmp_path / "training.toml").estimator
    plan = wanted.prepare(agreement.n_columns, 1)
    released = done.model.moments_
    sums = wanted.moment_sums(X[kept], y[kept], done.model.mean_, plan)
    exact = moments_from_steps(add_noise(sums, MomentNoise(0, 0, 0), plan), plan)
    assert released.size == len(kept)
    assert released.second_noise == pytest.approx(plan.scales.second * plan.radius**2)
    assert released.cross_noise == pytest.approx(plan.scales.cross * plan.radius)
    deviation = np.where(np.eye(12), 1, np.sqrt(0.5)) * released.second_noise
    z = ((released.second - exact.second) / deviation)[np.triu_indices(12)]
    z = np.append(z, (released.cross - exact.cross) / released.cross_noise)
    assert 1e-6 < chi2.cdf(np.sum(z**2), len(z)) < 1 - 1e-6
