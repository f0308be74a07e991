"""GD202: clusters of small kernels that one kernel, or none at all, could replace."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Bool
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause
from tb_gpudiag.facts.core.intervals import Intervals, intersect, merged
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.launching.clusters import Cluster, ClusterKind, find_clusters
from tb_gpudiag.facts.replay.replay import Removal
from tb_gpudiag.facts.waiting.sync_sites import operators_around
from tb_gpudiag.rules.answer import (
    NO_GPU,
    WHILE_THE_GPU_WORKS,
    Clear,
    Evidence,
    Finding,
    Fix,
    Removable,
    RuleAnswer,
    Severity,
    Slowed,
)
from tb_gpudiag.rules.rule import ERROR_SHARE, Claimed, GpuRule, fix_code
from tb_gpudiag.rules.shared.launch_advice import (
    COMPILE_URL,
    larger_batch_evidence,
    launch_advice,
    with_ddp_copies,
)
from tb_gpudiag.rules.shared.lost_time import ISSUING, LONGEST_GAP_NS, Lost, host_time, lost_time, places
from tb_gpudiag.rules.shared.recording_advice import no_gpu
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import count, in_quotes, share
from tb_gpudiag.wording.quantity import duration, number

CODE = fix_code(__name__)

_BACKWARD = f"the backward pass of the loop shrinks with it, and {WHILE_THE_GPU_WORKS}"

# As many names fit on two lines.
_OPERATORS_SHOWN = 5

# Each cluster has its own fix, and a fix must be measurable: step times vary by 1 to 2% from run to run.
LEAST_SHARE = levels.MEASURABLE

# A loop over ten parameters or time steps is worth writing as one operator. The layers of any model contain
# shorter repetitions.
LEAST_TURNS = 10
LEAST_CHAIN = 10

# A kernel that runs longer than the turnaround of an idle GPU (launches.TURNAROUND_NS) hides the next launch.
LARGEST_MEAN_NS = 20_000

# On a GPU that was not recorded, only the host's side shows an optimizer's loop: ten parameters with several
# operators each. Below a tenth of the main thread's time the GPU hardly waits for it.
LEAST_OPERATORS = 50
LEAST_OPTIMIZER_SHARE = levels.SIZEABLE
# On the CPU, its operators compute as well: one pass over the parameters instead of eight saves a part of it.
LEAST_OPTIMIZER_SHARE_ON_CPU = levels.LARGE


class _Kind(NamedTuple):
    source: str  # completes "small kernels from ..."
    fix: str
    code: str
    url: str


_OPTIMIZER_URL = "https://docs.pytorch.org/docs/stable/optim.html"
_ZERO_GRAD_URL = "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html"

_KINDS = {
    ClusterKind.OPTIMIZER_STEP: _Kind(
        "the optimizer step, one parameter at a time",
        "Let the optimizer update all parameters in one launch.",
        CODE["optimizer"],
        _OPTIMIZER_URL,
    ),
    ClusterKind.ZERO_GRAD: _Kind(
        "filling gradients with zeros, one parameter at a time",
        "Drop the gradients instead of filling them with zeros.",
        CODE["zero_grad"],
        _ZERO_GRAD_URL,
    ),
    ClusterKind.ACCUMULATE: _Kind(
        "adding each gradient to the existing one, one parameter at a time",
        "Drop the gradients before the backward pass, so that each new one is stored instead of added.",
        CODE["accumulate"],
        _ZERO_GRAD_URL,
    ),
    ClusterKind.LOOP: _Kind(
        "a loop over tensors or time steps",
        "Write the loop as one operator over all of them, or compile it.",
        CODE["loop"],
        COMPILE_URL,
    ),
    ClusterKind.ELEMENTWISE: _Kind(
        "a chain of elementwise operators",
        "Let torch.compile fuse them into one kernel.",
        CODE["elementwise"],
        COMPILE_URL,
    ),
}


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find idle time before all launches of a cluster but its first: the loop's Python, operator overhead,
    launch calls and latency."""
    device = facts.gpu
    lost = lost_time(facts, claimed)
    clusters = find_clusters(
        facts.host,
        facts.work,
        facts.transfers.launch,
        device.id,
        facts.host_window,
        least_turns=LEAST_TURNS,
        least_chain=LEAST_CHAIN,
    )
    late = lost.in_short_dry_gaps & lost.of(*BETWEEN_CALLS, *ISSUING) & (lost.launch != NONE)
    costs_ns = _idle_ns(lost, late, clusters)
    found = []
    for i in sorted(range(len(clusters)), key=lambda i: -costs_ns[i]):
        if lost.share(costs_ns[i]) >= LEAST_SHARE:
            chosen = late & np.isin(lost.launch, clusters[i].calls[~clusters[i].first])
            one = _finding(facts, lost, chosen, clusters[i])
            found.append(with_ddp_copies(one, facts.launches.ddp_copies, lost))
    most = share(max(costs_ns, default=0), lost.window_ns)
    return found or Clear(
        f"no cluster of small kernels keeps the GPU idle for more than {most} of the step window"
    )


class _Hint(NamedTuple):
    least_share: float
    effect: str
    otherwise: RuleAnswer


_ON_CPU = _Hint(
    LEAST_OPTIMIZER_SHARE_ON_CPU,
    "One pass over all of them reads and writes less. A larger batch needs fewer such steps.",
    NO_GPU,
)
_UNSEEN = _Hint(
    LEAST_OPTIMIZER_SHARE,
    "The trace does not show whether the GPU waits for them.",
    Clear(
        f"no optimizer updates many parameters one at a time for {share(LEAST_OPTIMIZER_SHARE)} of the main "
        "thread's time"
    ),
)


def _unseen(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """The hint where only the host's side is shown, as on Apple's GPUs."""
    return _optimizer(facts, _UNSEEN) if facts.gpu_use.certain else no_gpu(facts)


def _optimizer(facts: Facts, hint: _Hint) -> RuleAnswer:
    """The hint that an optimizer has many operators, where there is no GPU activity."""
    loop, window_ns = facts.launches.optimizer_loop, facts.window.duration_ns
    steps, took = len(loop.steps), share(loop.time_ns, window_ns)
    loops = not loop.grouped and loop.operators >= LEAST_OPERATORS * max(1, steps)
    if not loops or loop.time_ns < hint.least_share * window_ns:
        return hint.otherwise
    kind = _KINDS[ClusterKind.OPTIMIZER_STEP]
    return Finding(
        title=f"{in_quotes(loop.mark, 80)} takes {took} of the main thread's time, "
        f"with {count(round(loop.operators / steps), 'operator')} each time",
        summary=f"It updates one parameter at a time, with several small operators for each. {hint.effect}",
        fix=Fix(kind.fix, kind.code, kind.url),
        evidence=[
            Evidence.of_window("In the optimizer's step", loop.time_ns, window_ns),
            Evidence("Operators", number(loop.operators, "operator"), (number(steps, "optimizer step"),)),
        ],
        places=places(facts.host, loop.steps, loop.steps_ns),
        severity=Severity.INFO,
        leads=facts.on_cpu,
    )


def _idle_ns(lost: Lost, late: Bool, clusters: list[Cluster]) -> list[int]:
    """Idle time of each cluster, not counting the launches that begin one; 0 if its kernels are long.

    late: mask of the segments that count, shape (s,) as in Lost.
    """
    last_call = max((int(cluster.calls.max()) for cluster in clusters), default=0)
    idle = np.bincount(lost.launch[late], weights=lost.length_ns[late], minlength=last_call + 1)
    return [
        0
        if cluster.gpu_ns > LARGEST_MEAN_NS * len(cluster.calls)
        else int(idle[cluster.calls[~cluster.first]].sum())
        for cluster in clusters
    ]


def _finding(facts: Facts, lost: Lost, chosen: Bool, cluster: Cluster) -> Finding:
    """chosen: mask of the segments before its launches except its first, shape (s,)."""
    kind = _KINDS[cluster.kind]
    advice, launches = launch_advice(facts, lost, chosen), len(cluster.calls)
    cost_ns = lost.total_ns(chosen)
    source = in_quotes(cluster.mark, 80) if cluster.mark else kind.source
    operators = [in_quotes(name, 40) for name in dict.fromkeys(cluster.operators)]
    left = len(operators) - _OPERATORS_SHOWN
    more = [number(left, suffix="more")] if left > 0 else []
    fix = Fix(kind.fix, kind.code, kind.url)
    if cluster.kind in {ClusterKind.LOOP, ClusterKind.ELEMENTWISE} and advice.mostly_compiled:
        fix = Fix(advice.fix_text, advice.code, advice.url)
    mean = duration(cluster.gpu_ns / launches)
    launching = host_time(facts.main_thread_spans, *BETWEEN_CALLS, Cause.DISPATCH, Cause.LAUNCH)
    spans = intersect(cluster.spans, launching)
    return Finding(
        title=f"{count(launches, 'small kernel')} from {source} keep the GPU idle "
        f"{share(cost_ns, lost.window_ns)} of the time",
        summary=f"Small kernels from {kind.source}: each launch starts {mean} of GPU work on average, and "
        "the GPU finishes it before the next launch arrives.",
        fix=fix,
        evidence=[
            Evidence.of_window("Idle before these launches", cost_ns, lost.window_ns),
            Evidence(
                "Launches", number(launches, "launch", "launches"), (number(cluster.clusters, "cluster"),)
            ),
            *Evidence.some("Operators", next(iter(operators), ""), *operators[1:_OPERATORS_SHOWN], *more),
            Evidence(
                "GPU time", duration(cluster.gpu_ns), (duration(cluster.gpu_ns / launches, "per launch"),)
            ),
            advice.graph_evidence,
            *advice.in_compiled_code,
            *larger_batch_evidence(facts),
        ],
        **lost.where(facts.host, chosen, lost.launch, by_operator=True),
        removable=_removed(facts, cluster, spans),
        slowed=Slowed(lost.stretches(chosen), LEAST_SHARE),
    )


def _removed(facts: Facts, cluster: Cluster, spans: Intervals) -> Removable:
    """At most, a loop's backward pass vanishes with it: one operator has one node.

    spans: the host's time in the cluster."""
    calls = cluster.calls[~cluster.first]
    most = Removal(spans, dropped=tuple(calls.tolist()))
    if not len(cluster.backward):
        return Removable(most)
    nodes = operators_around(facts.host, cluster.backward, LONGEST_GAP_NS)
    dropped = (*most.dropped, *cluster.backward.tolist())
    return Removable(Removal(merged(spans, nodes), dropped=dropped), least=most, beyond=_BACKWARD)


RULE = GpuRule(
    "GD202",
    "small_kernels",
    "Clusters of small kernels",
    check,
    on_cpu=lambda facts, _: _optimizer(facts, _ON_CPU),
    unseen=_unseen,
    error_share=ERROR_SHARE,
    topic="launch",
)
