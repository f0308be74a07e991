"""Map Kineto's names, old and new, to the columns of `events.py`. No other file knows these names.

Generations of the format write the same thing under different names. After this, no code has to ask which
version of torch wrote the file.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final

from tb_gpudiag.arrays import NONE
from tb_gpudiag.trace.events import Metadata
from tb_gpudiag.vocabulary.kernel_families import GRID_IN_THREADS
from tb_gpudiag.vocabulary.patterns import LONGEST_MATCHED, lazy_re
from tb_gpudiag.vocabulary.recorded import Category


class Form(Enum):
    """How the value of an entry is read."""

    TEXT = 0
    INTEGER = 1
    ADDRESS = 2  # an integer below 2**64, as ids are, too: it is kept as one with a sign
    DECIMAL = 3
    MICROSECONDS = 4  # exact: as whole nanoseconds


FIELDS: Final = {
    "phase": ("ph", Form.TEXT),
    "category": ("cat", Form.TEXT),
    "name": ("name", Form.TEXT),
    "pid": ("pid", Form.TEXT),
    "tid": ("tid", Form.TEXT),
    "start_us": ("ts", Form.MICROSECONDS),
    "duration_us": ("dur", Form.MICROSECONDS),
}
"""Fields read from the entries of an event: key of the entry and its form."""

MESSAGE: Final = {
    "collective": ("Collective name", Form.TEXT),
    "group": ("Process Group Name", Form.TEXT),
    "group_ranks": ("Process Group Ranks", Form.TEXT),
    "group_size": ("Group size", Form.TEXT),
    "sequence_number": ("Seq", Form.TEXT),
    "elements_in": ("In msg nelems", Form.TEXT),
    "elements_out": ("Out msg nelems", Form.TEXT),
    "element_type": ("dtype", Form.TEXT),
    "source": ("Src Rank", Form.TEXT),
    "destination": ("Dst Rank", Form.TEXT),
}
"""Fields of events.Message, in its order, read from the `args` of collectives."""

ARGUMENTS: Final = {
    "correlation": ("correlation", Form.ADDRESS),
    "external_id": ("External id", Form.ADDRESS),
    "device": ("device", Form.INTEGER),
    "stream": ("stream", Form.INTEGER),
    "python_id": ("Python id", Form.INTEGER),
    "python_parent": ("Python parent id", Form.INTEGER),
    "sequence": ("Sequence number", Form.INTEGER),
    "forward_thread": ("Fwd thread id", Form.INTEGER),
    "blocks_per_sm": ("blocks per SM", Form.DECIMAL),
    "warps_per_sm": ("warps per SM", Form.DECIMAL),
    "registers": ("registers per thread", Form.INTEGER),
    "shared_bytes": ("shared memory", Form.INTEGER),
    "call_stack": ("Call stack", Form.TEXT),
    "called_from": ("CallFrom", Form.TEXT),
    "input_shapes": ("Input Dims", Form.TEXT),
    "input_types": ("Input type", Form.TEXT),
    "memory_bytes": ("Bytes", Form.INTEGER),
    "memory_device_type": ("Device Type", Form.INTEGER),
    "memory_device": ("Device Id", Form.INTEGER),
    "memory_address": ("Addr", Form.ADDRESS),
    "memory_allocated": ("Total Allocated", Form.INTEGER),
    "memory_reserved": ("Total Reserved", Form.INTEGER),
    "thread_name": ("name", Form.TEXT),
    "copied_bytes": ("bytes", Form.INTEGER),
    "copy_kind": ("copy kind", Form.TEXT),
    "copied_from": ("src kind", Form.TEXT),
    "copied_to": ("dst kind", Form.TEXT),
    "grid": ("grid", Form.TEXT),
    "block": ("block", Form.TEXT),
    "launch_grid": ("grid dim", Form.TEXT),
    "launch_block": ("block dim", Form.TEXT),
    "awaited_stream": ("wait_on_stream", Form.INTEGER),
    "awaited_record": ("wait_on_cuda_event_record_corr_id", Form.INTEGER),
    "settings": ("Concrete Inputs", Form.TEXT),
    "launched": ("kernel", Form.TEXT),
    "graph_node": ("graph node id", Form.INTEGER),
    "annotated_module": ("module_fqn", Form.TEXT),
    "strides": ("Input Strides", Form.TEXT),
    **MESSAGE,
}
"""Fields read from the `args` of an event. An event has few of them."""

_HIP_LAUNCH: Final = lazy_re(r"hip\w*LaunchKernel\w*")
_LAUNCH_IN_THREADS: Final = lazy_re(r"hip(ExtModule|HccModule)Launch\w*")
_KERNEL_IN_THREADS: Final = lazy_re(GRID_IN_THREADS)

_CATEGORIES: Final = {
    "operator": Category.CPU_OP,
    "cpu_op": Category.CPU_OP,
    "user_annotation": Category.USER_ANNOTATION,
    "python_function": Category.PYTHON_FUNCTION,
    "runtime": Category.RUNTIME,
    "cuda_runtime": Category.RUNTIME,
    "hip_runtime": Category.RUNTIME,
    "xpu_runtime": Category.RUNTIME,
    "mtia_runtime": Category.RUNTIME,
    "privateuse1_runtime": Category.RUNTIME,
    "cuda_driver": Category.DRIVER,
    "hip_driver": Category.DRIVER,
    "xpu_driver": Category.DRIVER,
    "mtia_driver": Category.DRIVER,
    "privateuse1_driver": Category.DRIVER,
    "kernel": Category.KERNEL,
    "concurrent_kernel": Category.KERNEL,
    "memcpy": Category.MEMCPY,
    "gpu_memcpy": Category.MEMCPY,
    "memset": Category.MEMSET,
    "gpu_memset": Category.MEMSET,
    "gpu_user_annotation": Category.GPU_USER_ANNOTATION,
    "overhead": Category.OVERHEAD,
    "cuda_sync": Category.CUDA_SYNC,
    "cpu_instant_event": Category.INSTANT,
    "mtia_ccp_events": Category.MTIA,
    "enqueue": Category.ASCEND,
    "dequeue": Category.ASCEND,
}

# torch 1.8 to 1.11 had no category for annotations: marks of the profiler, the DataLoader and optimizers were
# `Operator`s. `gpu_user_annotation` repeats ProfilerStep on the GPU and is never a step of the host.
_ANNOTATION_OF_OLD: Final = lazy_re(r"ProfilerStep#|enumerate\(DataLoader\)#|Optimizer\.")

SYNC_TID_OFFSET: Final = 1_000_000
"""Newer Kineto shows synchronization events of a stream under a thread of their own: tid = stream + this."""

_STREAM_TID: Final = lazy_re(r"(?:stream\s*)?(-?[0-9]+)", re.IGNORECASE)

MEMORY_NAME: Final = "[memory]"
OUT_OF_MEMORY_NAME: Final = "[OutOfMemory]"
SPAN_PHASE: Final = "X"
BEGIN_PHASE: Final = "B"
END_PHASE: Final = "E"
MEMORY_PHASES: Final = frozenset({"i", "I", "X"})
METADATA_PHASE: Final = "M"
COUNTER_PHASE: Final = "C"
QUEUE_CATEGORY: Final = "gpudiag_queue"
"""Of the counters that report/annotate.py adds, which are not read back."""
RANGE_CATEGORY: Final = "cuda_profiler_range"
"""Of CUPTI's range profiler: `_ExperimentalConfig(profiler_metrics=...)`. Its `args` are metrics."""
THREAD_NAME: Final = "thread_name"

TRACE_EVENTS: Final = "traceEvents"
LOGGED_ERRORS: Final = "ERROR"
"""What Kineto's log said while it recorded: a list of lines."""
TENSORS: Final = "gpudiag_tensors"
"""What `NotingTensors` wrote: see training/noting_tensors.py."""
METADATA_KEYS: Final = frozenset(
    {
        "schemaVersion",
        "baseTimeNanoseconds",
        "deviceProperties",
        "distributedInfo",
        "record_shapes",
        "profile_memory",
        "with_stack",
        "with_flops",
        "with_modules",
        "simulated",
        "host_name",
        LOGGED_ERRORS,
        TENSORS,
        "gpudiag_why",
    }
)
"""Top-level keys that are kept; all others are skipped."""


_KINETO_START: Final = lazy_re(
    rb'\s*\{.*"schemaVersion"\s*:.*"(deviceProperties|distributedInfo|traceEvents)"', re.DOTALL
)
# `schema`, then pid, time and start_ts in any order, then `nodes`.
_EXECUTION_TRACE_START: Final = lazy_re(
    rb'\s*\{(?=[^{}\[\]]{0,1000}?"schema"\s*:\s*")[^{}\[\]]{0,1000}?"nodes"\s*:\s*\['
)
_EVENTS_START: Final = lazy_re(rb'\s*(\[|\{.*"traceEvents"\s*:\s*\[)', re.DOTALL)
# Lines about other things come with profilers that run beside.
_MOST_LOGGED: Final = 100
_NO_GPUS: Final = lazy_re(r"GetDeviceCount failed with code (\d{1,4})$", re.ASCII)
_CATEGORY: Final = lazy_re(rb'"cat"\s*:\s*"([^"]+)"')


def is_trace(head: bytes) -> bool:
    """Return whether a file that starts like this is a trace of PyTorch.

    It has Kineto's first keys, or events in its categories: other programs write traces of the same format.
    """
    if _KINETO_START.match(head):
        return True
    categories = [found.decode("utf-8", "replace").lower() for found in _CATEGORY.findall(head)]
    return _EVENTS_START.match(head) is not None and any(name in _CATEGORIES for name in categories)


def is_execution_trace(head: bytes) -> bool:
    """Return whether a file that starts like this is what torch's ExecutionTraceObserver writes."""
    return _EXECUTION_TRACE_START.match(head) is not None


def category(text: str) -> Category:
    """Return the category that a `cat` means."""
    return _CATEGORIES.get(text.lower(), Category.OTHER)


def is_old_operator(text: str) -> bool:
    """Return whether this `cat` is from the generation that had no category for annotations."""
    return text == "Operator"


def is_annotation(name: str) -> bool:
    """Return whether newer traces call an old `Operator` of this name a `user_annotation`."""
    return _ANNOTATION_OF_OLD.match(name) is not None


def is_hip_launch(name: str) -> bool:
    """Return whether a call of this name launches a kernel on ROCm."""
    return _HIP_LAUNCH.fullmatch(name, 0, LONGEST_MATCHED) is not None


def grid_in_threads(name: str) -> bool:
    """Return whether the grid of this kernel or launch call is in threads, not in blocks."""
    return (
        _LAUNCH_IN_THREADS.fullmatch(name, 0, LONGEST_MATCHED)
        or _KERNEL_IN_THREADS.match(name, 0, LONGEST_MATCHED)
    ) is not None


def number_of(text: str) -> int:
    """Return the number in a GPU's `pid` or `tid` ("7", "stream 7"), or NONE."""
    match = _STREAM_TID.fullmatch(text.strip())
    if match is None:
        return NONE
    # Python refuses to convert thousands of digits.
    number = int(match[1][:12])
    return number if 0 <= number < 2**31 else NONE


def metadata(values: dict[str, Any]) -> Metadata:
    """Make Metadata of top-level values. Values of an unexpected type are skipped."""
    properties = values.get("deviceProperties")
    distributed, tensors = values.get("distributedInfo"), values.get(TENSORS)
    return Metadata(
        base_time_ns=_integer(values.get("baseTimeNanoseconds")),
        device_properties=[p for p in properties if isinstance(p, dict)]
        if isinstance(properties, list)
        else [],
        distributed=distributed if isinstance(distributed, dict) else {},
        record_shapes=bool(values.get("record_shapes")),
        with_flops=bool(values.get("with_flops")),
        simulated=values.get("simulated") is True,
        tensors=tensors if isinstance(tensors, dict) else {},
        host_name=_text(values.get("host_name")),
        gpu_error=_gpu_error(values.get(LOGGED_ERRORS)),
        recorded_because=_text(values.get("gpudiag_why")),
    )


def _gpu_error(logged: Any) -> int:
    """Return the error number of the call that counts GPUs; 0 if Kineto logged none."""
    lines = logged[:_MOST_LOGGED] if isinstance(logged, list) else []
    found = (_NO_GPUS.search(line) for line in lines if isinstance(line, str))
    return next((int(match[1]) for match in found if match is not None), 0)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _integer(value: Any) -> int:
    if isinstance(value, (int, float, str)):
        try:
            number = int(value)
        except (ValueError, OverflowError):
            return 0
        return number if abs(number) < 2**63 else 0
    return 0
