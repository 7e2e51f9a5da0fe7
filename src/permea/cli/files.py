"""Results that appear whole or not at all: written beside their place, then renamed."""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from permea.cli.errors import CommandError, ExitCode, one_line

STREAM = "-"


def check_output(path: str, suffixes: tuple[str, ...], *, inputs: tuple[str, ...] = ()) -> None:
    """Find out before any work is done whether a result can be written.

    Parameters
    ----------
    path : str
        Where the result will go; ``-`` is standard output.
    suffixes : tuple of str
        Endings that name a format that can be written; empty for any.
    inputs : tuple of str
        Files that must not be overwritten.
    """
    if path == STREAM:
        return
    target = Path(path)
    if target.is_dir():
        raise CommandError(
            f"{path} is a folder. Name a file in it, e.g. -o {target / 'result'}"
            f"{suffixes[0] if suffixes else ''}.",
            ExitCode.OUTPUT,
        )
    special = target.exists() and not target.is_file()
    if suffixes and not special and target.suffix.lower() not in suffixes:
        known = " or ".join(suffixes)
        raise CommandError(
            f"{path}: the ending of an output file says its format; use {known}.", ExitCode.USAGE
        )
    for source in inputs:
        exist = source != STREAM and target.exists() and Path(source).exists()
        if exist and os.path.samefile(source, target):
            raise CommandError(
                f"{path} is also the input and would be lost. Choose another name for -o.",
                ExitCode.USAGE,
            )
    _check_folder(target.absolute().parent)


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise CommandError(
            f"The folder {folder} does not exist. Create it, or write elsewhere with -o.",
            ExitCode.OUTPUT,
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CommandError(
            f"The folder {folder} is not writable for you. Write elsewhere with -o.",
            ExitCode.OUTPUT,
        )


@contextmanager
def replacing(path: str | Path, *, secret: bool = False) -> Iterator[Path]:
    """Give a place beside ``path`` to write to, and rename it to ``path`` when all went well.

    The place has a random name and can be read by its owner alone while it is written. A symbolic
    link at ``path`` is replaced, and what it points to is not touched. Whatever goes wrong, an
    interrupt included, the place is removed and ``path`` is as before. With ``secret`` the file can
    be read by its owner alone, and nothing but a file is written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "out.txt")) as beside:
    ...         _ = beside.write_text("done")
    ...     Path(folder, "out.txt").read_text(), len(list(Path(folder).iterdir()))
    ('done', 1)
    """
    target = Path(path)
    device = target.exists() and not target.is_file()
    if device and secret:
        raise CommandError(
            f"{path} is no file, and what would be written is for its owner alone. Name a file "
            "with -o.",
            ExitCode.OUTPUT,
        )
    folder = None if device else target.absolute().parent
    beside: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{target.name}.", suffix=".part")
        os.close(handle)
        beside = Path(name)
        yield beside
        if device:
            with beside.open("rb") as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink)
            return
        _settle(beside, target, secret)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise CommandError(
            f"{path} could not be written: {reason}. Nothing was changed; free some space or write "
            "elsewhere with -o.",
            ExitCode.OUTPUT,
        ) from error
    finally:
        if beside is not None:
            beside.unlink(missing_ok=True)


def _settle(beside: Path, target: Path, secret: bool) -> None:
    """Bring a complete file to the disk and to its name."""
    with beside.open("rb") as written:
        os.fsync(written.fileno())
    beside.chmod(0o600 if secret else _mode(target))
    os.replace(beside, target)


def _mode(target: Path) -> int:
    """Permissions of the file that is replaced, if it is one, or of any new file."""
    if target.exists() and stat.S_ISREG(target.lstat().st_mode):
        return target.stat().st_mode & 0o777
    umask = os.umask(0o077)  # it can only be read by setting it; meanwhile files are private
    os.umask(umask)
    return 0o666 & ~umask


def write_whole(path: str | Path, write: Callable[[Path], object], *, secret: bool = False) -> None:
    """Let ``write`` fill a file that appears at ``path`` only when it is complete."""
    with replacing(path, secret=secret) as beside:
        write(beside)
