"""The source artefact: everything about a labelled source that a target can learn from.

Two kinds of release lead to it. Noised rows (per entry) give a classifier, directions, centres and
densities by learning from them. Noised moments of the classes (per record, per person) are those
of a `permea.HullClassifier`: its coordinates are the space of the source, and the hulls of the
classes in them are its classifier, its densities and its centres.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from permea._arrays import Array
from permea._validate import (
    Accepted,
    has,
    instance,
    jobs,
    one_of,
    random_state,
    validate_parameters,
    whole,
)
from permea.compose import KAHMClassifier, ReconstructionClassifier
from permea.compose.classifier import hull_encoder
from permea.models.base import matching_scores, row_norms
from permea.models.calibration import class_shares
from permea.models.features import ScaledIdentity
from permea.models.hull import ClassHulls, HullClassifier
from permea.privacy import Ledger, Privacy
from permea.privacy.estimator import PrivateEstimator
from permea.privacy.release import RELEASES, Release
from permea.tables import Schema
from permea.transfer.alignment import leading_directions, principal_directions
from permea.transfer.densities import ClassMixtures, class_moments, fit_mixtures, hull_densities


@dataclass(frozen=True)
class ClassHull:
    """The hull of one class as a model of points in its coordinates: image and distance.

    Examples
    --------
    >>> import numpy as np
    >>> hulls = ClassHulls(np.eye(2), np.zeros((1, 2)), np.array([[0.0, 9.0]]), np.eye(2)[None],
    ...                    np.array([1.0]))
    >>> ClassHull(hulls, 0).distance(np.array([[1.0, 1.0]])).round(4).tolist()
    [1.005]
    """

    hulls: ClassHulls
    label: int

    def reconstruct(self, Y: Array) -> Array:
        """Image of every point in the hull (004 eq. 33 with a linear kernel)."""
        return self.hulls.images(np.asarray(Y, np.float64), self.label)

    def distance(self, Y: Array) -> Array:
        """Distance of every point to its image."""
        return row_norms(Y - self.reconstruct(Y))


class SourceModel(PrivateEstimator, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Everything about a labelled source that a target can learn from, and no row of it.

    There is one release, of rows or of moments, and everything else is post-processing of it: one
    entry in the ledger. Per entry the rows are noised. From the noised rows come: a classifier (000
    Alg. 6), the latent directions V⁺ (000 §4.2, 001 §1.3.2), the class centres in them (000 eq.
    118), and the first and second moments of each class with the known noise subtracted. Per record
    and per person class moments are noised instead, those of a `permea.HullClassifier`. The rows of
    a target are then encoded as that does (`encode`), and in its coordinates the hulls of the
    classes take the place of the classifier, of mixtures and of centres.

    Parameters
    ----------
    privacy : permea.privacy.Privacy, default=None
        The guarantee. None keeps the rows, or their moments, as they are; the artefact then
        counts as containing the rows.
    classifier : classifier of this library, default=None
        Unfitted classifier of any family. Its own ``privacy`` must be None: the noise is added
        here. When None: `KAHMClassifier`, and after a release of moments the hulls. A classifier
        that is given learns from rows drawn from the moments (its ``rows_per_class``).
    release : "auto", "rows" or "moments", default="auto"
        What leaves the wall. "auto" is "rows" per entry, and "moments" per record, per person and
        with a schema.
    schema : permea.tables.Schema, default=None
        For "moments": what is declared about the columns of a table. Rows are then frames.
    features : {"identity", "fourier", "gradients"} or transformer, default="identity"
        For "moments": the public map of one row. "identity" keeps the columns; targets with other
        columns can be aligned with these only. "gradients" is for images.
    classes : sequence, default=None
        For "moments": the public set of labels, declared and never read from the rows.
    neighbours : {"replace", "add/remove"}, default="replace"
        For "moments": how neighbouring data sets differ.
    n_directions : int, default=None
        Number of latent directions V⁺ that are handed over, the largest n_st a target can choose.
        None gives ⌈p/2⌉ (000 §5, 001 §1.4).
    moments_limit : int, default=1024
        Second moments are kept for at most this many features (they take C·p² numbers).
    ledger : permea.privacy.Ledger, default=None
        Account that is charged before the rows are read.
    dataset : str, default=None
        Name of the rows in the ledger. Rows without a name count against every data set.
    n_jobs : int, default=None
        Workers, as joblib counts them, for a classifier that does not say.
    random_state : int, RandomState instance or None, default=None
        For reproducible (hence not private) noise, and for k-means.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Class labels.
    classifier_ : fitted classifier
        Learned from the noised rows, or from rows drawn from the moments; else the hulls.
    encoder_ : permea.HullClassifier or None
        After a release of moments: what was released, and how rows get to the space of the source.
        It is a part of ``classifier_``.
    directions_ : ndarray of shape (n_directions or ⌈p/2⌉, p)
        V⁺, orthonormal rows; fewer where the rows do not vary in more directions. After a release
        of moments p is here and below the number of coordinates of ``encoder_``.
    centres_ : ndarray of shape (C, n_directions or ⌈p/2⌉)
        Median of V⁺y⁺ in each class (000 eq. 118); means, after a release of moments.
    mixtures_ : tuple of permea.transfer.densities.ClassMixtures
        Gaussian mixtures of each class from several starts, noise subtracted; empty where the
        noise drowns everything. After a release of moments one Gaussian for each class.
    moments_ : permea.transfer.densities.ClassMoments
        Moments of each class, noise subtracted.
    certificate_ : permea.privacy.Certificate or None
        What is promised, to whom, about what.
    holds_private_rows_ : bool
        Whether the training rows can be read out of this object.
    n_features_in_ : int
        Number of columns of the rows.

    See Also
    --------
    TransferClassifier : what the receiver does with it.

    Examples
    --------
    >>> from permea import Privacy
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> X = X / 16
    >>> source = SourceModel(privacy=Privacy(epsilon=4, delta=1e-5, domain=(0, 1))).fit(X, y)
    >>> source.directions_.shape, source.centres_.shape
    ((32, 64), (10, 32))
    >>> source.certificate_.is_private, source.holds_private_rows_
    (True, False)
    >>> promise = Privacy(epsilon=8, delta=1e-5, unit="record", domain=(0, 1))
    >>> source = SourceModel(privacy=promise, classes=range(10)).fit(X, y)
    >>> source.moments_.means.shape[1] == source.encode(X[:1]).shape[1] <= 64
    True
    """

    _parameters: ClassVar[Accepted] = {
        "privacy": instance(Privacy) | None,
        "classifier": instance(ReconstructionClassifier) | None,
        "release": one_of("auto", "rows", "moments"),
        "schema": instance(Schema) | None,
        "features": instance(str) | has("transform"),
        "classes": has("__len__") | None,
        "neighbours": one_of("replace", "add/remove"),
        "n_directions": whole(1) | None,
        "moments_limit": whole(0),
        "ledger": instance(Ledger) | None,
        "dataset": instance(str) | None,
        "n_jobs": jobs,
        "random_state": random_state,
    }

    def __init__(
        self,
        *,
        privacy: Privacy | None = None,
        classifier: Any = None,
        release: str = "auto",
        schema: Schema | None = None,
        features: Any = "identity",
        classes: ArrayLike | None = None,
        neighbours: str = "replace",
        n_directions: int | None = None,
        moments_limit: int = 1024,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.privacy = privacy
        self.classifier = classifier
        self.release = release
        self.schema = schema
        self.features = features
        self.classes = classes
        self.neighbours = neighbours
        self.n_directions = n_directions
        self.moments_limit = moments_limit
        self.ledger = ledger
        self.dataset = dataset
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Release rows or moments, and learn from what came through the wall.

        Parameters
        ----------
        X : array-like of shape (N, p), or a frame with the columns of ``schema``
            Source rows.
        y : array-like of shape (N,), optional
            Class labels; entry-level noise does not protect them. With a schema the default is its
            label column.
        groups : array-like of shape (N,), optional
            Whose each row is; needed for a promise per person.

        Returns
        -------
        SourceModel
            This artefact, fitted.
        """
        validate_parameters(self)
        if self._releases_moments():
            return self._fit_moments(X, y, groups)
        charged = self._charge(X, "source of a transfer", groups)
        rows, targets = self._read(
            X, cast(ArrayLike, y), check_outputs=check_classification_targets
        )
        classifier = self._unfitted(rows.shape[1])
        self.classes_, labels = np.unique(targets, return_inverse=True)
        n_classes = len(self.classes_)
        if n_classes < 2 and not classifier.allow_single_class:
            raise ValueError("SourceModel got one class only. Give rows of at least two classes.")
        released = self._release(charged, rows, n_classes).add_step(
            "classifier, directions, centres and moments were learned from the noised rows"
        )
        del X, rows  # from here on there is only what was released
        no_noise = np.zeros(released.data.shape[1])
        self.noise_ = no_noise if charged is None else np.asarray(released.noise_variance)
        self._learn(released.data, labels, n_classes)
        self.classifier_: Any = classifier.learn(released, targets)
        self._certify(released)
        return self

    def _releases_moments(self) -> bool:
        """Whether moments are released; rows are not read by a schema."""
        if self.release == "auto":
            unit = "entry" if self.privacy is None else self.privacy.unit
            return self.schema is not None or RELEASES[unit][0] == "moments"
        if self.release == "rows" and self.schema is not None:
            raise ValueError("A schema needs release='moments'.")
        return self.release == "moments"

    def _fit_moments(self, X: Any, y: Any, groups: Any) -> Self:
        """Release the moments of the classes, and take everything from their hulls."""
        self._start()
        if self.classifier is not None:
            self._unfitted(1)  # says what is wrong with it before the charge
        return self.learn_drawn(hull_encoder(self).fit(X, y, groups=groups))

    def learn_drawn(self, encoder: HullClassifier) -> Self:
        """Take everything from the class moments that were released: all post-processing.

        Parameters
        ----------
        encoder : permea.HullClassifier
            Fitted, perhaps by ``fit_chunks`` to more rows than fit into memory.
        """
        classifier = None if self.classifier is None else self._unfitted(1)
        self.classes_ = encoder.classes_
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(encoder, name):
                setattr(self, name, getattr(encoder, name))
        released = Release(certificate=encoder.certificate_)  # type: ignore[arg-type]
        self._learn_hulls(encoder)
        self.classifier_ = encoder
        if classifier is not None:
            self.classifier_ = classifier.learn_drawn(encoder)
            released = replace(released, certificate=self.classifier_.certificate_)
        self._certify(
            released.add_step("hulls, centres and densities of the classes follow from the moments")
        )
        return self

    def _learn_hulls(self, encoder: HullClassifier) -> None:
        """Directions, centres, densities and moments in the coordinates of the hulls."""
        shares = class_shares(encoder.moments_)
        mixture, self.moments_ = hull_densities(encoder.hulls_, shares * encoder.moments_.size)
        self.mixtures_: tuple[ClassMixtures, ...] = (mixture,)
        means, seconds = self.moments_.means, self.moments_.seconds
        centre = shares @ means
        total = np.tensordot(shares, seconds, 1) - np.outer(centre, centre)  # type: ignore[arg-type]
        self.directions_ = leading_directions(total, self._n_directions(len(total)))
        self.centres_ = means @ self.directions_.T
        self.noise_ = np.zeros(len(total))

    def _unfitted(self, n_features: int) -> Any:
        """The classifier to learn."""
        chosen = self.classifier
        if chosen is None:
            most = max(min(20, n_features), 1)  # 000 §5: min(20, p_sr)
            chosen = KAHMClassifier(n_components=most, n_jobs=self.n_jobs)
        if chosen.privacy is not None or chosen.fabricate is not False:
            raise ValueError(
                "The classifier of a SourceModel gets rows that are noised already. Leave its "
                "privacy and fabricate at their defaults and give privacy to SourceModel."
            )
        made = clone(chosen)
        if made.random_state is None and self.random_state is not None:
            made.set_params(random_state=self._seed())
        return made

    def _n_directions(self, p: int) -> int:
        """Number of latent directions of rows with p columns."""
        return math.ceil(p / 2) if self.n_directions is None else min(self.n_directions, p)

    def _seed(self) -> int:
        """Seed for k-means; the noise does not come from it."""
        if self.random_state is None:
            return 0
        return int(check_random_state(self.random_state).randint(2**31 - 100))

    def _learn(self, data: Array, labels: NDArray[np.intp], n_classes: int) -> None:
        """Directions, centres (000 eq. 118), mixtures and moments of the noised rows."""
        p = data.shape[1]
        self.directions_ = principal_directions(data, self._n_directions(p))
        codes = data @ self.directions_.T
        each = [np.median(codes[labels == label], axis=0) for label in range(n_classes)]
        self.centres_ = np.stack(each)
        seconds = p <= self.moments_limit
        self.mixtures_ = fit_mixtures(
            data,
            labels,
            n_classes,
            self.directions_,
            self.noise_,
            n_jobs=self.n_jobs,
            seed=self._seed(),
        )
        self.moments_ = class_moments(data, labels, n_classes, self.noise_, seconds=seconds)

    @property
    def encoder_(self) -> HullClassifier | None:
        """What encodes the rows after a release of moments."""
        if isinstance(self.classifier_, HullClassifier):
            return self.classifier_
        return cast("HullClassifier | None", self.classifier_.encoder_)

    def encode(self, X: Any) -> Array:
        """Rows in the space of the source: as they are, or in the coordinates of the hulls."""
        check_is_fitted(self, "classifier_")
        if self.encoder_ is not None:
            return self.encoder_.encode(X)
        return np.asarray(validate_data(self, X, dtype=[np.float64, np.float32], reset=False))

    @property
    def class_models(self) -> list[Any]:
        """The model of each class, with images and distances in the space of the source."""
        if isinstance(self.classifier_, HullClassifier):
            return [ClassHull(self.classifier_.hulls_, c) for c in range(len(self.classes_))]
        return list(self.classifier_.class_models_)

    def space_distances(self, Z: Array) -> Array:
        """Distance of each row of the space of the source to each class, shape (m, C)."""
        if self.encoder_ is None:
            return np.asarray(self.classifier_.distances(Z))
        return np.column_stack([model.distance(Z) for model in self.class_models])

    def distances(self, X: Any) -> Array:
        """Distance of each row to each class, shape (m, C)."""
        return self.space_distances(self.encode(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Class of each row: the nearest."""
        return self.predict_space(self.encode(X))

    def predict_space(self, Z: Array) -> NDArray[Any]:
        """Class of each row of the space of the source."""
        if self.encoder_ is None:
            return np.asarray(self.classifier_.predict(Z))
        return np.asarray(self.classes_[self.space_distances(Z).argmin(axis=1)])

    def predict_proba(self, X: Any) -> Array:
        """Class-matching scores divided by their sum (not calibrated)."""
        scores = matching_scores(self.distances(X))
        return np.asarray(scores / scores.sum(axis=1, keepdims=True))

    def column_directions(self) -> tuple[Array, Array]:
        """V⁺ in the columns of the rows, and the class centres in it: for targets with others.

        Returns
        -------
        directions, centres : ndarray of shape (n, p) and (C, n)
        """
        check_is_fitted(self, "classifier_")
        if self.encoder_ is None:
            return self.directions_, self.centres_
        public, moments = self.encoder_.map_, self.encoder_.moments_
        if not isinstance(public, ScaledIdentity):
            raise ValueError(
                "The target has other columns than the source, whose moments are about features of "
                "its own columns and not about these. Bring the rows to the source's columns (such "
                "as images to the same size), or ask its owner for features='identity'."
            )
        p = self.n_features_in_
        low, high = (np.broadcast_to(np.asarray(end, float), (p,)) for end in public.domain)
        scale = (high - low) / 2 * math.sqrt(p)
        covariance = np.outer(scale, scale) * moments.centred().second / moments.size
        noise = moments.noise_norm / moments.size * float(np.square(scale).max())
        directions = leading_directions(covariance, self._n_directions(p), least=noise)
        counts = class_shares(moments) * moments.size
        means = (low + high) / 2 + scale * (self.encoder_.mean_ + (moments.cross / counts).T)
        return directions, np.asarray(means @ directions.T)
