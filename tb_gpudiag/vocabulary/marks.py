"""Marks around stretches of host time: those of torch.profiler, optimizers, Lightning and torch.compile; and
guards of torch.compile: what of the program's state a failed one is about, by torch's words for it."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from tb_gpudiag.arrays import NONE
from tb_gpudiag.vocabulary.patterns import LONGEST_MATCHED, PATH, any_of, lazy_re

# torch.profiler's schedule: one for each step().
STEP = any_of(r"ProfilerStep\s?#\d+")

# Lightning records the training and the validation of a rank in two files.
_KIND_OF_STEPS = lazy_re(r".*\.(training|validation|test|predict)_step", re.S)


def kind_of_steps(worker: str) -> str:
    """Return `validation steps` for the recording of a rank that Lightning's profiler named so; else ""."""
    found = _KIND_OF_STEPS.fullmatch(worker, 0, LONGEST_MATCHED)
    return f"{found[1]} steps" if found else ""


# Kineto's synchronization event of a stream that waits for another stream's event.
STREAM_WAIT_EVENT = any_of(r"Stream Wait Event")

# Inference servers mark the capture of a graph for each batch size, such as `capture_32_FULL`.
CAPTURE = any_of(r"capture_\d+_[A-Z_]+")
_CAPTURED_SIZE = lazy_re(r"capture_(\d{1,9})_.*", re.S)

MODULE_PREFIX = "nn.Module: "

# torch.profiler with stacks: each call of a module, such as `nn.Module: Linear_3`.
MODULE = any_of(MODULE_PREFIX + ".*", flags=re.S)
_MODULE_PARTS = lazy_re(MODULE_PREFIX + r"(.*?)(_\d+)?", re.S)

# torch.optim marks its methods, such as `Optimizer.step#SGD.step`; Lightning its own, and hooks before them.
OPTIMIZER_STEP = any_of(r"Optimizer\.step#.*", r"\[pl\]\[.*[\].]optimizer_step.*", flags=re.S)
ZERO_GRAD = any_of(r"Optimizer\.zero_grad#.*", r"\[pl\]\[.*[\].]optimizer_zero_grad.*", flags=re.S)

# DistributedDataParallel's mark around a forward pass.
DDP_FORWARD = any_of(r"DistributedDataParallel\.forward")
# Those of a model that is trained on several ranks: FSDP2's only begins it, FSDP1's are nested.
PARALLEL_FORWARD = any_of(
    r"DistributedDataParallel\.forward", r"FullyShardedDataParallel\.forward", r"FSDP::root_pre_forward"
)

# Marks inside which the same operators run for one parameter after another: the optimizer's methods (`what`
# says which), and autograd's node that adds a gradient to the one that is already there.
PARAMETER_LOOP = any_of(
    r"Optimizer\.(?P<what>step|zero_grad)#.*", r"torch::autograd::AccumulateGrad", flags=re.S
)

# A function that torch.compile compiled, as it runs: its number, and how often it had been compiled before.
COMPILED_REGION = any_of(r"Torch-Compiled Region: (?P<function>.*\d+)/(?P<before>\d+)")

# A graph that Inductor compiled, as it runs.
COMPILED_GRAPH = any_of(r"## Call CompiledFxGraph .*", flags=re.S)

# A function that torch.compile makes of the code after a break of the graph.
RESUMED_FUNCTION = lazy_re(r"resume_(in_(?P<function>.*)_)?at_(?P<line>\d+)(_\d+)?$", re.S)

# Marks and operators around code that torch.compile wrote, as it runs, forward and backward.
COMPILED_CODE = any_of(
    r"Torch-Compiled Region.*", r"## Call CompiledFxGraph .*", r"CompiledFunction(Backward)?", flags=re.S
)


# Marks that torch, its libraries and Lightning set. All others are the user's `record_function`.
NOT_OWN_RANGE = any_of(
    r"ProfilerStep\s?#\d+",
    r"(Optimizer|DistributedDataParallel|FullyShardedDataParallel|FSDP|DDP)(\.|::).*",
    r"enumerate\(DataLoader\)#.*",
    r"\[pl\].*",
    r"Torch-Compiled Region.*",
    r"## Call .*",
    r"CompiledFunction(Backward)?",
    r".*\(dynamo_timed\)",
    r"TorchDynamo .*",
    r"(nccl|gloo|mpi|ucc|xccl|hccl|rccl|c10d|record_param_comms)\b.*",
    r"(Iteration Start|PyTorch Profiler).*",
    flags=re.S,
)


_ADDRESS = lazy_re(r" at 0x[0-9a-fA-F]+")
_SEPARATORS = lazy_re(r"([^A-Za-z0-9]+)")


def captured_size(name: str) -> int:
    """Return the batch size of a CAPTURE mark, or NONE."""
    found = _CAPTURED_SIZE.fullmatch(name, 0, LONGEST_MATCHED)
    return int(found[1]) if found else NONE


def merged_name(name: str) -> str:
    """Return the name without what differs from call to call: the number of a step, addresses of objects."""
    if STEP.fullmatch(name):
        return "ProfilerStep"
    return _ADDRESS.sub("", name) if " at 0x" in name else name


def resumed_name(name: str) -> str:
    """Return `forward, from line 24 on` for `torch_dynamo_resume_in_forward_at_24`, and any other name as it
    is."""
    found = RESUMED_FUNCTION.search(name, 0, LONGEST_MATCHED)
    return f"{found['function'] or 'the code'}, from line {found['line']} on" if found else name


def without_numbers(name: str) -> str:
    """Return `layers.*.w1` for `layers.3.w1`, and `Linear_*` for `Linear_3`: `w1` and `w2` stay different."""
    return "".join("*" if part.isdecimal() else part for part in _SEPARATORS.split(name))


@lru_cache(maxsize=65_536)
def module_name(name: str) -> str:
    """Return `Linear_3` for `nn.Module: Linear_3`, and any other name as it is."""
    return name.removeprefix(MODULE_PREFIX)


def module_class(name: str) -> str:
    """Return `Linear` for `nn.Module: Linear_3`, and any other name as it is."""
    found = _MODULE_PARTS.fullmatch(name, 0, LONGEST_MATCHED)
    return found[1] if found else name


def module_label(name: str) -> str:
    """Return `Linear_3` for `nn.Module: Linear_3`, and "" for what is not a module."""
    return name.removeprefix(MODULE_PREFIX) if name.startswith(MODULE_PREFIX) else ""


# The copy of a graph is compiled in a backward pass before any mark begins.
_GRAPHS = PATH + r"torch/fx/graph_module\.py\(\d+\): (__deepcopy__|recompile)"
_DYNAMO = (r".*\(dynamo_timed\)", PATH + r"torch/_dynamo/convert_frame\.py\(\d+\): .*", _GRAPHS)
_TRITON = (PATH + r"triton/compiler/compiler\.py\(\d+\): compile",)
_AUTOTUNE = (
    PATH + r"triton/runtime/autotuner\.py\(\d+\): _bench",
    PATH + r"torch/_inductor/runtime/triton_heuristics\.py\(\d+\): "
    r"(autotune_to_one_config|benchmark_all_configs|precompile)",
)
_EXTENSION = (PATH + r"torch/utils/cpp_extension\.py\(\d+\): (load|load_inline|_jit_compile)",)
_CAPTURE = (PATH + r"torch/cuda/graphs\.py\(\d+\): (capture_begin|capture_end)",)

DYNAMO, TRITON, AUTOTUNE = any_of(*_DYNAMO), any_of(*_TRITON), any_of(*_AUTOTUNE)
EXTENSION, GRAPH_CAPTURE = any_of(*_EXTENSION), any_of(*_CAPTURE)
COMPILE = any_of(*_DYNAMO, *_TRITON, *_AUTOTUNE, *_EXTENSION, *_CAPTURE)

# One function that TorchDynamo compiles: its own mark, or its frame where there is no mark.
COMPILED_FUNCTION = any_of(r"_compile(\.(<locals>\.)?compile_inner)? \(dynamo_timed\)")
COMPILED_FUNCTION_FRAME = any_of(PATH + r"torch/_dynamo/convert_frame\.py\(\d+\): _compile")


class GuardKind(IntEnum):
    """What changed."""

    SIZE = 0  # of a tensor, or its strides or number of dimensions
    DTYPE = 1  # or device, layout, requires_grad of a tensor
    MODE = 2  # of gradients, autocast, determinism, threads
    VALUE = 3  # of a Python number, string or length
    OBJECT = 4  # another object or type
    OTHER = 5


_SIGNS = (
    (GuardKind.SIZE, r"(size|stride|rank) mismatch|\.(size|stride)\(\)|_dynamic_indices|\.shape\b"),
    (GuardKind.DTYPE, r"(dtype|device|requires_grad|dispatch key set) mismatch|DispatchKeySet"),
    (GuardKind.MODE, r"GLOBAL_STATE|grad_mode|autocast|utils_device|torch_function"),
    (GuardKind.OBJECT, r"___check_(obj|type)_id|\bis (not )?|expected type|hasattr|___dict_"),
    (GuardKind.VALUE, r"==|!=|<|>|\blen\(|isnan"),
)
_KINDS = [(kind, lazy_re(signs)) for kind, signs in _SIGNS]
_NUMBERS = lazy_re(r"\d+(\.\d+)?")


def guard_kind(text: str) -> GuardKind:
    """Return what a failed guard is about."""
    text = text[:LONGEST_MATCHED]
    return next((kind for kind, signs in _KINDS if signs.search(text)), GuardKind.OTHER)


def with_any_figures(text: str) -> str:
    """Return what guards have in common that failed for other numbers."""
    return _NUMBERS.sub("#", text)
