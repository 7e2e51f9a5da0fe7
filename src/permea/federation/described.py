"""Public objects in plain values and JSON, so that parties can compare what they agreed on.

Two processes give the same description exactly when they hold the same classes, parameters and
arrays. Nothing is ever built from a description.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from permea.models.features import FeatureMap

_DEEPEST = 20  # objects inside objects
_LARGEST_TEXT = 1 << 24


def described(value: Any, depth: int = 0) -> Any:
    """Give plain values for JSON that stand for ``value`` in every process.

    Feature maps of permea are described by class and parameters, because they depend on nothing
    else; other transformers by what fitting left in them as well. Arrays become digests.

    Examples
    --------
    >>> from permea.models.features import RandomFourier
    >>> described(RandomFourier(n_frequencies=5))
    {'class': 'RandomFourier', 'parameters': {'n_frequencies': 5, 'scale': 1.5, 'seed': 0}}
    >>> described(object())
    Traceback (most recent call last):
        ...
    TypeError: An object of type object has no description that another process would recognise...
    """
    if depth > _DEEPEST:
        raise TypeError("The features are nested too deeply, or hold themselves.")
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float | np.number | np.bool_):
        return _number(value)
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, list | tuple | range):
        return [described(item, depth + 1) for item in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: described(value[name], depth + 1) for name in sorted(value)}
    return _object(value, depth)


def plain_number(name: str, value: Any) -> float:
    """A finite float; numbers in disguise (texts, booleans) are refused.

    Examples
    --------
    >>> plain_number("radius", 1)
    1.0
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise ValueError(f"{name} must be a number.")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite.")
    return number


def parsed_object(text: Any) -> dict[str, Any]:
    """Read a JSON object of an ordinary size, in which no entry is written twice.

    Examples
    --------
    >>> parsed_object('{"a": 1, "a": 2}')
    Traceback (most recent call last):
        ...
    ValueError: no valid JSON: an entry is written twice.
    """
    if not isinstance(text, str) or len(text) > _LARGEST_TEXT:
        raise ValueError("expected a JSON text of an ordinary size.")
    try:
        values = json.loads(text, object_pairs_hook=_each_once)
    except RecursionError:
        raise ValueError("no valid JSON: too deep.") from None
    except ValueError as error:
        raise ValueError(f"no valid JSON: {error}.") from None
    if not isinstance(values, dict):
        raise ValueError("expected a JSON object.")
    return values


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("an entry is written twice")
    return dict(pairs)


def _number(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return str(plain)  # JSON has no infinity
    if not isinstance(plain, bool | int | float):
        raise TypeError("Complex numbers have no description.")
    return plain


def _array(value: Any) -> dict[str, Any]:
    if value.dtype.hasobject:
        return {"array": "object", "values": described(value.tolist())}
    data = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
    digest = hashlib.sha256(data.tobytes()).hexdigest()
    return {"array": data.dtype.str, "shape": list(data.shape), "sha256": digest}


def _object(value: Any, depth: int) -> dict[str, Any]:
    """Classes by name, functions by name, and what objects hold."""
    if isinstance(value, np.dtype):
        return {"dtype": value.str}
    if isinstance(value, np.ufunc):
        return {"function": f"numpy.{value.__name__}"}
    if callable(value) and hasattr(value, "__qualname__"):
        function = f"{value.__module__}.{value.__qualname__}"
        if "<" not in function:  # lambdas and local functions have no name of their own
            return {"function": function}
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, BaseEstimator):
        parameters = value.get_params(deep=False)
        if isinstance(value, FeatureMap) and kind.__module__ == FeatureMap.__module__:
            return {"class": kind.__name__, "parameters": described(parameters, depth + 1)}
        fitted = {held: vars(value)[held] for held in vars(value) if held not in parameters}
        return {
            "class": name,
            "parameters": described(parameters, depth + 1),
            "fitted": described(fitted, depth + 1),
        }
    if not callable(value) and getattr(value, "__dict__", None):
        return {"class": name, "holds": described(vars(value), depth + 1)}
    raise TypeError(
        f"An object of type {kind.__name__} has no description that another process would "
        "recognise. Use feature maps of permea.models.features, fitted scikit-learn transformers, "
        "or functions with a name of their own."
    )
