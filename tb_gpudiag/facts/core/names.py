"""What the names of host calls, operators, Python frames and kernels tell. Data, and one look-up per distinct
name.

Names come from CUDA's and HIP's runtime and driver APIs, PyTorch's dispatcher and Python files, and
NCCL/RCCL.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tb_gpudiag.trace.events import Bool, Events

MODULE = re.compile(r"nn\.Module: .*", re.S)
STEP = re.compile(r"ProfilerStep\s?#\d+")

# Where a path may begin; on Windows the separators differ: `_any` takes both.
_PATH = r"(.*/)?"


def _any(*patterns: str) -> re.Pattern[str]:
    """One of these, as the whole name; `/` stands for `\\` too."""
    return re.compile("|".join(f"(?:{p})" for p in patterns).replace("/", r"[/\\]"))


# Calls that return only when the device has caught up. The asynchronous copies that block all the same (to
# or from pageable memory) are told by their GPU side, in handover.py.
BLOCKING_CALL = _any(
    r"(cuda|hip)(Stream|Device|Event|Thread)Synchronize",
    r"cu(Stream|Ctx|Event)Synchronize",
    r"(cuda|hip)Memcpy(2D|3D|(To|From)\w+(?<!Async)|DtoH|HtoD|DtoD|WithStream)?",
    r"cuMemcpy(DtoH|HtoD|DtoD)?(_v2)?",
)
EVENT_WAIT = _any(r"(cuda|hip|cu)EventSynchronize")
EVENT_RECORD = _any(r"(cuda|hip|cu)EventRecord\w*")
ALLOCATOR_CALL = _any(
    r"(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|HostFree|FreeHost|HostRegister|HostUnregister)\w*",
    r"(cuda|hip)(ExtMalloc|MemPool)\w*",
    r"cuMem(Alloc|Free|Create|Release|Map|Unmap|AddressReserve|AddressFree|HostAlloc|SetAccess)\w*",
    r"hipMem(Create|Map|Unmap|Release)\w*",
)
MODULE_LOAD_CALL = _any(
    r"(cu|cuda|hip)(Module|Library)(Load|GetFunction|GetKernel)\w*",
    r"cuLink\w*",
    r"(nv|hip)rtc\w*",
)
LAUNCH_CALL = re.compile(r"\w*(Launch|Memcpy|Memset)\w*")

LOADER = _any(
    r"enumerate\(DataLoader\)#.*__next__",  # the annotation that torch puts around a batch
    _PATH + r"torch/utils/data/dataloader\.py\(\d+\): (__next__|__iter__|_next_data|_get_iterator)",
    r"\[pl\]\[profile\].*dataloader_next",  # Lightning
)
BATCH = re.compile(r".*(__next__|_next_data|dataloader_next)", re.S)
"""Of the loader's spans, those that fetch: not the ones that start its workers."""

# What compiles, captures or loads GPU code.
_DYNAMO = (
    r".*\(dynamo_timed\)",
    _PATH + r"torch/_dynamo/convert_frame\.py\(\d+\): .*",
)
_TRITON = (_PATH + r"triton/compiler/compiler\.py\(\d+\): compile",)
_AUTOTUNE = (
    _PATH + r"triton/runtime/autotuner\.py\(\d+\): _bench",
    _PATH + r"torch/_inductor/runtime/triton_heuristics\.py\(\d+\): "
    r"(autotune_to_one_config|benchmark_all_configs|precompile)",
)
_EXTENSION = (_PATH + r"torch/utils/cpp_extension\.py\(\d+\): (load|load_inline|_jit_compile)",)
_CAPTURE = (_PATH + r"torch/cuda/graphs\.py\(\d+\): (capture_begin|capture_end)",)
DYNAMO, TRITON, AUTOTUNE = _any(*_DYNAMO), _any(*_TRITON), _any(*_AUTOTUNE)
EXTENSION, GRAPH_CAPTURE = _any(*_EXTENSION), _any(*_CAPTURE)
COMPILE = _any(*_DYNAMO, *_TRITON, *_AUTOTUNE, *_EXTENSION, *_CAPTURE)

# One function that TorchDynamo compiles: its own mark, or without that its frame.
COMPILED_FUNCTION = re.compile(r"_compile(\.(<locals>\.)?compile_inner)? \(dynamo_timed\)")
COMPILED_FUNCTION_FRAME = _any(_PATH + r"torch/_dynamo/convert_frame\.py\(\d+\): _compile")
COMPILED_REGION = re.compile(r"Torch-Compiled Region: (?P<function>.*\d+)/(?P<before>\d+)")
"""What a compiled function runs as: its number, and how often it had been compiled before."""

PROFILER_FRAME = _any(
    _PATH + r"torch/(profiler|autograd)/(profiler|_utils|kineto)\.py\(\d+\): .*",
    r"<built-in (method|function) _record_function_\w+.*",
    r"profiler::_record_function_\w+",
)
COLLECTIVE = _any(
    r"(nccl|rccl|gloo|mpi|ucc):.*",
    r"c10d::.*",
    r"_c10d_functional::.*",
    r"record_param_comms",
    r"ncclGroup\w+",
)
# Chores of the host beside the model, told by the library that does them. A package's own folder begins the
# name: the profiler cuts what stands before it, or it lies where packages are installed.
_PACKAGE = r"(.*/(?:(?:site|dist)-packages|lib/python3\.\d+)/)?"
_IN_FILE = r"\.py\(\d+\): .*"
GARBAGE_COLLECTION = _any(r"<built-in function collect>")
LOGGING = _any(
    _PACKAGE + r"logging/(__init__|handlers)" + _IN_FILE,
    _PACKAGE + r"(wandb|tensorboard|tensorboardX|torch/utils/tensorboard)/.*" + _IN_FILE,
    _PACKAGE + r"(mlflow|comet_ml|clearml|loguru)/.*" + _IN_FILE,
    _PACKAGE + r"(lightning/pytorch|pytorch_lightning)/(loggers|trainer/.*/logger_connector)/.*" + _IN_FILE,
    # Not its __iter__: what the loop over it asks for runs in there.
    _PACKAGE + r"tqdm/\w+\.py\(\d+\): (update|refresh|display|write|close|set_(postfix|description)\w*)",
    _PACKAGE + r"ipykernel/iostream" + _IN_FILE,
    r"<built-in function print>",
)
SAVING = _any(
    _PACKAGE + r"torch/serialization\.py\(\d+\): save",
    _PACKAGE + r"torch/distributed/checkpoint/.*\.py\(\d+\): (save|async_save)",
    _PACKAGE + r"safetensors/(torch|numpy)\.py\(\d+\): save\w*",
)
TOKENIZING = _any(
    _PACKAGE + r"transformers/(models/\w+/)?tokenization_\w+" + _IN_FILE,
    _PACKAGE + r"(tiktoken|sentencepiece|sacremoses)/.*" + _IN_FILE,
    r"<built-in method \w+ of tokenizers\.Tokenizer object at .*",
)
PREPARING = _any(
    _PACKAGE + r"transformers/(image|audio|video|feature)_(processing|extraction|utils|transf)\w*" + _IN_FILE,
    _PACKAGE + r"transformers/models/\w+/((image|video)_processing|feature_extraction)_\w+" + _IN_FILE,
    _PACKAGE + r"(torchvision/(transforms|io)|PIL|cv2|albumentations|imgaug)/.*" + _IN_FILE,
    _PACKAGE + r"(librosa|torchaudio|decord)/.*" + _IN_FILE,
    r"<built-in method \w+ of (ImagingCore|av\.\w.*|decord\.\w.*) object at .*",
    r"<built-in function (imread|imdecode|resize|cvtColor|warpAffine)>",
)
# The thread that called backward() sits here while autograd's own threads work.
ENGINE_WAIT = _any(
    r"<built-in method run_backward of .*",
    _PATH + r"torch/autograd/\w+\.py\(\d+\): (_engine_run_backward|backward)",
    _PATH + r"torch/_tensor\.py\(\d+\): backward",
)
COMMUNICATION_KERNEL = re.compile(
    r"(nccl|rccl|mscclpp|nvshmem).*|.*(\b|_)(all_?reduce|reduce_?scatter|all_?gather)_?kernel.*|"
    r"(void )?vllm::cross_device_reduce_.*|(void )?deep_ep::.*",
    re.I | re.S,
)

_FRAME = re.compile(r"(?P<file>.*)\((?P<line>\d+)\): (?P<function>.*)", re.S)

# Frames of the interpreter and of the libraries whose own lines nobody can change. The nearest other frame is
# the place.
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
    "tqdm",
    "sympy",
)
# Modules of the standard library that, as a bare file name, are far more often the user's own script.
_USERS_OWN = frozenset(
    {"test", "code", "profile", "trace", "main", "this", "statistics", "token", "select", "types"}
)
_SITE = re.compile(r".*[/\\](site-packages|dist-packages)[/\\]|.*[/\\]lib[/\\]python\d\.\d+[/\\]")


_GENERATED = re.compile(r"[/\\]torchinductor_\w+[/\\]")  # written by torch.compile


class Frame(NamedTuple):
    """A Python frame. `line` is where the function begins, or the running line in traces with call stacks; 0
    unknown."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}({self.line}): {self.function}"


def match(events: Events, pattern: re.Pattern[str]) -> Bool:
    """Shape (n,): whether the event's whole name fits."""
    fits = (pattern.fullmatch(name) is not None for name in events.names)
    table = np.fromiter(fits, np.bool_, len(events.names))
    return table[events.name] if len(table) else np.zeros(len(events), np.bool_)


@lru_cache(maxsize=65_536)
def place_frame(name: str) -> Frame | None:
    """The frame that a python_function's name spells, unless it is plumbing (torch, NumPy, the standard
    library)."""
    frame = parse_frame(name)
    if frame is None:
        return None
    file = _SITE.sub("", frame.file)
    head, _, rest = file.replace("\\", "/").lstrip("./").partition("/")
    if head.startswith("<") or head in _PLUMBING_FOLDERS or _GENERATED.search(file):
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
    """Of an old trace's `Call stack` (innermost first, `;` between), the innermost frame that is not
    plumbing."""
    for part in call_stack.split(";"):
        frame = place_frame(part.strip())
        if frame is not None and _SITE.match(frame.file) is None:
            return frame
    return None
