"""GD203: a CUDA graph has so many short nodes that the moments between them add up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.launching.graph_nodes import NodeGap, NodeGaps
from tb_gpudiag.facts.replay.replay import Removal
from tb_gpudiag.rules.answer import Evidence, Finding, Fix, Removable, Severity
from tb_gpudiag.rules.rule import GpuRule, fix_code, speaks_from
from tb_gpudiag.rules.shared.lost_time import LostPart, of_lost_time
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.engines import Server
from tb_gpudiag.wording.format import in_quotes
from tb_gpudiag.wording.quantity import Quantity, duration, number

CODE = fix_code(__name__)

# Graphs of large kernels lose below 2%: the GPU starts the next node within a microsecond or two. A decode
# of a mixture of experts, whose nodes take 6 us on average, loses 11%.
LEAST_SHARE = levels.NOTICEABLE

# A fifth: without the gaps, the GPU would do a quarter more in the same time.
WARNING_SHARE = levels.LARGE


_BEFORE = ("Most before", "Then before", "And before")
"""Labels of the nodes that most idle time is before."""

LONGEST_NAME = 60
"""Characters of such a node's name."""

_KINDS = {
    NodeGap.STREAMS: "After a node of another stream",
    NodeGap.COPIES: "Before or after a copy or memset",
    NodeGap.KERNELS: "From kernel to kernel",
}

_FIXES = {
    NodeGap.STREAMS: ("Fork and join streams less often.", CODE["streams"]),
    NodeGap.COPIES: ("Drop copies and memsets that another kernel can do.", CODE["copies"]),
}

_URL = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-graphs"


def _finding(part: LostPart) -> Finding:
    facts, lost, chosen, cost_ns = part.facts, part.lost, part.chosen, part.cost_ns
    found = facts.gpu.node_gaps(lost.gap[chosen], lost.length_ns[chosen])
    each = f"{number(round(found.nodes), 'node')} each"
    return Finding(
        title=f"Gaps between the nodes of CUDA graphs keep the GPU idle {part.of_window} of the time",
        summary="The host has no part in this: from the end of one node of a graph to the start of the next, "
        "the GPU itself needs a moment, however much each node does. With many short nodes these moments add "
        "up.",
        fix=_fix(found, facts.job.server, compiled=facts.launches.modes.compiled.total > 0),
        severity=Severity.WARNING if part.share >= WARNING_SHARE else Severity.INFO,
        sure=False,  # the trace does not show how many nodes could be fused
        evidence=[
            Evidence.of_window("Idle between nodes", cost_ns, lost.window_ns),
            Evidence("Graph launches", number(facts.launches.modes.graph_launches), (each,)),
            Evidence("Median GPU time of a node", duration(found.node_ns)),
            *_by_kind(found),
            *(
                Evidence(label, in_quotes(node.name, LONGEST_NAME), _figures(node.idle_ns, node.gaps))
                for label, node in zip(_BEFORE, found.before, strict=False)
            ),
        ],
        **lost.where(facts.host, chosen, lost.launch),
        removable=Removable(Removal(idle=lost.stretches(chosen)), least=Removal()),
    )


def _figures(idle_ns: int, gaps: int) -> tuple[Quantity, Quantity]:
    return duration(idle_ns), number(gaps, "gap")


def _by_kind(found: NodeGaps) -> Iterator[Evidence]:
    """Say how much of the cost is of which kind, and how long such a gap is."""
    for kind, label in _KINDS.items():
        own = found.length_ns[found.kind == kind]
        if len(own):
            idle, gaps = _figures(int(own.sum()), len(own))
            yield Evidence(label, idle, (gaps, duration(float(np.median(own)), "at the median")))


def _fix(found: NodeGaps, server: Server | None, *, compiled: bool) -> Fix:
    """What makes the nodes fewer, and what avoids the slow kinds of gaps where these cost enough. compiled:
    torch.compile has fused them."""
    if server is not None:
        text = f"Give {server.value} more requests per step, and let it fuse more kernels."
        return Fix(text, CODE.get(server.value.lower(), CODE["server"]), _URL)
    least_ns = levels.LARGE * int(found.length_ns.sum())
    slow = [fix for kind, fix in _FIXES.items() if found.length_ns[found.kind == kind].sum() >= least_ns]
    text = "Put fewer and larger kernels into the graph, or more work into each replay."
    return Fix(
        " ".join([text, *(more for more, _ in slow)]),
        "\n\n".join([*([] if compiled else [CODE["fuse"]]), CODE["batch"], *(code for _, code in slow)]),
        _URL,
    )


# Idle time between nodes of one graph launch, where the next one starts after a bare turnaround.
_CHECK = speaks_from(
    LEAST_SHARE,
    of_lost_time(lambda lost: lost.of(Cause.GRAPH)),
    lambda part: f"between the nodes of CUDA graphs, the GPU is idle {part.of_window} of the step window",
    _finding,
)

RULE = GpuRule("GD203", "graph_node_gaps", "Gaps between graph nodes", _CHECK, topic="graph")
