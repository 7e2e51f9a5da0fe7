"""Writing files that appear complete or not at all, and never through a symbolic link."""

import os
import stat
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_UMASK_LOCK = threading.Lock()


def write_atomically(
    path: str | os.PathLike[str],
    data: bytes | Iterable[bytes | memoryview],
    *,
    private: bool = False,
) -> Path:
    """Write a file through a new temporary file in the same folder, then rename it.

    The temporary file has a random name and can be read by its owner alone. It is synced to the
    disk before it takes the name, so a reader sees the old content or the new one, also after a
    crash. A symbolic link at the destination is replaced, and the file that it points to is not
    touched.

    Parameters
    ----------
    path : path
        Where the file goes. Its folder must exist.
    data : bytes, or iterable of bytes
        The content, in pieces if it is long.
    private : bool, default=False
        Whether only the owner may read the file (mode 0600). Otherwise it gets the mode of the
        regular file that it replaces, or what the umask gives to a new one.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    OSError
        When the folder does not exist, is not writable or is full, or when the destination is a
        folder, a device or a pipe. Nothing is left behind, and an older file is as before.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = write_atomically(Path(folder, "out.txt"), b"done", private=True)
    ...     file.read_bytes(), oct(file.stat().st_mode & 0o777), len(os.listdir(folder))
    (b'done', '0o600', 1)
    """
    with _staged(Path(path), data, private):
        return Path(path)


def write_together(files: Mapping[Path, bytes]) -> None:
    """Write several files that belong together, each as `write_atomically` does.

    All of them are complete on the disk before the first one takes its name, and the last one takes
    its name first: when it cannot, none of the others does.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_together({Path(folder, "table.json"): b"{}", Path(folder, "table.csv"): b"1"})
    ...     sorted(os.listdir(folder))
    ['table.csv', 'table.json']
    """
    with ExitStack() as stack:
        for path, data in files.items():
            stack.enter_context(_staged(Path(path), data, private=False))


@contextmanager
def _staged(
    path: Path, data: bytes | Iterable[bytes | memoryview], private: bool
) -> Iterator[None]:
    """Write a temporary file; it takes the name ``path`` on leaving, or disappears on an error."""
    folder = path.absolute().parent
    mode = _mode_for(path, private)
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name[:60]}.")
    try:
        with os.fdopen(handle, "wb") as sink:
            for piece in (data,) if isinstance(data, bytes) else data:
                sink.write(piece)
            sink.flush()
            os.fchmod(sink.fileno(), mode)
            os.fsync(sink.fileno())
        yield
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(folder)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading, without waiting for a pipe or touching a device.

    Raises
    ------
    OSError
        When there is no such file, when it cannot be read, or when it is something else.

    Examples
    --------
    >>> open_regular(os.devnull)
    Traceback (most recent call last):
        ...
    OSError: is not a file. Check the path.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    if Path(path).is_file():
        file = open(os.open(path, flags), "rb", buffering=0)  # noqa: SIM115
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # not replaced between the two calls
            return file
        file.close()
    raise OSError("is not a file. Check the path.")


def _mode_for(path: Path, private: bool) -> int:
    """Permission bits of the new file; refuses destinations that a rename must not replace."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        there = None
    if there is not None and not (stat.S_ISREG(there.st_mode) or stat.S_ISLNK(there.st_mode)):
        raise OSError(f"{path} is a folder, a device or a pipe, and no file can take its place")
    if private:
        return 0o600
    if there is not None and stat.S_ISREG(there.st_mode) and there.st_uid == os.geteuid():
        return stat.S_IMODE(there.st_mode) & 0o777
    return 0o666 & ~_umask()


def _umask() -> int:
    """The umask of this process, which can only be read by setting it."""
    with _UMASK_LOCK:
        umask = os.umask(0o077)  # what other threads create meanwhile is private, not open
        os.umask(umask)
    return umask


def sync_folder(folder: Path) -> None:
    """Bring the names of new files in a folder to the disk, where the file system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
