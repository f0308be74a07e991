"""GD301: the host waits for the GPU, and then the GPU waits for the host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import union
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Change
from tb_gpudiag.facts.waiting.sync_sites import SyncKind, sync_kinds
from tb_gpudiag.rules.rule import (
    NO_GPU,
    NOTHING_CLAIMED,
    Answer,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Removable,
    Rule,
    Saving,
)
from tb_gpudiag.rules.shared.host_task_fixes import CHORES
from tb_gpudiag.rules.shared.lost_time import IDLE, Lost, longest, lost_time, places
from tb_gpudiag.trace.events import NONE, Int64
from tb_gpudiag.wording.format import count, share, time_ns

# Step times vary by 1-2 % from run to run: less than that nobody can measure after the fix.
LEAST_SHARE = 0.02

# Of what the GPU waited for after a wait, a tenth is worth a line.
LEAST_PART = 0.1

MOST_KINDS = 4
"""Kinds of wait that the evidence lists."""

_SELDOM = """# Reading a value makes the host wait for all the GPU's work. Do it seldom:
total = torch.zeros((), device=device)
for step, (x, y) in enumerate(loader):
    loss = train_step(x, y)
    total += loss.detach()            # stays on the GPU, no waiting
    if step % 100 == 99:
        log(total.item() / 100)       # one wait in 100 steps
        total.zero_()
# To find every line that waits: torch.cuda.set_sync_debug_mode("warn")"""

_FIXED_SIZE = """# How many elements are chosen is known to the GPU only, and the host waits for it.
y = torch.where(mask, a, b)                     # instead of: y = b.clone(); y[mask] = a[mask]
loss = (loss_per_item * mask).sum() / mask.sum()  # instead of: loss_per_item[mask].mean()
x = x.repeat_interleave(counts, output_size=n)  # where the host knows the size, say it"""

_ON_THE_GPU = """# A tensor's value as a condition makes the host wait for it. Decide on the GPU,
y = torch.where(flag, a, b)                     # instead of: y = a if flag else b
# or decide by what the host knows already: shapes, lengths, a flag of its own."""

_COPY = """loader = DataLoader(dataset, ..., pin_memory=True)
for x, y in loader:
    x = x.to(device, non_blocking=True)         # from pinned memory: returns at once
    y = y.to(device, non_blocking=True)
# Better than any copy is none:
index = torch.arange(n, device=device)          # instead of: torch.arange(n).to(device)"""

_COPY_BACK = """# Collect on the GPU, and fetch everything at once after the loop:
outputs.append(out.detach())                    # instead of: out.detach().cpu()
...
outputs = torch.cat(outputs).cpu()
# Within the loop, into pinned memory, and waited for only when it is read:
buffer.copy_(out, non_blocking=True)
copied = torch.cuda.Event(); copied.record()"""

_SYNCHRONIZE = """# For timing, events do not empty the queue:
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
train_step(x, y)
end.record()                                    # read start.elapsed_time(end) some steps later
# For order between streams, the GPU can wait instead of the host:
stream.wait_event(event)                        # instead of: event.synchronize()"""

# Each kind of wait in words, and what helps.
_KINDS = {
    SyncKind.PRINT: ("print of a tensor", "Print every N steps, and only what is on the host.", _SELDOM),
    SyncKind.SIZE: (
        "nonzero, boolean index or another size that only the GPU knows",
        "Keep sizes fixed: mask with torch.where or a product instead of choosing elements.",
        _FIXED_SIZE,
    ),
    SyncKind.CONDITION: (
        "a tensor's value as a condition",
        "Decide on the GPU, or by what the host knows already.",
        _ON_THE_GPU,
    ),
    SyncKind.ITEM: (
        ".item() or float() of a tensor",
        "Keep values on the GPU, and read them every N steps.",
        _SELDOM,
    ),
    SyncKind.COPY_TO_HOST: (
        "copy to the host",
        "Collect results on the GPU and fetch them at once, or copy into pinned memory.",
        _COPY_BACK,
    ),
    SyncKind.COPY_TO_DEVICE: (
        "copy to the GPU that waits",
        "Copy from pinned memory with non_blocking=True, or make the tensor on the GPU.",
        _COPY,
    ),
    SyncKind.DEVICE: (
        "wait for the whole device",
        "Take torch.cuda.synchronize() out of the loop.",
        _SYNCHRONIZE,
    ),
    SyncKind.EVENT: ("wait for an event", "Let a stream wait for the event, not the host.", _SYNCHRONIZE),
    SyncKind.STREAM: ("wait for a stream", "Let the GPU wait for the stream, not the host.", _SYNCHRONIZE),
    SyncKind.COPY: ("copy that waits", "Copy with pinned memory on the host's side.", _COPY),
}


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Idle time after blocking calls, at most as long as the host had been held in them: had it not been
    held, it would have been that much further ahead."""
    device = facts.device
    if device is None:
        return NO_GPU
    lost = lost_time(facts.window, facts.device, facts.host_pieces, claimed)
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
    kinds = _by_kind(facts, calls, per_gap[drained], gaps.blocked_ns[drained])
    inside_ns = lost.total_ns(lost.of(Cause.SYNC) & chosen)
    return Finding(
        title=f"Waiting for the GPU's results costs {share(cost_ns, lost.window_ns)} of the time",
        summary=f"{count(len(drained), 'time')} in the step window the host stopped until the GPU had "
        "finished all queued work. Each time the GPU then stood idle until the host had launched something "
        "new.",
        fix=Fix(
            *_KINDS[kinds[0].kind][1:],
            "https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",
        ),
        cost_ns=cost_ns,
        saving=Saving(inside_ns, cost_ns),
        evidence=[
            Evidence(
                "GPU idle after waits", f"{time_ns(cost_ns)}, {share(cost_ns, lost.window_ns)} of the window"
            ),
            *_refilling(facts, lost, cost_ns),
            Evidence("host held until the GPU was done", time_ns(float(gaps.blocked_ns[drained].sum()))),
            *(
                Evidence(
                    _KINDS[k.kind][0],
                    f"{count(k.waits, 'wait')}, host held {time_ns(k.held_ns)} until the GPU was done, GPU "
                    f"idle after {time_ns(k.refill_ns)}",
                )
                for k in kinds[:MOST_KINDS]
            ),
        ],
        places=places(facts.host, calls, per_gap[drained], by_operator=True),
        ranges=longest(claim, device.id),
        claims={device.id: claim},
        removable=_without_waits(facts, calls),
    )


def _refilling(facts: Facts, lost: Lost, cost_ns: int) -> list[Evidence]:
    """What the GPU then waited for, as far as it is a good part: the host's chores among it."""
    spent = np.zeros(len(Cause), np.int64)
    np.add.at(spent, lost.cause, lost.drained_ns)
    chores = facts.chores.time_ns(lost.event, lost.drained_ns)
    parts = [(IDLE[cause], int(spent[cause])) for cause in Cause]
    parts += [(CHORES[chore].what, ns) for chore, ns in chores.items()]
    parts.sort(key=lambda part: -part[1])
    return [
        Evidence(f"of that, {what}", time_ns(ns)) for what, ns in parts if ns >= max(1, LEAST_PART * cost_ns)
    ]


class _Kind(NamedTuple):
    kind: SyncKind
    waits: int
    held_ns: int
    refill_ns: int


def _by_kind(facts: Facts, calls: Int64, refill_ns: Int64, held_ns: Int64) -> list[_Kind]:
    """The waits of each kind, those that cost most first. Shape (g,) each: of the drained gaps."""
    of_call = sync_kinds(facts.host, facts.transfers, calls)
    found = [
        _Kind(kind, int(chosen.sum()), int(held_ns[chosen].sum()), int(refill_ns[chosen].sum()))
        for kind in SyncKind
        if (chosen := of_call == kind).any()
    ]
    return sorted(found, key=lambda k: -k.refill_ns)


def _without_waits(facts: Facts, drained: Int64) -> Removable:
    """At least the waits that let the queue run dry go, at most all of them: not every value can be done
    without. Those of copies to the device stay: they have a rule of their own (pageable_copies)."""
    calls, transfers, operator = facts.host_time.blocking, facts.transfers, facts.host.operator
    copies = transfers.launch[transfers.to_device & (transfers.launch != NONE)]
    copying = np.isin(calls, copies) | (
        (operator[calls] != NONE) & np.isin(operator[calls], operator[copies])
    )
    removable = calls[~copying]
    least = removable[np.isin(removable, drained)]
    return Removable(Change(unblocked=tuple(least.tolist())), Change(unblocked=tuple(removable.tolist())))


RULE = Rule("GD301", "host_sync", "Waiting for the GPU", check, error_share=0.20)
