"""Types of the arrays that the library passes around."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]
Indices = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]
Labels = NDArray[Any]
