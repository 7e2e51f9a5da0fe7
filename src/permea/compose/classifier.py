"""What a classifier learns from: the rows as they are, or what came through the wall."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array, Indices, Mask
from permea._parallel import batches, run_parallel
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
    check_depth,
    fit_clone,
    nearest_centre,
    nearest_first,
)
from permea.fabricate.rows import Fabricated, Stop, fabricate, what_stopped
from permea.models.kahm import KernelAffineHullMachine
from permea.models.partition import partition
from permea.privacy import Certificate, Ledger, Privacy
from permea.privacy.release import (
    PaidRelease,
    noise_ratio,
    noise_variance,
    pay_for_rows,
    read_after_charge,
)

_PLAIN_BRANCH = 1000  # 004 eq. (59)
_LARGEST_BRANCH = 8000  # a kernel matrix of 256 MB in single precision
_STRONG_NOISE = 0.5  # standard deviation of the noise over the width of the domain


@dataclass(frozen=True)
class Learnable:
    """Rows to learn from, with what is promised about them."""

    data: Array
    certificate: Certificate | None  #: None for rows as they are
    holds_private_rows: bool
    parts: list[list[Indices]] | None = None  #: branches of each class, where they are given


@dataclass(frozen=True, kw_only=True)
class Wall:
    """The way of training rows to a classifier: noise once, then perhaps fabrication.

    Everything that is computed after `pass_through` gets its result and nothing else. Two choices
    of document 004 read raw rows a second time and are kept for reproduction: clustering before
    the noise (``partition_on="original"``, Remark 4) and the stopping rule of the fabrication
    (``fabricate="original"``, eq. 88). Both void the certificate.
    """

    privacy: Privacy | None
    fabricate: bool | Stop
    partition_on: str
    n_components: int
    branch_size: int
    ledger: Ledger | None
    dataset: str | None
    random_state: np.random.RandomState | None
    n_jobs: int | None

    def pay(self, X: Any) -> PaidRelease | None:
        """Charge the release before any value is read; nothing to pay without privacy."""
        if self.privacy is None:
            return None
        text = "training rows of a classifier"
        return pay_for_rows(
            X, self.privacy, ledger=self.ledger, dataset=self.dataset, description=text
        )

    def pass_through(
        self, X: Array, labels: NDArray[np.intp], paid: PaidRelease | None
    ) -> Learnable:
        """Noise the rows, or let them pass untouched when no privacy is asked for."""
        if paid is None:
            return Learnable(X, None, True)
        n_classes = len(np.unique(labels))
        released = paid.release(X, random_state=self.random_state, n_classes=n_classes)
        data, certificate, parts = released.data, released.certificate, None
        if self.partition_on == "original":
            parts = self._parts(X, labels)
            certificate = certificate.void("the rows were clustered before the noise")
        if self.fabricate is not False:
            groups = self._parts(data, labels) if parts is None else parts
            original = X if self.fabricate == "original" else None
            data, stopped_by = self._fabricated(data, groups, original)
            certificate = certificate.add_step(
                f"fabricated per class from the noised rows; end of the smoothing: {stopped_by}"
            )
            if original is not None:
                certificate = certificate.void("the fabrication read private rows to know its end")
        return Learnable(data, certificate, bool(certificate.void_reasons), parts)

    def _parts(self, rows: Array, labels: NDArray[np.intp]) -> list[list[Indices]]:
        """Row numbers of each branch of each class."""
        found: list[list[Indices]] = []
        for label in np.unique(labels):
            mine = np.flatnonzero(labels == label)
            parts = partition(rows[mine], self.branch_size, random_state=self.random_state)
            found.append([mine[part] for part in parts])
        return found

    def _fabricated(
        self, noised: Array, groups: list[list[Indices]], original: Array | None
    ) -> tuple[Array, str]:
        """Fabricate every branch of every class from its noised rows (004 Def. 15, Remark 4)."""
        assert self.privacy is not None
        stop: Stop = 1 if self.fabricate is True else self.fabricate
        variance = noise_variance(self.privacy, noised.shape[1])
        data = np.empty_like(noised)
        tasks = [
            (noised[rows], stop, variance, None if original is None else original[rows])
            for branches in groups
            for rows in branches
        ]
        results = run_parallel(self._fabricate_branch, tasks, n_jobs=self.n_jobs, desc="fabricate")
        for rows, made in zip([r for branches in groups for r in branches], results, strict=True):
            data[rows] = made.data
        return data, what_stopped(results)

    def _fabricate_branch(
        self, noised: Array, stop: Stop, variance: Array, original: Array | None
    ) -> Fabricated:
        return fabricate(
            noised,
            n_components=self.n_components,
            stop=stop,
            noise_variance=variance,
            original=original,
        )


def default_branch_size(privacy: Privacy | None, n_features: int) -> int:
    """Rows of a branch when the user does not say: larger under strong noise.

    Clusters found in noised rows mean less the stronger the noise is, and noise is averaged out
    over the rows of a branch. From a public ratio of noise to domain of one half on, a class stays
    together as far as memory allows; below it the branches are those of 004 eq. (59).

    Examples
    --------
    >>> default_branch_size(None, 784), default_branch_size(Privacy(epsilon=8, domain=(0, 1)), 784)
    (1000, 1000)
    >>> default_branch_size(Privacy(epsilon=1, domain=(0, 1)), 784)
    8000
    """
    if privacy is None or noise_ratio(privacy, n_features) < _STRONG_NOISE:
        return _PLAIN_BRANCH
    return _LARGEST_BRANCH


_BATCH = 1024  # queries that walk through all classes together


class ReconstructionClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
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
        Perturb the rows with this guarantee before anything else sees them. None learns from the
        rows as they are, and the fitted classifier contains them.
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

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn a model of every class.

        Parameters
        ----------
        X : array-like of shape (N, p)
            Training rows.
        y : array-like of shape (N,)
            Class labels.

        Returns
        -------
        ReconstructionClassifier
            This classifier, fitted.
        """
        validate_parameters(self)
        check_depth(self._first_layer(), self.n_layers)
        random = check_random_state(self.random_state)
        paid = None
        if self.privacy is not None:  # charged before a value is read
            paid = self._wall(0, random).pay(X)
        rows, targets = self._read(X, y)
        classes, labels = np.unique(targets, return_inverse=True)
        self._check_classes(classes)
        branch_size = self._chosen_branch_size(rows.shape[1])
        learned = self._wall(branch_size, random).pass_through(rows, labels, paid)
        del X, rows  # from here on there is only what came through the wall
        models = self._learn_classes(learned, labels, branch_size, random)
        self.classes_ = classes
        self.class_models_ = models
        self.certificate_ = learned.certificate
        self.holds_private_rows_ = learned.holds_private_rows
        self.branch_size_ = branch_size
        return self

    def _read(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, NDArray[Any]]:
        """Rows and labels, checked; with privacy this is done after the charge."""

        def read() -> tuple[Array, NDArray[Any]]:
            rows, targets = validate_data(self, X, y, dtype=[np.float64, np.float32])
            check_classification_targets(targets)
            return rows, targets

        return read() if self.privacy is None else read_after_charge(read)

    def _wall(self, branch_size: int, random: np.random.RandomState) -> Wall:
        if self.privacy is None and self.fabricate is not False:
            raise ValueError(
                "fabricate makes new rows out of noised ones and needs privacy=Privacy(…)."
            )
        return Wall(
            privacy=self.privacy,
            fabricate=self.fabricate,
            partition_on=self.partition_on,
            n_components=getattr(self._first_layer(), "n_components", 20),
            branch_size=branch_size,
            ledger=self.ledger,
            dataset=self.dataset,
            random_state=None if self.random_state is None else random,
            n_jobs=self.n_jobs,
        )

    def _check_classes(self, classes: NDArray[Any]) -> None:
        if len(classes) < 2 and not self.allow_single_class:
            raise ValueError(
                f"{type(self).__name__} got training data with one class only and cannot tell it "
                "from anything. Give rows of at least two classes, or set "
                "allow_single_class=True for a party of a federation."
            )

    def _chosen_branch_size(self, n_features: int) -> int:
        if isinstance(self.branch_size, str):
            return default_branch_size(self.privacy, n_features)
        return int(self.branch_size)

    def _learn_classes(
        self,
        learned: Learnable,
        labels: NDArray[np.intp],
        branch_size: int,
        random: np.random.RandomState,
    ) -> list[Wide]:
        """One wide model per class; all branches of all classes are learned side by side."""
        n_classes = int(labels.max()) + 1
        chain = ConditionallyDeep(self._first_layer(), n_layers=self.n_layers)
        seeds = random.randint(np.iinfo(np.int32).max, size=n_classes)
        models = [Wide(chain, branch_size=branch_size, random_state=int(seed)) for seed in seeds]
        parts = learned.parts
        if parts is None:
            tasks = [(models[c], learned.data, labels == c) for c in range(n_classes)]
            parts = run_parallel(_split_class, tasks, n_jobs=self.n_jobs, desc="partition")
        branches = [(learned.data[rows], c) for c in range(n_classes) for rows in parts[c]]
        fitted = run_parallel(
            fit_clone, [(chain, rows) for rows, _ in branches], n_jobs=self.n_jobs, desc="branches"
        )
        for label, model in enumerate(models):
            mine = [index for index, (_, owner) in enumerate(branches) if owner == label]
            model.assemble(
                [fitted[index] for index in mine],
                [branches[index][0].mean(axis=0) for index in mine],
            )
        return models

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
        return self._in_batches(self._all_distances, X)

    def winning_distances(self, X: ArrayLike) -> Array:
        """Distances of which the smallest of each row is exact; the others are not smaller.

        A class that provably cannot win may be infinitely far. Who needs the nearest class only
        saves most of the work.
        """
        return self._in_batches(self._winning_distances, X)

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
        nearest = self.winning_distances(X).argmin(axis=1)
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
        check_is_fitted(self, "class_models_")
        queries = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        tasks = [(queries[rows],) for rows in batches(queries.shape[0], _BATCH)]
        return np.concatenate(run_parallel(answer, tasks, n_jobs=self.n_jobs, desc="queries"))

    def _all_distances(self, X: Array) -> Array:
        return np.column_stack([model.distance(X) for model in self.class_models_])

    def _winning_distances(self, X: Array) -> Array:
        """Distances of which the smallest of each row is exact."""
        models = self.class_models_
        nearness = [nearest_centre(X, model.centres_)[1].min(axis=1) for model in models]
        guess = np.argmin(nearness, axis=0)
        return nearest_first(models, guess, X, np.full(X.shape[0], np.inf, X.dtype))


def _split_class(model: Wide, rows: Array, mine: Mask) -> list[Indices]:
    """Row numbers of each branch of one class."""
    numbers = np.flatnonzero(mine)
    return [numbers[part] for part in model.split(rows[numbers])]


def matching_scores(distances: Array) -> Array:
    """Class-matching scores of 004 Def. 8 from distances of shape (m, C).

    A class that is infinitely far scores 0; when all distances are zero, all score 1.

    Examples
    --------
    >>> import numpy as np
    >>> matching_scores(np.array([[1.0, 1.0], [0.0, 2.0], [1.0, np.inf]])).round(4)
    array([[0.6065, 0.6065],
           [1.    , 0.3679],
           [0.3679, 0.    ]])
    """
    finite = np.isfinite(distances)
    largest = np.max(distances, axis=1, where=finite, initial=0, keepdims=True)
    largest[largest == 0] = 1
    squared = np.square(np.where(finite, distances / largest, 0))
    total = squared.sum(axis=1, keepdims=True)
    total[total == 0] = 1
    return np.where(finite, np.exp(-squared / total), 0)
