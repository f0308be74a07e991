"""GD102: Python or a slow operator on the CPU keeps the GPU idle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import Bool, marked
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause, CauseSpans
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, merged, subtract, union
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, Fix, RuleAnswer, Severity, Slowed
from tb_gpudiag.rules.rule import ERROR_SHARE, Claimed, Rule, fix_code
from tb_gpudiag.rules.shared.cpu_job import (
    AS_RECORDED,
    FEWER_OPERATORS,
    RECORDED,
    dispatch_finding,
    in_overhead,
    python_finding,
    usual_share,
)
from tb_gpudiag.rules.shared.freed_memory import freeing_finding, in_freeing
from tb_gpudiag.rules.shared.host_task_fixes import (
    HOST_TASK_FIXES,
    host_task_fix,
    meanwhile_evidence,
    oversubscribed_sentence,
)
from tb_gpudiag.rules.shared.launch_advice import (
    LaunchAdvice,
    batch_evidence,
    launch_advice,
    with_ddp_copies,
)
from tb_gpudiag.rules.shared.lost_time import (
    LONGEST_GAP_NS,
    MOSTLY_UNSEEN,
    NO_DEVICE,
    Lost,
    host_time,
    located,
    lost_time,
    places,
    removing,
    unseen,
)
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.torch_frames import HostTask
from tb_gpudiag.wording.format import in_quotes, share, time_ns
from tb_gpudiag.wording.quantity import duration, number, per_step

CODE = fix_code(__name__)

# As in launch_bound.py: healthy public traces lose below 1% to the host, host-bound ones 10 to 60%.
LEAST_SHARE = levels.NOTICEABLE

# A CPU computes in operators: this much of the main thread's time outside of them, or in operators too short
# to compute much, is worth a look. Recording makes both larger: healthy jobs show up to 22%, and a GRU, which
# torch runs as 7,000 small operators, 25%.
LEAST_CPU_SHARE = 0.25

# A loop that calls small operators takes time in them and in Python between them, neither of which has to be
# much: one that fills a mask row by row takes 24% of a step without the profiler. Recorded, it shows 22 to
# 28% and 23%, together 44 to 52%. Healthy jobs show up to 34%.
LEAST_LOOP_SHARE = 0.40

# A single call is slower than those after it. In public recordings of one call that takes less than this, the
# first advice of experts was to record more of them.
SHORTEST_CALL_NS = 20_000_000

# Host tasks that need not run in every step are reported as soon as their fix is measurable: step times vary
# by 1 to 2% from run to run.
LEAST_TASK_SHARE = levels.MEASURABLE
_RARELY_NEEDED = frozenset({HostTask.GARBAGE, HostTask.LOGGING, HostTask.SAVING, HostTask.SLEEPING})

# If interrupted operators take this much of the time, the host lacks a core rather than faster code.
MOSTLY_STALLED = levels.HALF

# If operators follow each other this quickly, there are too many, and none is slow: on the host of a public
# trace, a view takes 29 us while it is recorded.
MOST_PER_OPERATOR_NS = 50_000

_LOOPS = "one tensor operator in place of a loop removes both its Python and its small operators"

_INPUT_TASKS = frozenset({HostTask.TOKENIZING, HostTask.PREPARING})

# An operator does these, or a function of the user's own: the place is there, and not at their caller.
_PLACED_AT_CALL = frozenset({HostTask.MAKING, HostTask.PLANNING, HostTask.EVALUATING})

_HOST = np.array([*BETWEEN_CALLS, Cause.DISPATCH, Cause.LAUNCH], np.uint8)

_NAMED = ("Python between operators", "Slow CPU operators")
"""What most host time is, where the trace shows it."""


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find idle time in Python between operators, and in operators that GD201 does not cover. Each known host
    task, such as logging, is a finding of its own."""
    if facts.on_cpu:
        return _on_cpu(facts, lost_time(facts))
    if facts.device is None:
        return CannotTell(
            "without GPU activity, it is unknown what the host delays",
            "Record with ProfilerActivity.CUDA on a machine with a GPU.",
        )
    lost = lost_time(facts, claimed)
    chosen = lost.of(*BETWEEN_CALLS) | (lost.of(Cause.DISPATCH, Cause.LAUNCH) & ~lost.issuing)
    chosen &= ~lost.evaluating
    total_ns = lost.total_ns(chosen)
    if lost.share(total_ns) < min(LEAST_SHARE, LEAST_TASK_SHARE):
        return _clear(lost, total_ns)
    found, reported = [], EMPTY
    for kind, own in _tasks(lost, chosen):
        on_host = _task_time(facts, kind)
        found.append(_task_finding(facts, lost, own, kind, on_host))
        reported = merged(reported, on_host)
        chosen &= ~own
    frees = chosen & in_freeing(facts, lost)
    if lost.share(lost.total_ns(frees)) >= LEAST_TASK_SHARE:
        found.append(freeing_finding(facts, lost, frees))
        chosen &= ~frees
    if lost.share(lost.total_ns(chosen)) >= LEAST_SHARE:
        found.append(_general_finding(facts, lost, chosen, reported))
    return sorted(found, key=lambda f: -f.cost_ns) or _clear(lost, total_ns)


def _tasks(lost: Lost, chosen: Bool) -> list[tuple[HostTask, Bool]]:
    """The host tasks with findings of their own, and which of the chosen segments each takes."""
    parts = [(kind, chosen & (lost.task == kind)) for kind in HOST_TASK_FIXES]
    return [(kind, own) for kind, own in parts if lost.share(lost.total_ns(own)) >= _least_share(kind)]


def _least_share(kind: HostTask) -> float:
    return LEAST_TASK_SHARE if kind in _RARELY_NEEDED else LEAST_SHARE


def _on_cpu(facts: Facts, lost: Lost) -> RuleAnswer:
    """The main thread's time in host tasks, in Python between operators, and in operators that are mostly
    overhead."""
    if not len(facts.steps) and lost.window_ns < SHORTEST_CALL_NS:
        return CannotTell(
            f"the recording is one call of {time_ns(lost.window_ns)}, and first calls are slower",
            "Record several iterations, after a few that are not recorded.",
        )
    free = lost.of(*BETWEEN_CALLS, Cause.DISPATCH, Cause.LAUNCH, Cause.ALLOCATOR) & ~lost.evaluating
    found = []
    for kind, own in _tasks(lost, free):
        found.append(_task_finding(facts, lost, own, kind, None))
        free &= ~own
    python = free & lost.of(*BETWEEN_CALLS)
    overhead = free & in_overhead(lost, facts.host_work.small_operators)
    python_ns = lost.total_ns(python)
    loops = replace(removing(lost.stretches(python | overhead)), beyond=_LOOPS)
    if usual_share(facts, lost, python, RECORDED) >= LEAST_CPU_SHARE:
        general = replace(python_finding(facts.host, lost, python), removable=loops)
        if lost.total_ns(python & unseen(lost, facts)) >= MOSTLY_UNSEEN * python_ns:
            general = _of_unseen_work(general, lost, first_call=False)
        found.append(general)
    much = usual_share(facts, lost, overhead, AS_RECORDED) >= LEAST_CPU_SHARE
    looped = python | overhead if overhead.any() and not found else overhead
    if much or usual_share(facts, lost, looped, AS_RECORDED) >= LEAST_LOOP_SHARE:
        general = dispatch_finding(facts.host, lost, overhead, len(facts.steps))
        found.append(replace(general, removable=loops))
    others = share(lost.total_ns(python | overhead), lost.window_ns)
    return sorted(found, key=lambda f: -f.cost_ns) or Clear(
        f"Python and the overhead of small operators take {others} of the main thread's time"
    )


def _clear(lost: Lost, cost_ns: int) -> Clear:
    return Clear(
        f"Python and slow CPU operators keep the GPU idle {share(cost_ns, lost.window_ns)} of the step window"
    )


def _task_finding(
    facts: Facts, lost: Lost, chosen: Bool, kind: HostTask, on_host: Intervals | None
) -> Finding:
    """on_host: the main thread's time in this task, also while the GPU was busy; None without a GPU."""
    known, tasks = HOST_TASK_FIXES[kind], facts.host_work.tasks
    cost_ns, event = lost.total_ns(chosen), lost.event[chosen]
    calls = len(np.unique(tasks.call[event]))
    found = Finding(
        title=lost.sentence(known.label, cost_ns),
        summary=f"The job does not compute while the main thread is {known.activity}.",
        fix=host_task_fix(kind, facts.job),
        cost_ns=cost_ns,
        evidence=[
            Evidence.of_window(f"Main thread in {known.noun}", cost_ns, lost.window_ns),
            Evidence("Calls", number(calls, "call"), per_step(calls, len(facts.steps))),
            *meanwhile_evidence(facts, lost, chosen),
        ],
        # Users do not edit the library, so the place is the function that calls it.
        places=places(facts.host, tasks.call[event], lost.length_ns[chosen], by_operator=True)
        if kind in _PLACED_AT_CALL
        else places(facts.host, tasks.caller(event), lost.length_ns[chosen]),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        slowed=Slowed(lost.stretches(chosen), _least_share(kind) if on_host is not None else 0.0),
    )
    if on_host is not None:
        idle = Evidence.of_window(f"Idle while {known.activity}", cost_ns, lost.window_ns)
        found = replace(found, evidence=[idle, *found.evidence[1:]])
        found = _on_gpu(found, kind, on_host, int(facts.gpu.window_account.computing_ns[0]))
    return found


def _on_gpu(found: Finding, kind: HostTask, on_host: Intervals, computing_ns: int) -> Finding:
    """The finding about a host task that keeps a GPU idle."""
    known = HOST_TASK_FIXES[kind]
    summary = (
        f"The GPU has finished its work while the host is still {known.activity}, before the next launch."
    )
    if kind in _INPUT_TASKS and on_host.total > computing_ns:
        summary += (
            f" It takes {time_ns(on_host.total)}, longer than the GPU computes ({time_ns(computing_ns)})."
        )
    return replace(
        found,
        summary=summary,
        evidence=[*found.evidence, Evidence("Main thread's time in them", duration(on_host.total))],
        removable=removing(on_host),
    )


def _task_time(facts: Facts, kind: HostTask) -> Intervals:
    """The main thread's time in this kind of task, whether or not the GPU was idle, without data loading."""
    main_thread = facts.main_thread_spans
    some = np.isin(main_thread.cause, _HOST) & (facts.host_work.tasks.of(main_thread.event) == kind)
    return union(main_thread.start_ns[some], main_thread.end_ns[some])


def _general_finding(facts: Facts, lost: Lost, chosen: Bool, reported: Intervals) -> Finding:
    """Everything but the host tasks that have findings of their own: `reported`, on the main thread."""
    cost_ns, python_ns = lost.total_ns(chosen), lost.total_ns(chosen & lost.of(*BETWEEN_CALLS))
    # Between short kernels, launching less removes Python as well. It does not shorten long host work.
    launching = 2 * lost.total_ns(chosen & lost.in_short_dry_gaps) >= cost_ns
    on_host = subtract(_host_work(facts.main_thread_spans), reported)
    advice, stacks = launch_advice(facts, lost, chosen), facts.recorded.stacks
    in_python = python_ns * 2 >= cost_ns
    found = places(facts.host, lost.event[chosen], lost.length_ns[chosen], by_operator=not in_python)
    stalls = facts.host_work.interruptions
    short_of_cores = stalls.several and stalls.total_ns >= MOSTLY_STALLED * cost_ns
    crowded = oversubscribed_sentence(stalls) if short_of_cores or facts.job.loader else ""
    subject = _subject(python_ns, cost_ns)
    views = chosen & marked(facts.host_work.slow_views, lost.event)
    slow_views = not short_of_cores and 2 * lost.total_ns(views) >= cost_ns
    many = not (launching or in_python or short_of_cores or slow_views or facts.job.server is not None)
    many = many and _many_operators(facts, lost, chosen)
    updating = chosen & marked(facts.host_work.optimizer_steps, lost.event)
    batches = 2 * lost.total_ns(updating) < cost_ns  # an optimizer does the same for any batch
    fix = _CORES if short_of_cores else _fix(advice, launching=launching, stacks=stacks, batches=batches)
    if many:
        subject, fix = "Many small CPU operators keep", FEWER_OPERATORS
        on_host = merged(on_host, lost.stretches(chosen))
    if slow_views:
        subject, fix, on_host = "Slow views of tensors keep", _INTERCEPTED, lost.stretches(views)
    at = ""
    if found and (found[0].operator or found[0].file):
        where = found[0].operator or f"{found[0].function} ({found[0].file})"
        most = 2 * found[0].time_ns >= cost_ns
        at = f" {'Most' if most else 'The largest part'} of this time is in {in_quotes(where)}."
    no_stacks = "" if stacks else " The trace has no Python stacks, so the functions are unknown."
    general = Finding(
        title=f"{subject} the GPU idle {share(cost_ns, lost.window_ns)} of the time",
        summary="The GPU has finished its work while the host is still busy with its own, before the next "
        f"launch.{_VIEWS if slow_views else ''}{at}{no_stacks}" + (f" {crowded}" if crowded else ""),
        fix=fix,
        cost_ns=cost_ns,
        evidence=[
            Evidence.of_window("Idle during host work", cost_ns, lost.window_ns),
            Evidence.of_cost(_NAMED[0], python_ns, cost_ns),
            Evidence.of_cost(_NAMED[1], cost_ns - python_ns, cost_ns),
            *([Evidence.of_cost("In slow views", lost.total_ns(views), cost_ns)] if slow_views else []),
            *_unlocated(facts.host, lost, chosen),
            *batch_evidence(facts),
            *([advice.graph_evidence] if launching else []),
            *advice.in_compiled_code,
            *advice.autograd_evidence,
            _longest(facts.host, lost, chosen),
        ],
        places=found,
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=removing(on_host),
        slowed=Slowed(lost.stretches(chosen), LEAST_SHARE),
    )
    if lost.total_ns(chosen & unseen(lost, facts)) >= MOSTLY_UNSEEN * cost_ns:
        general = _of_unseen_work(general, lost, first_call=facts.records_first_call)
    return with_ddp_copies(general, facts.launches.ddp_copies, lost)


_VIEWS = (
    " A view of a tensor takes microseconds: something else runs inside of these operators, such as a tensor "
    "subclass, a dispatch mode or a debugging tool."
)

_INTERCEPTED = Fix(
    "Find what runs inside of each operator, and leave it out of the step.",
    CODE["intercepted"],
    "https://docs.pytorch.org/docs/stable/notes/extending.html#extending-all-torch-api-with-modes",
)


def _subject(python_ns: int, cost_ns: int) -> str:
    """What keeps the GPU idle, larger part first; a small part is not named."""
    parts = sorted(((python_ns, "Python"), (cost_ns - python_ns, "slow CPU operators")), reverse=True)
    named = [name for ns, name in parts if ns >= levels.SIZEABLE * cost_ns]
    said = " and ".join(named)
    return f"{said[0].upper()}{said[1:]} {'keeps' if named == ['Python'] else 'keep'}"


def _many_operators(facts: Facts, lost: Lost, chosen: Bool) -> bool:
    """Whether the host goes through many operators in this time, and launches little."""
    begun = facts.host_work.recorder_cost.operators(lost.stretches(chosen))
    return begun * MOST_PER_OPERATOR_NS >= lost.total_ns(chosen)


def _of_unseen_work(general: Finding, lost: Lost, *, first_call: bool) -> Finding:
    """The finding if the trace does not show what most of its time is: there is nothing to fix yet.

    first_call: of compiled code, whose compilation may be this time.

    It is a warning only where so much is lost that it is worth a new recording at once."""
    cost_share = lost.share(general.cost_ns)
    worth_recording = cost_share >= ERROR_SHARE
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
        summary=f"{start}: it may be {_COMPILES if first_call else ''}Python, a lock, a sleep, file access "
        "or another library.",
        fix=Fix(
            f"{_CALL_FIRST if first_call else 'Record again'} with operators and Python stacks, to see what "
            "the host does.",
            f"{CODE['with_stacks']}\n",
        ),
        evidence=[evidence for evidence in general.evidence if evidence.label not in _NAMED],
        sure=worth_recording,
        leads=worth_recording and lost.device != NO_DEVICE,
        removable=None,
        records_again=True,
        severity=Severity.WARNING if worth_recording else Severity.INFO,
    )


_COMPILES = "torch.compile, whose kernels run once here as in a first call, "
_CALL_FIRST = "Call the compiled model a few times before the recording. Record"

_CORES = Fix(
    "Give this process cores of its own: fewer threads and loader workers, and each rank bound to its cores.",
    CODE["cores"],
    "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
)


def _fix(advice: LaunchAdvice, *, launching: bool, stacks: bool, batches: bool) -> Fix:
    """Less host work before each launch, by means that fit how the job launches now.

    launching: fewer launches remove this time as well. batches: a larger batch makes it a smaller part."""
    launching = launching or advice.mostly_compiled or advice.job.server is not None
    if launching and (advice.mostly_compiled or advice.graphs_in_use or advice.job.server):
        text = advice.fix_text
    else:
        ways = (*(["torch.compile"] if launching else []), *(["a bigger batch"] if batches else []))
        means = "".join(f"{way}, " for way in ways) + ("or " if ways else "")
        time = "Python time per launch" if launching else "host time between launches"
        text = f"Cut {time}: {means}move this work off the training thread."
    parts = [] if stacks else [f"{CODE['with_stacks']}\n"]
    parts += [advice.code] if launching else []
    if advice.job.server is None:
        parts.append(f"\n{CODE['pipeline']}\n" if advice.job.pipeline else f"\n{CODE['host_work']}")
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
    before = (f"before {in_quotes(after[0].operator, 80)}",) if after and after[0].operator else ()
    return Evidence("Longest stretch", duration(length_ns), before)


def _host_work(main_thread: CauseSpans) -> Intervals:
    """Python, and operators that take longer than a short launch gap."""
    python = host_time(main_thread, *BETWEEN_CALLS)
    slow = host_time(main_thread, Cause.DISPATCH, at_least_ns=LONGEST_GAP_NS)
    return merged(python, slow)


RULE = Rule("GD102", "host_bound", "Host-bound", check, error_share=ERROR_SHARE, topic="python")
