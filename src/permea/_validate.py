"""Checks of estimator parameters against what their classes declare.

A class lists what each of its parameters accepts and calls `validate_parameters` in ``fit``::

    _parameters: ClassVar[Accepted] = {
        "n_components": whole(1),
        "tol": number(above=0),
        "model": has("fit", "distance") | None,
    }
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np


class ParameterError(ValueError, TypeError):
    """A parameter has a value that its estimator does not accept."""


@dataclass(frozen=True)
class Accepts:
    """A set of values: a test, and its description for error messages."""

    test: Callable[[Any], bool]
    text: str

    def __or__(self, other: "Accepts | None") -> "Accepts":
        """Accept what either of the two accepts; None stands for the value None."""
        second = Accepts(lambda value: value is None, "None") if other is None else other
        return Accepts(
            lambda value: self.test(value) or second.test(value), f"{self.text} or {second.text}"
        )


Accepted = dict[str, Accepts]


def whole(least: int, most: int | None = None) -> Accepts:
    """Whole numbers from ``least`` to ``most``.

    Examples
    --------
    >>> whole(1).test(3), whole(1).test(0), whole(1).test(True)
    (True, False, False)
    """
    top = math.inf if most is None else most
    return Accepts(
        lambda value: _is_a(Integral, value) and least <= value <= top,
        f"a whole number of at least {least}" + ("" if most is None else f" and at most {most}"),
    )


def number(
    *, above: float = -math.inf, least: float = -math.inf, most: float = math.inf
) -> Accepts:
    """Finite numbers within bounds, of which ``above`` itself is excluded.

    Examples
    --------
    >>> number(above=0, most=1).text
    'a number above 0 and at most 1'
    """
    bounds = {"above": above, "of at least": least, "at most": most}
    stated = [f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound)]
    return Accepts(
        lambda value: (
            _is_a(Real, value) and math.isfinite(value) and above < value and least <= value <= most
        ),
        " ".join(["a number", " and ".join(stated)]),
    )


def one_of(*names: str) -> Accepts:
    """One of some strings."""
    return Accepts(
        lambda value: isinstance(value, str) and value in names, " or ".join(map(repr, names))
    )


def has(*methods: str) -> Accepts:
    """An object with some methods."""
    return Accepts(
        lambda value: all(callable(getattr(value, name, None)) for name in methods),
        f"an object with the methods {', '.join(methods)}",
    )


def instance(*types: type) -> Accepts:
    """An object of one of some types.

    Examples
    --------
    >>> instance(str, bytes).text
    'an object of type str or bytes'
    """
    return Accepts(
        lambda value: isinstance(value, types),
        f"an object of type {' or '.join(kind.__name__ for kind in types)}",
    )


infinity = Accepts(lambda value: _is_a(Real, value) and value == math.inf, "infinity")
boolean = Accepts(lambda value: isinstance(value, bool | np.bool_), "True or False")
jobs = Accepts(lambda value: _is_a(Integral, value), "a whole number") | None
random_state = whole(0, 2**32 - 1) | instance(np.random.RandomState) | None


def accepted(estimator_class: type) -> Accepted:
    """What a class and its bases declare in ``_parameters``; the more derived class decides."""
    merged: Accepted = {}
    for base in reversed(estimator_class.__mro__):
        merged.update(vars(base).get("_parameters", {}))
    return merged


def validate_parameters(estimator: Any) -> None:
    """Raise an error if a parameter of an estimator has a value that its class does not accept.

    Parameters that do not go together are found by its method ``_check_parameters``, if it has one.
    The message quotes numbers and short texts only: any other object may hold private rows.

    Examples
    --------
    >>> from permea.models import KernelAffineHullMachine
    >>> validate_parameters(KernelAffineHullMachine(n_components=0))
    Traceback (most recent call last):
    permea._validate.ParameterError: KernelAffineHullMachine: n_components must be a whole number \
of at least 1; got 0.
    """
    declared = accepted(type(estimator))
    for name, value in estimator.get_params(deep=False).items():
        if name in declared and not declared[name].test(value):
            quotable = value is None or isinstance(value, bool | int | float | str | np.number)
            given = repr(value)[:60] if quotable else f"an object of type {type(value).__name__}"
            raise ParameterError(
                f"{type(estimator).__name__}: {name} must be {declared[name].text}; got {given}."
            )
    if hasattr(estimator, "_check_parameters"):
        estimator._check_parameters()


def _is_a(kind: type, value: object) -> bool:
    """Whether a value is a number of a kind; True and False are no numbers here."""
    return isinstance(value, kind) and not isinstance(value, bool)
