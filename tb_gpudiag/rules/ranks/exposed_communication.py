"""GD601: collectives that nothing computes beside."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.intervals import EMPTY, coverage, subtract
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.collectives import collectives, exposed_communication
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
from tb_gpudiag.rules.shared.kernel_time import kernel_time
from tb_gpudiag.rules.shared.lost_time import longest
from tb_gpudiag.trace.vocabulary.kernel_families import Family
from tb_gpudiag.wording.format import count, one_line, share, time_ns

# Public traces of jobs with collectives show 2 % where they are few and small, and 15 to 64 % where
# communication is what an engineer would speak of first. A tenth is also what the verdict asks of a limiter.
LEAST_SHARE = 0.10

KINDS_SHOWN = 4

_CODE = """model = DistributedDataParallel(
    model,
    bucket_cap_mb=100,              # fewer, larger all-reduces; smaller ones begin earlier: try both
    gradient_as_bucket_view=True,   # no copy into the bucket
)

# Accumulate gradients, and talk once for several batches:
with model.no_sync():
    criterion(model(x), y).backward()"""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Time in which a communication kernel ran and nothing computed. Waiting for a slower rank is inside
    it."""
    time = kernel_time(facts.device, facts.window, facts.work, facts.host)
    if time is None:
        return NO_GPU
    device, kernels = time.device, time.kernels
    kinds = collectives(kernels, device.busy, facts.window)
    if not kinds:
        return Clear("no communication kernel ran in the step window")
    exposed = subtract(exposed_communication(device.busy, facts.window), claimed.get(device.id, EMPTY))
    cost_ns = exposed.total
    if time.share(cost_ns) < LEAST_SHARE:
        return Clear(
            f"communication that is not hidden under computing takes {time.of_window(cost_ns)} of the step "
            "window"
        )
    chosen = kernels.family == Family.COLLECTIVE
    ran_ns = time.total_ns(chosen)
    own_ns = np.zeros(len(chosen), np.int64)
    own_ns[chosen] = coverage(exposed, kernels.start_ns[chosen], kernels.end_ns[chosen])
    return Finding(
        title=f"Communication that nothing hides takes {time.of_window(cost_ns)} of the time",
        summary="The GPU runs collectives and computes nothing beside them. A collective's kernel also "
        "waits for the slowest rank, and one rank's trace does not tell how much of it is waiting: "
        "compare with the others'.",
        fix=Fix(
            "Overlap communication with computing, talk less often, or find the rank that the others wait "
            "for.",
            _CODE,
            "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            Evidence("communication", f"{time.figure(chosen)}, {count(int(chosen.sum()), 'kernel')}"),
            Evidence("of this not hidden", f"{time_ns(cost_ns)}, {share(cost_ns, ran_ns)}"),
            *(
                Evidence(
                    one_line(kind.name, 60),
                    f"{count(kind.kernels)}, {time_ns(kind.time_ns)}, not hidden {time_ns(kind.exposed_ns)}",
                )
                for kind in kinds[:KINDS_SHOWN]
            ),
        ],
        places=time.places(chosen, own_ns),
        ranges=longest(exposed, device.id),
        claims={device.id: exposed},
    )


RULE = Rule("GD601", "exposed_communication", "Communication that nothing hides", check, error_share=0.30)
