"""Declarations are checked in every combination, and nothing printed lacks its unit."""

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from permea.privacy import (
    Budget,
    BudgetExceededError,
    GaussianNoise,
    Ledger,
    OptimalNoise,
    Privacy,
    StaircaseNoise,
    release,
)

WRONG = {
    "domain is missing": {"epsilon": 1},
    "epsilon must be positive": {"epsilon": 0, "domain": (0, 1)},
    "epsilon must be a finite": {"epsilon": float("inf"), "domain": (0, 1)},
    "delta must lie in": {"epsilon": 1, "delta": 1.0, "domain": (0, 1)},
    "unit must be one of": {"epsilon": 1, "unit": "user", "domain": (0, 1)},
    "mechanism must be one of": {"epsilon": 1, "mechanism": "uniform", "domain": (0, 1)},
    "sampler must be one of": {"epsilon": 1, "sampler": "fast", "domain": (0, 1)},
    "pair": {"epsilon": 1, "domain": (0, 1, 2)},
    "low < high": {"epsilon": 1, "domain": (1, 1)},
    "narrower than 1e-150": {"epsilon": 1, "domain": (0, 1e-320)},
    "different lengths": {"epsilon": 1, "domain": ([0, 0], [1, 1, 1])},
    "finite number per column": {"epsilon": 1, "domain": ([0, np.nan], [1, 1])},
    "bound must be positive": {"epsilon": 1, "domain": (0, 1), "bound": 2},
    "different numbers of columns": {"epsilon": 1, "domain": ([0, 0], [1, 1]), "bound": [1, 1, 1]},
    "bound belongs to unit='entry'": {"epsilon": 1, "unit": "record", "domain": (0, 1), "bound": 1},
    "needs delta > 0": {"epsilon": 1, "domain": (0, 1), "mechanism": "gaussian"},
    "proven for epsilon < 1 per entry": {
        "epsilon": 1,
        "delta": 0.1,
        "domain": (0, 1),
        "mechanism": "classical-gaussian",
    },
    "serves unit='entry' only": {
        "epsilon": 0.5,
        "delta": 0.1,
        "unit": "record",
        "domain": (0, 1),
        "mechanism": "classical-gaussian",
    },
    "'classical-gaussian' needs delta > 0": {
        "epsilon": 0.5,
        "domain": (0, 1),
        "mechanism": "classical-gaussian",
    },
    "staircase": {"epsilon": 1, "delta": 0.1, "domain": (0, 1), "mechanism": "staircase"},
    "clip_norm is a positive": {"epsilon": 1, "domain": (0, 1), "clip_norm": 3},
    "resolution is a whole": {"epsilon": 1, "domain": (0, 1), "resolution": 2.5},
    "resolution must lie": {"epsilon": 1, "domain": (0, 1), "resolution": 1},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_declarations_are_refused_with_a_reason(message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Privacy(**WRONG[message])


def test_wrong_types_are_refused():
    with pytest.raises(TypeError, match="epsilon must be a number"):
        Privacy(epsilon="much", domain=(0, 1))
    with pytest.raises(TypeError, match="one number per column"):
        Privacy(epsilon=1, domain=("a", "b"))


declarations = st.builds(
    lambda epsilon, delta, low, width, unit, p: Privacy(
        epsilon=epsilon, delta=delta, unit=unit,
        domain=(low, low + width) if p == 0 else ([low] * p, [low + width] * p),
    ),
    st.floats(0.01, 100), st.floats(0, 0.5), st.floats(-1e3, 1e3), st.floats(0.1, 1e3),
    st.sampled_from(["entry", "record"]), st.integers(0, 9),
)  # fmt: skip


@settings(deadline=None, derandomize=True)
@given(privacy=declarations)
def test_declarations_survive_json_and_can_be_compared(privacy):
    again = Privacy.from_dict(json.loads(json.dumps(privacy.to_dict())))
    assert again == privacy
    assert hash(again) == hash(privacy)
    assert repr(again) == repr(privacy)


def test_declarations_are_frozen_and_foreign_entries_refused():
    privacy = Privacy(epsilon=1, domain=(0, 1))
    with pytest.raises(AttributeError):
        privacy.epsilon = 2
    with pytest.raises(ValueError, match="Unknown entries"):
        Privacy.from_dict({**privacy.to_dict(), "trust": True})


def test_columns_are_spread():
    privacy = Privacy(epsilon=1, domain=(0, [1, 2, 3]), bound=0.5)
    np.testing.assert_array_equal(privacy.lows(3), [0, 0, 0])
    np.testing.assert_array_equal(privacy.highs(3), [1, 2, 3])
    np.testing.assert_array_equal(privacy.bounds(3), [0.5, 0.5, 0.5])
    assert privacy.n_columns == 3
    assert Privacy(epsilon=1, domain=(0, 1)).n_columns is None


FIGURE = re.compile(r"(ε|δ|epsilon|delta)\s*=\s*[-+0-9.einf]+")
NAMED = re.compile(r"(ε|δ|epsilon|delta)\s*=\s*[-+0-9.einf]+( and delta=[0-9.e-]+)? per ")


def bare_figures(text):
    """Every ε or δ in a text whose number is not followed by its unit."""
    named = {match.start() for match in NAMED.finditer(text)}
    joint = [match.span() for match in NAMED.finditer(text) if match.group(2)]
    return [
        match.group()
        for match in FIGURE.finditer(text)
        if match.start() not in named and not any(a < match.start() < b for a, b in joint)
    ]


def everything_printed():
    for kwargs in (
        {}, {"delta": 1e-5}, {"mechanism": "staircase"}, {"delta": 1e-5, "mechanism": "gaussian"},
        {"unit": "record"}, {"unit": "record", "clip_norm": 2.0}, {"sampler": "float"},
        {"bound": 0.5, "resolution": 64}, {"domain": (np.zeros(9), np.arange(1, 10.0))},
    ):  # fmt: skip
        privacy = Privacy(**{"epsilon": 1.5, "domain": (0, 1), **kwargs})
        ledger = Ledger(Budget(epsilon=2, delta=1e-4, unit=privacy.unit))
        out = release(np.zeros((5, 9)), privacy, ledger=ledger, random_state=1)
        certificate = out.certificate.add_step("smoothed").void("a test")
        yield from (repr(privacy), privacy.describe(), str(certificate), str(ledger))
        yield from (str(event) for event in ledger.events)
        yield from (str(ledger.spent), str(ledger.remaining), repr(ledger.budget))
        with pytest.raises(BudgetExceededError) as error:
            release(np.zeros((5, 9)), privacy, ledger=ledger)
        yield str(error.value)
    for kwargs in WRONG.values():
        with pytest.raises(ValueError, match=r".") as wrong:
            Privacy(**kwargs)
        yield str(wrong.value)
    for noise in (OptimalNoise(1.0), GaussianNoise(2.0, 1e-5), StaircaseNoise(1.0)):
        yield repr(noise)


def test_nothing_printed_lacks_its_unit():
    seen = 0
    for text in everything_printed():
        # Arguments to type in (delta=0 in an error's advice) are not figures of a promise.
        advice = re.sub(r"needs? delta > 0|and delta=0\.|delta=0\b(?! per)", "", text)
        assert bare_figures(advice) == [], text
        seen += len(NAMED.findall(text))
    assert seen > 100


def test_control_a_bare_figure_is_found():
    assert bare_figures("ε = 1 per entry, δ = 1e-05 per entry") == []
    assert bare_figures("ε = 1, δ = 1e-05 per entry") == ["ε = 1"]
    assert bare_figures("epsilon=3") == ["epsilon=3"]
