"""The classifiers by name: one front for each model family."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from permea._arrays import Array, Indices
from permea._validate import Accepted, accepted, number, one_of, whole
from permea.compose.classifier import ReconstructionClassifier
from permea.compose.layers import Wide
from permea.models.fuzzy import FuzzyAutoencoder, FuzzyExplanation, FuzzyRule
from permea.models.kahm import KernelAffineHullMachine
from permea.models.membership import MembershipAutoencoder, check_smoothing

DIMENSION: Accepted = {"n_components": whole(1) | one_of("auto")}
_JUDGED = 200  # rows drawn for each class, to choose between two sets of rules
RULES: Accepted = {"n_rules": whole(1) | number(above=0, most=1) | one_of("auto")}


class KAHMClassifier(ReconstructionClassifier):
    """Classify by kernel affine hull machines, deep and wide (004 Def. 7).

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Subspace dimension n of the first layer; layer l has max(n − l + 1, 1). "auto" is 20, or
        for drawn rows the number of coordinates in which a class varies by a fifth more than all.
    n_layers : int, default=5
        Layers L of each branch.
    tol : float, default=5e-3
        Accuracy of λ*, see `KernelAffineHullMachine`.
    **shared
        ``branch_size``, ``privacy``, ``release``, ``schema``, ``features``, ``classes``,
        ``neighbours``, ``rows_per_class``, ``fabricate``, ``partition_on``, ``ledger``,
        ``dataset``, ``allow_single_class``, ``n_jobs`` and ``random_state``: see
        `ReconstructionClassifier`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Class labels.
    class_models_ : list of Wide
        One fitted model per class.
    certificate_ : permea.privacy.Certificate or None
        What is promised, to whom, about what.
    holds_private_rows_ : bool
        Whether the training rows can be read out of this object.
    n_features_in_ : int
        Number of features p.

    See Also
    --------
    ReconstructionClassifier : the same for any model family.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = KAHMClassifier().fit(X[:500] / 16, y[:500])
    >>> clf.score(X[500:700] / 16, y[500:700]) > 0.9
    True
    """

    _parameters: ClassVar[Accepted] = {**accepted(KernelAffineHullMachine), **DIMENSION}

    def __init__(
        self,
        *,
        n_components: int | str = "auto",
        tol: float = 5e-3,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.n_components = n_components
        self.tol = tol

    def _first_layer(self) -> KernelAffineHullMachine:
        return KernelAffineHullMachine(n_components=self._dimension(), tol=self.tol)


class MembershipClassifier(ReconstructionClassifier):
    """Classify by wide conditionally deep membership autoencoders (001 Alg. 4, 000 Alg. 4).

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Subspace dimension n of the first layer; layer l has max(n − l + 1, 1). "auto" is 20, or
        for drawn rows the number of coordinates in which a class varies by a fifth more than all.
    n_layers : int, default=5
        Layers L of each branch.
    max_inducing : float or int, default=0.5
        Most inducing points of a branch, as a share of its rows or as a number.
    disturbance : "precision" or "gamma", default="precision"
        The model of documents 001 and 003, or that of document 000.
    nu, kappa : float, default=2.1 and 0.1
        Degrees of freedom ν and smallest smoothing level κ, see `permea.MembershipMapping`.
    **shared
        ``branch_size``, ``privacy``, ``release``, ``schema``, ``features``, ``classes``,
        ``neighbours``, ``rows_per_class``, ``fabricate``, ``partition_on``, ``ledger``,
        ``dataset``, ``allow_single_class``, ``n_jobs`` and ``random_state``: see
        `ReconstructionClassifier`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Class labels.
    class_models_ : list of Wide
        One fitted model per class.
    certificate_ : permea.privacy.Certificate or None
        What is promised, to whom, about what.
    holds_private_rows_ : bool
        Whether the training rows can be read out of this object.
    n_features_in_ : int
        Number of features p.

    See Also
    --------
    permea.MembershipAutoencoder : the model of one layer, with all its parameters.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = MembershipClassifier(n_layers=2).fit(X[:1000] / 16, y[:1000])
    >>> clf.score(X[1000:1200] / 16, y[1000:1200]) > 0.95
    True
    """

    _parameters: ClassVar[Accepted] = {**accepted(MembershipAutoencoder), **DIMENSION}

    def __init__(
        self,
        *,
        n_components: int | str = "auto",
        max_inducing: float | int = 0.5,
        disturbance: str = "precision",
        nu: float = 2.1,
        kappa: float = 0.1,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.n_components = n_components
        self.max_inducing = max_inducing
        self.disturbance = disturbance
        self.nu = nu
        self.kappa = kappa

    def _check_parameters(self) -> None:
        check_smoothing(self.disturbance, self.nu)

    def _first_layer(self) -> MembershipAutoencoder:
        return MembershipAutoencoder(
            n_components=self._dimension(),
            max_inducing=self.max_inducing,
            disturbance=self.disturbance,
            nu=self.nu,
            kappa=self.kappa,
        )


class ClassExplanation(NamedTuple):
    """Why a fuzzy classifier chose its label for one point."""

    label: Any  #: the predicted class
    memberships: dict[Any, float]  #: degree to which the point belongs to each class (2.162)
    branch: int  #: the part of the winning class that decided
    region: FuzzyExplanation  #: rules and training regions of that part

    def __str__(self) -> str:
        degrees = ", ".join(f"{label}: {value:.3f}" for label, value in self.memberships.items())
        return f"class {self.label} (membership by class: {degrees})\n{self.region}"


class FuzzyClassifier(ReconstructionClassifier):
    """Classify by Takagi-Sugeno deep fuzzy autoencoders and their global rule base (002 Alg. 3).

    A point belongs to each class to the degree exp(−‖y − ŷ‖²/2p) (2.162); over the branches of a
    class, and over parties, the largest degree counts (2.165), and the class with the largest
    degree wins (2.166). That is the smallest distance, so everything else is as for the other
    families.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Dimension n of the code; "auto" as in `KAHMClassifier`.
    n_rules : float, int or "auto", default="auto"
        Rules of a branch, as a share of its rows or as a number. "auto" is 0.5; for drawn rows it
        is one rule, the mean of the class, where that classifies other drawn rows as well.
    n_layers : int, default=1
        Chain of autoencoders as in the other families; document 002 has one, whose own layers are
        added while its precision grows.
    **shared
        ``branch_size``, ``privacy``, ``release``, ``schema``, ``features``, ``classes``,
        ``neighbours``, ``rows_per_class``, ``fabricate``, ``partition_on``, ``ledger``,
        ``dataset``, ``allow_single_class``, ``n_jobs`` and ``random_state``: see
        `ReconstructionClassifier`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Class labels.
    class_models_ : list of Wide
        One fitted model per class.
    certificate_ : permea.privacy.Certificate or None
        What is promised, to whom, about what.
    holds_private_rows_ : bool
        Whether the training rows can be read out of this object.
    n_features_in_ : int
        Number of features p.

    See Also
    --------
    permea.FuzzyAutoencoder : the model of one branch.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = FuzzyClassifier(n_components=3).fit(X, y)
    >>> why = clf.explain(X[0])
    >>> int(why.label), len(why.region.rules)
    (0, 5)
    """

    _parameters: ClassVar[Accepted] = {**accepted(FuzzyAutoencoder), **DIMENSION, **RULES}

    def __init__(
        self,
        *,
        n_components: int | str = "auto",
        n_rules: float | int | str = "auto",
        n_layers: int = 1,
        **shared: Any,
    ) -> None:
        super().__init__(n_layers=n_layers, **shared)
        self.n_components = n_components
        self.n_rules = n_rules

    def _first_layer(self) -> FuzzyAutoencoder:
        return self._autoencoder(0.5 if isinstance(self.n_rules, str) else self.n_rules)

    def _autoencoder(self, n_rules: float | int) -> FuzzyAutoencoder:
        return FuzzyAutoencoder(n_components=self._dimension(), n_rules=n_rules)

    def _learn_classes(self, rows: Array, groups: list[list[Indices]]) -> list[Wide]:
        """One wide model per class; for drawn rows and "auto" rules, the better of two sets.

        Where classes differ in their means alone, more than one rule follows single drawn rows.
        Other rows that are drawn from the same release tell, and cost nothing.
        """
        if self.encoder_ is None or not isinstance(self.n_rules, str):
            return super()._learn_classes(rows, groups)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1, size=2)[1])
        codes, labels = self.encoder_.draw(_JUDGED, random_state=seed)
        places = np.searchsorted(self.classes_, labels)

        def hits(models: list[Wide]) -> int:
            nearest = np.column_stack([model.distance(codes) for model in models]).argmin(axis=1)
            return int(np.sum(nearest == places))

        found = [self._learn_chains(self._autoencoder(n), rows, groups) for n in (1, 0.5)]
        return max(found, key=hits)

    def memberships(self, X: ArrayLike) -> Array:
        """Degree to which each row belongs to each class (2.162, 2.165), shape (m, C)."""
        distances = self.distances(X)
        width = self.class_models_[0].n_features_in_
        return np.asarray(np.exp(-np.square(distances) / (2 * width)))

    def _names(self) -> Any:
        """Names of the coordinates of the models, where they are the columns of the rows."""
        return None if self.encoder_ is not None else getattr(self, "feature_names_in_", None)

    def rules(self, label: Any) -> list[FuzzyRule]:
        """If-then rules of one class, branch after branch."""
        check_is_fitted(self, "class_models_")
        found = np.flatnonzero(self.classes_ == label)
        if not found.size:
            raise ValueError(f"{label!r} is not one of the classes {list(self.classes_)}.")
        names = self._names()
        branches = self.class_models_[found[0]].branches_
        return [
            rule for branch in branches for rule in branch.layers_[0].rules(feature_names=names)
        ]

    def explain(self, x: ArrayLike, *, n_rules: int = 5) -> ClassExplanation:
        """Say which class won for one point, and which rules and training regions decided.

        Parameters
        ----------
        x : array-like of shape (p,)
            One point.
        n_rules : int, default=5
            Number of rules to tell.

        Returns
        -------
        ClassExplanation
            ``print`` it to read it.
        """
        row = np.asarray(x, dtype=float).reshape(1, -1)
        codes = self._codes(row)
        degrees = self.memberships(row)[0]
        winner = int(self.distances(row)[0].argmin())
        branches = self.class_models_[winner].branches_
        branch = int(np.argmin([part.distance(codes)[0] for part in branches]))
        names = self._names()
        return ClassExplanation(
            label=self.classes_[winner],
            memberships=dict(zip(self.classes_.tolist(), degrees.tolist(), strict=True)),
            branch=branch,
            region=branches[branch]
            .layers_[0]
            .explain(codes[0], n_rules=n_rules, feature_names=names),
        )
