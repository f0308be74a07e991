"""How to record a better report with Nsight Systems, in place of the advice for torch.profiler."""

from __future__ import annotations

from dataclasses import replace

from tb_gpudiag.facts.core.whole_graphs import WholeGraphs
from tb_gpudiag.rules.rule import Answer, CannotTell, Finding, Fix
from tb_gpudiag.trace.events import Recorder
from tb_gpudiag.wording.format import share
from tb_gpudiag.wording.good_recording import NSYS_RECORDING, RECORDING

NSYS_URL = "https://docs.nvidia.com/nsight-systems/UserGuide/index.html"

# From here on, what is true of the other kernels may not be true of the job.
HIDING_SHARE = 0.10

# What an advice asks of torch.profiler, and what gives the same in Nsight Systems. The first match counts.
_INSTEAD = (
    ("prof.step()", 'Mark each step: torch.cuda.nvtx.range_push("step"), and range_pop() at its end.'),
    ("schedule(", "Record several steps after warming up, and mark each as an NVTX range named step."),
    ("wait and warmup", "Begin to record after a few steps: --capture-range=cudaProfilerApi."),
    (
        "with_stack",
        "Run python -X perf (3.12 or later) and record with --sample=process-tree --cudabacktrace=all: then "
        "calls have their functions. For lines, record with torch.profiler and with_stack=True, too.",
    ),
    ("record_shapes", "Record inside torch.autograd.profiler.emit_nvtx(record_shapes=True)."),
    (
        "profile_memory",
        "Record with --cuda-memory-usage=true for the driver's allocations, or with torch.profiler "
        "and profile_memory=True for those of torch.",
    ),
    ("ProfilerActivity", "Record with --trace=cuda,nvtx,osrt on a machine with a GPU."),
)


def for_recorder(answer: Answer, recorder: Recorder) -> Answer:
    """Return the answer with advice for this recorder."""
    if recorder != "nsys":
        return answer
    if isinstance(answer, CannotTell):
        return replace(answer, how_to_record=_instead(answer.how_to_record))
    if isinstance(answer, Finding) and answer.fix.code == RECORDING:
        return replace(answer, fix=Fix(_instead(answer.fix.text), NSYS_RECORDING, NSYS_URL))
    return answer


def unseen_kernels(graphs: WholeGraphs, window_ns: int) -> CannotTell | None:
    """Say that the kernels inside graphs are not known; None if that does not matter."""
    if graphs.times.total < HIDING_SHARE * max(1, window_ns):
        return None
    return CannotTell(
        f"the kernels inside CUDA graphs, {share(graphs.times.total, window_ns)} of the step window, were "
        "not recorded",
        "Record with nsys profile --cuda-graph-trace=node.",
    )


def _instead(advice: str) -> str:
    return next((text for asked, text in _INSTEAD if asked in advice), advice)
