from typing import Final

import numpy as np
import numpy.typing as npt

INTEGER: Final[int]
MICROSECONDS: Final[int]
TEXT: Final[int]
SELDOM_TEXT: Final[int]
ARGUMENTS: Final[int]
GIVEN_UP: Final[int]

class Scanner:
    texts: int
    def __init__(
        self,
        event: list[tuple[bytes, int, int]],
        arguments: list[tuple[bytes, int, int]],
        values: npt.NDArray[np.int64],
        present: npt.NDArray[np.uint64],
        places: npt.NDArray[np.int64],
        hashes: npt.NDArray[np.uint64],
        table: npt.NDArray[np.int32],
    ) -> None: ...
    def scan(self, content: bytes) -> int: ...
