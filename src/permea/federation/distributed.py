"""One party's training on more than one core or machine: threads, processes, or Dask."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Literal

import joblib

Engine = Literal["threads", "processes", "dask"]
ENGINES = ("threads", "processes", "dask")


@contextmanager
def training_engine(
    engine: Engine = "threads", *, n_workers: int = 2, address: str | None = None
) -> Iterator[Any]:
    """Run everything fitted in the body on an engine, whatever the model is.

    All parallel work of the library goes through joblib, so the engine is chosen from outside and
    no model knows of it. Branches are the unit of work: each is sent to one worker, once, and only
    its fitted model comes back.

    Parameters
    ----------
    engine : {"threads", "processes", "dask"}, default="threads"
        Where the work is done. "dask" needs ``permea[dask]``.
    n_workers : int, default=2
        Workers; for Dask the size of a cluster on this machine.
    address : str, optional
        Scheduler of a running Dask cluster, e.g. ``"tcp://10.0.0.5:8786"``; its workers must have
        permea installed. Raw rows travel to the workers: all of them must belong to the party.

    Yields
    ------
    distributed.Client or None
        The connection to the cluster, for Dask.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from permea import KAHMClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> with training_engine("threads", n_workers=2):
    ...     clf = KAHMClassifier(n_components=3, n_layers=2, n_jobs=-1).fit(X, y)
    >>> clf.score(X, y) > 0.9
    True
    """
    if engine == "threads":
        with joblib.parallel_config(backend="threading", n_jobs=n_workers):
            yield None
    elif engine == "processes":
        with joblib.parallel_config(backend="loky", n_jobs=n_workers, inner_max_num_threads=1):
            yield None
    elif engine == "dask":
        with _dask_client(n_workers, address) as client, joblib.parallel_config(backend="dask"):
            yield client
    else:
        raise ValueError(f"engine must be one of {', '.join(map(repr, ENGINES))}, got {engine!r}.")


@contextmanager
def _dask_client(n_workers: int, address: str | None) -> Iterator[Any]:
    """A connection to a running cluster, or to one that lives as long as the body."""
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise ImportError("engine='dask' needs Dask: pip install 'permea[dask]'.") from None
    if address is not None:
        with distributed.Client(address) as client:
            yield client
        return
    cluster = distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        yield client
