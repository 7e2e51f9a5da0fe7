"""The artefact that a data owner hands over: one spend of privacy, everything a target needs."""

import math
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from permea.compose import KAHMClassifier, ReconstructionClassifier
from permea.compose.wall import default_branch_size
from permea.models.base import Array
from permea.privacy import Certificate, Ledger, Privacy
from permea.privacy.payment import read_after_charge
from permea.privacy.release import PaidRelease, pay_for_rows
from permea.privacy.strength import noise_variance
from permea.transfer.alignment import principal_directions
from permea.transfer.mixture import fit_mixtures
from permea.transfer.moments import class_moments


class SourceModel(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Everything about a labelled source that a target can learn from, and no row of it.

    The rows are noised once. From the noised rows alone come: a classifier (000 Alg. 6), the
    latent directions V⁺ (000 §4.2, 001 §1.3.2), the class centres in them (000 eq. 118), and the
    first and second moments of each class with the known noise subtracted. All of it is
    post-processing of one release, so it is one entry in the ledger.

    Parameters
    ----------
    privacy : permea.privacy.Privacy, default=None
        Guarantee with which the rows are perturbed before anything else sees them. None keeps the
        rows as they are, and the artefact then contains them.
    classifier : classifier of this library, default=None
        Unfitted classifier of any family; `KAHMClassifier` when None. Its own ``privacy`` must be
        None: the noise is added here.
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
        Learned from the noised rows.
    directions_ : ndarray of shape (⌈p/2⌉, p)
        V⁺, orthonormal rows; fewer where the rows do not vary in more directions.
    centres_ : ndarray of shape (C, ⌈p/2⌉)
        Median of V⁺y⁺ in each class (000 eq. 118).
    mixtures_ : tuple of permea.transfer.mixture.ClassMixtures
        Gaussian mixtures of each class from several starts, noise subtracted; empty where the
        noise drowns everything.
    moments_ : permea.transfer.moments.ClassMoments
        Moments of each class, noise subtracted.
    certificate_ : permea.privacy.Certificate or None
        What is promised, to whom, about what.
    holds_private_rows_ : bool
        Whether the training rows can be read out of this object.
    n_features_in_ : int
        Number of features p.

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
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "privacy": [Privacy, None],
        "classifier": [ReconstructionClassifier, None],
        "moments_limit": [Interval(Integral, 0, None, closed="left")],
        "ledger": [Ledger, None],
        "dataset": [str, None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        privacy: Privacy | None = None,
        classifier: Any = None,
        moments_limit: int = 1024,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.privacy = privacy
        self.classifier = classifier
        self.moments_limit = moments_limit
        self.ledger = ledger
        self.dataset = dataset
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Noise the rows and learn from what came through the wall.

        Parameters
        ----------
        X : array-like of shape (N, p)
            Source rows.
        y : array-like of shape (N,)
            Class labels; entry-level noise does not protect them.

        Returns
        -------
        SourceModel
            This artefact, fitted.
        """
        self._validate_params()
        paid = self._pay(X)
        rows, targets = self._read(X, y)
        classifier = self._unfitted(rows.shape[1])
        classes, labels = np.unique(targets, return_inverse=True)
        if len(classes) < 2 and not classifier.allow_single_class:
            raise ValueError("SourceModel got one class only. Give rows of at least two classes.")
        data, certificate = self._through_the_wall(rows, len(classes), paid)
        del X, rows  # from here on there is only what came through the wall
        self._learn(data, labels, len(classes))
        self.classifier_ = _certified(classifier.fit(data, classes[labels]), certificate)
        self.classes_ = classes
        self.certificate_ = certificate
        self.holds_private_rows_ = certificate is None
        return self

    def _unfitted(self, n_features: int) -> Any:
        """The classifier to learn, with a branch size that suits the noise."""
        chosen = self.classifier
        if chosen is None:
            most = max(min(20, n_features), 1)  # 000 §5: min(20, p_sr)
            chosen = KAHMClassifier(n_components=most, n_layers=min(5, most), n_jobs=self.n_jobs)
        if chosen.privacy is not None or chosen.fabricate is not False:
            raise ValueError(
                "The classifier of a SourceModel gets rows that are noised already. Leave its "
                "privacy and fabricate at their defaults and give privacy to SourceModel."
            )
        made = clone(chosen)
        if made.branch_size == "auto":
            made.set_params(branch_size=default_branch_size(self.privacy, n_features))
        if made.random_state is None and self.random_state is not None:
            made.set_params(random_state=self._seed())
        return made

    def _seed(self) -> int:
        """Seed for k-means; the noise does not come from it."""
        if self.random_state is None:
            return 0
        return int(check_random_state(self.random_state).randint(2**31 - 100))

    def _pay(self, X: Any) -> PaidRelease | None:
        """Charge the release before any value is read; nothing to pay without privacy."""
        if self.privacy is None:
            return None
        text = "source of a transfer"
        return pay_for_rows(
            X, self.privacy, ledger=self.ledger, dataset=self.dataset, description=text
        )

    def _read(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, NDArray[Any]]:
        """Rows and labels, checked; with privacy this is done after the charge."""

        def read() -> tuple[Array, NDArray[Any]]:
            rows, targets = validate_data(self, X, y, dtype=[np.float64, np.float32])
            check_classification_targets(targets)
            return rows, targets

        return read() if self.privacy is None else read_after_charge(read)

    def _through_the_wall(
        self, rows: Array, n_classes: int, paid: PaidRelease | None
    ) -> tuple[Array, Certificate | None]:
        """Noised rows and their certificate; the rows themselves without privacy."""
        self.noise_ = np.zeros(rows.shape[1])
        if self.privacy is None or paid is None:
            return rows, None
        seeded = None if self.random_state is None else check_random_state(self.random_state)
        released = paid.release(rows, random_state=seeded, n_classes=n_classes)
        self.noise_ = noise_variance(self.privacy, rows.shape[1])
        step = "classifier, directions, centres and moments were learned from the noised rows"
        return released.data, released.certificate.add_step(step)

    def _learn(self, data: Array, labels: NDArray[np.intp], n_classes: int) -> None:
        """Directions, centres (000 eq. 118), mixtures and moments of the noised rows."""
        p = data.shape[1]
        self.directions_ = principal_directions(data, math.ceil(p / 2))
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

    def distances(self, X: ArrayLike) -> Array:
        """Distance of each row of the source space to each class, shape (m, C)."""
        rows = self._checked(X)
        return np.asarray(self.classifier_.distances(rows))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each row of the source space."""
        rows = self._checked(X)
        return np.asarray(self.classifier_.predict(rows))

    def predict_proba(self, X: ArrayLike) -> Array:
        """Class-matching scores divided by their sum (not calibrated)."""
        rows = self._checked(X)
        return np.asarray(self.classifier_.predict_proba(rows))

    def _checked(self, X: ArrayLike) -> Array:
        check_is_fitted(self, "classifier_")
        return np.asarray(validate_data(self, X, dtype=[np.float64, np.float32], reset=False))


def _certified(classifier: Any, certificate: Certificate | None) -> Any:
    """Say on a classifier that learned from noised rows what is promised about them."""
    classifier.certificate_ = certificate
    classifier.holds_private_rows_ = certificate is None
    return classifier
