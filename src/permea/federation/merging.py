"""The global model of parties that handed their models over (004 eq. 101-103, Remark 6)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from permea.compose import ReconstructionClassifier, Wide


def merged(classifiers: Sequence[Any]) -> ReconstructionClassifier:
    """One classifier whose model of a class is the nearest of all parties' models of it.

    004 eq. (101)-(104): the image of a row under the global machine of a class is its image under
    the nearest party's, and the nearest class wins. That is one wide model with the branches of all
    parties, so that images, distances and labels come from the same code as those of one owner.

    Parameters
    ----------
    classifiers : sequence of fitted `ReconstructionClassifier`
        One of each party; parties may lack classes (Remark 5).

    Returns
    -------
    ReconstructionClassifier
        Without a certificate of its own: `Federation.summary` says what the parties promise
        together. It therefore counts as holding private rows, and is not saved without consent.

    Examples
    --------
    >>> from permea import KAHMClassifier
    >>> X, y = np.random.default_rng(0).random((80, 3)), np.tile([0, 1], 40)
    >>> model = KAHMClassifier(n_components=2, n_layers=2, allow_single_class=True)
    >>> one, two = model.fit(X[y == 0], y[y == 0]), KAHMClassifier(n_components=2, n_layers=2)
    >>> whole = merged([one, two.fit(X[40:], y[40:])])
    >>> image = whole.class_models_[0].reconstruct(X)  # of the global machine of class 0
    >>> each = [party.distances(X)[:, 0] for party in (one, two)]
    >>> bool(np.allclose(np.linalg.norm(X - image, axis=1), np.minimum(*each)))
    True
    """
    for one in classifiers:
        if not isinstance(one, ReconstructionClassifier) or one.encoder_ is not None:
            raise TypeError(
                "Only classifiers that measure distances to rows can be merged; a "
                f"{type(one).__name__} learned in coordinates of its own. Use predict."
            )
    if len({one.n_features_in_ for one in classifiers}) != 1:
        raise ValueError("The parties' models must have the same number of features.")
    classes = np.unique(np.concatenate([one.classes_ for one in classifiers]))
    whole = ReconstructionClassifier(allow_single_class=True)
    whole.classes_, whole.encoder_ = classes, None
    whole.n_features_in_ = classifiers[0].n_features_in_
    whole.branch_size_ = max(one.branch_size_ for one in classifiers)
    whole.class_models_ = [_of_class(classifiers, label) for label in classes]
    whole.certificate_, whole.holds_private_rows_ = None, True
    return whole


def _of_class(classifiers: Sequence[ReconstructionClassifier], label: Any) -> Wide:
    """The branches of all parties that know a class, side by side."""
    parts = [
        one.class_models_[int(np.flatnonzero(one.classes_ == label)[0])]
        for one in classifiers
        if label in one.classes_
    ]
    branches = [branch for part in parts for branch in part.branches_]
    return Wide(parts[0].model).assemble(branches, [row for part in parts for row in part.centres_])
