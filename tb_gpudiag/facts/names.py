"""What the names of host calls, operators, Python frames and kernels tell. Data, and one look-up per distinct name.

Names come from CUDA's and HIP's runtime and driver APIs, PyTorch's dispatcher and Python files, and NCCL/RCCL.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tb_gpudiag.trace.events import Bool, Events

STEP = re.compile(r"ProfilerStep\s?#\d+")

# Calls that return only when the device has caught up. The asynchronous copies that block all the same (from
# pageable memory) are told by their GPU side, in transfers.py.
BLOCKING_CALL = re.compile(
    r"(cuda|hip)(Stream|Device|Event|Thread)Synchronize|cu(Stream|Ctx|Event)Synchronize"
    r"|(cuda|hip)Memcpy(2D|3D|To\w+|From\w+|DtoH|HtoD|DtoD|WithStream)?|cuMemcpy(DtoH|HtoD|DtoD)?(_v2)?"
)
ALLOCATOR_CALL = re.compile(
    r"(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|HostFree|FreeHost|HostRegister|HostUnregister|ExtMalloc|MemPool)\w*"
    r"|cu(Mem(Alloc|Free|Create|Release|Map|Unmap|AddressReserve|AddressFree|HostAlloc|SetAccess))\w*|hipMem(Create|Map|Unmap|Release)\w*"
)
MODULE_LOAD_CALL = re.compile(
    r"(cu|cuda|hip)(Module|Library)(Load|GetFunction|GetKernel)\w*|hipModuleLoad\w*|cuLink\w*|nvrtc\w*|hiprtc\w*"
)
LAUNCH_CALL = re.compile(r"\w*(Launch|Memcpy|Memset)\w*")

LOADER = re.compile(
    r"enumerate\(DataLoader\)#.*__next__"  # the annotation that torch puts around a batch
    r"|(.*[/\\])?torch[/\\]utils[/\\]data[/\\]dataloader\.py\(\d+\): (__next__|__iter__|_next_data|_get_iterator)"
    r"|\[pl\]\[profile\].*dataloader_next|\[pl\]\[module\].*dataloader.*"  # Lightning
)
COMPILE = re.compile(
    r".*\(dynamo_timed\)|(.*[/\\])?torch[/\\]_dynamo[/\\]convert_frame\.py\(\d+\): .*"
    r"|(.*[/\\])?triton[/\\](compiler[/\\]compiler|runtime[/\\]autotuner)\.py\(\d+\): (compile|_bench)"
    r"|(.*[/\\])?torch[/\\]_inductor[/\\]runtime[/\\]triton_heuristics\.py\(\d+\): (autotune_to_one_config|benchmark_all_configs|precompile)"
    r"|(.*[/\\])?torch[/\\]utils[/\\]cpp_extension\.py\(\d+\): (load|load_inline|_jit_compile)"
    r"|(.*[/\\])?torch[/\\]cuda[/\\]graphs\.py\(\d+\): (capture_begin|capture_end)"
)
PROFILER_FRAME = re.compile(
    r"(.*[/\\])?torch[/\\](profiler|autograd)[/\\](profiler|_utils|kineto)\.py\(\d+\): .*"
    r"|<built-in (method|function) _record_function_\w+.*|profiler::_record_function_\w+"
)
COLLECTIVE = re.compile(
    r"(nccl|rccl|gloo|mpi|ucc):.*|c10d::.*|record_param_comms|_c10d_functional::.*|ncclGroup\w+"
)
# The thread that called backward() sits here while autograd's own threads work.
ENGINE_WAIT = re.compile(
    r"<built-in method run_backward of .*|(.*[/\\])?torch[/\\]autograd[/\\]\w+\.py\(\d+\): (_engine_run_backward|backward)"
    r"|(.*[/\\])?torch[/\\]_tensor\.py\(\d+\): backward"
)
COMMUNICATION_KERNEL = re.compile(
    r"(nccl|rccl|mscclpp|nvshmem)\w*|.*\b(all_?reduce|reduce_?scatter|all_?gather)_?kernel.*", re.I
)

_FRAME = re.compile(r"(?P<file>.*)\((?P<line>\d+)\): (?P<function>.*)", re.S)

# Frames of the interpreter and of the libraries whose own lines nobody can change. The nearest other frame is the place.
_PLUMBING_FOLDERS = (
    "torch",
    "numpy",
    "scipy",
    "triton",
    "threading",
    "torch_xla",
    "PIL",
    "cv2",
    "pandas",
    "einops",
)
# Modules of the standard library that, as a bare file name, are far more often the user's own script.
_USERS_OWN = frozenset(
    {"test", "code", "profile", "trace", "main", "this", "statistics", "token", "select", "types"}
)
_SITE = re.compile(r".*[/\\](site-packages|dist-packages)[/\\]|.*[/\\]lib[/\\]python\d\.\d+[/\\]")


class Frame(NamedTuple):
    """A Python frame. `line` is where the function begins, or the running line in traces with call stacks; 0 unknown."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}({self.line}): {self.function}"


def match(events: Events, pattern: re.Pattern[str]) -> Bool:
    """Shape (n,): whether the event's whole name fits."""
    return _by_name(events, lambda name: pattern.fullmatch(name) is not None)


def match_place(events: Events) -> Bool:
    """Shape (n,): whether the name is a Python frame that a user could change."""
    return _by_name(events, lambda name: place_frame(name) is not None)


def _by_name(events: Events, test: Callable[[str], bool]) -> Bool:
    table = np.fromiter((test(name) for name in events.names), np.bool_, len(events.names))
    return table[events.name] if len(table) else np.zeros(len(events), np.bool_)


@lru_cache(maxsize=65_536)
def place_frame(name: str) -> Frame | None:
    """The frame that a python_function's name spells, unless it is plumbing (torch, NumPy, the standard library)."""
    frame = parse_frame(name)
    if frame is None:
        return None
    file = _SITE.sub("", frame.file)
    head, _, rest = file.replace("\\", "/").lstrip("./").partition("/")
    if head.startswith("<") or head in _PLUMBING_FOLDERS:
        return None
    module = head.removesuffix(".py")
    relative = file[:1] not in "/\\" and file[1:2] != ":"
    if relative and module in sys.stdlib_module_names and (rest or module not in _USERS_OWN):
        return None
    return frame


def parse_frame(name: str) -> Frame | None:
    """`file(line): function` taken apart; None for built-ins, modules and anything else."""
    found = _FRAME.fullmatch(name)
    if found is None or name.startswith("<built-in"):
        return None
    return Frame(found["file"], int(found["line"][:9]), found["function"])


@lru_cache(maxsize=65_536)
def stack_place(call_stack: str) -> Frame | None:
    """Of an old trace's `Call stack` (innermost first, `;` between), the innermost frame that is not plumbing."""
    for part in call_stack.split(";"):
        frame = place_frame(part.strip())
        if frame is not None and _SITE.match(frame.file) is None:
            return frame
    return None
