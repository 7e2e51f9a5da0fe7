"""A new law of noise is one class and one entry in ``MECHANISMS``; everything else works on it."""

import inspect
import math
from fractions import Fraction

import numpy as np
import pytest

from permea import Budget, KAHMClassifier, Ledger, Privacy, audit, release
from permea.cli.app import run
from permea.privacy.noise import MECHANISMS, Noise
from permea.privacy.release import plan
from permea.privacy.sampling import bit_source, discrete_laplace, uniform_below


class BlurredLaplace(Noise):
    """Laplace noise and an independent uniform number: after the first, the second is free."""

    name = "blurred"
    description = "Laplace, blurred by a uniform number"

    def expected_magnitude(self):
        scale, half = self.bound / self.epsilon, self.bound / 2
        return half / 2 - scale**2 / half * math.expm1(-half / scale)

    def variance(self):
        return 2 * (self.bound / self.epsilon) ** 2 + self.bound**2 / 12

    def sample_steps(self, size, sensitivity, source):
        laplace = discrete_laplace(Fraction(self.epsilon) / sensitivity, size, source)
        return laplace + uniform_below(sensitivity + 1, size, source) - sensitivity // 2


class QuarterOfTheNoise(BlurredLaplace):
    """The control: it claims ε and loses four times as much."""

    name = "quarter"

    def sample_steps(self, size, sensitivity, source):
        return super().sample_steps(size, sensitivity // 4, source)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for law in (BlurredLaplace, QuarterOfTheNoise):
        monkeypatch.setitem(MECHANISMS, law.name, law)


@pytest.fixture
def promise():
    return Privacy(epsilon=4, domain=(0, 1), mechanism="blurred")


def test_its_samples_have_its_moments(promise):
    steps = plan(promise, 1).sample(200_000, bit_source(0)) / promise.steps
    law = BlurredLaplace(4)
    assert np.abs(steps).mean() == pytest.approx(law.expected_magnitude(), rel=0.02)
    assert steps.var() == pytest.approx(law.variance(), rel=0.03)


def test_a_release_has_a_certificate_and_is_charged(promise):
    ledger = Ledger(Budget(epsilon=6, delta=0, unit="entry"))
    made = release(np.full((50, 3), 0.5), promise, ledger=ledger)
    assert made.certificate.is_private
    assert made.certificate.record_epsilon == 12  # three entries; nothing but ε is known of the law
    assert "Laplace, blurred by a uniform number" in str(made.certificate)
    assert ledger.spent.epsilon == 4


def test_classifiers_learn_from_it(digits, promise):
    X_train, X_test, y_train, y_test = digits
    clf = KAHMClassifier(privacy=promise, random_state=0).fit(X_train, y_train)
    assert clf.score(X_test, y_test) > 0.8


def test_the_audit_believes_it_and_refutes_the_control(promise):
    honest = audit.release_epsilon(privacy=promise, runs=4000, random_state=0)
    assert honest.epsilon <= promise.epsilon
    control = Privacy(epsilon=1, domain=(0, 1), mechanism="quarter")
    assert audit.release_epsilon(privacy=control, runs=4000, random_state=0).epsilon > 1


def test_it_protects_entries_without_delta_only():
    with pytest.raises(ValueError, match="mechanism='blurred' is for unit='entry' and delta=0"):
        Privacy(epsilon=1, unit="record", domain=(0, 1), mechanism="blurred")


FILE = f"""import math
from fractions import Fraction
from permea.privacy.noise import MECHANISMS, Noise
from permea.privacy.sampling import discrete_laplace, uniform_below

{inspect.getsource(BlurredLaplace)}

MECHANISMS["blurred"] = BlurredLaplace
"""


def test_the_command_line_offers_it(tmp_path, capsys, monkeypatch):
    """One file of the user's own that the command line imports."""
    monkeypatch.delitem(MECHANISMS, "blurred")
    table = tmp_path / "rows.csv"
    rows = np.random.default_rng(0).random((40, 2)).round(3)
    table.write_text("a,b,kind\n" + "".join(f"{a},{b},{int(a > 0.5)}\n" for a, b in rows))
    where = tmp_path / "model.permea"
    words = f"train {table} --label kind --epsilon 4 --domain 0 1 --output {where}"
    assert run([*words.split(), "--mechanism", "blurred"]) == 2
    assert "'optimal', 'gaussian', 'classical-gaussian', 'staircase'" in capsys.readouterr().err
    (tmp_path / "toy_noise_file.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PERMEA_FAMILIES", "toy_noise_file")
    assert run([*words.split(), "--mechanism", "blurred"]) == 0
    assert "blurred" in capsys.readouterr().out
