"""Classification by distance: the class whose model has the nearest image wins."""

from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array, Indices
from permea._parallel import batches, run_parallel, run_shared
from permea._validate import (
    Accepted,
    boolean,
    has,
    instance,
    jobs,
    one_of,
    random_state,
    validate_parameters,
    whole,
)
from permea.compose.layers import (
    ConditionallyDeep,
    Wide,
    fit_clone,
    nearest_class,
)
from permea.fabricate.rows import Stop, fabricate
from permea.models.base import matching_scores
from permea.models.hull import HullClassifier
from permea.models.kahm import KernelAffineHullMachine
from permea.models.partition import partition
from permea.privacy import Ledger, Privacy
from permea.privacy.estimator import FLOATS, PrivateEstimator
from permea.privacy.release import RELEASES, Release
from permea.tables import Schema

_PLAIN_BRANCH = 1000  # 004 eq. (59)
_LARGEST_BRANCH = 8000  # a kernel matrix of 256 MB in single precision
_STRONG_NOISE = 0.5  # standard deviation of the noise over the width of the domain


def default_branch_size(noise_ratio: float) -> int:
    """Rows of a branch when the user does not say: larger under strong noise.

    Clusters found in noised rows mean less the stronger the noise is, and noise is averaged out
    over the rows of a branch. From a public ratio of noise to domain of one half on, a class stays
    together as far as memory allows; below it the branches are those of 004 eq. (59).

    Examples
    --------
    >>> default_branch_size(0.0), default_branch_size(1.4)
    (1000, 8000)
    """
    return _LARGEST_BRANCH if noise_ratio >= _STRONG_NOISE else _PLAIN_BRANCH


_BATCH = 1024  # queries that walk through all classes together


class ReconstructionClassifier(PrivateEstimator, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify by the distance of a point to its image under a model of each class.

    Every class is modelled on its own: its rows are split into branches, each branch learns a
    conditionally deep chain of ``model``, and the distance of a point to the class is the smallest
    over branches and layers. The nearest class wins (004 Def. 7, 001 Def. 15, 000 Def. 20).

    Any model with ``fit``, ``reconstruct`` and ``distance`` will do, see `permea.models.base`.

    Parameters
    ----------
    model : estimator with fit, reconstruct and distance, default=None
        The first layer of every branch; `KernelAffineHullMachine` when None.
    n_layers : int, default=5
        Layers of each branch.
    branch_size : int or "auto", default="auto"
        Nominal rows of a branch. "auto" means 1000 for plain data and larger branches the stronger
        the noise is, because averaging over more rows is what removes noise. It depends on the
        declared privacy alone, never on the data.
    privacy : permea.privacy.Privacy, default=None
        The guarantee. Per entry, the rows are perturbed before anything else sees them. Per record
        or person, class moments are released instead, and the models learn from rows that are
        drawn from them: see ``release``. None learns from the rows as they are, and the fitted
        classifier contains them.
    release : "auto", "rows" or "moments", default="auto"
        What leaves the wall. "moments" are those of a `permea.HullClassifier`, which becomes
        ``encoder_``; "rows" has noise on every row, so much of it per record that little can be
        learned. "auto" is "rows" per entry and "moments" otherwise.
    schema : permea.tables.Schema, default=None
        For "moments": what is declared about the columns of a table, whose rows are then frames.
    features : {"identity", "fourier", "edges", "gradients"} or transformer, default="identity"
        For "moments": the public map of one row, see `permea.HullClassifier`.
    classes : sequence, default=None
        For "moments": the public set of labels, declared and never read from the rows.
    neighbours : {"replace", "add/remove"}, default="replace"
        For "moments": how neighbouring data sets differ.
    rows_per_class : int, default=1000
        For "moments": rows that are drawn for each class.
    fabricate : bool, int, "discrepancy" or "original", default=False
        Learn from data fabricated out of the noised rows (004 Def. 15). Needs ``privacy``. True is
        the default stopping rule; the others are rules of `permea.fabricate`.
    partition_on : "noised" or "original", default="noised"
        What k-means sees. "original" is the order of document 004 (cluster, then noise); it reads
        raw rows a second time and voids the certificate.
    ledger : permea.privacy.Ledger, default=None
        Account that is charged before the rows are read.
    dataset : str, default=None
        Name of the rows in the ledger. Rows without a name count against every data set.
    allow_single_class : bool, default=False
        Accept training data with one class only, for a party that joins a federation.
    n_jobs : int, default=None
        Workers for learning and answering, as joblib counts them.
    random_state : int, RandomState instance or None, default=None
        For k-means, and for the noise: a seeded private fit is reproducible and therefore not
        private, as its certificate says.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Class labels.
    class_models_ : list of Wide
        One fitted model per class.
    certificate_ : permea.privacy.Certificate or None
        What is promised, to whom, about what. None when no privacy was asked for.
    holds_private_rows_ : bool
        Whether the training rows can be read out of this object.
    branch_size_ : int
        The branch size in use.
    n_features_in_ : int
        Number of features p.
    encoder_ : permea.HullClassifier or None
        After a release of moments: it turns rows into the coordinates that the models know.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from permea.models import KernelAffineHullMachine
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KernelAffineHullMachine(n_components=3)
    >>> clf = ReconstructionClassifier(model, n_layers=2).fit(X, y)
    >>> clf.distances(X[:2]).shape
    (2, 3)
    >>> clf.score(X, y) > 0.9
    True
    """

    _parameters: ClassVar[Accepted] = {
        "model": has("fit", "reconstruct", "distance") | None,
        "n_layers": whole(1),
        "branch_size": whole(1) | one_of("auto"),
        "privacy": instance(Privacy) | None,
        "release": one_of("auto", "rows", "moments"),
        "schema": instance(Schema) | None,
        "features": instance(str) | has("transform"),
        "classes": has("__len__") | None,
        "neighbours": one_of("replace", "add/remove"),
        "rows_per_class": whole(2),
        "fabricate": boolean | whole(0) | one_of("discrepancy", "original"),
        "partition_on": one_of("noised", "original"),
        "ledger": instance(Ledger) | None,
        "dataset": instance(str) | None,
        "allow_single_class": boolean,
        "n_jobs": jobs,
        "random_state": random_state,
    }

    def __init__(
        self,
        model: Any = None,
        *,
        n_layers: int = 5,
        branch_size: int | str = "auto",
        privacy: Privacy | None = None,
        release: str = "auto",
        schema: Schema | None = None,
        features: Any = "identity",
        classes: ArrayLike | None = None,
        neighbours: str = "replace",
        rows_per_class: int = 1000,
        fabricate: bool | Stop = False,
        partition_on: str = "noised",
        ledger: Ledger | None = None,
        dataset: str | None = None,
        allow_single_class: bool = False,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.model = model
        self.n_layers = n_layers
        self.branch_size = branch_size
        self.privacy = privacy
        self.release = release
        self.schema = schema
        self.features = features
        self.classes = classes
        self.neighbours = neighbours
        self.rows_per_class = rows_per_class
        self.fabricate = fabricate
        self.partition_on = partition_on
        self.ledger = ledger
        self.dataset = dataset
        self.allow_single_class = allow_single_class
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _first_layer(self) -> Any:
        """The unfitted model of the first layer."""
        return KernelAffineHullMachine() if self.model is None else self.model

    def _dimension(self) -> int:
        """N of the families by name, which have the parameter ``n_components``."""
        chosen = getattr(self, "n_components", "auto")
        if chosen != "auto":
            return int(chosen)
        encoder: HullClassifier | None = getattr(self, "encoder_", None)
        return 20 if encoder is None else encoder.hulls_.n_spread()

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Learn a model of every class.

        Parameters
        ----------
        X : array-like of shape (N, p), or a frame with the columns of ``schema``
            Training rows.
        y : array-like of shape (N,), optional
            Class labels; with a schema the default is its label column.
        groups : array-like of shape (N,), optional
            Whose each row is; needed for a promise per person.

        Returns
        -------
        ReconstructionClassifier
            This classifier, fitted.
        """
        validate_parameters(self)
        self.encoder_: HullClassifier | None = None
        if self.privacy is None and self.fabricate is not False:
            raise ValueError(
                "fabricate makes new rows out of noised ones and needs privacy=Privacy(…)."
            )
        if self._learns_from_moments():
            return self._fit_drawn(X, y, groups)
        charged = self._charge(X, "training rows of a classifier", groups)
        rows, targets = self._read(
            X, cast(ArrayLike, y), check_outputs=check_classification_targets
        )
        classes, labels = np.unique(targets, return_inverse=True)
        released = self._release(charged, rows, len(classes))
        self.branch_size_ = self._chosen_branch_size(released)
        if charged is not None and self.partition_on == "original":
            branches = self._split(rows, labels)
            released = replace(released, groups=branches).void(
                "the rows were clustered before the noise"
            )
        if self.fabricate is not False:
            original = rows if self.fabricate == "original" else None
            released = self._fabricate(released, labels, original)
        del X, rows  # from here on there is only what was released
        return self.learn(released, targets)

    def _learns_from_moments(self) -> bool:
        """Whether moments are released; refuses what goes with noise on rows only."""
        if self.privacy is None or self.release == "rows":
            if self.schema is not None:
                raise ValueError("A schema needs privacy with release='moments'.")
            return False
        if self.release == "auto" and RELEASES[self.privacy.unit][0] != "moments":
            return False
        if self.fabricate is not False or self.partition_on == "original":
            raise ValueError(
                "fabricate and partition_on are about noised rows: give release='rows', or leave "
                "them at their defaults."
            )
        return True

    def _fit_drawn(self, X: Any, y: Any, groups: Any) -> Self:
        """Learn from rows that are drawn from a release of class moments."""
        self._start()
        return self.learn_drawn(hull_encoder(self).fit(X, y, groups=groups))

    def learn_drawn(self, encoder: HullClassifier) -> Self:
        """Learn a model of every class from rows drawn from its moments: all post-processing.

        Parameters
        ----------
        encoder : permea.HullClassifier
            Fitted; its coordinates are those of the models.
        """
        rows, labels = encoder.draw(self.rows_per_class, random_state=self.random_state)
        step = (
            f"{self.rows_per_class} rows of each class were drawn from the released moments, in "
            f"{rows.shape[1]} directions, and the models learned from these"
        )
        released = Release(rows, encoder.certificate_)  # type: ignore[arg-type]
        self.encoder_ = encoder
        self._learn(released.add_step(step), labels)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(encoder, name):
                setattr(self, name, getattr(encoder, name))
        return self

    def learn(self, released: Release, y: ArrayLike) -> Self:
        """Learn a model of every class from a release of rows: all of it is post-processing.

        Parameters
        ----------
        released : permea.privacy.Release
            Rows that were released.
        y : array-like of shape (N,)
            Their class labels.
        """
        self.encoder_ = None
        return self._learn(released, y)

    def _learn(self, released: Release, y: ArrayLike) -> Self:
        self.classes_, labels = np.unique(np.asarray(y), return_inverse=True)
        if len(self.classes_) < 2 and not self.allow_single_class:
            raise ValueError(
                f"{type(self).__name__} got training data with one class only and cannot tell it "
                "from anything. Give rows of at least two classes, or set "
                "allow_single_class=True for a party of a federation."
            )
        self._certify(released)
        self.n_features_in_ = released.data.shape[1]
        self.branch_size_ = self._chosen_branch_size(released)
        groups = self._split(released.data, labels) if released.groups is None else released.groups
        self.class_models_ = self._learn_classes(released.data, groups)
        return self

    def _chosen_branch_size(self, released: Release) -> int:
        if self.branch_size == "auto":
            return default_branch_size(released.noise_ratio)
        return int(self.branch_size)

    def _split(self, rows: Array, labels: Indices) -> list[list[Indices]]:
        """Row numbers of the branches of each class, by k-means."""
        random = check_random_state(self.random_state)
        tasks = [
            (np.flatnonzero(labels == label), rows, self.branch_size_, seed)
            for label, seed in enumerate(random.randint(2**31 - 1, size=labels.max() + 1))
        ]
        return run_parallel(_split_class, tasks, n_jobs=self.n_jobs, desc="partition")

    def _fabricate(self, released: Release, labels: Indices, original: Array | None) -> Release:
        """Fabricate every branch of every class from its noised rows (004 Def. 15, Remark 4)."""
        groups = self._split(released.data, labels) if released.groups is None else released.groups
        made = fabricate(
            released,
            groups=[rows for branches in groups for rows in branches],
            n_components=getattr(self._first_layer(), "n_components", 20),
            stop=1 if self.fabricate is True else self.fabricate,
            tol=getattr(self._first_layer(), "tol", 5e-3),
            original=original,
            n_jobs=self.n_jobs,
        )
        assert made.certificate is not None
        return replace(released, data=made.data, certificate=made.certificate, groups=groups)

    def _learn_classes(self, rows: Array, groups: list[list[Indices]]) -> list[Wide]:
        """One wide model per class."""
        return self._learn_chains(self._first_layer(), rows, groups)

    def _learn_chains(self, layer: Any, rows: Array, groups: list[list[Indices]]) -> list[Wide]:
        """The same from a first layer; all branches of all classes are learned side by side."""
        chain = ConditionallyDeep(layer, n_layers=self.n_layers)
        tasks = [(chain, rows[part]) for parts in groups for part in parts]
        fitted = iter(run_parallel(fit_clone, tasks, n_jobs=self.n_jobs, desc="branches"))
        return [
            Wide(chain, branch_size=self.branch_size_).assemble(
                list(islice(fitted, len(parts))), [rows[part].mean(axis=0) for part in parts]
            )
            for parts in groups
        ]

    def distances(self, X: ArrayLike) -> Array:
        """Distance of each row to each class.

        Parameters
        ----------
        X : array-like of shape (m, p)
            Any points.

        Returns
        -------
        ndarray of shape (m, C)
            Γ_c of 004 Def. 6, columns in the order of ``classes_``.
        """
        return self._in_batches(_all_distances, X)

    def hull_distances(self, codes: ArrayLike) -> Array:
        """The same for rows that ``encoder_`` encoded."""
        check_is_fitted(self, "class_models_")
        return _all_distances(self.class_models_, np.asarray(codes))

    def winning_distances(self, X: ArrayLike) -> Array:
        """Distances of which the smallest of each row is exact; the others are not smaller.

        A class that provably cannot win may be infinitely far. Who needs the nearest class only
        saves most of the work.
        """
        return self._in_batches(nearest_class, X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class with the smallest distance (004 eq. 62).

        Classes that provably cannot win are not evaluated to the end; the labels are those of
        `distances`.

        Parameters
        ----------
        X : array-like of shape (m, p)
            Any points.

        Returns
        -------
        ndarray of shape (m,)
            Class labels.
        """
        nearest = self._in_batches(_nearest_classes, X)
        return np.asarray(self.classes_[nearest])

    def matching_scores(self, X: ArrayLike) -> Array:
        """Class-matching scores exp(−Γ_c² / Σ_c Γ_c²) (004 Def. 8), between 1/e and 1."""
        return matching_scores(self.distances(X))

    def predict_proba(self, X: ArrayLike) -> Array:
        """Class-matching scores divided by their sum.

        A documented normalisation of 004 Def. 8, not a calibrated probability: it is monotone in
        the distances, and the most probable class is the predicted one.
        """
        scores = self.matching_scores(X)
        return np.asarray(scores / scores.sum(axis=1, keepdims=True))

    def decision_function(self, X: ArrayLike) -> Array:
        """Logarithm of the class-matching scores; for two classes their difference.

        It ranks as the probabilities do, and its largest entry (or its sign, for two classes)
        names the predicted class.
        """
        with np.errstate(divide="ignore"):
            logarithms = np.log(self.matching_scores(X))
        if len(self.classes_) == 2:
            return np.asarray(logarithms[:, 1] - logarithms[:, 0])
        return np.asarray(logarithms)

    def _in_batches(self, answer: Any, X: ArrayLike) -> Array:
        """Answer queries batch by batch, on several workers, with bounded memory."""
        queries = self._codes(X)
        tasks = [(queries[rows],) for rows in batches(queries.shape[0], _BATCH)]
        found = run_shared(
            answer, self, self.class_models_, tasks, n_jobs=self.n_jobs, desc="queries"
        )
        return np.concatenate(found)

    def _codes(self, X: Any) -> Array:
        """Checked rows in the coordinates of the models."""
        check_is_fitted(self, "class_models_")
        if self.encoder_ is not None:
            return self.encoder_.encode(X)
        return np.asarray(validate_data(self, X, dtype=FLOATS, reset=False))


def _all_distances(models: list[Wide], X: Array) -> Array:
    cutoff = np.full(X.shape[0], np.inf, X.dtype)
    return np.column_stack([model.distance_below(X, cutoff) for model in models])


def _nearest_classes(models: list[Wide], X: Array) -> Indices:
    """Position of the nearest class."""
    return np.asarray(nearest_class(models, X, labels_only=True).argmin(axis=1))


def hull_encoder(owner: Any) -> HullClassifier:
    """The unfitted `permea.HullClassifier` that releases moments for an estimator."""
    names = (
        "privacy", "schema", "features", "classes", "neighbours", "ledger", "dataset",
        "random_state",
    )  # fmt: skip
    return HullClassifier(**{name: getattr(owner, name) for name in names})


def _split_class(mine: Indices, rows: Array, branch_size: int, seed: int) -> list[Indices]:
    """Row numbers of each branch of one class."""
    return [mine[part] for part in partition(rows[mine], branch_size, random_state=int(seed))]
