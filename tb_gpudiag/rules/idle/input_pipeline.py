"""GD101: the GPU waits for the next batch."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.host_tasks import Chore
from tb_gpudiag.facts.waiting.loading import LoadPart, batches, load_parts, loader_kind
from tb_gpudiag.rules.rule import (
    NOTHING_CLAIMED,
    Answer,
    CannotTell,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Rule,
    Saving,
)
from tb_gpudiag.rules.shared.host_task_fixes import CHORES
from tb_gpudiag.rules.shared.lost_time import NO_DEVICE, Lost, host_time, lost_time, places, removing
from tb_gpudiag.trace.events import Int64
from tb_gpudiag.trace.vocabulary.torch_frames import SINGLE_PROCESS_ITERATOR
from tb_gpudiag.wording.format import count, share, time_ns

# Fetching a batch should cost the GPU next to nothing: it can be done while the GPU computes. Practice takes
# 5 % of the step as the point where it is worth a look; with working loaders, public traces show 1.5 % and
# less.
LEAST_SHARE = 0.05

# A first batch that takes so many times the others' median is the start of an epoch, and no steady state.
SLOW_FIRST = 3

# What takes a tenth of the waiting is worth a line.
LEAST_CHORE = 0.1

# Text can be tokenized once and for all: where that is most of the waiting, it is the fix.
MOSTLY = 0.5

_PARTS = {
    LoadPart.START: "of that, starting the loader and its workers",
    LoadPart.WAIT: "of that, waiting for a worker's batch",
    LoadPart.RECEIVE: "of that, taking over a worker's batch",
    LoadPart.ITEMS: "of that, fetching items",
    LoadPart.COLLATE: "of that, collating",
    LoadPart.PIN: "of that, pinning",
}

_WORKERS = """loader = DataLoader(
    dataset,
    batch_size=batch_size,
    num_workers=8,            # from 0: try 4, 8, 16, up to the CPU cores of this rank
    persistent_workers=True,  # keep them from epoch to epoch
    prefetch_factor=4,
    pin_memory=True,
)
for x, y in loader:
    x = x.to(device, non_blocking=True)
    y = y.to(device, non_blocking=True)"""

_SLOW_WORKERS = """loader = DataLoader(
    dataset,
    batch_size=batch_size,
    num_workers=16,           # more than now, up to the CPU cores of this rank
    persistent_workers=True,
    prefetch_factor=4,
    pin_memory=True,
)
# Then make one item cheaper: cache what is decoded, move augmentation to the GPU,
# and call torch.set_num_threads(1) in worker_init_fn so that workers do not fight for cores."""

_TAKE_OVER = """loader = DataLoader(
    dataset,
    batch_size=batch_size,
    num_workers=num_workers,
    pin_memory=True,          # a thread of the loader takes batches over, and pins them, ahead of time
    persistent_workers=True,
)
# A batch of few large tensors is taken over faster than one of many small ones:
# let collate_fn return stacked tensors, not lists of them."""

_URL = "https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading"


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Idle time under data loading, anywhere below a loader's __next__."""
    lost = lost_time(facts.window, facts.device, facts.host_pieces, claimed)
    if not lost.window_ns:
        return CannotTell("the trace holds no host or GPU activity")
    chosen = lost.of(Cause.INPUT)
    cost_ns = lost.total_ns(chosen)
    if lost.share(cost_ns) < LEAST_SHARE:
        return Clear(
            f"the {_waits(lost)} {share(cost_ns, lost.window_ns)} of the step window for data loading"
        )
    kind = loader_kind(facts.host)
    fetch_ns, steps = batches(facts.host, facts.window)[1], len(facts.steps)
    chores = facts.chores.time_ns(lost.event[chosen], lost.length_ns[chosen])
    parts = load_parts(facts.host, lost.event[chosen], lost.length_ns[chosen])
    evidence = [
        Evidence(
            "waiting for data", f"{time_ns(cost_ns)}, {share(cost_ns, lost.window_ns)} of the step window"
        ),
        *(
            Evidence(_PARTS[part], f"{time_ns(ns)}, {share(ns, cost_ns)}")
            for part, ns in sorted(parts.items(), key=lambda pair: -pair[1])
        ),
        *(
            Evidence(f"of that, {CHORES[chore].what}", f"{time_ns(ns)}, {share(ns, cost_ns)}")
            for chore, ns in chores.items()
            if ns >= LEAST_CHORE * cost_ns
        ),
        Evidence("batches fetched", count(len(fetch_ns))),
        *_slow_first(fetch_ns),
    ]
    if steps:
        evidence.append(Evidence("per step", time_ns(cost_ns / steps)))
    if kind:
        evidence.append(Evidence("loader", kind))
    single = kind == SINGLE_PROCESS_ITERATOR
    receiving = parts.get(LoadPart.RECEIVE, 0) > parts.get(LoadPart.WAIT, 0)
    if single:
        how = "in the training process itself"
    elif receiving:
        how = "by worker processes, and taking them over from there is what takes most of the time"
    else:
        how = "by worker processes that do not keep up"
    known = f"Batches are made {how}. " if kind else ""
    return Finding(
        title=f"The {_waits(lost)} {share(cost_ns, lost.window_ns)} of the time "
        + ("on" if lost.device == NO_DEVICE else "for")
        + " the next batch",
        summary=f"{known}Until a batch is there, nothing can be launched. "
        "Loading can run beside the computing, so most of this time is not needed.",
        fix=CHORES[Chore.TOKENIZING].fix
        if chores.get(Chore.TOKENIZING, 0) >= MOSTLY * cost_ns
        else _fix(single or not kind, receiving),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=evidence,
        places=places(facts.host, lost.event[chosen], lost.length_ns[chosen]),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=removing(host_time(facts.host_pieces, Cause.INPUT)),
    )


def _waits(lost: Lost) -> str:
    return "main thread spends" if lost.device == NO_DEVICE else "GPU waits"


def _fix(no_workers: bool, receiving: bool) -> Fix:
    if no_workers:
        return Fix("Load batches in worker processes, ahead of time.", _WORKERS, _URL)
    if receiving:
        return Fix("Let the loader's own thread take batches over, and send fewer tensors.", _TAKE_OVER, _URL)
    return Fix("Give the loader more workers, or make one item cheaper to load.", _SLOW_WORKERS, _URL)


def _slow_first(fetch_ns: Int64) -> list[Evidence]:
    """fetch_ns: of the batches, in order. A word where the first one took far longer than the others."""
    if len(fetch_ns) < 3:
        return []
    first, others = float(fetch_ns[0]), float(np.median(fetch_ns[1:]))
    if first < SLOW_FIRST * others:
        return []
    return [Evidence("first batch", f"{time_ns(first)}, the others {time_ns(others)} in the median")]


RULE = Rule("GD101", "input_pipeline", "Waiting for data", check, error_share=0.20)
