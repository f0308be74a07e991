"""GD101: the GPU waits for the next batch."""

from __future__ import annotations

from dataclasses import replace

from tb_gpudiag.arrays import Bool, marked
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import intersect, subtract, union
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.little_work import SMALL_NS
from tb_gpudiag.facts.replay.replay import Removal
from tb_gpudiag.facts.waiting.loading import LoadPart, load_parts, loader_kind
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Removable, RuleAnswer, Severity, Slowed
from tb_gpudiag.rules.rule import Claimed, Rule, fix_code, page_fixes
from tb_gpudiag.rules.shared.host_task_fixes import (
    HOST_TASK_FIXES,
    PIPELINE_FIX,
    host_task_fix,
    meanwhile_evidence,
    oversubscribed_sentence,
)
from tb_gpudiag.rules.shared.lost_time import NO_DEVICE, Lost, host_time, lost_time, places
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.torch_frames import (
    MULTI_PROCESS_ITERATOR,
    SINGLE_PROCESS_ITERATOR,
    WAITS,
    HostTask,
)
from tb_gpudiag.wording.format import around
from tb_gpudiag.wording.quantity import duration, number

CODE, FIXES = fix_code(__name__), page_fixes(__name__)

# Fetching a batch should cost the GPU next to nothing, since it can overlap with computing. 5% of the step is
# a rule of thumb for when to look into it. Public traces whose loaders keep up show at most 1.5%.
LEAST_SHARE = levels.NOTICEABLE

# On a CPU, workers and the computing share the cores: while one waits, the others use them. Only a long wait
# is time that cheaper items save.
LEAST_CPU_SHARE = levels.LARGE

# Without workers, the CPU that computes also loads, and a worker would need its cores. Loaders that are fast
# enough take up to 9.3% of the main thread's time beside other processes.
LEAST_OWN_CPU_SHARE = levels.SIZEABLE

# A fifth of the GPU's time is worth an afternoon's work on the loader.
ERROR_SHARE = levels.LARGE

# An epoch may begin in the recording; two new iterators show a habit.
FEWEST_FRESH = 2

# Text can be tokenized once, before training, and no worker chooses the items of a batch. That decides on the
# fix from this share of the waiting.
MOSTLY = levels.HALF

_DECIDES = (
    *(HostTask.TOKENIZING, HostTask.SOCKET, HostTask.LOCK, HostTask.FILE_LOCK),
    *(HostTask.PROCESS, HostTask.PROGRAM),
)
"""What decides on the fix where it is most of the time."""

_PARTS = {
    LoadPart.START: "Starting the loader",
    LoadPart.WAIT: "Waiting for workers",
    LoadPart.RECEIVE: "Receiving from workers",
    LoadPart.INDICES: "Choosing items",
    LoadPart.ITEMS: "Fetching items",
    LoadPart.COLLATE: "Collating",
    LoadPart.PIN: "Pinning",
}

_CHEAPER = "Make each item cheaper to load. More workers help only if CPU cores are free."


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find idle time under data loading, anywhere below a loader's __next__."""
    lost = lost_time(facts, claimed)
    chosen = lost.of(Cause.INPUT) & ~lost.evaluating
    cost_ns = lost.total_ns(chosen)
    if lost.share(cost_ns) < _least_share(facts, lost):
        return Clear(lost.sentence("data loading", cost_ns))
    found = _finding(facts, lost, chosen)
    fetched = facts.batches
    first = union(fetched.start_ns[fetched.once], fetched.end_ns[fetched.once])
    later_ns = subtract(lost.stretches(chosen), first).total
    if fetched.fresh.sum() < FEWEST_FRESH and lost.share(later_ns) < ERROR_SHARE:
        found = replace(found, severity=Severity.WARNING)
    return found


def _least_share(facts: Facts, lost: Lost) -> float:
    if lost.device != NO_DEVICE:
        return LEAST_SHARE
    has_workers = loader_kind(facts.host) == MULTI_PROCESS_ITERATOR
    return LEAST_CPU_SHARE if has_workers else LEAST_OWN_CPU_SHARE


def _finding(facts: Facts, lost: Lost, chosen: Bool) -> Finding:
    cost_ns, steps = lost.total_ns(chosen), len(facts.steps)
    event, length_ns = lost.event[chosen], lost.length_ns[chosen]
    fetched = facts.batches
    tasks = facts.host_work.tasks.time_ns(event, length_ns)
    kind, parts = loader_kind(facts.host), load_parts(facts.host, event, length_ns)
    crowded = ""
    if kind == MULTI_PROCESS_ITERATOR:  # the calls in which a thread waits for workers say nothing more
        tasks = {task: ns for task, ns in tasks.items() if task not in WAITS}
        crowded = oversubscribed_sentence(facts.host_work.interruptions)
    receiving = parts.get(LoadPart.RECEIVE, 0) > parts.get(LoadPart.WAIT, 0)
    starting = intersect(facts.loader_starts.again, lost.stretches(chosen))
    anew, least, of_new = 2 * starting.total >= max(1, cost_ns), None, ""
    if anew:  # nothing is loaded ahead of an iterator's first batch
        least = Removal()
        of_new = " Most of it is for new iterators: nothing is loaded ahead of a first batch."
    mostly = [task for task in _DECIDES if tasks.get(task, 0) >= MOSTLY * cost_ns]
    once_ns = int(length_ns[marked(facts.host_work.same_for_items, event)].sum())
    same = once_ns >= MOSTLY * cost_ns
    in_process = "loop" if length_ns[length_ns < SMALL_NS].sum() >= MOSTLY * cost_ns else "workers"
    gpu, choosing = lost.device != NO_DEVICE, parts.get(LoadPart.INDICES, 0) >= MOSTLY * cost_ns
    cases = (
        (facts.job.pipeline, PIPELINE_FIX),
        (choosing, FIXES["sampler"]),
        (anew, FIXES["one_iterator"]),
        (crowded, FIXES["fewer_workers"]),
        (same, FIXES["once"]),
        (kind in {"", SINGLE_PROCESS_ITERATOR}, FIXES[in_process]),
        (receiving, FIXES["receiving"]),
        (gpu, FIXES["more_workers"]),
        (True, replace(FIXES["more_workers"], text=_CHEAPER)),
    )
    fixes = [*(host_task_fix(task, facts.job) for task in mostly), *(fix for holds, fix in cases if holds)]
    for_gpu = ("", "") if gpu else (CODE["to_gpu"], "    pin_memory=True,\n")
    code = fixes[0].code.replace(for_gpu[0], "").replace(for_gpu[1], "").rstrip()
    who = {"": "", SINGLE_PROCESS_ITERATOR: _ITSELF}.get(kind, _WORKERS[receiving])
    return Finding(
        title=lost.sentence("Data loading", cost_ns),
        summary=f"{who}Nothing can launch until the next batch arrives. "
        "Loading can overlap with computing, so most of this time is avoidable."
        + of_new
        + around(" ", crowded, " More workers may make that worse."),
        fix=replace(fixes[0], code=code),
        cost_ns=cost_ns,
        evidence=[
            Evidence.of_window("Waiting for data", cost_ns, lost.window_ns),
            *(
                Evidence.of_cost(_PARTS[part], ns, cost_ns)
                for part, ns in sorted(parts.items(), key=lambda pair: -pair[1])
            ),
            *(
                Evidence.of_cost(HOST_TASK_FIXES[task].label, ns, cost_ns)
                for task, ns in tasks.items()
                if ns >= levels.SIZEABLE * cost_ns
            ),
            *([Evidence.of_cost("With as many calls for each item", once_ns, cost_ns)] if same else []),
            *meanwhile_evidence(facts, lost, chosen),
            Evidence("Batches fetched", number(len(fetched))),
            *([Evidence("From a new iterator", number(int(fetched.fresh.sum()), "batch"))] if anew else []),
            *([Evidence("Mean wait per step", duration(cost_ns / steps))] if steps > 1 else []),
        ],
        places=places(facts.host, event, length_ns),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        slowed=Slowed(lost.stretches(chosen), _least_share(facts, lost)),
        removable=Removable(Removal(host_time(facts.main_thread_spans, Cause.INPUT)), least=least),
    )


_WORKERS = (
    "Worker processes load the batches and do not keep up. ",
    "Worker processes load the batches, and receiving them takes most of the time. ",
)
_ITSELF = "The training process itself loads the batches. "

RULE = Rule("GD101", "input_pipeline", "Waiting for data", check, error_share=ERROR_SHARE, topic="input")
