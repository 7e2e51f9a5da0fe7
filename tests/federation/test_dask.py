"""A party's training may run anywhere; the model is the same."""

from collections import Counter

import joblib
import numpy as np
import pytest

from permea import KAHMClassifier


def model():
    return KAHMClassifier(n_components=8, n_layers=2, branch_size=60, n_jobs=-1, random_state=0)


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_backends_of_joblib_are_honoured(digits, backend):
    X, X_test, y, _ = digits
    expected = model().fit(X, y).distances(X_test[:40])
    with joblib.parallel_config(backend=backend, n_jobs=2):
        fitted = model().fit(X, y)
    assert np.allclose(fitted.distances(X_test[:40]), expected, rtol=1e-9)


@pytest.mark.xdist_group("processes")
@pytest.mark.timeout(600)
def test_dask_trains_on_two_workers_and_ships_each_branch_once(digits):
    distributed = pytest.importorskip("distributed")
    X, X_test, y, _ = digits
    shipped, models = [], []
    scatter = distributed.Client.scatter

    def watched(self, data, *arguments, **named):
        items = data if isinstance(data, list) else [data]
        arrays = [item for item in items if isinstance(item, np.ndarray)]
        shipped.extend(item.shape for item in arrays if item.ndim == 2)
        models.extend(item for item in items if isinstance(item, list))
        return scatter(self, data, *arguments, **named)

    expected = model().fit(X, y)
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with (
        cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config(backend="dask"),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(distributed.Client, "scatter", watched)
        fitted = model().fit(X, y)
        workers = client.run(_worker_facts)
        labels = fitted.predict(X)
        measured = fitted.distances(X_test[:40])
    assert len(models) == 1, "the model travels once, for labels and for distances"
    np.testing.assert_array_equal(labels, expected.predict(X))
    np.testing.assert_allclose(measured, fitted.distances(X_test[:40]), rtol=1e-9)
    assert np.allclose(fitted.distances(X_test[:40]), expected.distances(X_test[:40]), rtol=1e-9)
    # Every row travels once to be partitioned, and once in its branch to be learned.
    sizes = Counter(size for wide in fitted.class_models_ for size in _branch_sizes(wide))
    sent = Counter(rows for rows, _ in shipped)
    assert sizes.total() > 10
    assert sizes <= sent
    assert sum((sent - sizes).elements()) == len(X)
    assert len(workers) == 2
    for tasks, threads in workers.values():
        assert tasks > 0, "a worker had nothing to do"
        assert set(threads) <= {1}


def _branch_sizes(wide):
    return [len(branch.layers_[0].codes_) for branch in wide.branches_]


def _worker_facts(dask_worker):
    import threadpoolctl

    info = threadpoolctl.threadpool_info()
    done = len(dask_worker.state.log) if hasattr(dask_worker.state, "log") else 0
    return done, [pool["num_threads"] for pool in info if pool["user_api"] == "blas"]
