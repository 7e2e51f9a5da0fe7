"""Features and classes, which parties must agree on before their distances are comparable."""

import hashlib
import json
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea.federation.errors import SchemaError

Label = int | float | str | bool
Domain = tuple[Any, Any]
_MOST_FEATURES = 100_000_000
_LONGEST_LABEL = 1000


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Features and classes of one party, or of a whole federation.

    Parameters
    ----------
    n_features : int
        Number of features p.
    classes : tuple of labels
        Classes it knows, in order.
    feature_names : tuple of str or None
        Names of the features in order, when the model was fitted on named columns.
    domain : (low, high) or None
        The declared public domain; None when none was declared.

    Examples
    --------
    >>> a = Schema(n_features=2, classes=(0, 1), domain=(0.0, 1.0))
    >>> b = Schema(n_features=2, classes=(1, 2), domain=(0.0, 1.0))
    >>> agree({"a": a, "b": b}).classes
    (0, 1, 2)
    >>> agree({"a": a, "b": Schema(n_features=3, classes=(1, 2))})
    Traceback (most recent call last):
        ...
    permea.federation.errors.SchemaError: The parties do not have the same features: ...
    """

    n_features: int
    classes: tuple[Label, ...]
    feature_names: tuple[str, ...] | None = None
    domain: Domain | None = None

    @classmethod
    def of(cls, classifier: Any) -> Self:
        """Read the schema off a fitted classifier; nothing else is read."""
        names = getattr(classifier, "feature_names_in_", None)
        certificate = getattr(classifier, "certificate_", None)
        return cls(
            n_features=int(classifier.n_features_in_),
            classes=tuple(np.asarray(classifier.classes_).tolist()),
            feature_names=None if names is None else tuple(str(name) for name in names),
            domain=None if certificate is None else certificate.privacy.domain,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "n_features": self.n_features,
            "classes": list(self.classes),
            "feature_names": None if self.feature_names is None else list(self.feature_names),
            "domain": None if self.domain is None else [_plain(end) for end in self.domain],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from `to_dict`; anything else is refused, because it comes from outside."""
        try:
            names, domain, classes = values["feature_names"], values["domain"], values["classes"]
            if any(isinstance(part, str) for part in (names, domain, classes)):
                raise TypeError("text where a list belongs")
            schema = cls(
                n_features=operator.index(values["n_features"]),
                classes=tuple(classes),
                feature_names=None if names is None else tuple(str(name) for name in names),
                domain=None if domain is None else (_tupled(domain[0]), _tupled(domain[1])),
            )
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            raise SchemaError(
                "A party introduced itself with something that is not a schema. It may run another "
                "version of permea."
            ) from None
        schema.check()
        return schema

    def check(self) -> None:
        """Raise unless this can be the schema of a classifier."""
        problem, names = "", self.feature_names
        if not self.classes or not all(_is_label(label) for label in self.classes):
            problem = (
                "must know at least one class, named by a finite number or by a text of at most "
                f"{_LONGEST_LABEL} characters"
            )
        elif len(set(self.classes)) != len(self.classes):
            problem = "names a class twice"
        elif not 1 <= self.n_features <= _MOST_FEATURES:
            problem = f"must have 1 to {_MOST_FEATURES} features"
        elif names is not None and len(names) != self.n_features:
            problem = f"names {len(names)} features and has {self.n_features}"
        elif self.domain is not None and not _is_domain(self.domain, self.n_features):
            problem = (
                "declares an invalid domain: low < high are needed, finite numbers, one for all "
                "features or one for each"
            )
        if problem:
            raise SchemaError(f"A party {problem}.")

    @property
    def fingerprint(self) -> str:
        """Hash of the schema, by which a reply under another one is detected."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:32]

    @property
    def diameter(self) -> float | None:
        """Euclidean diameter of the declared domain, a public scale of distances."""
        if self.domain is None:
            return None
        low, high = (np.broadcast_to(np.asarray(end), self.n_features) for end in self.domain)
        return float(np.linalg.norm(high - low))

    def check_queries(self, X: ArrayLike) -> NDArray[Any]:
        """Queries as a float matrix with the right columns, or an error that shows no value."""
        columns = getattr(X, "columns", None)
        if columns is not None and self.feature_names is not None:
            self._check_names(tuple(str(name) for name in columns))
        try:
            queries = np.asarray(X)
            if queries.dtype not in (np.float32, np.float64):
                queries = queries.astype(np.float64)
        except (TypeError, ValueError):
            raise SchemaError("Queries must be a matrix of numbers.") from None
        if queries.ndim != 2 or queries.shape[1] != self.n_features:
            raise SchemaError(
                f"Queries have shape {queries.shape}; this federation needs (rows, "
                f"{self.n_features})."
            )
        if not len(queries):
            raise SchemaError("There are no queries: give at least one row.")
        if not np.all(np.isfinite(queries)):
            raise SchemaError("Queries contain NaN or infinity. Impute or drop these rows first.")
        return queries

    def _check_names(self, names: tuple[str, ...]) -> None:
        if names == self.feature_names:
            return
        assert self.feature_names is not None
        if sorted(names) == sorted(self.feature_names):
            raise SchemaError(
                "Queries have the right columns in another order. Order them as "
                "federation.schema.feature_names does."
            )
        missing = sorted(set(self.feature_names) - set(names))[:3]
        raise SchemaError(f"Queries lack columns of this federation, for example {missing}.")


def agree(schemas: Mapping[str, Schema]) -> Schema:
    """Schema of a federation: the same features for all, the union of the classes (Remark 5)."""
    if not schemas:
        raise SchemaError("No party has introduced itself.")
    (first, one), *others = schemas.items()
    names, domain = one.feature_names, one.domain
    for name, schema in others:
        if schema.n_features != one.n_features:
            raise SchemaError(
                "The parties do not have the same features: "
                f"{first!r} has {one.n_features} features, {name!r} has {schema.n_features}. Every "
                "party must use the same columns in the same order."
            )
        names = _same("feature names or their order", names, schema.feature_names, first, name)
        domain = _same("the declared domain of the features", domain, schema.domain, first, name)
    return replace(one, classes=_union(schemas), feature_names=names, domain=domain)


def _same(what: str, known: Any, found: Any, first: str, name: str) -> Any:
    """The declaration that both share; a party that declares nothing agrees with all."""
    if known is None or found is None:
        return known if found is None else found
    if _plain(known) != _plain(found):
        raise SchemaError(
            f"{first!r} and {name!r} differ in {what}. Distances would not be comparable: agree on "
            "one declaration and train again."
        )
    return known


def _union(schemas: Mapping[str, Schema]) -> tuple[Label, ...]:
    """All classes in order; texts and numbers cannot be mixed."""
    every: set[Any] = {label for schema in schemas.values() for label in schema.classes}
    texts = {label for label in every if isinstance(label, str)}
    if texts and texts != every:
        names = [repr(name) for name, schema in schemas.items() if texts & set(schema.classes)]
        raise SchemaError(
            f"Some parties label classes by text ({', '.join(names)}), others by number."
        )
    return tuple(sorted(every))


def _is_label(label: Any) -> bool:
    if isinstance(label, str):
        return len(label) <= _LONGEST_LABEL
    return isinstance(label, bool | int | float) and abs(label) < math.inf


def _is_domain(domain: Domain, n_features: int) -> bool:
    low, high = (np.asarray(end, dtype=np.float64) for end in domain)
    shapes = {low.shape, high.shape} <= {(), (n_features,)}
    return shapes and bool(np.all(np.isfinite(low) & np.isfinite(high)) and np.all(low < high))


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _tupled(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(float(item) for item in value)
    return float(value)
