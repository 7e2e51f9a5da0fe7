"""Small grey pictures as PNG data addresses, with nothing but the standard library."""

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def png_address(picture: Array) -> str:
    """A picture with values in [0, 1], dark on white, as an address for ``<img src>``.

    Parameters
    ----------
    picture : ndarray of shape (height, width)
        0 is white and 1 is black; what lies outside is cut off.

    Returns
    -------
    str
        ``data:image/png;base64,…``

    Examples
    --------
    >>> png_address(np.zeros((2, 2)))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    levels = np.clip(np.rint(255 * (1 - picture)), 0, 255).astype(np.uint8)
    height, width = levels.shape
    rows = np.hstack([np.zeros((height, 1), np.uint8), levels])  # no filter on any row
    data = (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
        + _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + _chunk(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(data).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def strip(rows: Array, shape: tuple[int, int], domain: tuple[float, float]) -> Array:
    """Several rows as pictures side by side, one white column between them.

    Examples
    --------
    >>> strip(np.ones((3, 4)), (2, 2), (0.0, 1.0)).shape
    (2, 8)
    """
    low, high = domain
    pictures = (np.asarray(rows, dtype=np.float64) - low) / (high - low)
    gap = np.zeros((shape[0], 1))
    parts = [part for row in pictures for part in (row.reshape(shape), gap)]
    return np.hstack(parts[:-1])
