"""Quantisation on a public scale, and framed messages."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from permea.federation.encryption import (
    DamagedMessageError,
    MismatchError,
    Quantiser,
    infinity_code,
    plain_labels,
)
from permea.federation.encryption.scheme import MAGIC, pack, unpack

BITS = st.integers(2, 16)
DISTANCES = st.lists(st.one_of(st.floats(0.0, 10.0), st.just(np.inf)), min_size=2, max_size=30).map(
    np.array
)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(BITS, DISTANCES)
def test_codes_keep_order_and_lose_less_than_one_step(bits, distances):
    quantiser = Quantiser(bits=bits, high=10.0)
    codes = quantiser.codes(distances)
    order = np.argsort(distances, kind="stable")
    assert (np.diff(codes[order]) >= 0).all()
    assert codes.min() >= 0
    assert codes.max() <= infinity_code(bits)
    assert ((codes == infinity_code(bits)) == np.isinf(distances)).all()
    finite = np.isfinite(distances)
    centre = quantiser.low + (codes[finite] + 0.5) * quantiser.step
    assert (np.abs(distances[finite] - centre) <= quantiser.step * (0.5 + 1e-9)).all()


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.integers(4, 12), st.integers(0, 2**32 - 1))
def test_a_label_differs_only_within_one_step_of_a_tie(bits, seed):
    distances = np.random.default_rng(seed).uniform(0, 10, (3, 40, 5))
    quantiser = Quantiser(bits=bits, high=10.0)
    minima = distances.min(axis=0)
    label = plain_labels(quantiser.codes(distances))
    chosen = np.take_along_axis(minima, label[:, None], axis=1)[:, 0]
    assert (chosen - minima.min(axis=1) < quantiser.step).all()


def test_overflow_is_refused_and_never_shown():
    distances = np.array([0.5, 123.456])
    with pytest.raises(ValueError, match="1 of 2 distances lie outside") as caught:
        Quantiser(bits=8, high=1.0).codes(distances)
    assert "123" not in str(caught.value)


@pytest.mark.parametrize("bad", [np.nan, -np.inf, -0.1])
def test_distances_that_are_none_are_refused(bad):
    with pytest.raises(ValueError, match=r"NaN|outside"):
        Quantiser(bits=8, high=1.0).codes([0.1, bad])


@pytest.mark.parametrize(
    "settings_", [{"bits": 1, "high": 1.0}, {"bits": 8, "high": 0.0}, {"bits": 8, "high": np.inf}]
)
def test_bad_scales_are_refused(settings_):
    with pytest.raises(ValueError, match=r"bits|scale"):
        Quantiser(**settings_)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.lists(st.binary(max_size=50), max_size=4), st.data())
def test_any_altered_byte_of_a_message_is_found(parts, data):
    message = pack("note", {"a": 1}, parts)
    assert unpack(message, "note")[1] == parts
    place = data.draw(st.integers(0, len(message) - 1))
    altered = bytearray(message)
    altered[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedMessageError):
        unpack(bytes(altered), "note")
    with pytest.raises(DamagedMessageError):
        unpack(message[:place], "note")


@pytest.mark.parametrize(
    "text", [b"{", b"[]", b'{"kind": "key"}', b'{"kind": "key", "sizes": [9]}']
)
def test_an_intact_message_with_a_broken_header_is_refused(text):
    body = MAGIC + len(text).to_bytes(4, "big") + text
    with pytest.raises(DamagedMessageError, match=r"header|parts"):
        unpack(body + hashlib.sha256(body).digest(), "key")


def test_a_message_of_another_kind_is_refused():
    with pytest.raises(MismatchError, match="expected a key, got a note"):
        unpack(pack("note", {}, []), "key")
    with pytest.raises(TypeError, match="bytes"):
        unpack("text", "key")  # type: ignore[arg-type]
