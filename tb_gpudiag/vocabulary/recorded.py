"""What a trace can hold: categories of events, kinds of memory operations, and who recorded it."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from tb_gpudiag.arrays import Int64


class LabeledEnum(IntEnum):
    """Numbers for arrays, and a word for reports."""

    @property
    def label(self) -> str:
        return self.name.lower()


Size = TypeVar("Size", "int", "Int64")


class Category(IntEnum):
    """Kind of an event, the same for all generations of the format (see kineto.py)."""

    OTHER = 0
    CPU_OP = 1
    USER_ANNOTATION = 2
    PYTHON_FUNCTION = 3
    RUNTIME = 4
    DRIVER = 5
    KERNEL = 6
    MEMCPY = 7
    MEMSET = 8
    GPU_USER_ANNOTATION = 9
    OVERHEAD = 10
    CUDA_SYNC = 11
    INSTANT = 12
    # 13 is communication kernels on the wire: see box_kind in report.proto.
    MTIA = 14  # of accelerators that are recognized but not read
    ASCEND = 15


HOST_CATEGORIES = (
    Category.CPU_OP,
    Category.USER_ANNOTATION,
    Category.PYTHON_FUNCTION,
    Category.RUNTIME,
    Category.DRIVER,
)
"""Categories of a host thread's spans. Of two that start and end together, the first listed is the outer."""

CALL_CATEGORIES = (Category.RUNTIME, Category.DRIVER)

GPU_WORK_CATEGORIES = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)

UNREAD_ACCELERATORS = {Category.MTIA: "Meta's MTIA", Category.ASCEND: "an Ascend NPU"}
"""Accelerators whose activity no fact is computed from."""

FileKind = Literal["trace", "snapshot", "memory_timeline", "hang", "clock"]
"""hang: a folder with dumps of a flight recorder. clock: a folder of step clocks."""


class MemoryAction(IntEnum):
    """What an allocator did."""

    ALLOCATE = 0
    FREE = 1
    GROW = 2  # it got a segment from the driver
    SHRINK = 3  # it returned a segment to the driver
    OUT_OF_MEMORY = 4


ALLOCATOR_UNIT = 512
"""Bytes of the smallest block of torch's caching allocator. A number in a tensor of its own takes one."""


def allocated_bytes(requested: Size) -> Size:
    """Round requests up to what torch's caching allocator takes for them."""
    return -(-requested // ALLOCATOR_UNIT) * ALLOCATOR_UNIT


class DeviceType(IntEnum):
    """PyTorch's numbers for kinds of devices, as in memory events."""

    CPU = 0
    CUDA = 1
    HIP = 6
    XPU = 12
    MPS = 13


FRAMES_OF_STACK = 128
"""The innermost frames of an allocation are kept. With C++ frames, about forty are between it and the user's
line."""


class MemoryPurpose(IntEnum):
    """What memory is used for. The values are those of torch's memory timelines."""

    PARAMETER = 0
    OPTIMIZER_STATE = 1
    INPUT = 2
    TEMPORARY = 3
    ACTIVATION = 4
    GRADIENT = 5
    AUTOGRAD_DETAIL = 6
    UNKNOWN = 7


class Credential(NamedTuple):
    """A credential in a trace: what it is called and looks like, never its value. One of the two may be
    empty."""

    name: str  # of the entry, variable or option
    form: str  # such as "GitHub token"


Recorder = Literal["torch", "nsys", "rocprof"]
"""What recorded a trace: torch.profiler, Nsight Systems, or ROCm's rocprofv3."""
