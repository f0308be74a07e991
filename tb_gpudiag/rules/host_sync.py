"""GD301: the host waits for the GPU, and then the GPU waits for the host."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.intervals import union
from tb_gpudiag.facts.replay import Change
from tb_gpudiag.rules.format import count, share, time_ns
from tb_gpudiag.rules.ledger import longest, lost_time, places
from tb_gpudiag.rules.rule import (
    NOTHING,
    Answer,
    CannotTell,
    Clear,
    Evidence,
    Finding,
    Fix,
    Removable,
    Rule,
    Saving,
    Taken,
)
from tb_gpudiag.trace.events import NONE

# Step times vary by 1-2 % from run to run: less than that nobody can measure after the fix.
LEAST_SHARE = 0.02

_CODE = """# Reading a value makes the host wait for all the GPU's work. Do it seldom:
total = torch.zeros((), device=device)
for step, (x, y) in enumerate(loader):
    loss = train_step(x, y)
    total += loss.detach()            # stays on the GPU, no waiting
    if step % 100 == 99:
        log(total.item() / 100)       # one wait in 100 steps
        total.zero_()
# Also: x.to(device, non_blocking=True) from pinned memory, torch.where instead of a boolean index,
# no print(tensor), no torch.cuda.synchronize() in the loop."""


def check(facts: Facts, taken: Taken = NOTHING) -> Answer:
    """Idle time after blocking calls, at most as long as the host had been held in them: had it not been
    held, it would have been that much further ahead."""
    device = facts.device
    if device is None:
        return CannotTell(
            "no GPU activity was recorded", "Record with ProfilerActivity.CUDA on a machine with a GPU."
        )
    lost = lost_time(facts, taken)
    gaps = device.ledger.gaps
    chosen = lost.drained_ns > 0
    cost_ns = int(lost.drained_ns[chosen].sum())
    if lost.share(cost_ns) < LEAST_SHARE:
        return Clear(
            f"after blocking calls the GPU waited {share(cost_ns, lost.window_ns)} of the step window for "
            f"new work"
        )
    claim = union(lost.start_ns[chosen], lost.start_ns[chosen] + lost.drained_ns[chosen])
    per_gap = np.zeros(len(gaps), np.int64)
    np.add.at(per_gap, lost.gap[chosen], lost.drained_ns[chosen])
    drained = np.flatnonzero(per_gap)
    calls = gaps.blocked_in[drained]
    events = facts.events
    names, number = np.unique(events.name[calls[calls != NONE]], return_counts=True)
    inside_ns = lost.total_ns(lost.of(Cause.SYNC) & chosen)
    return Finding(
        title=f"Waiting for the GPU's results costs {share(cost_ns, lost.window_ns)} of the time",
        summary=f"{count(len(drained), 'time')} in the step window the host stopped until the GPU had "
        f"finished all "
        "queued work. Each time the GPU then stood idle until the host had launched something new.",
        fix=Fix(
            "Take the waits out of the loop, or do them every N steps.",
            _CODE,
            "https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",
        ),
        cost_ns=cost_ns,
        saving=Saving(inside_ns, cost_ns),
        evidence=[
            Evidence(
                "GPU idle after waits", f"{time_ns(cost_ns)}, {share(cost_ns, lost.window_ns)} of the window"
            ),
            Evidence("host held before that", time_ns(float(gaps.blocked_ns[drained].sum()))),
            *(
                Evidence(events.names[name], count(int(n), "wait"))
                for name, n in sorted(zip(names, number, strict=True), key=lambda x: -x[1])[:4]
            ),
        ],
        places=places(facts, calls, per_gap[drained], by_operator=True),
        ranges=longest(claim, device.id),
        claims={device.id: claim},
        removable=_without_waits(facts),
    )


def _without_waits(facts: Facts) -> Removable:
    """No call waits but those of copies to the device, which have a rule of their own (pageable_copies)."""
    calls, transfers, operator = facts.host_time.blocking, facts.transfers, facts.host.operator
    copies = transfers.launch[transfers.to_device & (transfers.launch != NONE)]
    copying = np.isin(calls, copies) | (
        (operator[calls] != NONE) & np.isin(operator[calls], operator[copies])
    )
    change = Change(unblocked=tuple(calls[~copying].tolist()))
    return Removable(change, change)


RULE = Rule("GD301", "host_sync", "Waiting for the GPU", check, error_share=0.20)
