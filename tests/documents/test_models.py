"""The models of `permea.documents` agree with the plain transcriptions of their equations.

To 1e-8 of the size of the rows; iterations run until they change less than 1e-13 on both sides.
"""

import bayes_003
import cdmma_000
import cdmma_001
import deep_kahm_004
import fuzzy_002
import kahm_004
import membership_000
import membership_001
import numpy as np
import pytest
from lloyd import centroids

from permea import documents
from permea.models.base import matching_scores

CLOSE = {"rtol": 0, "atol": 1e-8}


@pytest.fixture(scope="module")
def rows():
    """24 rows of 5 features on a bent sheet, between 0 and 1."""
    random = np.random.default_rng(0)
    s, t = random.random((2, 24))
    return np.column_stack([s, t, 0.5 * s * t, 0.3 * (s - t) ** 2, 0.2 * s]) + 0.02 * random.random(
        (24, 5)
    )


@pytest.fixture(scope="module")
def others():
    return np.random.default_rng(1).random((5, 5))


def test_kahm_004(rows, others):
    literal = kahm_004.machine(rows, 3)
    ours = documents.kahm_004(3, tol=1e-13).fit(rows)
    assert ours.regularization_ == pytest.approx(literal["lambda"], rel=1e-12)
    images = [kahm_004.image(literal, y) for y in others]
    np.testing.assert_allclose(ours.reconstruct(others), images, **CLOSE)
    coarse = documents.kahm_004(3).fit(rows)  # λ* to half a per cent, as it is used
    np.testing.assert_allclose(coarse.reconstruct(others), images, rtol=0, atol=5e-3)


def test_deep_and_wide_kahm_004(rows, others):
    deep = documents.deep_kahm_004(3, 3, tol=1e-13).fit(rows)
    literal = np.array([deep_kahm_004.deep_images(rows, 3, 3, y) for y in others])
    np.testing.assert_allclose(deep.images(others), literal.swapaxes(0, 1), **CLOSE)
    images = [deep_kahm_004.deep_image(rows, 3, 3, y) for y in others]
    np.testing.assert_allclose(deep.reconstruct(others), images, **CLOSE)
    wide = documents.wide_kahm_004(2, 2, tol=1e-13, branch_size=12, random_state=0).fit(rows)
    parts = [rows[part] for part in wide.split(rows)]
    assert len(parts) == 2
    images = [deep_kahm_004.wide_image(parts, 2, 2, y) for y in others]
    np.testing.assert_allclose(wide.reconstruct(others), images, **CLOSE)


def test_kahm_classifier_004(rows, others):
    labels = np.arange(24) % 2
    clf = documents.kahm_classifier_004(2, 2, tol=1e-13).fit(rows, labels)
    literal = np.array(
        [[deep_kahm_004.distance([rows[labels == c]], 2, 2, y) for c in (0, 1)] for y in others]
    )
    np.testing.assert_allclose(clf.distances(others), literal, **CLOSE)
    assert clf.predict(others).tolist() == literal.argmin(axis=1).tolist()  # (62)
    scores = [deep_kahm_004.matching_scores(distances) for distances in literal]
    np.testing.assert_allclose(matching_scores(clf.distances(others)), scores, **CLOSE)
    assert clf.branch_size_ == 1000
    assert documents.kahm_classifier_004().get_params()["n_layers"] == 5


def test_membership_mapping_001(rows):
    X, Y = rows[:, :2], rows[:, 2:]
    literal = membership_001.learn(X, Y, 12, centroids)
    ours = documents.membership_mapping_001(0.5, tol=1e-13).fit(X, Y)
    assert len(ours.inducing_points_) == len(literal["a"]) < 12
    np.testing.assert_allclose(ours.inducing_points_, literal["a"], **CLOSE)
    assert ours.scale_ == pytest.approx(literal["variance"], rel=1e-9)
    assert ours.precision_ == pytest.approx(literal["beta"], rel=1e-9)
    np.testing.assert_allclose(ours.predict(X), membership_001.predict(literal, X), **CLOSE)


@pytest.mark.parametrize("n", [3, 1])
def test_cdmma_001(rows, others, n):
    literal = cdmma_001.learn_deep(rows, n, 12, 3, centroids)
    deep = documents.cdmma_001(n, 0.5, 3, tol=1e-13).fit(rows)
    assert [layer.n_components_ for layer in deep.layers_] == [max(n - i, 1) for i in range(3)]
    images = [cdmma_001.deep_image(literal, y) for y in others]
    np.testing.assert_allclose(deep.reconstruct(others), images, **CLOSE)


def test_membership_mapping_000(rows):
    X, Y = rows[:, :2], rows[:, 2:]
    for nu in (2.1, np.inf):
        literal = membership_000.learn(X, Y, 6, nu, centroids)
        ours = documents.membership_mapping_000(6, nu=nu, tol=1e-13).fit(X, Y)
        assert ours.precision_ == pytest.approx(literal["beta"], rel=1e-8)
        np.testing.assert_allclose(ours.predict(X), membership_000.predict(literal, X), **CLOSE)


@pytest.mark.parametrize("n", [3, 1])
def test_cdmma_000(rows, n):
    M = 4  # more make K_aa singular to rounding, and the document divides by it
    literal = cdmma_000.learn_deep(rows, n, M, 3, centroids)
    deep = documents.cdmma_000(n, M, 3, tol=1e-13).fit(rows)
    current = rows
    for (P, model), layer in zip(literal, deep.layers_, strict=True):
        current = membership_000.predict(model, current @ P.T)
        assert layer.nu == (2.1 if layer is deep.layers_[0] else np.inf)
    np.testing.assert_allclose(deep.images(rows)[-1], current, **CLOSE)


def test_fuzzy_model_and_autoencoder_002(rows, others):
    inputs, M = rows[:, :2], 12
    outputs = np.column_stack([np.sin(3 * rows[:, 0]), rows[:, 1] ** 2, rows[:, 2]])
    V = fuzzy_002.encoding(outputs, 2)
    literal = fuzzy_002.learn(inputs, outputs, V, M, centroids)
    ours = documents.fuzzy_model_002(tol=1e-13).fit(inputs, outputs)
    assert ours.n_layers_ == len(literal["layers"])
    assert ours.precision_ == pytest.approx(literal["beta"], rel=1e-7)
    images = fuzzy_002.predict(literal, inputs)
    np.testing.assert_allclose(ours.predict(inputs), images, rtol=0, atol=1e-7)
    V = fuzzy_002.encoding(rows, 3)
    literal = fuzzy_002.learn(rows @ V, rows, V, M, centroids)
    ours = documents.fuzzy_autoencoder_002(3, tol=1e-13).fit(rows)
    degrees = [fuzzy_002.membership(literal, y) for y in others]
    np.testing.assert_allclose(ours.membership(others), degrees, rtol=0, atol=1e-7)


def test_bayesian_mapping_and_leakage_003(rows):
    X, T = rows[:, 2:], rows[:, :2]
    literal = bayes_003.infer(X, T, 12, centroids)
    ours = documents.bayesian_mapping_003(tol=1e-13).fit(X, T)
    assert ours.noise_precision_ == pytest.approx(literal["a"] / literal["b"], rel=1e-8)
    np.testing.assert_allclose(ours.predict(X), bayes_003.estimate(literal, X), **CLOSE)
    found = documents.leakage_003(X, T, tol=1e-13).value
    assert found == pytest.approx(bayes_003.leakage(X, T, 12, centroids), abs=1e-8)
