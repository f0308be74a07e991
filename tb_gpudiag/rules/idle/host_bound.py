"""GD102: Python or a slow operator on the CPU keeps the GPU idle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.causes import Cause, CauseSpans
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, subtract, union
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.host_tasks import HostTask, HostTasks
from tb_gpudiag.facts.waiting.job_kind import JobKind
from tb_gpudiag.facts.waiting.recorder_cost import RecorderCost
from tb_gpudiag.rules.rule import (
    NOTHING_CLAIMED,
    CannotTell,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Removable,
    Rule,
    RuleAnswer,
    Saving,
    Severity,
)
from tb_gpudiag.rules.shared.cpu_job import (
    dispatch_finding,
    in_overhead,
    python_finding,
    task_finding,
)
from tb_gpudiag.rules.shared.ddp_fixes import with_ddp_copies
from tb_gpudiag.rules.shared.evidence import part_time, per_step, window_time
from tb_gpudiag.rules.shared.fewer_launches import batch_evidence
from tb_gpudiag.rules.shared.host_task_fixes import HOST_TASK_FIXES, host_task_fix
from tb_gpudiag.rules.shared.launch_advice import LaunchAdvice, launch_advice
from tb_gpudiag.rules.shared.launch_gaps import LEAST_REMOVED, LONGEST_GAP_NS, in_short_dry_gaps, issuing
from tb_gpudiag.rules.shared.lost_time import NO_DEVICE, Lost, host_time, lost_time, places, removing
from tb_gpudiag.rules.shared.recording_overhead import with_recording_overhead
from tb_gpudiag.rules.shared.unseen_time import MOSTLY, located, unseen
from tb_gpudiag.wording.format import one_line, share, time_ns
from tb_gpudiag.wording.quantity import duration, number

# As in launch_bound.py: healthy public traces lose below 1% to the host, host-bound ones 10 to 60%.
LEAST_SHARE = 0.05

# The GPU could do half as much again in the same time.
ERROR_SHARE = 0.30

# A CPU computes in operators: this much of the main thread's time outside of them, or in operators too short
# to compute much, is worth a look. Recording makes both larger.
LEAST_CPU_SHARE = 0.20

# Host tasks that need not run in every step are reported as soon as their fix is measurable: step times vary
# by 1 to 2% from run to run.
LEAST_TASK_SHARE = 0.02
_RARELY_NEEDED = frozenset({HostTask.GARBAGE, HostTask.LOGGING, HostTask.SAVING, HostTask.SLEEPING})

_INPUT_TASKS = frozenset({HostTask.TOKENIZING, HostTask.PREPARING})

_HOST = np.array([Cause.PYTHON, Cause.DISPATCH, Cause.LAUNCH], np.uint8)

# Batching or compiling the host's work should remove at least half of it. Moving it out of the loop, or
# overlapping it with GPU work, removes all of it.
LEAST_OF_LONG_WORK = 0.5

_WITH_STACKS = """# Find the function: record operators and stacks, and look at the places of this finding.
activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
with torch.profiler.profile(activities=activities, with_stack=True) as prof:
    ...
"""

_HOST_WORK = """
# Process the whole batch instead of item by item,
batch = processor(images, return_tensors="pt")      # not: [processor(i) for i in images]
# or move it to the GPU, to another thread or process, or out of the loop (logging, metrics, checkpoints)."""

_PIPELINE = """
# Let worker processes prepare items, and the model run on batches of them:
for output in pipe(dataset, batch_size=16, num_workers=8): ...
"""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> RuleAnswer:
    """Find idle time in Python between operators, and in operators that GD201 does not cover. Each known host
    task, such as logging, is a finding of its own."""
    device = facts.device
    if facts.on_cpu:
        lost = lost_time(facts.window, None, facts.main_thread_spans)
        hidden, overhead = unseen(lost, facts.host, facts.recorded), in_overhead(lost, facts.small_operators)
        recording, steps = facts.recorder_cost, len(facts.steps)
        return _on_cpu(facts.host, facts.host_tasks, recording, lost, hidden, overhead, steps, facts.job)
    if device is None:
        return CannotTell(
            "without GPU activity, it is unknown what the host delays",
            "Record with ProfilerActivity.CUDA on a machine with a GPU.",
        )
    lost = lost_time(facts.window, device, facts.main_thread_spans, claimed)
    python, operators = lost.of(Cause.PYTHON), lost.of(Cause.DISPATCH, Cause.LAUNCH) & ~issuing(lost, device)
    chosen = python | operators
    total_ns = lost.total_ns(chosen)
    if lost.share(total_ns) < min(LEAST_SHARE, LEAST_TASK_SHARE):
        return _clear(lost, total_ns)
    tasks, steps, computing_ns = (
        facts.host_tasks,
        len(facts.steps),
        int(device.window_account.computing_ns[0]),
    )
    kinds = np.where(lost.event == NONE, NONE, tasks.kind[lost.event])
    found, reported = [], EMPTY
    for kind in HostTask:
        own = chosen & (kinds == kind)
        if lost.share(lost.total_ns(own)) < _least_share(kind):
            continue
        on_host = _task_time(facts.main_thread_spans, tasks.kind, kind)
        one = _task_finding(facts.host, tasks, lost, own, kind, on_host, steps, computing_ns, facts.job)
        found.append(with_recording_overhead(one, facts.recorder_cost, lost, own, ERROR_SHARE))
        reported = union(np.r_[reported.start, on_host.start], np.r_[reported.end, on_host.end])
        chosen &= ~own
    if lost.share(lost.total_ns(chosen)) >= LEAST_SHARE:
        on_host = subtract(_host_work(facts.main_thread_spans), reported)
        advice = launch_advice(facts.launch_modes, facts.job, lost, chosen)
        evidence = batch_evidence(facts.host, facts.window)
        # Between short kernels, launching less removes Python as well. It does not shorten long host work.
        launching = 2 * lost.total_ns(chosen & in_short_dry_gaps(lost, device)) >= lost.total_ns(chosen)
        if launching:
            evidence.append(advice.graph_evidence)
        evidence += [*advice.in_compiled_code, *advice.autograd_evidence]
        fix = _fix(advice, launching=launching, stacks=facts.recorded.stacks)
        removable = removing(on_host, LEAST_REMOVED if launching else LEAST_OF_LONG_WORK)
        general = _general_finding(
            facts.host, lost, chosen, python, removable, fix, evidence, stacks=facts.recorded.stacks
        )
        general = with_recording_overhead(general, facts.recorder_cost, lost, chosen, ERROR_SHARE)
        hidden_ns = lost.total_ns(chosen & unseen(lost, facts.host, facts.recorded))
        if hidden_ns >= MOSTLY * general.cost_ns:
            general = _of_unseen_work(general, lost)
        found.append(with_ddp_copies(general, facts.ddp_copies, lost))
    return sorted(found, key=lambda f: -f.cost_ns) or _clear(lost, total_ns)


def _least_share(kind: HostTask) -> float:
    return LEAST_TASK_SHARE if kind in _RARELY_NEEDED else LEAST_SHARE


def _on_cpu(
    host: Host,
    tasks: HostTasks,
    recording: RecorderCost,
    lost: Lost,
    hidden: Bool,
    overhead: Bool,
    steps: int,
    job: JobKind,
) -> RuleAnswer:
    """The main thread's time in host tasks, in Python between operators, and in operators that are mostly
    overhead.

    hidden, overhead: masks of time that the trace does not show, and of time in such operators.
    """
    kinds = np.where(lost.event == NONE, NONE, tasks.kind[lost.event])
    free = lost.of(Cause.PYTHON, Cause.DISPATCH, Cause.LAUNCH, Cause.ALLOCATOR)
    found = []
    for kind in HostTask:
        own = free & (kinds == kind)
        if lost.share(lost.total_ns(own)) >= _least_share(kind):
            found.append((task_finding(host, tasks, lost, own, kind, steps, job), own))
            free &= ~own
    python, overhead = free & lost.of(Cause.PYTHON), free & overhead
    python_ns = lost.total_ns(python)
    if lost.share(python_ns) >= LEAST_CPU_SHARE:
        general = python_finding(host, lost, python)
        mostly_hidden = lost.total_ns(python & hidden) >= MOSTLY * python_ns
        found.append((_of_unseen_work(general, lost) if mostly_hidden else general, python))
    if lost.share(lost.total_ns(overhead)) >= LEAST_CPU_SHARE:
        found.append((dispatch_finding(host, lost, overhead, steps), overhead))
    corrected = [with_recording_overhead(one, recording, lost, own, ERROR_SHARE) for one, own in found]
    others = share(lost.total_ns(python | overhead), lost.window_ns)
    return sorted(corrected, key=lambda f: -f.cost_ns) or Clear(
        f"Python and the overhead of small operators take {others} of the main thread's time"
    )


def _clear(lost: Lost, cost_ns: int) -> Clear:
    return Clear(
        f"Python and slow CPU operators keep the GPU idle {share(cost_ns, lost.window_ns)} of the step window"
    )


def _task_finding(
    host: Host,
    tasks: HostTasks,
    lost: Lost,
    chosen: Bool,
    kind: HostTask,
    on_host: Intervals,
    steps: int,
    computing_ns: int,
    job: JobKind,
) -> Finding:
    """on_host: the main thread's time in this task, also while the GPU was busy."""
    known = HOST_TASK_FIXES[kind]
    cost_ns, event = lost.total_ns(chosen), lost.event[chosen]
    calls = len(np.unique(tasks.call[event]))
    summary = (
        f"The GPU has finished its work while the host is still {known.activity}, before the next launch."
    )
    if kind in _INPUT_TASKS and on_host.total > computing_ns:
        summary += (
            f" It takes {time_ns(on_host.total)}, longer than the GPU computes ({time_ns(computing_ns)})."
        )
    return Finding(
        title=f"{known.label} keeps the GPU idle {share(cost_ns, lost.window_ns)} of the time",
        summary=summary,
        fix=host_task_fix(kind, job),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            window_time(f"Idle during {known.noun}", cost_ns, lost.window_ns),
            Evidence("Calls", number(calls, "call"), per_step(calls, steps)),
            Evidence("Main thread's time in them", duration(on_host.total)),
        ],
        # Users do not edit the library, so the place is the function that calls it.
        places=places(host, tasks.caller(event), lost.length_ns[chosen]),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=removing(on_host, known.least_removed),
    )


def _task_time(main_thread: CauseSpans, task: Int64, kind: HostTask) -> Intervals:
    """The main thread's time in this kind of task, whether or not the GPU was idle, without data loading.

    task: kind of task of each event, or NONE, shape (n,).
    """
    some = (main_thread.event != NONE) & np.isin(main_thread.cause, _HOST)
    some[some] = task[main_thread.event[some]] == kind
    return union(main_thread.start_ns[some], main_thread.end_ns[some])


def _general_finding(
    host: Host,
    lost: Lost,
    chosen: Bool,
    python: Bool,
    removable: Removable,
    fix: Fix,
    advice: list[Evidence],
    *,
    stacks: bool,
) -> Finding:
    """Everything but the host tasks that have findings of their own.

    removable: the main thread's time that a fix removes. stacks: the trace has Python stacks.
    """
    cost_ns, python_ns = lost.total_ns(chosen), lost.total_ns(chosen & python)
    found = places(host, lost.event[chosen], lost.length_ns[chosen])
    subject = "Python keeps" if python_ns * 2 >= cost_ns else "Slow CPU operators keep"
    at = f" Most of this time is in {found[0].function} ({found[0].file})." if found and found[0].file else ""
    no_stacks = "" if stacks else " The trace has no Python stacks, so the functions are unknown."
    return Finding(
        title=f"{subject} the GPU idle {share(cost_ns, lost.window_ns)} of the time",
        summary="The GPU has finished its work while the host is still busy with its own, before the next "
        f"launch.{at}{no_stacks}",
        fix=fix,
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            window_time("Idle during host work", cost_ns, lost.window_ns),
            part_time("Python between operators", python_ns, cost_ns),
            part_time("Slow CPU operators", cost_ns - python_ns, cost_ns),
            *_unlocated(host, lost, chosen),
            *advice,
            _longest(host, lost, chosen),
        ],
        places=found,
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=removable,
    )


def _of_unseen_work(general: Finding, lost: Lost) -> Finding:
    """The finding if the trace does not show what most of its time is: there is nothing to fix yet.

    It is a warning only where so much is lost that it is worth a new recording at once."""
    cost_share = lost.share(general.cost_ns)
    worth_recording = cost_share >= ERROR_SHARE and lost.device != NO_DEVICE
    if lost.device == NO_DEVICE:
        title = f"The main thread spends {share(cost_share)} of its time on work that was not recorded"
        start = "The trace does not show what the main thread does between operators"
    else:
        title = f"The host keeps the GPU idle {share(cost_share)} of the time with work that was not recorded"
        start = (
            "The GPU has finished its work, and the trace does not show what the host does before the next "
            "launch"
        )
    return replace(
        general,
        title=title,
        summary=f"{start}: it may be Python, a lock, a sleep, file access or another library.",
        fix=Fix("Record again with operators and Python stacks, to see what the host does.", _WITH_STACKS),
        saving=Saving(0, general.cost_ns),
        sure=worth_recording,
        removable=None,
        severity=None if worth_recording else Severity.INFO,
    )


def _fix(advice: LaunchAdvice, *, launching: bool, stacks: bool) -> Fix:
    """Get host work out of the GPU's way, by means that fit how the job launches now.

    launching: fewer launches remove this time as well."""
    launching = launching or advice.mostly_compiled
    if launching and (advice.mostly_compiled or advice.graphs_in_use or advice.job.server):
        text = advice.fix_text
    else:
        compiled = "compile it, " if launching else ""
        text = f"Get the host's work out of the GPU's way: {compiled}batch it, or overlap it with GPU work."
    parts = [] if stacks else [_WITH_STACKS]
    parts += [advice.code] if launching else []
    if advice.job.server is None:
        parts.append(_PIPELINE if advice.job.pipeline else _HOST_WORK)
    return Fix(text, "\n".join(parts), "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html")


def _unlocated(host: Host, lost: Lost, chosen: Bool) -> list[Evidence]:
    """Time for which the trace has neither a line nor an operator, and that the places do not include."""
    time = lost.total_ns(chosen & ~located(lost, host))
    return [Evidence("Without a line or operator", duration(time))] if time else []


def _longest(host: Host, lost: Lost, chosen: Bool) -> Evidence:
    """The longest stretch and the operator whose launch ended it, which helps to find it without stacks."""
    stretch = lost.ranges(chosen)[0]
    length_ns = stretch.end_ns - stretch.start_ns
    launch = lost.launch[chosen & (lost.start_ns == stretch.start_ns)]
    after = places(host, launch, np.full_like(launch, length_ns), by_operator=True)
    before = (f"before {one_line(after[0].operator, 80)}",) if after and after[0].operator else ()
    return Evidence("Longest stretch", duration(length_ns), before)


def _host_work(main_thread: CauseSpans) -> Intervals:
    """Python, and operators that take longer than a short launch gap."""
    python = host_time(main_thread, Cause.PYTHON)
    slow = host_time(main_thread, Cause.DISPATCH, at_least_ns=LONGEST_GAP_NS)
    return union(np.r_[python.start, slow.start], np.r_[python.end, slow.end])


RULE = Rule("GD102", "host_bound", "Host-bound", check, error_share=ERROR_SHARE)
