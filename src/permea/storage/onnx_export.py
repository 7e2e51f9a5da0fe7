"""Moment classifiers as ONNX graphs, for programs that have no Python.

The graph holds what was released and nothing else. With a schema it has one input per feature
column: numbers and dates (days from the first day of year 1, as ``date.toordinal`` counts) as
doubles with NaN where they are missing, choices as texts with "" where they are missing. Without
one it has an input ``X``. Outputs are ``label`` and ``probabilities``, in the order of the classes.
"""

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from permea._arrays import Array
from permea._files import write_atomically
from permea._version import __version__
from permea.models.features import RandomFourier, ScaledIdentity
from permea.models.moments import MomentClassifier
from permea.tables import Category, Date, Number, TableEncoder
from permea.tables.columns import Choice, Column, YesNo
from permea.tables.encoding import MARGIN

_OPSET, _ML_OPSET, _IR = 17, 3, 8
_ROWS = "rows"


@dataclass
class _Graph:
    """Nodes, constants and inputs, in the order in which they were added."""

    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)

    def constant(self, values: Any) -> str:
        """A constant, under a name of its own."""
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def input(self, name: str, kind: int, width: int) -> str:
        """An input with a row per row."""
        from onnx import helper

        self.inputs.append(helper.make_tensor_value_info(name, kind, [_ROWS, width]))
        return name

    def __call__(self, kind: str, *inputs: Any, domain: str = "", **attributes: Any) -> str:
        """The result of a node; arrays among its inputs become constants."""
        from onnx import helper

        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        result = f"n{len(self.nodes)}"
        node = helper.make_node(kind, names, [result], domain=domain, **attributes)
        self.nodes.append(node)
        return result


def to_onnx(model: MomentClassifier, path: str | os.PathLike[str] | None = None) -> Any:
    """Write a fitted `permea.MomentClassifier` as an ONNX model.

    Parameters
    ----------
    model : MomentClassifier
        Fitted, with a schema, or with features "identity" or "fourier".
    path : path, optional
        Where to write it.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    ImportError
        When onnx is not installed: ``pip install 'permea[onnx]'``.
    TypeError
        For other models and features.

    Notes
    -----
    A graph cannot refuse a value. Numbers outside of their range are moved to its end, as in
    permea; a text that is not declared counts as "other" or as missing where one of them is
    declared, and else as none of the values. Texts must be written as the schema writes them.

    Examples
    --------
    >>> from permea import MomentClassifier
    >>> from permea.datasets import VISITS_SCHEMA, make_visits
    >>> model = MomentClassifier(schema=VISITS_SCHEMA).fit(make_visits(300))
    >>> graph = to_onnx(model).graph
    >>> [one.name for one in graph.input][:3], [one.name for one in graph.output]
    (['age', 'sex', 'admission'], ['label', 'probabilities'])
    """
    try:
        from onnx import TensorProto, checker, helper
    except ImportError as error:
        raise ImportError(
            "Writing ONNX needs onnx, which is not installed. Install it with: "
            "pip install 'permea[onnx]'"
        ) from error
    if not isinstance(model, MomentClassifier) or not hasattr(model, "model_"):
        raise TypeError("Only a fitted MomentClassifier can be written as ONNX.")
    graph = _Graph()
    label, probabilities = _decided(graph, model, _features(graph, model))
    graph.nodes += [
        helper.make_node("Identity", [label], ["label"]),
        helper.make_node("Identity", [probabilities], ["probabilities"]),
    ]
    kind = TensorProto.STRING if model.classes_.dtype.kind == "U" else TensorProto.INT64
    outputs = [
        helper.make_tensor_value_info("label", kind, [_ROWS]),
        helper.make_tensor_value_info(
            "probabilities", TensorProto.DOUBLE, [_ROWS, len(model.classes_)]
        ),
    ]
    made = helper.make_model(
        helper.make_graph(graph.nodes, "permea", graph.inputs, outputs, graph.constants),
        opset_imports=[
            helper.make_opsetid("", _OPSET),
            helper.make_opsetid("ai.onnx.ml", _ML_OPSET),
        ],
        producer_name="permea",
        producer_version=__version__,
        ir_version=_IR,
    )
    if model.certificate_ is not None:
        helper.set_model_props(made, {"permea.certificate": model.certificate_.to_json()})
    checker.check_model(made)
    if path is not None:
        write_atomically(Path(path), made.SerializeToString())
    return made


def _features(graph: _Graph, model: MomentClassifier) -> str:
    """Features of rows: columns by the schema, or a map of numbers."""
    from onnx import TensorProto

    if isinstance(model.map_, TableEncoder):
        return _encoded(graph, model.map_)
    steps = getattr(model.map_, "maps_", [model.map_])
    X = graph.input("X", TensorProto.DOUBLE, model.n_features_in_)
    if model.privacy is not None:
        p = model.n_features_in_
        X = graph("Min", graph("Max", X, model.privacy.lows(p)), model.privacy.highs(p))
    for step in steps:
        X = _mapped(graph, step, X, model.n_features_in_)
    return X


def _mapped(graph: _Graph, step: Any, X: str, p: int) -> str:
    """A map of numbers by its definition."""
    if type(step) is ScaledIdentity:
        scaled = graph("Div", graph("Sub", X, step._middle), step._half)
        return graph("Div", graph("Min", graph("Max", scaled, -1.0), 1.0), math.sqrt(p))
    if type(step) is RandomFourier:
        angles = graph("MatMul", X, step._frequencies)
        waves = graph("Concat", graph("Cos", angles), graph("Sin", angles), axis=1)
        return graph("Mul", waves, step.n_frequencies**-0.5)
    raise TypeError(
        f"Features by {type(step).__name__} cannot be written as ONNX; use a schema, or "
        "features='identity' or 'fourier'."
    )


# ---- tables --------------------------------------------------------------------------------------


def _encoded(graph: _Graph, encoder: TableEncoder) -> str:
    """What `permea.tables.TableEncoder` makes of a table."""
    schema, bins = encoder.schema, encoder._bins
    blocks = {name: _column(graph, name, schema.columns[name], bins) for name in schema.features}
    widths = {name: schema.columns[name].width(bins) for name in schema.features}
    ordered = list(blocks.values())
    for first, second in schema.pairs:
        a = graph("Unsqueeze", blocks[first], np.array([2]))
        b = graph("Unsqueeze", blocks[second], np.array([1]))
        flat = np.array([-1, widths[first] * widths[second]])
        ordered.append(graph("Reshape", graph("Mul", a, b), flat))
    together = graph("Concat", *ordered, axis=1)
    return graph("Mul", together, MARGIN / math.sqrt(len(ordered)))


def _column(graph: _Graph, name: str, column: Column, bins: int) -> str:
    """The features of one column."""
    from onnx import TensorProto

    if isinstance(column, Choice):
        texts = graph.input(name, TensorProto.STRING, 1)
        return _choice(graph, texts, column)
    numbers = graph.input(name, TensorProto.DOUBLE, 1)
    inner = column.days if isinstance(column, Date) else column
    assert isinstance(inner, Number)
    blank = graph("IsNaN", numbers)
    weights = _hats(graph, graph("Where", blank, 0.0, numbers), inner.grid(bins))
    missing = graph("Cast", blank, to=TensorProto.DOUBLE)
    weights = graph("Mul", weights, graph("Sub", 1.0, missing))
    return graph("Concat", weights, missing, axis=1) if column.missing else weights


def _hats(graph: _Graph, x: str, grid: Array) -> str:
    """Weights of the points of a grid: each rises from the point before it and falls after it."""
    widths = np.diff(grid)
    rise = np.concatenate([[0.0], 1.0 / widths])
    fall = np.concatenate([-1.0 / widths, [0.0]])
    before = np.concatenate([[1.0], -grid[:-1] / widths])
    after = np.concatenate([grid[1:] / widths, [1.0]])
    inside = graph("Min", graph("Max", x, grid[0]), grid[-1])
    up = graph("Add", graph("Mul", inside, rise[None]), before[None])
    down = graph("Add", graph("Mul", inside, fall[None]), after[None])
    return graph("Min", graph("Max", graph("Min", up, down), 0.0), 1.0)


def _choice(graph: _Graph, texts: str, column: Choice) -> str:
    """An indicator for each declared value, and one for a missing value."""
    from onnx import TensorProto

    places, width = _places(column), column.width(0)
    unknown = len(column.names) if column.missing else -1
    if isinstance(column, Category) and column.other:
        unknown = len(column.names) - 1
    if column.missing:
        places[""] = len(column.names)
    place = graph(
        "LabelEncoder", texts, domain="ai.onnx.ml", keys_strings=list(places),
        values_int64s=list(places.values()), default_int64=unknown,
    )  # fmt: skip
    which = graph("Equal", place, np.arange(width)[None])
    return graph("Cast", which, to=TensorProto.DOUBLE)


def _places(column: Choice) -> dict[str, int]:
    """The texts of a choice with their places."""
    if isinstance(column, YesNo):
        words = {0: column.no, 1: column.yes}
        cases = (str, str.lower, str.upper, str.capitalize)
        return {case(word): at for at, some in words.items() for word in some for case in cases}
    assert isinstance(column, Category)
    return {value: place for place, value in enumerate(column.values)}


# ---- the decision --------------------------------------------------------------------------------


def _shrunk(graph: _Graph, z: str, norm: float) -> str:
    """Rows of at most ``norm``."""
    squares = graph("ReduceSum", graph("Mul", z, z), np.array([1]), keepdims=1)
    length = graph("Max", graph("Sqrt", squares), np.finfo(np.float64).tiny)
    return graph("Mul", z, graph("Min", graph("Div", norm, length), 1.0))


def _decided(graph: _Graph, model: MomentClassifier, features: str) -> tuple[str, str]:
    """Labels and probabilities from features."""
    z = graph("Sub", _shrunk(graph, features, model._norm()), model.mean_)
    z = _shrunk(graph, z, model.radius)
    linear = model.model_
    scores = graph("Add", graph("MatMul", z, linear.weights), linear.intercept)
    if model.loss_ != "logistic":
        found = model.calibration_
        scores = graph("Add", graph("MatMul", scores, found.slopes), found.offsets)
    weights = np.log(model._weights_by_class())
    logs = graph("LogSoftmax", graph("Sub", scores, weights), axis=1)
    favour = -np.log(model._priors) if model.class_weight == "balanced" else weights
    place = graph("ArgMax", graph("Add", logs, favour), axis=1, keepdims=0)
    return graph("Gather", _classes(graph, model.classes_), place, axis=0), graph("Exp", logs)


def _classes(graph: _Graph, classes: Any) -> str:
    if classes.dtype.kind == "U":
        from onnx import TensorProto, helper

        name = f"c{len(graph.constants)}"
        texts: Any = [text.encode() for text in classes.tolist()]
        graph.constants.append(helper.make_tensor(name, TensorProto.STRING, [len(texts)], texts))
        return name
    if classes.dtype.kind not in "iub":
        raise TypeError("Classes must be texts or whole numbers to be written as ONNX.")
    return graph.constant(classes.astype(np.int64))
