"""Protocols of `permea.documents` agree with the plain transcriptions: wall, parties, transfer."""

import cdmma_000
import cdmma_001
import deep_kahm_004
import fabrication_004
import numpy as np
import pytest
import transfer_000
import transfer_001
from lloyd import centroids

from permea import documents
from permea.federation import merged
from permea.privacy import OptimalNoise, release

CLOSE = {"rtol": 0, "atol": 1e-8}


@pytest.fixture(scope="module")
def rows():
    """24 rows of 4 features in two bent classes."""
    random = np.random.default_rng(3)
    s = random.random(24)
    sheet = np.column_stack([s, 0.5 * s**2, 0.3 * np.sin(3 * s), 0.2 * s])
    sheet[12:, 1] += 0.4
    return np.clip(sheet + 0.03 * random.random((24, 4)), 0, 1)


LABELS = np.repeat([0, 1], 12)


def test_noise_is_that_of_every_document():
    t = np.linspace(0.001, 0.999, 97)
    law = OptimalNoise(0.7, 0.1, 2.0)
    literal = [fabrication_004.inverse_cdf(one, 0.7, 0.1, 2.0) for one in t]
    np.testing.assert_allclose(law.inverse_cdf(t), literal, rtol=0, atol=1e-12)
    promise = documents.noise(0.7, 0.1, d=0.5)
    noised = release(np.full((200, 50), 0.5), promise, random_state=0)
    assert noised.noise_variance == pytest.approx(2 * (1 - 0.1) * (0.5 / 0.7) ** 2)
    gaussian = documents.noise(0.7, 0.1, mechanism="classical-gaussian")
    sigma = np.sqrt(2 * np.log(1.25 / 0.1)) / 0.7  # 002 Result 6
    assert release(np.zeros((2, 2)), gaussian).noise_variance == pytest.approx(sigma**2)


def test_fabrication_004(rows):
    original = rows[:12]
    noised = original + np.random.default_rng(5).laplace(0, 0.2, original.shape)
    ours = documents.fabricate_004(noised, original, 2, tol=1e-13)
    literal, m = fabrication_004.fabricated(noised, original, 2)
    assert ours.n_steps == [m - 1]
    assert m > 1
    np.testing.assert_allclose(ours.data, literal, **CLOSE)
    assert ours.reads_private_rows


def test_fabricated_classifier_004(rows):
    """Definition 15 on rows whose noise is known: both sides see the same noised rows."""
    clf = documents.fabricated_classifier_004(documents.noise(20), 2, 2, tol=1e-13, random_state=0)
    clf.fit(rows, LABELS)
    noised = release(rows, documents.noise(20), random_state=0).data
    queries = rows[::5]
    for c in (0, 1):
        made, _ = fabrication_004.fabricated(noised[c == LABELS], rows[c == LABELS], 2)
        literal = [deep_kahm_004.distance([made], 2, 2, y) for y in queries]
        np.testing.assert_allclose(clf.distances(queries)[:, c], literal, **CLOSE)
    assert not clf.certificate_.is_private


def test_bounds_of_theorems_2_to_5(rows):
    machine = documents.kahm_004(2, tol=1e-13).fit(rows)
    middle, right = fabrication_004.ratio_bound(rows, 2)
    assert machine.ratio_bound_ == pytest.approx(middle, rel=1e-9)
    assert machine.loose_ratio_bound_ == pytest.approx(right, rel=1e-9)
    assert machine.norm_bound_ == pytest.approx(middle * np.linalg.norm(rows, 2), rel=1e-9)
    deep = documents.deep_kahm_004(2, 2, tol=1e-13).fit(rows)
    wide = documents.wide_kahm_004(2, 2, tol=1e-13, branch_size=12, random_state=0).fit(rows)
    parts = [rows[part] for part in wide.split(rows)]
    each = [fabrication_004.ratio_bound(part, 2) for part in parts]
    assert deep.ratio_bound_ == machine.ratio_bound_
    assert wide.loose_ratio_bound_ == pytest.approx(min(right for _, right in each), rel=1e-9)
    assert wide.ratio_bound_ == pytest.approx(min(middle for middle, _ in each), rel=1e-9)
    for y in np.random.default_rng(0).normal(0, [[0.1], [1], [10], [1e4]], (4, 4)):
        near, all_rows = (fabrication_004.spread(rows, y, order) for order in (2, "fro"))
        assert np.linalg.norm(machine.reconstruct([y])) < machine.norm_bound_
        assert machine.distance([y]) < machine.ratio_bound_ * near
        assert deep.distance([y]) < deep.ratio_bound_ * near
        assert wide.distance([y]) < wide.ratio_bound_ * all_rows
    assert machine.ratio_bound_ < machine.loose_ratio_bound_
    with pytest.raises(AttributeError, match="no ratio_bound_"):
        _ = documents.cdmma_001(2, 4, 1).fit(rows).ratio_bound_


def test_federation_and_its_global_image_004(rows):
    shares = documents.shares_004(2, LABELS, random_state=0)
    models = [
        documents.kahm_classifier_004(2, 2, tol=1e-13, allow_single_class=True).fit(
            rows[mine], LABELS[mine]
        )
        for mine in shares
    ]
    whole = merged(models)
    for c in (0, 1):
        queries = rows[c == LABELS][::3] + 0.02
        parties = [[rows[mine]] for mine in shares if LABELS[mine[0]] == c]
        images = [fabrication_004.global_image(parties, 2, 2, y) for y in queries]
        np.testing.assert_allclose(whole.class_models_[c].reconstruct(queries), images, **CLOSE)
        distances = np.linalg.norm(queries - images, axis=1)  # (103)
        np.testing.assert_allclose(whole.distances(queries)[:, c], distances, **CLOSE)


def test_federation_004_by_replies_and_by_models(rows):
    clf = documents.fabricated_classifier_004(
        documents.noise(20), 2, 2, allow_single_class=True, random_state=0
    )
    for scenario, sizes in ((1, [12, 12]), (2, [6] * 4), (3, [8] * 3)):
        shares = documents.shares_004(scenario, LABELS, n_parties=3, random_state=0)
        assert [len(mine) for mine in shares] == sizes
        assert sorted(np.concatenate(shares)) == list(range(24))
        federation = documents.federation_004(rows, LABELS, shares, clf, topology="models")
        whole = federation.merged()
        np.testing.assert_allclose(federation.distances(rows), whole.distances(rows), **CLOSE)
        assert federation.predict(rows).tolist() == whole.predict(rows).tolist()
    with pytest.raises(ValueError, match="scenario must be 1, 2 or 3"):
        documents.shares_004(4, LABELS)
    closed = documents.federation_004(rows, LABELS, shares, clf)
    with pytest.raises(ValueError, match="topology='models'"):
        closed.merged()


def _target(rows):
    labels = LABELS.copy()
    free = np.random.default_rng(1).permutation(24)[:14]
    labels[free] = -1
    return np.clip(rows + 0.02, 0, 1), labels


def _fine(estimator):
    """The same setting with an iteration that runs to its end."""
    return estimator.set_params(tol=1e-13)


def test_transfer_000(rows):
    source = documents.source_000(None, p=4, random_state=0)
    source.classifier.set_params(model=_fine(documents.autoencoder_000(3, 4)), n_layers=1)
    source.fit(rows, LABELS)
    V, theirs = source.directions_, source.centres_
    np.testing.assert_allclose(theirs, transfer_000.centres(rows @ V.T, LABELS), **CLOSE)
    target, few = _target(rows)
    ours = documents.transfer_000(
        source, dimensions=(1, 2), shares=(0.2, 0.3), n_layers=2, random_state=0
    )
    _fine(ours.model)
    ours.fit(target, few)
    learned = [cdmma_000.learn_deep(rows[c == LABELS], 3, 4, 1, centroids) for c in (0, 1)]
    now, classify = transfer_000.algorithm_7(
        target, few, learned, V, theirs, centroids, (1, 2), (0.2, 0.3), 2
    )
    assert ours.labels_.tolist() == now.tolist()
    queries = target[::3] + 0.05
    assert ours.predict(queries).tolist() == [classify(y) for y in queries]


def test_study_003(rows):
    """Algorithm 9 without noise, so that every step can be written down again."""
    target, few = _target(rows)
    settings = {"X_target": target, "y_target": few, "X_test": rows, "y_test": LABELS}
    study = documents.study_003(rows, LABELS, epsilons=[np.inf, 1], random_state=0, **settings)
    point = study.points[0]
    order = np.random.default_rng(0).permutation(len(rows))  # the sample of §6.1.4 is all rows
    rows, parameters = rows[order], np.eye(2)[LABELS[order]]
    assert point.privacy_leakage.value == documents.leakage_003(rows, rows).value  # step 8
    assert point.interpretability.value == documents.leakage_003(rows, parameters).value  # step 9
    rows = rows[np.argsort(order)]
    source = documents.source_001(None, p=4, random_state=0).fit(rows, LABELS)
    clf = documents.transfer_001(source, dimensions=(4,) * 4, random_state=0).fit(target, few)
    assigned = clf.predict(target)
    images = [
        np.array([models[c].reconstruct(y[None])[0] for c, y in zip(assigned, target, strict=True)])
        for models in (source.class_models, clf.fitted_.target.class_models_)
    ]  # (116), (117)
    expected = documents.leakage_003(images[1], images[0]).value  # step 10
    assert point.transferability.value == pytest.approx(expected, abs=1e-6)
    assert point.source_accuracy == np.mean(source.predict(rows) == LABELS)
    assert study.select("min_privacy_leakage").epsilon == 1
    assert study.select("max_interpretability").epsilon == np.inf


def test_transfer_001(rows):
    source = documents.source_001(None, p=4, random_state=0)
    source.classifier.set_params(model=_fine(documents.autoencoder_001(3, 6)), n_layers=1)
    source.fit(rows, LABELS)
    target, few = _target(rows)
    ours = documents.transfer_001(source, dimensions=(1, 2), n_layers=2, random_state=0)
    _fine(ours.model)
    _fine(ours.mapping)
    ours.fit(target, few)
    learned = [cdmma_001.learn_deep(rows[c == LABELS], 3, 6, 1, centroids) for c in (0, 1)]
    now, classify = transfer_001.transfer(target, few, learned, centroids, (1, 2), 0.5, 2)
    by_target = ours.fitted_.target.distances(target[few < 0]).argmin(axis=1)
    assert by_target.tolist() == now[few < 0].tolist()
    decided = [classify(y) if label < 0 else label for y, label in zip(target, few, strict=True)]
    assert ours.labels_.tolist() == decided
    queries = target[::3] + 0.05
    assert ours.predict(queries).tolist() == [classify(y) for y in queries]
    V = source.directions_
    wider = np.column_stack([target, target[:, :1]])
    other = documents.transfer_001(source, dimensions=(1,), n_layers=1, random_state=0)
    other.fit(wider, few)
    moved = transfer_001.aligned(wider, V, other.alignment_.target)
    np.testing.assert_allclose(other.to_source(wider), moved, **CLOSE)
