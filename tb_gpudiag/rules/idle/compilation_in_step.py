"""GD104: GPU code is compiled, captured or loaded during the measured steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import NONE, Bool
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import Intervals, coverage, merged, union
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.core.steady import MOST
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.compilation import (
    CompiledFunction,
    CompileKind,
    CompileWork,
    compile_work,
    compiled_functions,
)
from tb_gpudiag.rules.answer import Evidence, Finding, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Rule, fix_code, page_fixes, speaks_from
from tb_gpudiag.rules.shared.compile_causes import Why, recompiled_fix
from tb_gpudiag.rules.shared.lost_time import NO_DEVICE, Lost, LostPart, of_lost_time, places, removing
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.quantity import duration, number

CODE = fix_code(__name__)
FIXES = page_fixes(__name__)

# Nothing is compiled in steady state. A single lazy kernel load takes about a millisecond, which is noise in
# a window of many.
LEAST_SHARE = levels.MEASURABLE

# If the trace does not say whether a function had been compiled before, compilation in this many steps counts
# as recompilation.
RECOMPILED_STEPS = 2

_LABELS = {
    CompileKind.DYNAMO: "torch.compile",
    CompileKind.CAPTURE: "CUDA graph capture",
    CompileKind.EXTENSION: "Building extensions",
    CompileKind.AUTOTUNE: "Tuning Triton kernels",
    CompileKind.TRITON: "Compiling Triton kernels",
    CompileKind.LOADING: "Loading modules",
}

_SAID = {
    True: (
        "Recompilation",
        "torch.compile recompiles functions in the middle of the run, {waits}, because a shape, a Python "
        "value or another guarded condition changed.{why}",
    ),
    False: (
        "Compiling or loading GPU code",
        "Code is compiled, or a kernel's module is loaded at its first use, {waits}. In a steady run this "
        "happens once: either the recording began too early, or something is compiled repeatedly.",
    ),
}
"""Title and summary, by whether functions are compiled again."""

_WAITS = {True: "while the steps wait for it", False: "while the GPU waits"}
"""By whether there is no GPU."""

_URL = "https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_troubleshooting.html"


def _findings(part: LostPart) -> RuleAnswer:
    """Tell apart idle time under compilation (TorchDynamo, Inductor, Triton, nvrtc), graph capture or module
    loading. Loading has a different fix, so it is a finding of its own."""
    facts, lost, chosen = part.facts, part.lost, part.chosen
    found = []
    captured = chosen & _captured_again(facts, lost)
    if lost.share(lost.total_ns(captured)) >= LEAST_SHARE:
        found.append(_captured(facts, lost, captured))
        chosen &= ~captured
        if lost.share(lost.total_ns(chosen)) < LEAST_SHARE:
            return found
    work = compile_work(facts.host, np.where(chosen, lost.event, NONE))
    loading = chosen & (work.kind == CompileKind.LOADING)
    compiling = chosen & ~loading
    shares = [lost.share(lost.total_ns(part)) for part in (compiling, loading)]
    if min(shares) >= LEAST_SHARE:
        return [*found, _compiled(facts, lost, compiling, work), _loaded(facts, lost, loading)]
    # What is little of one counts as the other.
    if shares[1] >= LEAST_SHARE:
        return [*found, _loaded(facts, lost, chosen)]
    return [*found, _compiled(facts, lost, chosen, work)]


def _captured_again(facts: Facts, lost: Lost) -> Bool:
    """Mask of the time in which graphs are captured that were captured before, shape (s,)."""
    found: Bool = coverage(facts.captures.times, lost.start_ns, lost.end_ns) > 0
    return found & facts.captures.recur


def _captured(facts: Facts, lost: Lost, chosen: Bool) -> Finding:
    cost_ns, times = lost.total_ns(chosen), facts.captures.times
    return Finding(
        title=lost.sentence("Capturing CUDA graphs again", cost_ns),
        summary="A captured graph is meant to be replayed. Here graphs are captured again while the GPU "
        "waits: a shape or an address changes, or a replay waits for a backward pass that never comes.",
        fix=FIXES["captured_again"],
        evidence=[
            Evidence.of_window("Capturing", cost_ns, lost.window_ns),
            Evidence("Captures", number(len(times.start))),
            Evidence("Longest", duration(int((times.end - times.start).max(initial=0)))),
        ],
        **lost.where(facts.host, chosen, by_operator=True),
        removable=removing(merged(times, lost.stretches(chosen))),
    )


def _compiled(facts: Facts, lost: Lost, chosen: Bool, work: CompileWork) -> Finding:
    cost_ns = lost.total_ns(chosen)
    functions = compiled_functions(facts.host, facts.steps, facts.host_window)
    why = Why(functions, facts.compile_reasons)
    names = list(dict.fromkeys(f.step for f in functions if f.step))
    again = _recompiled(facts.steps, functions, names)
    title, summary = _SAID[again]
    on_cpu = lost.device == NO_DEVICE
    by_kind = [(lost.total_ns(chosen & (work.kind == k)), k) for k in CompileKind]
    found = Finding(
        title=lost.sentence(title, cost_ns),
        summary=summary.format(waits=_WAITS[on_cpu], why=why.sentence),
        fix=recompiled_fix(why.kind, CODE, _URL) if again else FIXES["record_later"],
        cost_ns=cost_ns,
        evidence=[
            Evidence.of_window("Compiling and loading", cost_ns, lost.window_ns),
            *(Evidence.of_cost(_LABELS[k], ns, cost_ns) for ns, k in sorted(by_kind, reverse=True) if ns),
            Evidence("Stretches", number(len(lost.stretches(chosen).start))),
            *why.evidence(facts.host, names),
        ],
        places=places(facts.host, work.call[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=removing(_host_time(facts, lost.stretches(chosen), loading=False)),
    )
    if again or len(facts.steps) >= RECOMPILED_STEPS:
        return found
    # Nothing shows that it happens more than once.
    leads = not on_cpu and cost_ns >= MOST * lost.window_ns
    return replace(found, leads=leads, removable=None, records_again=True, severity=Severity.WARNING)


def _recompiled(steps: Steps, functions: list[CompiledFunction], names: list[str]) -> bool:
    """True if functions are recompiled, and still in the second half of the steps: what has stopped by then
    was the warm-up. names: the steps with compilation."""
    if any(f.before != NONE for f in functions):
        again = any(f.before > 0 for f in functions)
    else:
        again = len(names) >= RECOMPILED_STEPS
    order = sorted(range(len(steps)), key=lambda i: int(steps.start_ns[i]))
    late = {steps.names[i] for i in order[len(order) // 2 :]}
    return again and (not names or any(name in late for name in names))


def _loaded(facts: Facts, lost: Lost, chosen: Bool) -> Finding:
    cost_ns = lost.total_ns(chosen)
    event = lost.event[chosen]
    calls = len(np.unique(event[event != NONE]))
    return Finding(
        title=lost.sentence("Loading GPU code", cost_ns),
        summary="The driver loads a kernel's code at its first use, and the GPU waits meanwhile. In a steady "
        "run this happens once per kernel: either the recording began too early, or new shapes need new "
        "kernels.",
        fix=FIXES["load"],
        cost_ns=cost_ns,
        evidence=[
            Evidence.of_window("Loading", cost_ns, lost.window_ns),
            Evidence("Loading calls", number(calls)),
            Evidence("Longest", duration(int(lost.length_ns[chosen].max(initial=0)))),
        ],
        places=places(facts.host, event, lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=removing(_host_time(facts, lost.stretches(chosen), loading=True)),
    )


def _host_time(facts: Facts, idle: Intervals, *, loading: bool) -> Intervals:
    """The main thread's time in compilation, or in loading, plus the idle time itself: it covers launch calls
    that loaded a module."""
    main_thread = facts.main_thread_spans
    some = main_thread.cause == Cause.COMPILE
    some[some] = (compile_work(facts.host, main_thread.event[some]).kind == CompileKind.LOADING) == loading
    return merged(union(main_thread.start_ns[some], main_thread.end_ns[some]), idle)


_CHECK = speaks_from(
    LEAST_SHARE,
    of_lost_time(lambda lost: lost.of(Cause.COMPILE)),
    lambda part: part.lost.sentence("compiling or loading GPU code", part.cost_ns),
    _findings,
)

RULE = Rule(
    "GD104",
    "compilation_in_step",
    "Compilation during steps",
    _CHECK,
    error_share=levels.LARGE,
    topic="compile",
)
