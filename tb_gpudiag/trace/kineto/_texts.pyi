from typing import Final

import numpy as np
import numpy.typing as npt

GIVEN_UP: Final[int]

def read_texts(
    content: bytes,
    places: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int32],
    numbers: bool,
) -> int: ...
