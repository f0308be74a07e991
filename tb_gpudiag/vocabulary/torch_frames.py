"""Frames of PyTorch's own Python files that say what the host is doing, and the built-ins next to them; and
its tasks next to the model, by the names of frames and ranges.

The paths are those of the torch package, from 1.8 to 2.13. Snapshots spell frames the same way.

`task_names.tsv` has a row for each form of a name: the task, the library, and an expression for the name.
There, `queue.py: get` stands for `queue.py(154): get`, and ` object>` for an object at any address. A row
without a library has the name of a function of the user's own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Final

from tb_gpudiag.vocabulary.frames import place_frame
from tb_gpudiag.vocabulary.patterns import (
    IN_FILE,
    LONGEST_MATCHED,
    PACKAGE,
    PATH,
    any_of,
    not_before,
    rows_of,
)

_DATA = PATH + r"torch/utils/data/"
_MODULES = PATH + r"torch/nn/modules/"

# The loader's spans that fetch a batch.
BATCH = any_of(r".*(__next__|_next_data|(dataloader|val|test|predict)_next)", flags=re.S)

# The iterator of torch.utils.data that fetches, anywhere in a name.
SINGLE_PROCESS_ITERATOR = "_SingleProcessDataLoaderIter"
MULTI_PROCESS_ITERATOR = "_MultiProcessingDataLoaderIter"
SINGLE_PROCESS = any_of(rf".*{SINGLE_PROCESS_ITERATOR}.*")

# What fetching a batch consists of.
LOADER_START = any_of(_DATA + r"dataloader\.py\(\d+\): (_get_iterator|__init__)", flags=re.S)
LOADER_WAIT = any_of(_DATA + r"dataloader\.py\(\d+\): (_try_get_data|_get_data)", flags=re.S)
LOADER_INDICES = any_of(_DATA + r"dataloader\.py\(\d+\): _next_index", flags=re.S)
LOADER_FETCH = any_of(_DATA + r"_utils/fetch\.py\(\d+\): .*", flags=re.S)
LOADER_COLLATE = any_of(_DATA + r"_utils/collate\.py\(\d+\): .*", flags=re.S)
LOADER_PIN = any_of(_DATA + r"_utils/pin_memory\.py\(\d+\): .*", flags=re.S)
# Unpickling a batch, this process asks the worker for the file descriptors of its tensors. A thread of the
# worker answers when the worker, busy with the next batch, lets it run.
LOADER_ANSWER = any_of(PATH + r"multiprocessing/(resource_sharer|connection)\.py\(\d+\): .*", flags=re.S)
LOADER_BLOCKED = any_of(r"<built-in (function read|method (recv|recvmsg|poll) of .*)>", flags=re.S)
# Inside the queue that workers fill: a batch that has arrived is unpickled, and its tensors are mapped.
LOADER_RECEIVE = any_of(
    r"<built-in function loads>", PATH + r"torch/multiprocessing/reductions\.py.*", flags=re.S
)

# A C++ kernel that torch.compile wrote, as the Python that it wrote as well calls it.
COMPILED_KERNEL = any_of(r"<built-in function kernel>")

# The thread that called backward() is here while autograd's own threads work.
_ENGINE_WAIT = (
    r"<built-in method run_backward of .*",
    PATH + r"torch/autograd/\w+\.py\(\d+\): (_engine_run_backward|backward)",
    PATH + r"torch/_tensor\.py\(\d+\): backward",
)
ENGINE_WAIT = any_of(*_ENGINE_WAIT)

# The thread is here while a collective or a message is on its way. Python's own events have a `wait`, too, so
# only a wait during a collective counts. What broadcasts DDP's buffers waits inside of C++.
MESSAGE_WAIT = any_of(
    r"<built-in method (wait|synchronize|(monitored_)?barrier|i?(send|recv)\w*|_broadcast_coalesced) of .*",
    PATH + r"torch/(distributed|nn/parallel)/.*",
    flags=re.S,
)

# DistributedDataParallel's own work on the host. It runs around the module's forward pass.
DDP_FORWARD = any_of(
    r"DistributedDataParallel\.forward", PATH + r"torch/nn/parallel/distributed\.py\(\d+\): forward"
)
# It packs buffers into one tensor, broadcasts it, and unpacks it,
DDP_BROADCAST = any_of(r"aten::(un)?flatten_dense_tensors", r"c10d::broadcast_", r"nccl:broadcast")
# and copies them back one by one.
DDP_UNPACKING = any_of(
    r"record_param_comms",
    r"aten::(_foreach_)?copy_",
    r"aten::(view|narrow|slice|detach|alias|as_strided|reshape|select|split\w*|expand|empty\w*)",
)
# It copies a bucket into gradients.
DDP_BUCKET_TO_GRADIENT = any_of(r"torch\.distributed\.ddp\.reducer::copy_bucket_to_grad")

# The caching allocator returns its unused memory to the driver.
EMPTY_CACHE = any_of(
    PATH + r"torch/(cuda|accelerator)/memory\.py\(\d+\): empty_cache",
    r"<built-in (function|method) _(cuda|accelerator)_emptyCache.*",
)

# What Python calls only if it uses a GPU. On a machine without one, these are errors.
GPU_CALL = any_of(
    r"<built-in method cuda of .*",
    r"<built-in function _(cuda|mps|xpu)_(synchronize|deviceSynchronize|getCurrentRawStream|setStream)>",
    flags=re.S,
)

# A tensor becomes text.
# Anomaly mode keeps the stack of each forward operator.
ANOMALY_STACK = any_of(r"(.*/)?(torch/fx/)?traceback\.py\(\d+\): format_stack", flags=re.S)
TENSOR_PRINT = any_of(PATH + r"torch/_tensor_str\.py\(\d+\): .*", flags=re.S)

# Passes of a training step, in traces and in the stacks of snapshots. Annotations begin inside a frame of the
# profiler and end outside of it, so they enclose next to nothing; `wrapper` is around every optimizer's step.
OPTIMIZER_FRAME = any_of(
    PATH + r"torch/optim/optimizer\.py\(\d+\): wrapper",
    PATH + rf"\w*optim\w*/({not_before('lr_scheduler')}[^(]*)?\(\d+\): (step|_\w+_step)",
    flags=re.S,
)
OPTIMIZER_MADE = any_of(PATH + r"torch/optim/optimizer\.py\(\d+\): __init__", flags=re.S)
# Functions that draw random numbers, of Python and NumPy.
BY_CHANCE = any_of(r"(?i:.*random.*)", flags=re.S)
ZERO_GRAD_FRAME = any_of(PATH + r"torch/(optim|nn)/.*\(\d+\): zero_grad", flags=re.S)
BACKWARD_FRAME = any_of(
    *_ENGINE_WAIT,
    PATH + r"torch/autograd/__init__\.py\(\d+\): grad",
    r".*\(\d+\): torch::autograd::(Engine|python::PythonEngine)::.*",
    # Not release_variables: a graph that is dropped frees what its nodes saved, in any phase.
    r".*\(\d+\): torch::autograd::generated::\w+::apply.*",
    flags=re.S,
)
# Searched for in a whole stack: Python's own threads begin so. autograd's engine calls hooks, and functions
# in Python, from threads that it starts itself.
THREAD_ROOT = any_of(r"\(\d+\): (<module>|_bootstrap)(\n|$)")
PARAMETER_FRAME = any_of(
    _MODULES + r"module\.py\(\d+\): (to|cuda|half|float|double|bfloat16|_apply|(_?load_|_load_from_)\w*)",
    _MODULES + r"\w+\.py\(\d+\): (__init__|reset_parameters)",
    PATH + r"torch/(serialization|_weights_only_unpickler)\.py\(\d+\): _?load\w*",
    PATH + r"safetensors/torch\.py\(\d+\): load\w*",
    PATH + r"(transformers|diffusers)/(\w+/)*modeling_utils\.py\(\d+\): (from_pretrained|_load_\w+)",
    PATH + r"accelerate/utils/modeling\.py\(\d+\): (set_module_tensor_to_device|load_\w+)",
    flags=re.S,
)
FORWARD_FRAME = any_of(
    r"nn\.Module: .*", _MODULES + r"\w+\.py\(\d+\): (forward|_call_impl|_wrapped_call_impl)", flags=re.S
)
# Calls a module's forward() and, around it, the hooks.
MODULE_CALL = any_of(
    r"nn\.Module: .*", _MODULES + r"module\.py\(\d+\): (_call_impl|_wrapped_call_impl|inner)", flags=re.S
)
# Searched for in a whole stack of a snapshot, in which modules have no frames of their own.
MODULE_FRAME = any_of(r"torch/nn/modules/\w+\.py\(\d+\): (forward|_\w*call_impl)")

# A function such as a loss, which modules call, too: as a frame, and to be searched for in a stack.
FUNCTIONAL_FRAME = any_of(PATH + r"torch/nn/functional\.py\(\d+\): .*", flags=re.S)
FUNCTIONAL = any_of(r"torch/nn/functional\.py\(\d+\): ")

# copy.deepcopy() copies a parameter of a module, or a tensor that is a value of an OrderedDict, which every
# module's state_dict() is: from the inside out. Then what to search for in a stack of a snapshot.
PARAMETER_COPY_FRAMES = (any_of(PATH + r"torch/nn/parameter\.py\(\d+\): __deepcopy__", flags=re.S),)
STATE_COPY_FRAMES = (
    any_of(PATH + r"torch/_tensor\.py\(\d+\): __deepcopy__", flags=re.S),
    any_of(PATH + r"copy\.py\(\d+\): deepcopy", flags=re.S),
    any_of(PATH + r"copy\.py\(\d+\): _reconstruct", flags=re.S),
)
WEIGHTS_COPY = any_of(
    r"torch/nn/parameter\.py\(\d+\): __deepcopy__",
    r"copy\.py\(\d+\): _reconstruct\n.*copy\.py\(\d+\): deepcopy\n.*torch/_tensor\.py\(\d+\): __deepcopy__",
)

# Searched for in a whole stack: the forward pass of a function with a backward() of its own.
FUNCTION_APPLY = any_of(r"torch/autograd/function\.py\(\d+\): apply")

# torch's own layers of which each row of a result is one of the input's. Attention compares all of them.
_LAYER_FRAME = any_of(
    _MODULES
    + r"(activation|batchnorm|conv|dropout|instancenorm|linear|normalization|padding|pooling|rnn|sparse"
    + r"|upsampling)"
    + IN_FILE,
    flags=re.S,
)
_ATTENTION_FRAME = any_of(PATH + r"torch/nn/functional\.py\(\d+\): multi_head_attention_forward", flags=re.S)

# A whole stack that ends in a recurrent layer, which runs many operators.
RECURRENT = any_of(r"(.*\n)?" + PATH + r"torch/nn/modules/rnn" + IN_FILE, flags=re.S)

# Searched for in a whole stack of a snapshot: activations are computed again in the backward pass.
CHECKPOINT = any_of(r"torch/utils/checkpoint\.py\(\d+\): ")

# Searched for in a whole stack of a snapshot: torch.load() puts a checkpoint on the GPU.
LOAD = any_of(r"torch/serialization\.py\(\d+\): _?load")

# Searched for in a whole stack of a snapshot: an object is made, such as a model whose weights its own class
# allocates.
BUILDING_FRAME = any_of(r"\(\d+\): __init__(\n|$)")

# The only optimizer of torch whose state grows from step to step, all files of torch, and decorators such as
# `@torch.inference_mode()`.
_HISTORY_FILE = any_of(PATH + r"torch/optim/lbfgs" + IN_FILE, flags=re.S)
_OWN_FILE = any_of(PATH + r"torch/.*" + IN_FILE, flags=re.S)
_DECORATED = any_of(PATH + r"torch/utils/_contextlib\.py\(\d+\): decorate_context", flags=re.S)

# Inside an optimizer's step, a closure runs forward and backward.
CLOSURE_FRAME = any_of(r".*\(\d+\): .*closure.*", PATH + r"\w*closure\.py\(\d+\): .*", flags=re.S)


def is_optimizer_history(stack: str) -> bool:
    """Return whether L-BFGS itself allocates, as for its history: the stack ends in it, and in no closure."""
    if "lbfgs" not in stack:
        return False
    for line in reversed(stack.split("\n")):
        if _HISTORY_FILE.fullmatch(line, 0, LONGEST_MATCHED):
            return True
        if not _OWN_FILE.fullmatch(line, 0, LONGEST_MATCHED):
            return False
    return False


# Many stacks have the same lines.
_LINES_REMEMBERED = 10_000


@functools.lru_cache(_LINES_REMEMBERED)
def calls_module(line: str) -> bool:
    """Return whether a line of a stack calls a module."""
    return MODULE_CALL.fullmatch(line) is not None


def outermost_caller(stack: str) -> str:
    """Return the part of a stack that ends where the outermost module is called; "" outside of modules."""
    lines = stack.split("\n")
    at = next((i for i, line in enumerate(lines) if calls_module(line)), 0)
    return "\n".join(lines[:at])


def inside_model(stack: str) -> str:
    """Return the rest of a stack, from where the outermost module is called; all of it outside of modules."""
    return stack[len(outermost_caller(stack)) :]


def inner_part(stack: str) -> str:
    """Return the part of a stack from the outermost module's call on; outside of modules, from the user's
    innermost line on."""
    if outermost_caller(stack):
        return inside_model(stack)
    lines = stack.split("\n")
    users = (i for i in range(len(lines) - 1, -1, -1) if place_frame(lines[i]) is not None)
    return "\n".join(lines[next(users, 0) :])


def is_of_layer(stack: str) -> bool:
    """Return whether a stack ends in one of torch's own layers, or in a function that one calls."""
    for line in reversed(stack.split("\n")):
        if _ATTENTION_FRAME.fullmatch(line, 0, LONGEST_MATCHED):
            return False
        if not FUNCTIONAL_FRAME.fullmatch(line, 0, LONGEST_MATCHED):
            return _LAYER_FRAME.fullmatch(line, 0, LONGEST_MATCHED) is not None
    return False


def in_no_grad(stack: str) -> bool:
    """Return whether a decorator turned autograd off. An optimizer's own one turns it on, for the closure."""
    for line in stack.split("\n"):
        if OPTIMIZER_FRAME.fullmatch(line, 0, LONGEST_MATCHED):
            return False
        if _DECORATED.fullmatch(line, 0, LONGEST_MATCHED):
            return True
    return False


class HostTask(IntEnum):
    """Kinds of host tasks."""

    GARBAGE = 0  # gc.collect(), and each collection if the recorder was told to record them
    LOGGING = 1  # log lines, progress bars, metrics, print
    SAVING = 2  # a checkpoint
    TOKENIZING = 3
    PREPARING = 4  # images, sound and video: decoded, resized, normalized
    SLEEPING = 5  # time.sleep()
    MAKING = 6  # random or large tensors, made on the host of a job with a GPU
    PLANNING = 7  # cuDNN plans attention for a shape that it has not seen
    READING = 8  # tensors from files
    EVALUATING = 9  # an evaluation beside a training
    THREAD = 10  # wait for another thread, as at a queue
    PROCESS = 11  # wait for a child process
    SOCKET = 12
    FILE = 13
    LOCK = 14
    LOADING = 15  # fetch a batch
    PROFILING = 16
    WAKING = 17  # end the wait of another thread
    SIMULATING = 18  # step an environment or a simulator
    AVERAGING = 19  # gradients or weights over the ranks
    PROGRAM = 20  # wait for a program that was started
    FILE_LOCK = 21  # that another process may hold
    COMPUTING = 22  # operators of a job with a GPU that compute on the host
    CONVERTING = 23  # lists of numbers or arrays into a tensor


WAITS: Final = (
    HostTask.SLEEPING,
    HostTask.THREAD,
    HostTask.PROCESS,
    HostTask.PROGRAM,
    HostTask.SOCKET,
    HostTask.FILE,
    HostTask.LOCK,
    HostTask.FILE_LOCK,
)
"""In these, a thread sits in one call and does nothing."""

INPUT: Final = (HostTask.LOADING, HostTask.TOKENIZING, HostTask.PREPARING, HostTask.READING)
"""In these, a thread makes batches."""

_Row = tuple[HostTask, str, str]


@lru_cache(1)
def _rows() -> list[_Row]:
    return [(HostTask[task.upper()], library, name) for task, library, name in rows_of("task_names.tsv")]


def _pattern(name: str) -> str:
    """Return the expression of a name in the table."""
    at_line = name.replace(".py: ", r"\.py\(\d+\): ")
    if at_line != name:
        return (PATH if name.startswith("torch/") else PACKAGE) + at_line  # torch runs from its sources, too
    return name.replace(" object>", r" object at .*>")


def _patterns(*, users: bool) -> Iterator[tuple[HostTask, re.Pattern[str]]]:
    for one in HostTask:
        names = [name for task, library, name in _rows() if task is one and users is not bool(library)]
        if names:
            yield one, any_of(*names if users else map(_pattern, names), flags=re.S)


TASK_NAMES: Final = dict(_patterns(users=False))
"""Task -> the whole names of what does it."""


@lru_cache(1)
def of_users() -> dict[HostTask, re.Pattern[str]]:
    """Task -> the names of functions of the user's own that do it."""
    return dict(_patterns(users=True))


LOADER: Final = TASK_NAMES[HostTask.LOADING]
PROFILER_FRAME: Final = TASK_NAMES[HostTask.PROFILING]
WAKES: Final = TASK_NAMES[HostTask.WAKING]
RELEASE: Final = any_of(r"<built-in method (release|__exit__) of _thread\.R?[Ll]ock object at \w+>")
"""A lock of a known address is released."""
EVALUATES: Final = of_users()[HostTask.EVALUATING]
