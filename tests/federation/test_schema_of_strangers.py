"""Schemas that come over the network: a clear refusal for everything that is none."""

import pytest

from permea.federation.errors import SchemaError
from permea.federation.schema import Schema

RIGHT = {"n_features": 2, "classes": [0, 1], "feature_names": None, "domain": [0.0, 1.0]}


def test_a_right_one_is_read():
    assert Schema.from_dict(RIGHT).diameter == pytest.approx(2**0.5)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_features": float("inf")}, {"n_features": 10**400}, {"n_features": "2"},
        {"n_features": 2.5}, {"n_features": 0}, {"n_features": -3},
        {"classes": "yes"}, {"classes": [float("nan"), 1]}, {"classes": [float("inf")]},
        {"classes": [[1], 2]}, {"classes": [None]}, {"classes": ["x" * 5000]}, {"classes": [{}]},
        {"classes": 10**400},
        {"feature_names": "ab"}, {"feature_names": ["a"]}, {"feature_names": 7},
        {"domain": [0.0, float("nan")]}, {"domain": [0.0, float("inf")]}, {"domain": [1.0, 0.0]},
        {"domain": [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]}, {"domain": [0.0]}, {"domain": "ab"},
        {"domain": [10**400, 1]}, {"domain": [[], []]}, {"domain": [[[0]], 1]},
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_words(changes):
    with pytest.raises(SchemaError):
        Schema.from_dict({**RIGHT, **changes})


@pytest.mark.parametrize("values", [None, [], "schema", 7, {}, {"n_features": 2}])
def test_what_is_not_even_a_table_is_refused(values):
    with pytest.raises(SchemaError):
        Schema.from_dict(values)
