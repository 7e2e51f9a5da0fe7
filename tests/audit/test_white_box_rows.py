"""The white box on released rows: the likelihood ratio of the declared law of the noise."""

from itertools import count

import numpy as np
import pytest

from permea import Privacy, audit, release
from permea.audit.white_box import RowExperiment

SURE = 1.0 - 1e-6
PROMISES = {
    "Laplace per entry": Privacy(epsilon=1, domain=(0, 1)),
    "Laplace with a point mass": Privacy(epsilon=1, delta=1e-5, domain=(0, 1)),
    "staircase": Privacy(epsilon=1, domain=(0, 1), mechanism="staircase"),
    "a smaller bound": Privacy(epsilon=1, domain=(0, 4), bound=1.0),
    "Laplace per record": Privacy(epsilon=1, domain=((0, 0), (1, 5)), unit="record"),
    "Gaussian per entry": Privacy(epsilon=1, delta=1e-5, domain=(0, 1), mechanism="gaussian"),
    "Gaussian per record, clipped": Privacy(
        epsilon=1, delta=1e-5, domain=(0, 1), mechanism="gaussian", unit="record", clip_norm=0.5
    ),
}


def noised(privacy, *, noise=1.0, clip=True, reuse=1, seed=0):
    """The library's release, with some of its noise, perhaps not clipped, perhaps repeated."""
    numbers = count()

    def made(rows):
        source = np.random.default_rng([seed, next(numbers) // reuse])
        passed = release(rows, privacy, random_state=source).data
        inside = np.clip(rows, *privacy.domain)
        if noise == 1.0 and clip:
            return passed
        return (inside if clip else rows) + noise * (passed - inside)

    return made


@pytest.mark.parametrize("name", PROMISES)
def test_an_honest_release_is_not_refuted_and_its_bound_is_near_the_claim(name):
    privacy = PROMISES[name]
    found = audit.release_epsilon(noised(privacy), privacy=privacy, runs=4000, confidence=0.95)
    assert found.epsilon > 0.5
    assert found.attainable == pytest.approx(1.0, rel=1e-3)
    assert bool(found.assumption) == (privacy.mechanism == "gaussian")
    sure = audit.release_epsilon(noised(privacy), privacy=privacy, runs=2000, confidence=SURE)
    assert not sure.refutes(1.0)


@pytest.mark.parametrize("name", [name for name in PROMISES if "clipped" not in name])
def test_half_the_noise_is_refuted(name):
    privacy = PROMISES[name]
    made = noised(privacy, noise=0.5)
    runs = 6000 if privacy.mechanism == "gaussian" else 4000
    assert audit.empirical_epsilon(made, privacy=privacy, runs=runs, confidence=SURE).refutes(1.0)


@pytest.mark.parametrize("name", ["Laplace per entry", "Gaussian per entry"])
def test_a_missing_clip_and_a_reused_keystream_are_refuted(name):
    privacy = PROMISES[name]
    bare = noised(privacy, clip=False)
    assert audit.release_epsilon(bare, privacy=privacy, runs=6000, confidence=SURE).refutes(1.0)
    again = noised(privacy, reuse=2)
    found = audit.release_epsilon(again, privacy=privacy, runs=800, confidence=SURE)
    assert found.refutes(1.0)
    assert found.seen_by == "comparison of releases"


def test_the_library_is_audited_by_default():
    found = audit.release_epsilon(privacy=PROMISES["Laplace per entry"], runs=400)
    assert (found.method, found.claim, found.unit) == ("white-box", 1.0, "entry")
    assert "says nothing about other rows" in str(found)


def test_the_point_mass_is_part_of_the_law():
    exposed = RowExperiment(None, Privacy(epsilon=1, delta=0.5, domain=(0, 1)))
    bare = np.array([exposed._data[1].clip(0, 1).ravel()])
    assert exposed.log_ratios(bare)[0] > 5  # as it is: almost surely the canary


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "declared domain"),
        ({"method": "white-box", "domain": (0, 1)}, "needs the promise"),
        ({"privacy": PROMISES["Laplace per entry"], "release": lambda rows: rows[:1]}, "shape"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        audit.release_epsilon(**options)
