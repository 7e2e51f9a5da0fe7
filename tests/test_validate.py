"""Declared parameters: what is accepted, how declarations merge, and what an error says."""

import math
from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from permea import KAHMClassifier, KernelAffineHullMachine, Privacy
from permea._validate import (
    accepted,
    boolean,
    has,
    instance,
    jobs,
    number,
    one_of,
    random_state,
    validate_parameters,
    whole,
)


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        (whole(1), [1, np.int64(7)], [0, 1.0, True, "1", None, np.array([1, 2])]),
        (whole(0, 3), [0, 3], [4]),
        (number(above=0), [1e-9, 2, np.float32(1)], [0, math.inf, math.nan, False, "1", None]),
        (number(least=0), [0, 0.5], [-1e-9]),
        (number(above=0, most=1), [1, 0.5], [0.0, 1.1]),
        (whole(1) | number(above=0, most=1), [4, 0.5], [0, 1.5]),
        (one_of("a", "b"), ["a"], ["c", None, ["a"], np.array(["a", "b"])]),
        (boolean, [True, np.False_], [0, 1, None]),
        (has("fit") | None, [KernelAffineHullMachine(), None], ["fit", 3]),
        (instance(Privacy) | None, [Privacy(epsilon=1, domain=(0, 1)), None], [1.0]),
        (jobs, [None, -1, 4], [1.5, "2"]),
        (random_state, [None, 0, np.random.RandomState(0)], [-1, 2**32, 0.5]),
    ],
)
def test_what_a_rule_accepts(rule, right, wrong):
    assert all(rule.test(value) for value in right)
    assert not any(rule.test(value) for value in wrong)


class Base(BaseEstimator):
    _parameters: ClassVar = {"size": whole(1), "name": one_of("a")}

    def __init__(self, size=1, name="a"):
        self.size = size
        self.name = name


class Derived(Base):
    _parameters: ClassVar = {"size": whole(10)}


def test_declarations_of_bases_count_and_the_derived_class_decides():
    assert set(accepted(Derived)) == {"size", "name"}
    validate_parameters(Base(size=1))
    with pytest.raises(ValueError, match=r"^Derived: size must be a whole number of at least 10"):
        validate_parameters(Derived(size=1))
    with pytest.raises(TypeError, match=r"^Derived: name must be 'a'; got 'b'.$"):
        validate_parameters(Derived(size=10, name="b"))


def test_a_message_names_all_that_is_accepted():
    with pytest.raises(
        ValueError,
        match=r"^KAHMClassifier: branch_size must be a whole number of at least 1 or 'auto'; got 0",
    ):
        KAHMClassifier(branch_size=0).fit([[0.0], [1.0]], [0, 1])


def test_a_message_never_quotes_an_object():
    with pytest.raises(ValueError, match=r"got an object of type ndarray.$") as error:
        KAHMClassifier(privacy=np.array([12345.0])).fit([[0.0], [1.0]], [0, 1])
    assert "12345" not in str(error.value)
