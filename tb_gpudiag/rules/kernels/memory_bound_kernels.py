"""GD505: kernels that move data and hardly compute, one after another."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.kernels import Kernels
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
    Severity,
)
from tb_gpudiag.rules.shared.kernel_time import kernel_time
from tb_gpudiag.trace.events import Bool, Int64
from tb_gpudiag.trace.vocabulary.kernel_families import Family
from tb_gpudiag.wording.format import count, time_ns

# What fusing could give back at most. Public traces of convolutional training are at 7 to 13 %; a tenth of
# the window is worth trying a compiler for.
LEAST_SHARE = 0.10

# A kernel that does nothing takes 2 to 3 µs. Shorter ones than this are limited by launching (GD201).
SHORTEST_NS = 5_000

# These do a few operations for each number that they read or write, where a GPU could do a hundred.
FAMILIES = (Family.ELEMENTWISE, Family.REDUCTION, Family.NORMALISATION, Family.COPY)

_CODE = """model = torch.compile(model)              # fuses runs of such kernels into one

# Without a compiler: fewer passes over memory
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
x = torch.nn.functional.relu(x, inplace=True)          # where nothing else reads x
model = model.to(memory_format=torch.channels_last)    # convolutions: no transposes in between"""


def check(facts: Facts, taken: Claimed = NOTHING_CLAIMED) -> Answer:
    """Runs of such kernels on one stream: fused into one, a run would take about as long as its longest
    kernel."""
    time = kernel_time(facts.device, facts.window, facts.work, facts.host)
    if time is None:
        return NO_GPU
    kernels = time.kernels
    bound = np.isin(kernels.family, np.array(FAMILIES, np.uint8))
    bound &= kernels.is_kernel & (kernels.duration_ns >= SHORTEST_NS)
    if facts.unfused_attention is not None:
        bound &= ~facts.unfused_attention.between  # they go with GD503's fix, whether it is found or not
    removable_ns = _beside_the_longest(kernels, bound)
    free = time.free(removable_ns > 0, taken)
    cost_ns = free.total
    total_ns = time.total_ns(bound)
    if time.share(cost_ns) < LEAST_SHARE:
        return Clear(
            f"kernels limited by memory take {time.of_window(total_ns)} of the step window, and fusing "
            f"would give back at most {time.of_window(cost_ns)}"
        )
    by_family = [
        Evidence(family.label, time.figure(own))
        for family in FAMILIES
        if (own := bound & (kernels.family == family)).any()
    ]
    return Finding(
        title=f"Kernels limited by memory take {time.of_window(total_ns)} of the time, many in runs that "
        "could be one",
        summary="Elementwise kernels, reductions, normalisations and copies read and write memory and "
        "compute little: the GPU's bandwidth limits them. Several in a row read again what the one "
        "before has just written; fused into one kernel, the data is read once.",
        fix=Fix(
            "Let a compiler fuse them; before that, look whether copies and casts are needed at all.",
            _CODE,
            "https://docs.pytorch.org/docs/stable/generated/torch.compile.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            *by_family,
            Evidence(
                "in runs, beside the longest of each",
                f"{time_ns(cost_ns)}, {count(int((removable_ns > 0).sum()))}",
            ),
        ],
        places=time.places(removable_ns > 0, removable_ns),
        ranges=time.ranges(removable_ns > 0),
        claims={time.device.id: free},
    )


def _beside_the_longest(kernels: Kernels, bound: Bool) -> Int64:
    """Shape (k,): a kernel's duration, 0 for the longest of each run and for those in none. Any other
    kernel or copy on the same stream ends a run."""
    stream = kernels.stream
    order = np.argsort(stream, kind="stable")  # within a stream by start, as they are
    ends = np.r_[True, ~bound[order][1:] | ~bound[order][:-1] | (stream[order][1:] != stream[order][:-1])]
    run = np.empty(len(order), np.int64)
    run[order] = np.cumsum(ends[: len(order)])
    duration = kernels.duration_ns
    last = np.lexsort((np.arange(len(run)), duration, run))  # the longest stands last in its run
    removable = np.where(bound, duration, 0)
    removable[last[np.r_[run[last][1:] != run[last][:-1], True][: len(last)]]] = 0
    return removable


RULE = Rule(
    "GD505", "memory_bound_kernels", "Kernels limited by memory, in runs", check, severity=Severity.INFO
)
