"""How to record a good trace: the one source of the block that README, the page, rules and docs show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_OPTIONS: Final = """\
    record_shapes=True,
    profile_memory=True,
    with_stack=True,  # functions of your code; the most expensive option, in time and file size
"""

_IMPORT: Final = """\
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
"""
_SCHEDULE: Final = """\
    schedule=schedule(wait=5, warmup=2, active=6, repeat=1),  # skip the first steps: they are slower
"""

RECORDING: Final = f"""\
{_IMPORT}
with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
{_SCHEDULE}\
    on_trace_ready=tensorboard_trace_handler("log/my_run"),
{_OPTIONS}) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()  # without this there are no figures per step
"""
"""Everything that findings need."""

RECORDING_OF_HOST_LEAKS: Final = RECORDING.replace(
    _IMPORT, f"{_IMPORT}\nfrom tb_gpudiag import NotingTensors\n"
).replace(_SCHEDULE, "    schedule=NotingTensors(schedule(wait=20, warmup=2, active=12, repeat=1)),\n")
"""The same, and which tensors come and go: a leak on the host and a full buffer look alike without it."""

NSYS_RECORDING: Final = """\
# nsys profile --trace=cuda,nvtx,osrt --cuda-graph-trace=node --cuda-memory-usage=true \\
#     --sample=process-tree --cudabacktrace=all --python-backtrace=cuda \\
#     --capture-range=cudaProfilerApi -o my_run python -X perf train.py
# nsys export --type sqlite my_run.nsys-rep
import torch

torch.cuda.profiler.start()
with torch.autograd.profiler.emit_nvtx(record_shapes=True):  # operators; slows the host down
    for batch in loader:
        torch.cuda.nvtx.range_push("step")
        train_step(batch)
        torch.cuda.nvtx.range_pop()
torch.cuda.profiler.stop()
"""
"""The same with Nsight Systems."""

RECORDING_FOR_FIGURES: Final = RECORDING.replace(_OPTIONS, "").replace("my_run", "my_run_figures")
"""Without the options that slow down the recorded steps."""

NSYS_RECORDING_FOR_FIGURES: Final = """\
# nsys profile --trace=cuda,nvtx --sample=none --cuda-graph-trace=node \\
#     --capture-range=cudaProfilerApi -o my_run_figures python train.py
import torch

torch.cuda.profiler.start()
for batch in loader:
    torch.cuda.nvtx.range_push("step")
    train_step(batch)
    torch.cuda.nvtx.range_pop()
torch.cuda.profiler.stop()
"""
"""Without operators and stacks, which slow down the recorded steps."""

SNAPSHOT_RECORDING: Final = """\
import torch

torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")  # before the model
train()
torch.cuda.memory._dump_snapshot(f"snapshot_rank{rank}.pickle")
"""
"""A memory snapshot with what each allocation was for."""

RECORD_HISTORY: Final = "Call torch.cuda.memory._record_memory_history() before the job allocates"

RECORDERS: Final[Mapping[str, str]] = {
    "torch": "torch.profiler",
    "nsys": "Nsight Systems",
    "rocprof": "rocprofv3",
}
"""Names of what records."""

OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "torch": {
        "gpu": "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        "steps": "prof.step(), and a schedule",
        "stacks": "with_stack=True",
        "shapes": "record_shapes=True",
        "memory": "profile_memory=True",
    },
    "nsys": {
        "gpu": "--trace=cuda,nvtx,osrt",
        "steps": 'torch.cuda.nvtx.range_push("step"), and range_pop() at its end',
        "stacks": "--sample=process-tree --cudabacktrace=all --python-backtrace=cuda, and python -X perf",
        "shapes": "torch.autograd.profiler.emit_nvtx(record_shapes=True)",
        "memory": "--cuda-memory-usage=true",
    },
    "rocprof": {
        "gpu": "--kernel-trace --memory-copy-trace --hip-runtime-trace",
        "steps": 'torch.cuda.nvtx.range_push("step"), range_pop() at its end, and --marker-trace',
        "stacks": "torch.profiler with with_stack=True",
        "shapes": "torch.autograd.profiler.emit_nvtx(record_shapes=True), and --marker-trace",
        "memory": "torch.profiler with profile_memory=True",
    },
}
"""What records each part of a trace, by recorder."""

THINNED_TITLE = "Events were removed from this file"
"""Of a finding on a file that is not whole. A job of ranks leaves such files out."""
