"""GD102: Python or one long operator on the host keeps the GPU waiting."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, subtract, union
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.host_tasks import Chore
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
from tb_gpudiag.rules.shared.fewer_launches import batch_evidence, graph_evidence
from tb_gpudiag.rules.shared.host_task_fixes import CHORES
from tb_gpudiag.rules.shared.launch_gaps import LONGEST_GAP_NS, in_short_dry_gaps, issuing
from tb_gpudiag.rules.shared.lost_time import Lost, host_time, lost_time, places, removing
from tb_gpudiag.trace.events import NONE, Bool
from tb_gpudiag.wording.format import count, one_line, share, time_ns

# As for launching (launch_bound.py): healthy public traces lose below 1 % to the host, host-bound ones 10 to
# 60 %.
LEAST_SHARE = 0.05

# A chore that need not be done in every step is worth a word from where its fix could be measured: step times
# vary by 1-2 % from run to run.
LEAST_CHORE_SHARE = 0.02
_SELDOM_DONE = frozenset({Chore.GARBAGE, Chore.LOGGING, Chore.SAVING})

_HOST = np.array([Cause.PYTHON, Cause.DISPATCH, Cause.LAUNCH], np.uint8)

# Half of the host's own work is a modest aim for batching or compiling it; out of the loop, or beside the
# computing, all of it goes.
LEAST_REMOVED = 0.5

_CODE = """# Find the line: record with stacks, and look at the places of this finding.
with torch.profiler.profile(with_stack=True, ...) as prof:
    ...

# Python between operators: let the compiler take it out; a CUDA graph runs none of it,
model = torch.compile(model)                            # or mode="reduce-overhead" (fixed shapes, no waits)
# do it for the whole batch instead of item by item,
batch = processor(images, return_tensors="pt")      # not: [processor(i) for i in images]
# move it to the GPU or into the loader's workers, or out of the loop (logging, metrics, checkpoints)."""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Idle time in user code between operators, and in operators that are no matter of launching. What a
    chore of the host takes is a finding of its own."""
    lost = lost_time(facts.window, facts.device, facts.host_pieces, claimed)
    device = facts.device
    if device is None:
        return CannotTell(
            "without GPU activity it is not known what the host kept waiting",
            "Record with ProfilerActivity.CUDA on a machine with a GPU.",
        )
    python, dispatch = lost.of(Cause.PYTHON), lost.of(Cause.DISPATCH, Cause.LAUNCH) & ~issuing(lost, device)
    chosen = python | dispatch
    total_ns = lost.total_ns(chosen)
    if lost.share(total_ns) < min(LEAST_SHARE, LEAST_CHORE_SHARE):
        return _clear(lost, total_ns)
    chore = np.where(lost.event == NONE, NONE, facts.chores.kind[lost.event])
    found, spoken_of = [], EMPTY
    for kind in Chore:
        own = chosen & (chore == kind)
        least = LEAST_CHORE_SHARE if kind in _SELDOM_DONE else LEAST_SHARE
        if lost.share(lost.total_ns(own)) >= least:
            on_host = _main_thread(facts, kind)
            found.append(_of_chore(facts, lost, own, kind, on_host))
            spoken_of = union(np.r_[spoken_of.start, on_host.start], np.r_[spoken_of.end, on_host.end])
            chosen &= ~own
    if lost.share(lost.total_ns(chosen)) >= LEAST_SHARE:
        found.append(_general(facts, lost, chosen, python, spoken_of))
    return sorted(found, key=lambda f: -f.cost_ns) or _clear(lost, total_ns)


def _clear(lost: Lost, cost_ns: int) -> Clear:
    return Clear(
        f"the GPU waited {share(cost_ns, lost.window_ns)} of the step window for Python and slow operators"
    )


def _of_chore(facts: Facts, lost: Lost, chosen: Bool, kind: Chore, on_host: Intervals) -> Finding:
    words, chores = CHORES[kind], facts.chores
    cost_ns, steps = lost.total_ns(chosen), len(facts.steps)
    calls = np.unique(chores.call[lost.event[chosen]])
    per_step = f", {count(round(len(calls) / steps))} a step" if steps else ""
    return Finding(
        title=f"The GPU waits {share(cost_ns, lost.window_ns)} of the time for {words.what}",
        summary=f"The GPU had finished, and the host was busy {words.doing} before the next launch."
        + _longer_than_the_model(facts, kind, on_host.total),
        fix=words.fix,
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            Evidence(f"GPU idle under {words.what}", time_ns(cost_ns)),
            Evidence("calls", f"{count(len(calls))}{per_step}"),
            Evidence("the main thread's time in them", time_ns(on_host.total)),
        ],
        # The library's own lines nobody changes: the place is the line that calls it.
        places=places(facts.host, chores.caller[lost.event[chosen]], lost.length_ns[chosen]),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=removing(on_host, words.removed),
    )


def _main_thread(facts: Facts, kind: Chore) -> Intervals:
    """The main thread's time in this chore, whether the GPU waited or not; the loader's is the loader's."""
    pieces = facts.host_pieces
    some = (pieces.event != NONE) & np.isin(pieces.cause, _HOST)
    some[some] = facts.chores.kind[pieces.event[some]] == kind
    return union(pieces.start_ns[some], pieces.end_ns[some])


def _longer_than_the_model(facts: Facts, kind: Chore, host_ns: int) -> str:
    """A word where making the model's input takes longer than the model."""
    device = facts.device
    if kind not in {Chore.TOKENIZING, Chore.PREPARING} or device is None:
        return ""
    computing_ns = int(device.whole.computing_ns[0])
    if host_ns <= computing_ns:
        return ""
    return f" It takes {time_ns(host_ns)}, longer than the GPU computes ({time_ns(computing_ns)})."


def _general(facts: Facts, lost: Lost, chosen: Bool, python: Bool, spoken_of: Intervals) -> Finding:
    """What is left, without the host time that other findings speak of."""
    cost_ns, python = lost.total_ns(chosen), chosen & python
    found = places(facts.host, lost.event[chosen], lost.length_ns[chosen])
    mostly = "Python" if lost.total_ns(python) * 2 >= cost_ns else "operators on the host"
    at = f" Most of it is in {found[0].function} ({found[0].file})." if found and found[0].file else ""
    unseen = "" if facts.recorded.stacks else " The trace has no Python stacks, so the lines are not known."
    return Finding(
        title=f"The GPU waits {share(cost_ns, lost.window_ns)} of the time for {mostly}",
        summary="The GPU had finished, and the host was still busy with its own work before the next launch."
        f"{at}{unseen}",
        fix=Fix(
            "Take the host's work out of the GPU's way: compile it, batch it, or do it beside the computing.",
            _CODE,
            "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            Evidence("GPU idle under Python", time_ns(lost.total_ns(python))),
            Evidence("GPU idle under slow operators", time_ns(lost.total_ns(chosen & ~python))),
            *_unseen(facts, lost, chosen),
            *batch_evidence(facts),
            *_graph(facts, lost, chosen),
            Evidence("longest stretch", _longest(facts, lost, chosen)),
        ],
        places=found,
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=removing(subtract(_host_work(facts), spoken_of), LEAST_REMOVED),
    )


def _unseen(facts: Facts, lost: Lost, chosen: Bool) -> list[Evidence]:
    """A word where the trace has neither a line nor an operator: the places do not stand for that time."""
    host, seen = facts.host, lost.event != NONE
    seen[seen] = (host.place[lost.event[seen]] != NONE) | (host.operator[lost.event[seen]] != NONE)
    unseen_ns = lost.total_ns(chosen & ~seen)
    return [Evidence("of this without any line or operator", time_ns(unseen_ns))] if unseen_ns else []


def _graph(facts: Facts, lost: Lost, chosen: Bool) -> list[Evidence]:
    """Where most of it lies between small kernels, a CUDA graph would take it away with the launches."""
    assert facts.device is not None
    short_ns = lost.total_ns(chosen & in_short_dry_gaps(lost, facts.device))
    return [graph_evidence(facts)] if 2 * short_ns >= lost.total_ns(chosen) else []


def _longest(facts: Facts, lost: Lost, chosen: Bool) -> str:
    """How long it is, and which operator's launch ended it: without stacks this is how to find it."""
    stretch = lost.ranges(chosen)[0]
    length_ns = stretch.end_ns - stretch.start_ns
    launch = lost.launch[chosen & (lost.start_ns == stretch.start_ns)]
    after = places(facts.host, launch, np.full_like(launch, length_ns), by_operator=True)
    before = f", before {one_line(after[0].operator, 80)}" if after and after[0].operator else ""
    return time_ns(length_ns) + before


def _host_work(facts: Facts) -> Intervals:
    """Python, and operators that take longer than the way to a launch."""
    python = host_time(facts.host_pieces, Cause.PYTHON)
    slow = host_time(facts.host_pieces, Cause.DISPATCH, at_least_ns=LONGEST_GAP_NS)
    return union(np.r_[python.start, slow.start], np.r_[python.end, slow.end])


RULE = Rule("GD102", "host_bound", "Host-bound", check, error_share=0.30)
