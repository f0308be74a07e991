"""Types of NumPy columns, and the value of an entry that says nothing. Open to all layers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
UInt8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]

NONE = -1
"""Value of an entry of a column for which nothing was recorded."""
