"""The membership-inference score: whether distances tell training rows from others.

A distance-based classifier answers with how far a row is from the training rows of each class. If
training rows are systematically nearer than others, the distance tells who was in the training set.
004 §4.3 measures that by the squared L2 distance between the density of the smallest distance on
training rows and its density on test rows (004 eq. 65-69).
"""

from typing import Any

from numpy.typing import ArrayLike

from permea.audit import signals
from permea.audit.density import density_difference


def membership_inference_score(
    clf: Any,
    X_train: ArrayLike,
    X_test: ArrayLike,
    *,
    standardize: bool = False,
    random_state: int | None = 0,
) -> float:
    r"""Score how well a classifier's answers tell its training rows from others (004 eq. 69).

    .. math:: mis = \int (f_{r}(r) - f_{r'}(r))^2\,dr

    with :math:`f_r` the density of the smallest class distance over the training rows and
    :math:`f_{r'}` the same over test rows, estimated by :func:`~permea.audit.density_difference`.
    A classifier without ``distances`` is scored on its confidence, the largest class probability.

    Parameters
    ----------
    clf : fitted classifier
        With ``distances(X)`` (n × classes), or any scikit-learn classifier.
    X_train, X_test : array-like of shape (n, n_features)
        Rows the classifier was trained on, and rows it never saw.
    standardize : bool
        Divide the distances by their spread first. The plain score has the unit of one over a
        distance, so scores of models with different distances compare only when standardised.
    random_state : int or None
        Decides the folds of the density difference.

    Returns
    -------
    float
        Zero if the densities agree, larger the better members can be told.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from permea.audit import membership_inference_score
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = LogisticRegression(max_iter=500).fit(X[::2], y[::2])
    >>> membership_inference_score(clf, X[::2], X[1::2]) < 0.1
    True
    """
    measure = signals.nearness if signals.is_distance_based(clf) else signals.confidence
    return density_difference(
        measure(clf, X_train),
        measure(clf, X_test),
        standardize=standardize,
        random_state=random_state,
    )
