"""GD202: clusters of small kernels that one operator, or none at all, could do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import Intervals, intersect
from tb_gpudiag.facts.facts import DeviceFacts, Facts
from tb_gpudiag.facts.launching.clusters import Cluster, ClusterKind, find_clusters
from tb_gpudiag.rules.rule import (
    NO_GPU,
    NOTHING_CLAIMED,
    Answer,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Rule,
    Saving,
)
from tb_gpudiag.rules.shared.fewer_launches import graph_evidence, larger_batch_evidence
from tb_gpudiag.rules.shared.launch_gaps import in_short_dry_gaps
from tb_gpudiag.rules.shared.lost_time import ISSUING, Lost, host_time, lost_time, places, removing
from tb_gpudiag.trace.events import NONE, Bool
from tb_gpudiag.wording.format import count, one_line, share, time_ns

# Each cluster has a fix of its own, so each is told from where its fix could be measured: step times vary by
# 1-2 % from run to run.
LEAST_SHARE = 0.02

# A loop over ten parameters or time steps is worth writing as one operator. Shorter repetitions are found in
# the layers of any model.
LEAST_TURNS = 10
LEAST_CHAIN = 10

# A kernel that runs longer than an idle GPU takes to reach the next one (idle.TURNAROUND_NS) hides its
# successor's launch.
LARGEST_MEAN_NS = 20_000

# What one launch for all of them leaves: public traces of foreach and fused optimizers keep 1 to 10 % of the
# launches.
LEAST_REMOVED = 0.9


class _Kind(NamedTuple):
    what: str
    fix: str
    code: str
    url: str


_OPTIMIZER_URL = "https://docs.pytorch.org/docs/stable/optim.html"
_ZERO_GRAD_URL = "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html"
_COMPILE_URL = "https://docs.pytorch.org/docs/stable/generated/torch.compile.html"

_KINDS = {
    ClusterKind.OPTIMIZER_STEP: _Kind(
        "the optimizer's step, one parameter after another",
        "Let the optimizer treat all parameters in one launch.",
        """optimizer = torch.optim.AdamW(model.parameters(), fused=True)    # one kernel for many parameters
optimizer = torch.optim.Adagrad(model.parameters(), foreach=True)  # where there is no fused form""",
        _OPTIMIZER_URL,
    ),
    ClusterKind.ZERO_GRAD: _Kind(
        "setting gradients to zero, one parameter after another",
        "Drop the gradients instead of filling them with zeros.",
        """optimizer.zero_grad(set_to_none=True)   # no kernel at all; the default from PyTorch 2.0 on""",
        _ZERO_GRAD_URL,
    ),
    ClusterKind.ACCUMULATE: _Kind(
        "adding each gradient to the one that is there, one parameter after another",
        "Drop the gradients before the backward pass: then each new one is kept as it is.",
        """optimizer.zero_grad(set_to_none=True)   # not zeros to add to; the default from PyTorch 2.0 on""",
        _ZERO_GRAD_URL,
    ),
    ClusterKind.LOOP: _Kind(
        "a loop over tensors or time steps",
        "Write the loop as one operator over all of them, or compile it.",
        """# Over a list of tensors: all in one launch.
torch._foreach_add_(gradients, parameters, alpha=weight_decay)
torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)

# Over items or time steps: one tensor with one dimension more.
y = torch.stack(inputs) * scale                  # instead of: [x * scale for x in inputs]
y, h = torch.nn.LSTM(n, n)(x)                    # instead of a loop over an LSTMCell

step = torch.compile(step)                       # or let the compiler fuse it""",
        _COMPILE_URL,
    ),
    ClusterKind.ELEMENTWISE: _Kind(
        "elementwise operators, one after another",
        "Let the compiler fuse them into one kernel.",
        """@torch.compile
def activation(x, bias, mask):                    # the lines around the chain, as a function
    return torch.nn.functional.gelu(x + bias) * mask""",
        _COMPILE_URL,
    ),
}


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Idle time before each launch of a cluster but its first: the loop's Python, dispatch, launch and
    latency."""
    device = facts.device
    if device is None:
        return NO_GPU
    lost = lost_time(facts.window, facts.device, facts.host_pieces, claimed)
    clusters = find_clusters(
        facts.host,
        facts.work,
        device.id,
        facts.window,
        least_turns=LEAST_TURNS,
        least_chain=LEAST_CHAIN,
    )
    late = in_short_dry_gaps(lost, device) & lost.of(Cause.PYTHON, *ISSUING) & (lost.launch != NONE)
    most_call = max((int(cluster.calls.max()) for cluster in clusters), default=0)
    idle = np.bincount(lost.launch[late], weights=lost.length_ns[late], minlength=most_call + 1)
    found = []
    most = 0
    for cluster in clusters:
        cost_ns = int(idle[cluster.calls[~cluster.first]].sum())
        if cluster.gpu_ns > LARGEST_MEAN_NS * len(cluster.calls):
            continue
        most = max(most, cost_ns)
        if lost.share(cost_ns) >= LEAST_SHARE:
            found.append((cost_ns, cluster))
    if not found:
        return Clear(
            f"no cluster of small kernels leaves the GPU idle for more than {share(most, lost.window_ns)} of "
            f"the step window"
        )
    found.sort(key=lambda pair: -pair[0])
    return [_finding(facts, device, lost, late, cluster) for _, cluster in found]


def _finding(facts: Facts, device: DeviceFacts, lost: Lost, late: Bool, cluster: Cluster) -> Finding:
    kind = _KINDS[cluster.kind]
    launches = len(cluster.calls)
    chosen = late & np.isin(lost.launch, cluster.calls[~cluster.first])
    cost_ns = lost.total_ns(chosen)
    where = one_line(cluster.mark, 80) or kind.what
    operators = ", ".join(dict.fromkeys(cluster.operators))
    return Finding(
        title=f"{count(launches, 'small kernel')} of {where} leave the GPU idle for "
        f"{share(cost_ns, lost.window_ns)} of the time",
        summary=f"{kind.what[0].upper()}{kind.what[1:]}: each launch starts "
        f"{time_ns(cluster.gpu_ns / launches)} of GPU work on average, and the GPU has finished "
        "before the next one arrives.",
        fix=Fix(kind.fix, kind.code, kind.url),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            Evidence(
                "GPU idle before their launches",
                f"{time_ns(cost_ns)}, {share(cost_ns, lost.window_ns)} of the window",
            ),
            Evidence(
                "launches", f"{count(launches)} in {count(cluster.clusters, 'cluster')}, one after another"
            ),
            *([Evidence("operators", one_line(operators, 200))] if operators else []),
            Evidence("GPU time of them", time_ns(cluster.gpu_ns)),
            graph_evidence(facts),
            *larger_batch_evidence(facts, device),
        ],
        places=places(facts.host, lost.launch[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=removing(_inside(facts, cluster), LEAST_REMOVED),
    )


def _inside(facts: Facts, cluster: Cluster) -> Intervals:
    """The main thread's time from each cluster's first launch to its last."""
    return intersect(cluster.spans, host_time(facts.host_pieces, Cause.PYTHON, Cause.DISPATCH, Cause.LAUNCH))


RULE = Rule("GD202", "small_kernels", "Clusters of small kernels", check, error_share=0.30)
