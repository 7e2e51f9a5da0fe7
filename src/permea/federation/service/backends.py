"""What a service asks: one model, private models that travelled here, or parties on the network.

A backend has a description of the rows that it takes, and answers rows with labels and with who
answered. What it answers from is checked once, when it is made.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from permea._text import safe_text
from permea.federation.errors import FederationError
from permea.federation.federation import Federation
from permea.federation.party import Party, objections, status_of
from permea.federation.service.decode import Rows
from permea.federation.summary import Records, summarise
from permea.privacy.signing import TrustedKeys
from permea.storage import load


class BackendError(FederationError):
    """A model cannot be served."""


@dataclass(frozen=True, kw_only=True)
class Takes:
    """The rows that a backend takes, and the labels that it gives."""

    n_features: int
    columns: tuple[str, ...] | None  #: names, where the model knows them
    classes: tuple[Any, ...] | None  #: None for a model that predicts numbers
    tabular: bool = False  #: columns are read by a schema, and may hold texts

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names, classes = self.columns, self.classes
        return {
            "n_features": self.n_features,
            "columns": None if names is None else list(names),
            "classes": None if classes is None else [plain(label) for label in classes],
            "tabular": self.tabular,
        }


@dataclass(frozen=True, kw_only=True)
class Answered:
    """Labels, and on whose models they are based."""

    labels: NDArray[Any]
    report: dict[str, Any] = field(default_factory=dict)


class Backend(Protocol):
    """What a service asks."""

    @property
    def name(self) -> str:
        """What it is, for people."""
        ...

    @property
    def takes(self) -> Takes | None:
        """The rows that it takes; None while that is not known."""
        ...

    @property
    def parties(self) -> Mapping[str, str]:
        """Parties and the status of their certificates."""
        ...

    @property
    def certificates(self) -> Mapping[str, str]:
        """The certificates of the parties, as they are printed."""
        ...

    def rows(self, rows: Rows) -> Any:
        """Decoded rows as this backend wants them, or `FederationError`."""
        ...

    def ask(self, X: Any, client: str) -> Answered:
        """Labels of rows."""
        ...


class ModelBackend:
    """One fitted model.

    Parameters
    ----------
    model : fitted classifier or regression
        What `permea.load` gives.
    name : str
        Its name among parties.
    allow_private_rows : bool, default=False
        Serve a model in which private rows can be read, or that promises nothing.

    Examples
    --------
    >>> from permea import KAHMClassifier
    >>> from permea.privacy import Privacy
    >>> X, y = np.random.default_rng(0).random((40, 3)), np.repeat([0, 1], 20)
    >>> clf = KAHMClassifier(n_components=2, n_layers=2, privacy=Privacy(epsilon=4, domain=(0, 1)))
    >>> backend = ModelBackend(clf.fit(X, y), "ward")
    >>> backend.ask(X[:2], "me").report["who_answered"]
    ['ward']
    >>> ModelBackend(KAHMClassifier(n_components=2, n_layers=1).fit(X, y), "ward")
    Traceback (most recent call last):
        ...
    permea.federation.service.backends.BackendError: The model 'ward' is not served: not private,
    raw rows. Train it with privacy and without a seed, or allow it by name (--allow-private-rows)
    if those who ask may see what its rows tell.
    """

    def __init__(self, model: Any, name: str, *, allow_private_rows: bool = False) -> None:
        self.name, self._model = name, model
        _check(model, name, allow_private_rows)
        certificate = getattr(model, "certificate_", None)
        self.parties = {name: status_of(certificate)}
        self.certificates = {name: "none" if certificate is None else str(certificate)}
        self.takes = _takes(model)
        self._lock = threading.Lock()  # models keep caches; one row block at a time is also fairer

    def rows(self, rows: Rows) -> Any:
        """Rows as the model reads them."""
        return _read(rows, self.takes)

    def ask(self, X: Any, client: str) -> Answered:
        """Labels, or numbers."""
        with self._lock:
            labels = np.asarray(self._model.predict(X))
        status = self.parties[self.name]
        report = _report({self.name: status}, status == "PRIVATE")
        return Answered(labels=labels, report=report)


class ModelsBackend:
    """Private models of several parties, combined here (004 Remark 6).

    Models that compare distances are a `permea.federation.Federation` in this process. Models that
    read tables by one schema are combined by the mean of their probabilities, weighted by how much
    they learned from.

    Parameters
    ----------
    models : dict of fitted classifiers
        By the name of their party.
    records : {"disjoint", "overlapping", "unknown"}, default="unknown"
        Whether one record may lie with several parties.
    allow_private_rows : bool, default=False
        See `ModelBackend`.
    **options
        Keywords of `permea.federation.Federation`, such as ``encrypted=True``.
    """

    def __init__(
        self,
        models: Mapping[str, Any],
        *,
        records: Records = "unknown",
        allow_private_rows: bool = False,
        **options: Any,
    ) -> None:
        self.name = f"{len(models)} models"
        for name, model in models.items():
            _check(model, name, allow_private_rows)
        known = {name: getattr(model, "certificate_", None) for name, model in models.items()}
        self.parties = {name: status_of(certificate) for name, certificate in known.items()}
        self.certificates = {name: str(certificate) for name, certificate in known.items()}
        self._models, self._summary = dict(models), summarise(known, records)
        self._lock = threading.Lock()
        self.federation: Federation | None = None
        first = next(iter(models.values()))
        self.takes = _takes(first)
        if all(_compares_distances(model) for model in models.values()):
            parties = [
                Party(name, model, consent=objections(model)) for name, model in models.items()
            ]
            self.federation = Federation(parties, records=records, **options)
            self.takes = takes_of(self.federation)
        elif options.get("encrypted") or not _share_a_schema(list(models.values())):
            raise BackendError(
                "These models cannot be combined: all must compare distances, or have been trained "
                "with one schema and the same classes; only distances can be encrypted."
            )

    def rows(self, rows: Rows) -> Any:
        """Rows as the models read them."""
        return _read(rows, self.takes)

    def ask(self, X: Any, client: str) -> Answered:
        """Labels by the nearest class over all parties, or by the mean probability."""
        with self._lock:
            if self.federation is not None:
                answer = self.federation.ask(X, client=client)
                return Answered(labels=answer.labels, report=_answer_report(answer, self))
            models = list(self._models.values())
            sizes = [(getattr(one, "encoder_", None) or one).moments_.size for one in models]
            pooled = np.average([one.predict_proba(X) for one in models], axis=0, weights=sizes)
        labels = np.asarray(models[0].classes_)[pooled.argmax(axis=1)]
        return Answered(labels=labels, report=_report(self.parties, self._is_private))

    @property
    def _is_private(self) -> bool:
        return self._summary.is_private and self._summary.is_verified


def load_models(
    paths: Sequence[Path], *, trusted: TrustedKeys | None, allow_private_rows: bool, **options: Any
) -> Backend:
    """The backend of one model file, or of several."""
    models = {path.stem: load(path, trusted=trusted) for path in paths}
    if len(models) < len(paths):
        raise BackendError("Two model files have the same name, which is the name of their party.")
    for path, model in zip(paths, models.values(), strict=True):
        if not hasattr(model, "predict") or not hasattr(model, "n_features_in_"):
            raise BackendError(f"{path} holds a {type(model).__name__}, which predicts nothing.")
    if len(models) == 1 and not options.get("encrypted"):
        (name, model), *_ = models.items()
        return ModelBackend(model, name, allow_private_rows=allow_private_rows)
    return ModelsBackend(models, allow_private_rows=allow_private_rows, **options)


def plain(value: Any) -> Any:
    """A label as JSON has it."""
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, bool | int | float) else safe_text(value)


def takes_of(federation: Federation) -> Takes:
    """The rows that a federation takes, once its parties have introduced themselves."""
    schema = federation.schema
    return Takes(
        n_features=schema.n_features, columns=schema.feature_names, classes=tuple(schema.classes)
    )


def _takes(model: Any) -> Takes:
    schema = getattr(model, "schema", None)
    names = getattr(model, "columns", getattr(model, "feature_names_in_", None))
    if schema is not None:
        names = schema.features
    classes = getattr(model, "classes_", None)
    return Takes(
        n_features=int(model.n_features_in_) if names is None else len(names),
        columns=None if names is None else tuple(str(name) for name in names),
        classes=None if classes is None else tuple(np.asarray(classes).tolist()),
        tabular=schema is not None,
    )


def _read(rows: Rows, takes: Takes) -> Any:
    if not takes.tabular:
        return rows.numbers(takes.columns, takes.n_features)
    assert takes.columns is not None
    return rows.frame(takes.columns)


def _check(model: Any, name: str, allow_private_rows: bool) -> None:
    """Refuse a model in which private rows can be read, or that promises nothing."""
    found = [word for word in objections(model) if word != "unverified"]
    if found and not allow_private_rows:
        raise BackendError(
            f"The model {name!r} is not served: {', '.join(found)}. Train it with privacy and "
            "without a seed, or allow it by name (--allow-private-rows) if those who ask may see "
            "what its rows tell."
        )


def _compares_distances(model: Any) -> bool:
    return getattr(model, "schema", None) is None and hasattr(model, "distances")


def _share_a_schema(models: list[Any]) -> bool:
    first = models[0]
    return all(
        getattr(one, "schema", None) is not None
        and one.schema == first.schema
        and hasattr(one, "predict_proba")
        and np.array_equal(one.classes_, first.classes_)
        for one in models
    )


def _report(parties: Mapping[str, str], private: bool) -> dict[str, Any]:
    """The report of an answer that all parties took part in."""
    return {
        "who_answered": list(parties),
        "partly": [],
        "missing": {},
        "complete": True,
        "suspicions": [],
        "private": private,
        "parties": dict(parties),
    }


def _answer_report(answer: Any, backend: ModelsBackend) -> dict[str, Any]:
    return {
        **_report(backend.parties, backend._is_private),
        "who_answered": list(answer.who_answered),
        "partly": list(answer.partly),
        "missing": dict(answer.missing),
        "complete": answer.is_complete,
        "suspicions": [str(one) for one in answer.suspicions],
    }
