"""How to record a good trace: the one source of the block that README, the page, rules and docs show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PAGE: Final = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
_BLOCKS: Final = dict[str, str](re.findall(r"```python (\w+)\n(.*?)```", _PAGE, re.S))

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

NSYS_RECORDING: Final = _BLOCKS["nsys"]
"""The same with Nsight Systems."""

RECORDING_FOR_FIGURES: Final = RECORDING.replace(_OPTIONS, "").replace("my_run", "my_run_figures")
"""Without the options that slow down the recorded steps."""

NSYS_RECORDING_FOR_FIGURES: Final = _BLOCKS["nsys_figures"]
"""Without operators and stacks, which slow down the recorded steps."""

SNAPSHOT_RECORDING: Final = _BLOCKS["snapshot"]
"""A memory snapshot with what each allocation was for."""

RECORD_HISTORY: Final = "Call torch.cuda.memory._record_memory_history() before the job allocates"

RECORDERS: Final[Mapping[str, str]] = {
    "torch": "torch.profiler",
    "nsys": "Nsight Systems",
    "rocprof": "rocprofv3",
}
"""Names of what records."""

_TABLE: Final = [
    [cell.strip() for cell in row.split("|")] for row in _PAGE.split("\n") if row.startswith("|")
]

OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    recorder: {row[1]: row[_TABLE[0].index(recorder)] for row in _TABLE[2:]} for recorder in RECORDERS
}
"""What records each part of a trace, by recorder."""

THINNED_TITLE = "Events were removed from this file"
"""Of a finding on a file that is not whole. A job of ranks leaves such files out."""
