"""One progress bar for the whole library: seen on a terminal, silent everywhere else."""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")


def _disabled(disable: bool | None) -> bool:
    """Decide whether to stay silent: the caller first, then the environment, then the terminal."""
    if disable is not None:
        return disable
    wish = os.environ.get("PERMEA_PROGRESS", "")
    if wish in ("0", "1"):
        return wish == "0"
    return not sys.stderr.isatty()


def progress(
    iterable: Iterable[Item],
    *,
    total: int | None = None,
    desc: str = "",
    disable: bool | None = None,
) -> Iterator[Item]:
    """Walk through ``iterable`` and show how far it is.

    The bar is drawn on standard error, and only if that is a terminal. The environment variable
    ``PERMEA_PROGRESS`` overrides: ``1`` always draws, ``0`` never does.

    Parameters
    ----------
    iterable : iterable
        What is walked through.
    total : int, optional
        How many items there are, when ``iterable`` has no length.
    desc : str
        What is being done, written before the bar.
    disable : bool, optional
        Silence (True) or draw (False) whatever the terminal and the environment say.

    Returns
    -------
    iterator
        The items of ``iterable``, unchanged and in order.

    Examples
    --------
    >>> from permea._progress import progress
    >>> [n * n for n in progress(range(4), desc="squares", disable=True)]
    [0, 1, 4, 9]
    """
    return iter(tqdm(iterable, total=total, desc=desc, disable=_disabled(disable), leave=False))


def progress_rows(
    tables: Iterable[Item], *, desc: str = "", disable: bool | None = None
) -> Iterator[Item]:
    """Walk through tables and show how many rows passed, and how many per second.

    Examples
    --------
    >>> [len(rows) for rows in progress_rows(["abc", "de"], disable=True)]
    [3, 2]
    """
    with tqdm(
        desc=desc, unit=" rows", unit_scale=True, disable=_disabled(disable), leave=False
    ) as bar:
        for table in tables:
            yield table
            bar.update(len(table))  # type: ignore[arg-type]
