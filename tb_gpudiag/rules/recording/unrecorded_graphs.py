"""GD909: CUDA graphs ran kernels that the trace does not have."""

from __future__ import annotations

from tb_gpudiag.facts.core.graphs import WholeGraphs
from tb_gpudiag.facts.core.intervals import intersect
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, GpuRule, fix_code
from tb_gpudiag.rules.shared.lost_time import longest
from tb_gpudiag.rules.shared.recording_advice import NSYS_URL, record_again
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import count
from tb_gpudiag.wording.quantity import number, share_of

CODE = fix_code(__name__)

# From here on the GPU may be so much busier than the trace shows that the other figures mislead.
SPOILS_SHARE = levels.SIZEABLE


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Count the graph launches with missing kernels, and the time in which those may have run."""
    device, graphs = facts.gpu, facts.unrecorded_graphs
    if facts.whole_graphs.launches:
        return _recorded_as_one(facts.whole_graphs, facts.window.duration_ns)
    if not graphs.of:
        return Clear("no CUDA graph was launched")
    if not graphs.launches:
        return Clear(
            f"the kernels of {count(graphs.of, 'CUDA graph launch', 'CUDA graph launches')} were recorded"
        )
    unrecorded = intersect(device.lost, graphs.holes)
    window_ns, unrecorded_ns = facts.window.duration_ns, unrecorded.total
    return Finding(
        title=f"Kernels are missing in {graphs.launches} of {graphs.of} CUDA graph launches",
        summary="A CUDA graph starts many kernels with one launch, and the trace lacks some or all of them. "
        "From such a launch until its graph has surely ended, the GPU may have been busy. That time counts "
        "as unrecorded, not as idle time with a cause.",
        fix=record_again(
            "Record fewer steps, so that no buffer of the tracer overflows, with a newer PyTorch and driver. "
            "If kernels are still missing, run the job once without CUDA graphs to see them."
        ),
        evidence=[
            Evidence(
                "Launches that lack kernels",
                share_of(graphs.launches, graphs.of, "of the graph launches"),
                (number(graphs.kernels, "recorded kernel or copy", "recorded kernels and copies"),),
            ),
            Evidence.of_window("Unrecorded time", unrecorded_ns, window_ns),
        ],
        ranges=longest(unrecorded, device.id),
        severity=Severity.WARNING.when(unrecorded_ns >= SPOILS_SHARE * window_ns),
    )


def _recorded_as_one(graphs: WholeGraphs, window_ns: int) -> Finding:
    """Say that the profiler recorded each graph as one event."""
    return Finding(
        title=f"{count(graphs.launches, 'CUDA graph')} recorded as one event each, without kernels",
        summary="When each graph ran is known, so busy and idle time are right. Which kernels ran in it is "
        "not recorded, so rules about kernels see only the work outside of graphs.",
        fix=Fix(
            "To see the kernels, record graphs node by node. That slows the graphs down.",
            f"{CODE['by_node']}\n",
            NSYS_URL,
        ),
        evidence=[Evidence.of_window("In graphs", graphs.times.total, window_ns)],
    )


RULE = GpuRule(
    "GD909", "unrecorded_graphs", "Kernels of CUDA graphs are missing", check, severity=Severity.INFO
)
