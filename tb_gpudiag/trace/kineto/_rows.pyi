import numpy as np
import numpy.typing as npt

def take(
    values: npt.NDArray[np.int64],
    present: npt.NDArray[np.uint64],
    column: int,
    rows: npt.NDArray[np.int64],
    missing: int,
    out: npt.NDArray[np.int64],
) -> None: ...
def number(
    values: npt.NDArray[np.int64],
    present: npt.NDArray[np.uint64],
    column: int,
    rows: npt.NDArray[np.int64],
    where: npt.NDArray[np.uint8],
    places: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.int32],
    found: npt.NDArray[np.int64],
    codes: npt.NDArray[np.int32],
) -> int: ...
