"""The three measures of 003 section 5: privacy leakage, interpretability, transferability.

All three are information leakages of Algorithm 8, about different things. They use the model that
003 writes down, with one noise variance for all variables in their own units, so that values for
several ε, and those that 003 reports, compare.
"""

import warnings
from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from permea._arrays import Array, Indices
from permea.compose import ReconstructionClassifier
from permea.information.leakage import InformationLeakage, LeakageWarning, information_leakage
from permea.models import MembershipAutoencoder, ShrunkWarning
from permea.models.bayes import BayesianMembershipMapping

MAX_SAMPLES = 5000  # 003 section 6.1.4


def document_model(*, tol: float = 1e-6) -> BayesianMembershipMapping:
    """The model of 003 Algorithms 7 and 8 as written, not fitted."""
    return BayesianMembershipMapping(
        noise="shared", standardize=False, inducing="inputs", bandwidth=1.0, far="plain", tol=tol
    )


def privacy_leakage(
    released: ArrayLike,
    private: ArrayLike,
    *,
    max_samples: int | None = MAX_SAMPLES,
    random_state: int | None = 0,
) -> InformationLeakage:
    """Information about private variables in released rows (003 Def. 10).

    Parameters
    ----------
    released : array-like of shape (N, p)
        Noise-added rows y⁺.
    private : array-like of shape (N, n)
        Private variables x of the same rows.
    max_samples : int or None
        Rows used at most.
    random_state : int or None
        Seeds the draw.

    Returns
    -------
    InformationLeakage
        With the adversary as its ``model``.

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> rows = random.random((300, 5))
    >>> weak, strong = (rows + random.laplace(0, scale, rows.shape) for scale in (0.1, 10))
    >>> privacy_leakage(weak, rows).value > privacy_leakage(strong, rows).value
    True
    """
    return _measure(released, private, max_samples, random_state)


def interpretability(
    released: ArrayLike,
    parameters: ArrayLike,
    *,
    max_samples: int | None = MAX_SAMPLES,
    random_state: int | None = 0,
) -> InformationLeakage:
    """Information about interpretable parameters in released rows (003 Def. 11).

    Parameters
    ----------
    released : array-like of shape (N, p)
        Noise-added rows y⁺.
    parameters : array-like of shape (N, q)
        Interpretable parameters t of the same rows; class labels as columns of zeros and ones
        where there is nothing else (003 section 6.1.1).
    max_samples, random_state
        As in `privacy_leakage`.

    Returns
    -------
    InformationLeakage
        With the interpreter as its ``model``.
    """
    return _measure(released, parameters, max_samples, random_state)


def transferability(
    classifier: Any,
    X_target: ArrayLike,
    *,
    max_samples: int | None = MAX_SAMPLES,
    random_state: int | None = 0,
) -> InformationLeakage:
    """Information about the source's image of target rows in the target's image (003 Def. 12).

    Every target row is filtered through the source's model and through the target's model of the
    class that it is assigned to (116) to (118).

    Parameters
    ----------
    classifier : fitted TransferClassifier
        Source and target side.
    X_target : array-like of shape (N, p_tg)
        Target rows, labelled or not.
    max_samples, random_state
        As in `privacy_leakage`.

    Returns
    -------
    InformationLeakage
    """
    rows = np.asarray(X_target, dtype=np.float64)
    if max_samples is not None and len(rows) > max_samples:
        rows = rows[np.random.default_rng(random_state).permutation(len(rows))[:max_samples]]
    return image_information(*class_images(classifier, rows))


def party_transferability(
    parties: Mapping[str, Any],
    X: ArrayLike,
    *,
    max_samples: int | None = MAX_SAMPLES,
    random_state: int | None = 0,
) -> dict[tuple[str, str], InformationLeakage]:
    """Transferability between any two parties of a federation (003 Def. 12 and section 7).

    For parties A and B every row is filtered through A's and through B's model of the class that B
    assigns to it, and the information about A's images in B's is measured. Rows of classes that one
    of the two lacks are left out.

    Parameters
    ----------
    parties : mapping from names to fitted classifiers
        Models that the parties handed over, with features in common, such as `KAHMClassifier`.
    X : array-like of shape (N, p)
        Rows of whoever asks.
    max_samples, random_state
        As in `privacy_leakage`.

    Returns
    -------
    dict
        From (source, target) to the measure; pairs without a common class are left out.

    Examples
    --------
    >>> import numpy as np
    >>> from permea import KAHMClassifier
    >>> X, y = np.random.default_rng(0).random((90, 3)), np.tile([0, 1], 45)
    >>> models = [KAHMClassifier(n_components=2, n_layers=2).fit(X[i::3], y[i::3]) for i in (0, 1)]
    >>> found = party_transferability({"north": models[0], "south": models[1]}, X[2::3])
    >>> sorted(found)
    [('north', 'south'), ('south', 'north')]
    """
    for name, model in parties.items():
        if not isinstance(model, ReconstructionClassifier) or model.encoder_ is not None:
            raise TypeError(
                f"{name} must be a classifier with images of rows, such as KAHMClassifier; a "
                f"{type(model).__name__} in coordinates of its own has none to compare."
            )
    rows = np.asarray(X, dtype=np.float64)
    if max_samples is not None and len(rows) > max_samples:
        rows = rows[np.random.default_rng(random_state).permutation(len(rows))[:max_samples]]
    found = {}
    for source, target in permutations(parties, 2):
        images = _images_of_pair(parties[source], parties[target], rows)
        if images is not None:
            found[source, target] = image_information(*images)
    return found


def _images_of_pair(source: Any, target: Any, rows: Array) -> tuple[Array, Array] | None:
    """Images of rows by two classifiers, of the class that the second assigns."""
    assigned = target.predict(rows)
    common = np.intersect1d(source.classes_, assigned)
    if not common.size:
        return None
    images = []
    for model in (source, target):
        each = [
            model.class_models_[int(np.flatnonzero(model.classes_ == label)[0])].reconstruct(
                rows[assigned == label]
            )
            for label in common
        ]
        images.append(np.concatenate(each))
    return images[0], images[1]


def image_information(by_source: ArrayLike, by_target: ArrayLike) -> InformationLeakage:
    """Information about the source's images in the target's, as `transferability` measures it."""
    return _measure(by_target, by_source, None, None)


def class_images(classifier: Any, X_target: Array) -> tuple[Array, Array]:
    """Images of target rows under source and target models of their class (003 eq. 116, 117).

    The target's models are those of the transfer where it has them in the space of the source
    (``method="source2target"``, 003 section 2.5). For other methods they are learned here from the
    rows and the classes assigned to them, as (42) does in its last iteration. Rows whose class
    only one side knows are left out, for they have no pair of images.
    """
    rows = classifier.to_source(X_target)
    assigned = np.searchsorted(classifier.classes_, classifier.predict(X_target))
    source = classifier.source
    known = np.searchsorted(classifier.classes_, source.classes_.astype(classifier.classes_.dtype))
    if classifier.method == "source2target":
        target = classifier.fitted_.target
    else:
        target = _target_models(rows, assigned)
    models, by_source, by_target = source.class_models, [], []
    for label in np.intersect1d(np.intersect1d(assigned, known), target.classes_):
        mine = rows[assigned == label]
        at_source = models[int(np.flatnonzero(known == label)[0])]
        at_target = target.class_models_[int(np.flatnonzero(target.classes_ == label)[0])]
        by_source.append(at_source.reconstruct(mine))
        by_target.append(at_target.reconstruct(mine))
    if not by_source:
        raise ValueError(
            "No target row is assigned to a class that both source and target know, so there is "
            "nothing to compare their images by."
        )
    return np.concatenate(by_source), np.concatenate(by_target)


def _target_models(rows: Array, assigned: Indices) -> ReconstructionClassifier:
    """Target autoencoders of 003 Algorithm 9, step 6: n = min(20, p), five layers, r_max = ½."""
    n_components = min(20, rows.shape[1])
    models = ReconstructionClassifier(
        MembershipAutoencoder(n_components=n_components, max_inducing=0.5),
        n_layers=5,
        allow_single_class=True,
        random_state=0,
    )
    with warnings.catch_warnings():  # a class with few rows carries few dimensions
        warnings.simplefilter("ignore", ShrunkWarning)
        return models.fit(rows, assigned)


def _measure(
    observed: ArrayLike, hidden: ArrayLike, max_samples: int | None, random_state: int | None
) -> InformationLeakage:
    with warnings.catch_warnings():  # what there is to say stays in the notes
        warnings.simplefilter("ignore", LeakageWarning)
        return information_leakage(
            observed,
            hidden,
            model=document_model(),
            constants="keep",
            max_samples=max_samples,
            random_state=random_state,
        )
