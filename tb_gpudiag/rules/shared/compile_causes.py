"""Why torch.compile compiled, for the finding about it: by its log where there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.waiting.compilation import CompiledFunction
from tb_gpudiag.facts.waiting.compile_reasons import (
    CompileReasons,
    FailedGuard,
    LoggedCompilation,
    main_guards,
)
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.answer import Evidence, Fix
from tb_gpudiag.vocabulary.marks import GuardKind, guard_kind, resumed_name
from tb_gpudiag.wording.format import in_quotes, one_line
from tb_gpudiag.wording.quantity import Quantity, duration, number

FUNCTIONS_SHOWN = 4

_LABELS = {
    GuardKind.SIZE: "A tensor has another size",
    GuardKind.DTYPE: "A tensor has another dtype or device",
    GuardKind.MODE: "Gradients, autocast or another mode is on or off",
    GuardKind.VALUE: "A Python value has changed",
    GuardKind.OBJECT: "There is another object, or one of another type",
    GuardKind.OTHER: "Another guard failed",
}
_FIXES = {
    GuardKind.SIZE: ("Keep sizes the same, or compile for dynamic shapes.", "recompiled"),
    GuardKind.DTYPE: ("Give the function tensors of one dtype and device.", "recompiled_dtype"),
    GuardKind.MODE: ("Call the function in one mode only, or compile it once for each.", "recompiled_mode"),
    GuardKind.VALUE: ("Keep the Python value the same, or make it a tensor.", "recompiled_value"),
    GuardKind.OBJECT: ("Give the function the same objects: make them once.", "recompiled_object"),
}
_UNKNOWN = ("Keep sizes and Python values the same, or compile for dynamic shapes.", "recompiled")

_NOT_LOGGED = LoggedCompilation("")


@dataclass(frozen=True)
class Why:
    """Compilations of the step window, and what the log says about them."""

    functions: list[CompiledFunction]
    reasons: CompileReasons

    @cached_property
    def _guards(self) -> Mapping[LoggedCompilation, list[FailedGuard]]:
        return main_guards(self.reasons.log.compilations) if self.reasons.is_joined else {}

    @cached_property
    def _by_kind(self) -> dict[GuardKind, tuple[int, int]]:
        """Time and number of the recompilations, by what changed; most time first."""
        found: dict[GuardKind, tuple[int, int]] = {}
        for function in self.functions:
            guards = self._guards_of(function)
            if guards:
                kind = guard_kind(guards[0].text)
                ns, count = found.get(kind, (0, 0))
                found[kind] = ns + function.duration_ns, count + 1
        return dict(sorted(found.items(), key=lambda item: -item[1][0]))

    @property
    def kind(self) -> GuardKind | None:
        """What changed where recompiling took longest; OTHER if a log does not say, None without a log."""
        return next(iter(self._by_kind), GuardKind.OTHER if self._guards else None)

    @property
    def sentence(self) -> str:
        """The guard that cost most, as a sentence with a space before it; "" if it is not known."""
        known = [f for f in self.functions if self._guards_of(f)]
        if not known:
            return ""
        longest = max(known, key=lambda f: f.duration_ns)
        name = in_quotes(resumed_name(self._logged(longest).function), 60)
        return f" The longest one, of {name}: {said(self._guards_of(longest)[0])}."

    def evidence(self, host: Host, steps: list[str]) -> Iterator[Evidence]:
        """The functions that torch.compile compiled, longest first, the steps it did so in, and why."""
        if not self.functions:
            return
        yield Evidence("Compiled functions", number(len(self.functions)))
        if steps:
            more = len(steps) - FUNCTIONS_SHOWN
            shown = [one_line(name, 40) for name in steps[:FUNCTIONS_SHOWN]]
            more_steps = [number(more, suffix="more")] if more > 0 else []
            yield Evidence("Steps with compilation", number(len(steps), "step"), (*shown, *more_steps))
        for kind, (ns, count) in self._by_kind.items():
            yield Evidence(_LABELS[kind], duration(ns), (number(count, "compilation"),))
        yield from self._of_log()
        for function in sorted(self.functions, key=lambda f: -f.duration_ns)[:FUNCTIONS_SHOWN]:
            details = tuple(self._details(host, function, with_step=len(steps) > 1))
            yield Evidence(self._label(function), duration(function.duration_ns), details)

    def _of_log(self) -> Iterator[Evidence]:
        """What missed torch.compile's caches, and whether the log is of this recording."""
        missed = [f for f in self.functions if self._logged(f).misses]
        if missed:
            names = dict.fromkeys(name for f in missed for name in self._logged(f).misses)
            took = duration(sum(f.duration_ns for f in missed))
            caches = f"not in the cache: {', '.join(names)}"
            yield Evidence("Cache misses", number(len(missed), "compilation"), (took, caches))
        if self.reasons.strangers:
            known = len(self.reasons.by_event)
            of = f"of {known + self.reasons.strangers} compilations are in the log"
            yield Evidence("Log of torch.compile", number(known), (of, "the others ran in other processes"))

    def _logged(self, function: CompiledFunction) -> LoggedCompilation:
        """What the log says about a compilation; nothing where it does not know it."""
        return self.reasons.by_event.get(function.event, _NOT_LOGGED)

    def _guards_of(self, function: CompiledFunction) -> list[FailedGuard]:
        return self._guards.get(self._logged(function), [])

    def _label(self, function: CompiledFunction) -> str:
        logged = self._logged(function)
        if logged.function:
            return f"Function {in_quotes(resumed_name(logged.function), 60)}"
        return f"Function {in_quotes(function.function, 20)}" if function.function else "A function"

    def _details(
        self, host: Host, function: CompiledFunction, *, with_step: bool
    ) -> Iterator[Quantity | str]:
        """Why it was compiled, where it is and was called from, how often it had been compiled before, and in
        which step."""
        for guard in self._guards_of(function)[:2]:
            yield said(guard)
        logged = self._logged(function)
        if logged.file:
            yield f"defined in {_line(logged.file, logged.line)}"
        frame = host.frame(int(host.place[function.event]))
        if frame is not None:
            yield f"called from {in_quotes(str(frame), 160)}"
        before, counted = function.before, logged.id.rpartition("/")[2]
        if before == NONE and counted.isdecimal():
            before = int(counted)
        if before > 0:
            yield number(before, "earlier compilation")
        if function.step and with_step:
            yield f"in {one_line(function.step, 40)}"


def said(guard: FailedGuard) -> str:
    """The guard, in torch's words, and the line that uses its value."""
    did_not = "" if " mismatch" in guard.text or "changed" in guard.text else " did not hold"
    now = f", now {in_quotes(guard.now, 120)}" if guard.now else ""
    where = f" ({_line(guard.file, guard.line)})" if guard.line else ""
    return f"{in_quotes(guard.text, 240)}{did_not}{now}{where}"


def _line(file: str, line: int) -> str:
    return f"{in_quotes(os.path.basename(file), 60)}, line {line}"


def graph_break_evidence(reasons: CompileReasons) -> list[Evidence]:
    """The lines that break graphs in the step window, and the one with most time between the graphs."""
    breaks = [found for found in reasons.breaks if found.runs]
    if not breaks:
        return []
    worst = breaks[0].broken
    between_ns = sum(found.between_ns for found in breaks)
    time = [duration(between_ns, "between the graphs")] if between_ns else []
    at = f"{_line(worst.file, worst.line)}: {in_quotes(worst.reason, 200)}"
    return [Evidence("Graph breaks", number(len(breaks), "line"), (*time, at))]


def no_graph_reasons(reasons: CompileReasons) -> list[str]:
    """Why torch.compile did not use CUDA graphs in the step window: the reason of the longest runs."""
    skipped = [found for found in reasons.without_graphs if found.runs]
    if not skipped or (why := skipped[0].compilation.no_graph) is None:
        return []
    where = f" ({_line(why.file, why.line)})" if why.line else ""
    return [f"torch.compile left them out because of {in_quotes(why.reason, 200)}{where}"]


def recompiled_fix(kind: GuardKind | None, code: Mapping[str, str], url: str) -> Fix:
    """Return the fix for what changed; None if there is no log."""
    text, block = _FIXES.get(GuardKind.OTHER if kind is None else kind, _UNKNOWN)
    if kind is None:
        return Fix(f"Find out why with TORCH_TRACE. {text}", f"{code['find_out_why']}\n\n{code[block]}", url)
    return Fix(text, code[block], url)
