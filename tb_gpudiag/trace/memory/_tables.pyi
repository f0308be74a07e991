from typing import Any, Final

import numpy as np
import numpy.typing as npt

INTEGER: Final[int]
TEXT: Final[int]
DICT: Final[int]
LIST: Final[int]
CONSTANT: Final[int]
OTHER: Final[int]
PAIR: Final[int]
KIND_BITS: Final[int]
PAIR_BITS: Final[int]
HALF_PAIR: Final[int]
NONE_FALSE_TRUE: Final[tuple[None, bool, bool]]

class GivenUp(Exception): ...

class Tables:
    root: int
    texts: list[str]
    others: list[Any]
    shapes: list[tuple[str, ...]]
    dict_shape: npt.NDArray[np.int32]
    dict_at: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    list_last: npt.NDArray[np.int64]
    chunk_before: npt.NDArray[np.int64]
    chunk_at: npt.NDArray[np.int64]
    chunk_size: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    def __init__(self, content: bytes) -> None: ...
