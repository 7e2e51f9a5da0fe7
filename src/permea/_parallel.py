"""Work on several cores without a crowd of linear-algebra threads."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from threadpoolctl import threadpool_limits

from permea._progress import progress

Result = TypeVar("Result")
Part = TypeVar("Part")
Total = TypeVar("Total")

_TERMS = 8  # results that a worker adds up at once


def run_parallel(
    function: Callable[..., Result],
    tasks: Sequence[tuple[Any, ...]],
    *,
    n_jobs: int | None = None,
    desc: str = "",
) -> list[Result]:
    """Call ``function`` with each tuple of arguments, in order, on ``n_jobs`` workers.

    Threads are preferred, because the work is linear algebra that releases the interpreter; a
    backend the user selected with `joblib.parallel_config` is respected. With more than one worker
    each gets one linear-algebra thread; with a single one the library's own threads stay.
    """
    if len(tasks) == 1 or effective_n_jobs(n_jobs) == 1:
        return [function(*task) for task in progress(tasks, desc=desc)]
    with _single_threaded_blas():
        work = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(
            delayed(function)(*task) for task in tasks
        )
        return list(progress(work, total=len(tasks), desc=desc))


def run_shared(
    function: Callable[..., Result],
    owner: object,
    shared: object,
    tasks: Sequence[tuple[Any, ...]],
    *,
    n_jobs: int | None = None,
    desc: str = "",
) -> list[Result]:
    """Call ``function(shared, *task)`` for each task, as `run_parallel` does.

    Under joblib's backend "dask" ``shared``, which may be large, is sent to the workers once: the
    same object of the same ``owner`` stays there as long as the owner and the client live.

    Examples
    --------
    >>> run_shared(lambda shared, a: shared[a], run_shared, [5, 6], [(0,), (1,)])
    [5, 6]
    """
    client = getattr(get_active_backend()[0], "client", None)
    if client is None:
        return run_parallel(partial(function, shared), tasks, n_jobs=n_jobs, desc=desc)
    sent = _sent.setdefault(client, WeakKeyDictionary())
    if owner not in sent or sent[owner][0] is not shared:
        sent[owner] = shared, client.scatter([shared], broadcast=True, hash=False)[0]
    parts = client.scatter(list(tasks), hash=False)
    work = [client.submit(_apply, function, sent[owner][1], part, pure=False) for part in parts]
    return [future.result() for future in progress(work, desc=desc)]


_sent: "WeakKeyDictionary[Any, WeakKeyDictionary[Any, tuple[Any, Any]]]" = WeakKeyDictionary()


def _apply(function: Callable[..., Result], shared: object, task: tuple[Any, ...]) -> Result:
    """One task on a worker, which got its arguments before."""
    return function(shared, *task)


@contextmanager
def _single_threaded_blas() -> Iterator[None]:
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def add_up(terms: Iterable[Total | None]) -> Total | None:
    """Sum of what is not None; None if there is nothing.

    Examples
    --------
    >>> add_up([1, None, 2]), add_up([])
    (3, None)
    """
    total: Any = None
    for term in terms:
        if term is not None:
            total = term if total is None else total + term
    return cast("Total | None", total)


def sum_parts(
    function: Callable[[Part], Total | None], parts: Sequence[Part], *, engine: str | None = None
) -> Total:
    """Add up ``function(part)`` over the parts of a table, one after the other or on workers.

    With ``engine="dask"`` the parts go to the workers of the current Dask client, which add up
    their results too: one result comes back. What goes wrong with a part is not told in detail,
    because the messages of a worker, which it also logs, may hold values of rows. The function
    returns None for a part without rows.

    Examples
    --------
    >>> sum_parts(len, ["abc", "de"])
    5
    """
    if engine is None:
        total = add_up(map(function, parts))
    else:
        client, delayed = _dask(engine)
        work = [delayed(_guarded)(function, part) for part in parts]
        while len(work) > 1:
            work = [
                delayed(_add_answers)(work[k : k + _TERMS]) for k in range(0, len(work), _TERMS)
            ]
        total = _result(client.compute(work[0]).result()) if work else None
    if total is None:
        raise ValueError("The table has no rows.")
    return total


def map_parts(
    function: Callable[[Part], Result], parts: Sequence[Part], *, engine: str | None = None
) -> list[Result]:
    """``function(part)`` of every part, one after the other or on workers: see `sum_parts`.

    Examples
    --------
    >>> map_parts(len, ["abc", "de"])
    [3, 2]
    """
    if engine is None:
        return [function(part) for part in parts]
    client, delayed = _dask(engine)
    work = client.compute([delayed(_guarded)(function, part) for part in parts])
    return [_result(answer) for answer in client.gather(work)]


def check_engine(engine: str | None) -> None:
    """Raise an error if an engine is unknown, or there is no client; nothing is computed."""
    if engine is not None:
        _dask(engine)


def _dask(engine: str) -> tuple[Any, Callable[..., Any]]:
    """The current client, and what makes a task of a function."""
    if engine != "dask":
        raise ValueError(f"engine must be None or 'dask', got {engine!r}.")
    try:
        import distributed
        from dask.delayed import delayed
    except ImportError:
        raise ImportError("engine='dask' needs Dask: pip install 'permea[dask]'.") from None
    try:
        return distributed.get_client(), partial(delayed, pure=False)
    except ValueError:
        raise ValueError(
            "engine='dask' needs a client: client = distributed.Client('tcp://scheduler:8786')."
        ) from None


Answer = tuple[bool, Result | None]  # whether a task could be done, and its result


def _guarded(function: Callable[[Part], Result], part: Part) -> Answer[Result]:
    """Run on a worker, which would log the arguments of a function that raises, and warnings."""
    try:
        with np.errstate(all="ignore"):  # no warning may depend on a row
            return True, function(part)
    except Exception:
        return False, None


def _add_answers(answers: Sequence[Answer[Total | None]]) -> Answer[Total | None]:
    if not all(done for done, _ in answers):
        return False, None
    return True, add_up(result for _, result in answers)


def _result(answer: Answer[Result]) -> Result:
    done, result = answer
    if not done:
        raise ValueError("A worker could not read or use its part of the table.")
    return cast("Result", result)


def batches(n_rows: int, size: int) -> Iterable[slice]:
    """Slices of at most ``size`` rows."""
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))
