"""What GD102 says of the host's time: a finding for each host task, and one for what is left, in the words of
its case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause
from tb_gpudiag.facts.core.intervals import Intervals, merged, subtract
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.little_work import SMALL_NS
from tb_gpudiag.facts.replay.replay import Removal
from tb_gpudiag.facts.waiting.loading import loader_kind
from tb_gpudiag.rules.answer import Evidence, Finding, Fix, Removable, Severity, Slowed
from tb_gpudiag.rules.rule import ERROR_SHARE, fix_code, page_fixes
from tb_gpudiag.rules.shared.host_task_fixes import (
    HOST_TASK_FIXES,
    host_task_fix,
    meanwhile_evidence,
    oversubscribed_sentence,
)
from tb_gpudiag.rules.shared.host_time import Case, HostPart, case_of
from tb_gpudiag.rules.shared.launch_advice import SERVER_URLS, batch_evidence, with_ddp_copies
from tb_gpudiag.rules.shared.lost_time import (
    LONGEST_GAP_NS,
    MOSTLY_UNSEEN,
    NO_DEVICE,
    Lost,
    host_time,
    places,
    removing,
)
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.torch_frames import MULTI_PROCESS_ITERATOR, HostTask
from tb_gpudiag.wording.format import in_quotes, share, time_ns
from tb_gpudiag.wording.quantity import duration, number, per_step

_RULE = "tb_gpudiag.rules.idle.host_bound"
CODE, FIXES = fix_code(_RULE), page_fixes(_RULE) | page_fixes("tb_gpudiag.rules.shared.host_tasks")
FIXES["fewer_operators"] = replace(FIXES["fewer_operators"], general=True)

_INPUT_TASKS = frozenset({HostTask.TOKENIZING, HostTask.PREPARING})

# An operator does these, or a function of the user's own: the place is there, and not at their caller.
_PLACED_AT_CALL = frozenset(
    {HostTask.MAKING, HostTask.COMPUTING, HostTask.PLANNING, HostTask.EVALUATING, HostTask.SIMULATING}
)

_LOOPS = "one tensor operator in place of a loop removes both its Python and its small operators"


def python_finding(time: HostPart, cases: Sequence[Case], both: Intervals) -> Finding:
    """The main thread's time in Python between operators. both: with the small operators."""
    lost, case = time.lost, case_of(time, cases)
    loops = case.fix in ("loop", "fewer_operators")
    general = Finding(
        title=lost.sentence("Python between operators", time.cost_ns),
        summary="The main thread runs Python code that calls no operator. "
        f"{case.says.format(call=time.call[0])} Recording makes Python slower: compare with the step time "
        "without a profiler.".replace("  ", " "),
        fix=FIXES[case.fix],
        case="python",
        evidence=[Evidence.of_window("Python between operators", time.cost_ns, lost.window_ns)],
        **lost.where(time.facts.host, time.chosen),
        removable=replace(removing(both), beyond=_LOOPS) if loops else removing(lost.stretches(time.chosen)),
        slowed=Slowed(lost.stretches(time.chosen)),
    )
    return _of_unseen_work(general, lost, first_call=False) if time.unseen >= MOSTLY_UNSEEN else general


def overhead_finding(time: HostPart, both: Intervals) -> Finding:
    """The main thread's time in small operators. both: with the Python between them."""
    lost, tree = time.lost, time.facts.host.tree
    operators = np.unique(time.facts.host.operator[lost.event[time.chosen]])
    whole = lost.total_ns(lost.of(Cause.DISPATCH, Cause.LAUNCH, Cause.ALLOCATOR))
    calls = number(len(operators), "operator")
    return Finding(
        title=lost.sentence("CPU operator overhead", time.cost_ns),
        summary=f"The main thread calls {calls}, half of which take at most "
        f"{duration(float(np.median(tree.own_ns[operators])))}. Dispatching such an operator takes longer "
        "than what it computes. Calls that take far longer than the same ones otherwise do waited for a "
        "core.",
        fix=FIXES["fewer_operators"],
        case="operators",
        evidence=[
            Evidence.of_window(f"In operators below {time_ns(SMALL_NS)}", time.cost_ns, lost.window_ns),
            Evidence.of_window("In all operators", whole, lost.window_ns),
            Evidence("Operators", calls, per_step(len(operators), len(time.facts.steps))),
        ],
        **lost.where(time.facts.host, time.chosen, by_operator=True),
        removable=replace(removing(both), beyond=_LOOPS),
        slowed=Slowed(lost.stretches(time.chosen)),
    )


def task_finding(facts: Facts, lost: Lost, chosen: Bool, kind: HostTask) -> Finding:
    """The main thread's time in a host task."""
    known, tasks = HOST_TASK_FIXES[kind], facts.host_work.tasks
    calls = len(np.unique(tasks.calls(lost.event[chosen])))
    # Users do not edit the library, so the place is the function that calls it.
    event = tasks.call[lost.event].astype(np.int64) if kind in _PLACED_AT_CALL else tasks.caller(lost.event)
    return Finding(
        title=lost.sentence(known.label, lost.total_ns(chosen)),
        summary=f"The job does not compute while the main thread is {known.activity}.",
        fix=host_task_fix(kind, facts.job),
        case=kind.name.lower(),
        evidence=[
            Evidence.of_window(f"Main thread in {known.noun}", lost.total_ns(chosen), lost.window_ns),
            Evidence("Calls", number(calls, "call"), per_step(calls, len(facts.steps))),
            *meanwhile_evidence(facts, lost, chosen),
        ],
        **lost.where(facts.host, chosen, event, by_operator=kind in _PLACED_AT_CALL),
        slowed=Slowed(lost.stretches(chosen)),
    )


def task_on_gpu_finding(
    facts: Facts, lost: Lost, chosen: Bool, kind: HostTask, on_host: Intervals, least_share: float
) -> Finding:
    """A host task that keeps a GPU idle. on_host: the main thread's time in it, also while the GPU was busy.
    least_share: from which it is reported."""
    known, found = HOST_TASK_FIXES[kind], task_finding(facts, lost, chosen, kind)
    computing_ns = int(facts.gpu.window_account.computing_ns[0])
    summary = f"The GPU is out of work: the CPU, still {known.activity}, has not launched more."
    if kind in _INPUT_TASKS and on_host.total > computing_ns:
        summary += (
            f" It takes {time_ns(on_host.total)}, longer than the GPU computes ({time_ns(computing_ns)})."
        )
    return replace(
        found,
        summary=summary,
        evidence=[
            Evidence.of_window(f"Idle while {known.activity}", found.cost_ns, lost.window_ns),
            *found.evidence[1:],
            Evidence("Main thread's time in them", duration(on_host.total)),
        ],
        removable=removing(on_host),
        slowed=Slowed(lost.stretches(chosen), least_share),
    )


def freeing_finding(facts: Facts, lost: Lost, chosen: Bool) -> Finding:
    """Time that goes into freeing large blocks of host memory. A thread of the loader may take Python's lock
    as it frees a batch, so that pinning promises nothing."""
    cost_ns, times = lost.total_ns(chosen), len(facts.freeing.start)
    batches, fix = "", "keep_buffers"
    if loader_kind(facts.host) == MULTI_PROCESS_ITERATOR:
        batches, fix = " They are batches that the loader's workers made, in shared memory.", "free_batches"
    return Finding(
        title=lost.sentence("Freeing host memory", cost_ns),
        summary="Before the next launch, the host gives large blocks of memory back to the system, which "
        f"takes longer the larger they are.{batches}",
        fix=FIXES[fix],
        case="freeing",
        evidence=[
            Evidence.of_window("Idle while freeing memory", cost_ns, lost.window_ns),
            Evidence("Blocks freed", number(times), per_step(times, len(facts.steps))),
        ],
        **lost.where(facts.host, chosen),
        removable=Removable(Removal(facts.freeing), least=Removal()),
    )


def general_finding(
    time: HostPart, cases: Sequence[Case], reported: Intervals, least_share: float
) -> Finding:
    """What keeps a GPU idle but for the host tasks with findings of their own: `reported`, on the main
    thread. least_share: from which it is."""
    facts, lost, chosen, cost_ns = time.facts, time.lost, time.chosen, time.cost_ns
    case = case_of(time, cases)
    python_ns = lost.total_ns(time.python)
    where = lost.where(facts.host, chosen, by_operator=2 * python_ns < cost_ns)
    crowded = ""
    if case.fix == "cores" or facts.job.loader:
        crowded = oversubscribed_sentence(facts.host_work.interruptions)
    says = (
        "The GPU is out of work: the CPU has not launched the next kernel yet.",
        case.says.format(call=time.call[0]),
        crowded,
    )
    slow_views_ns = lost.total_ns(time.views)
    slow_views = [Evidence.of_cost("In slow views", slow_views_ns, cost_ns)]
    general = Finding(
        title=f"{case.subject or _subject(python_ns, cost_ns)} the GPU idle {share(cost_ns, lost.window_ns)} "
        "of the time",
        summary=" ".join(filter(None, says)),
        fix=_fix(time, case),
        evidence=[
            Evidence.of_window("Idle during host work", cost_ns, lost.window_ns),
            Evidence.of_cost(_NAMED[0], python_ns, cost_ns),
            Evidence.of_cost(_NAMED[1], cost_ns - python_ns, cost_ns),
            *(slow_views if 2 * slow_views_ns >= cost_ns else []),
            *batch_evidence(facts),
            *([time.advice.graph_evidence] if not case.fix else []),
            *time.advice.in_compiled_code,
            *time.advice.autograd_evidence,
            _longest(time),
        ],
        **where,
        removable=removing(case.removes(time, _own_work(time, reported))),
        slowed=Slowed(lost.stretches(chosen), least_share),
    )
    if time.unseen >= MOSTLY_UNSEEN:
        general = _of_unseen_work(general, lost, first_call=facts.records_first_call)
    return with_ddp_copies(general, facts.launches.ddp_copies, lost)


_NAMED = ("Python between operators", "Slow CPU operators")
"""What most host time is, where the trace shows it."""


def _subject(python_ns: int, cost_ns: int) -> str:
    """What keeps the GPU idle, larger part first; a small part is not named."""
    parts = sorted(((python_ns, "Python"), (cost_ns - python_ns, "slow CPU operators")), reverse=True)
    named = [name for ns, name in parts if ns >= levels.SIZEABLE * cost_ns]
    said = " and ".join(named)
    return f"{said[0].upper()}{said[1:]} {'keeps' if named == ['Python'] else 'keep'}"


def _own_work(time: HostPart, reported: Intervals) -> Intervals:
    """Python of the main thread, and operators that take longer than a short launch gap, whether or not the
    GPU was busy meanwhile."""
    spans = time.facts.main_thread_spans
    slow = host_time(spans, Cause.DISPATCH, at_least_ns=LONGEST_GAP_NS)
    return subtract(merged(host_time(spans, *BETWEEN_CALLS), slow), reported)


def _of_unseen_work(general: Finding, lost: Lost, *, first_call: bool) -> Finding:
    """The finding if the trace does not show what most of its time is: there is nothing to fix yet.

    first_call: of compiled code, whose compilation may be this time.

    It is a warning only where so much is lost that it is worth a new recording at once."""
    cost_share = lost.share(general.cost_ns)
    worth_recording = cost_share >= ERROR_SHARE
    title, start = _UNSEEN[lost.device == NO_DEVICE]
    compiles, record = (_COMPILES, _CALL_FIRST) if first_call else ("", "Record again")
    return replace(
        general,
        title=title.format(share(cost_share)),
        summary=f"{start}: it may be {compiles}Python, a lock, a sleep, file access or another library.",
        fix=Fix(
            f"{record} with operators and Python stacks, to see what the host does.",
            f"{CODE['with_stacks']}\n",
        ),
        evidence=[evidence for evidence in general.evidence if evidence.label not in _NAMED],
        sure=worth_recording,
        leads=worth_recording and lost.device != NO_DEVICE,
        removable=None,
        records_again=True,
        severity=Severity.WARNING if worth_recording else Severity.INFO,
    )


_UNSEEN = {
    True: (
        "The main thread spends {} of its time on work that was not recorded",
        "The trace does not show what the main thread does between operators",
    ),
    False: (
        "The host keeps the GPU idle {} of the time with work that was not recorded",
        "The GPU is out of work, and the trace does not show what the CPU does before the next launch",
    ),
}
"""Title and start of the summary, by whether there is no GPU."""

_COMPILES = "torch.compile, whose kernels run once here as in a first call, "
_CALL_FIRST = "Call the compiled model a few times before the recording. Record"
_URL = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"


def _fix(time: HostPart, case: Case) -> Fix:
    """The fix of a case, by means that fit how the job launches now."""
    if case.fix in FIXES:
        return FIXES[case.fix]
    job, advice, launching = time.facts.job, time.advice, not case.fix
    if launching and (advice.mostly_compiled or advice.graphs_in_use or job.server):
        text = advice.fix_text
    else:
        # A larger batch makes it a smaller part, but an optimizer does the same for any batch.
        larger = "a bigger batch, " if time.updating < levels.HALF else ""
        what, ways = "host time between launches", larger
        if launching:
            what, ways = "Python time per launch", f"torch.compile, {larger}"
        text = f"Cut {what}: {ways}{'or ' if ways else ''}move this work off the training thread."
    parts = [] if time.facts.recorded.stacks else [f"{CODE['with_stacks']}\n"]
    parts += [advice.code] if launching else []
    if job.server is None:
        parts.append(f"\n{CODE['pipeline']}\n" if job.pipeline else f"\n{CODE['host_work']}")
    return Fix(text, "\n".join(parts), SERVER_URLS.get(job.server, _URL), general=True)


def _longest(time: HostPart) -> Evidence:
    """The longest stretch and the operator whose launch ended it, which helps to find it without stacks."""
    lost = time.lost
    stretch = lost.ranges(time.chosen)[0]
    length_ns = stretch.end_ns - stretch.start_ns
    launch = lost.launch[time.chosen & (lost.start_ns == stretch.start_ns)]
    after = places(time.facts.host, launch, np.full_like(launch, length_ns), by_operator=True)
    before = (f"before {in_quotes(after[0].operator, 80)}",) if after and after[0].operator else ()
    return Evidence("Longest stretch", duration(length_ns), before)
