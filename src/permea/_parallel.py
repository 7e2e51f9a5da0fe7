"""Work on several cores without a crowd of linear-algebra threads."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs
from threadpoolctl import threadpool_limits

from permea._progress import progress

Result = TypeVar("Result")


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


@contextmanager
def _single_threaded_blas() -> Iterator[None]:
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def batches(n_rows: int, size: int) -> Iterable[slice]:
    """Slices of at most ``size`` rows."""
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))
