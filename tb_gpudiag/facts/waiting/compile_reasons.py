"""Why functions were compiled: the log of torch.compile joined to the compilations in a trace."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.waiting.compilation import CompiledFunction
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.compile_log.log import CompileLog, FailedGuard, LoggedBreak, LoggedCompilation
from tb_gpudiag.vocabulary.marks import COMPILED_GRAPH, COMPILED_REGION, RESUMED_FUNCTION, with_any_figures

__all__ = [
    "CompileLog",
    "CompileReasons",
    "FailedGuard",
    "LoggedBreak",
    "LoggedCompilation",
    "compile_reasons",
    "main_guards",
]

# Of one compilation, log and trace differ by 0.1 to 0.3 ms in their starts, and by less than 1 ms in their
# durations. Two compilations do not start as close together, unless one is inside the other.
_SAME_START_NS = 20_000_000
# The clock of a trace may have been set since, and its recorder converts it. Then the id decides.
_SAME_ID_NS = 1_000_000_000


@dataclass(frozen=True)
class GraphBreak:
    """A line that breaks a graph, or has a function given up, for one reason.

    met: by how many compilations. runs: of the code between the graphs. between_ns: from the end of the last
    graph before it to the start of the function that goes on after it; 0 where the trace marks no graphs.
    """

    broken: LoggedBreak
    met: int
    runs: int
    between_ns: int
    event: int  # the function that goes on in the longest run, or NONE


@dataclass(frozen=True)
class WithoutGraph:
    """A compilation for which CUDA graphs were not used: how often it ran, and for how long on the host."""

    compilation: LoggedCompilation
    runs: int
    host_ns: int
    event: int  # the longest run, or NONE


@dataclass(frozen=True)
class CompileReasons:
    """What the log says about the trace.

    by_event: compilations in the recording, by their event. strangers: how many compilations in the recording
    the log does not know. is_joined: whether the log is of the trace's process and time: it knows most of the
    compilations in the recording or, if there are none, is of a process in it. Otherwise nothing is joined.
    breaks: most time first. without_graphs: most time first. Both are over the host window.
    """

    log: CompileLog
    by_event: Mapping[int, LoggedCompilation]
    strangers: int
    is_joined: bool
    breaks: list[GraphBreak] = field(default_factory=list)
    without_graphs: list[WithoutGraph] = field(default_factory=list)


NO_LOG = CompileReasons(CompileLog(""), {}, 0, False)


def compile_reasons(
    log: CompileLog | None, host: Host, functions: list[CompiledFunction], origin_ns: int, window: Window
) -> CompileReasons:
    """Join the log to a trace; NO_LOG without one.

    functions: all compilations in the recording. origin_ns: Unix time of the trace's start.
    """
    if log is None:
        return NO_LOG
    joined = _join(log.compilations, host, functions, origin_ns)
    strangers = len(functions) - len(joined)
    in_trace = not log.pid or any(thread.pid == str(log.pid) for thread in host.events.threads)
    found = CompileReasons(log, joined, strangers, len(joined) > strangers if functions else in_trace)
    if not found.is_joined:
        return found
    skipped = _without_graphs(log, host, window)
    return replace(found, breaks=_graph_breaks(log, host, window), without_graphs=skipped)


def main_guards(compilations: Iterable[LoggedCompilation]) -> dict[LoggedCompilation, list[FailedGuard]]:
    """Return the guards that say why each function was compiled again, by compilation.

    There may be one for each earlier compilation. Those that differ in numbers only are one. First comes what
    had not failed for this function before: the others tell the earlier compilations from one another.
    """
    known: dict[str, set[str]] = {}
    result = {}
    for compilation in compilations:
        failed: dict[str, FailedGuard] = {}
        for guard in compilation.guards:
            failed.setdefault(with_any_figures(guard.text), guard)
        before = known.setdefault(compilation.id.rpartition("/")[0], set())
        result[compilation] = [failed[text] for text in sorted(failed, key=before.__contains__)]
        before.update(failed)
    return result


def _join(
    logged: list[LoggedCompilation], host: Host, functions: list[CompiledFunction], origin_ns: int
) -> dict[int, LoggedCompilation]:
    """Find the log's entry of each compilation: the one that started then, or the one with its id."""
    timed = sorted((c for c in logged if c.start_ns), key=lambda c: c.start_ns)
    starts, by_id = [c.start_ns for c in timed], defaultdict(list)
    for compilation in logged:  # ids start again after torch._dynamo.reset()
        by_id[compilation.id].append(compilation)
    found = {}
    for function in functions:
        start_ns = origin_ns + int(host.events.start_ns[function.event])
        at = bisect_left(starts, start_ns)
        near = _nearest(timed[max(at - 1, 0) : at + 1], start_ns)
        same = _nearest(by_id[f"{function.function}/{function.before}"], start_ns)
        if near is not None and abs(near.start_ns - start_ns) <= _SAME_START_NS:
            found[function.event] = near
        elif same is not None and (not same.start_ns or abs(same.start_ns - start_ns) <= _SAME_ID_NS):
            found[function.event] = same
    return found


def _nearest(some: list[LoggedCompilation], start_ns: int) -> LoggedCompilation | None:
    return min(some, key=lambda c: abs(c.start_ns - start_ns), default=None)


class _Regions:
    """Runs of compiled functions that begin in a window: events, and the number of each one's id."""

    def __init__(self, host: Host, window: Window) -> None:
        events = host.events
        self._numbers: dict[str, int] = {}
        found = match(events, COMPILED_REGION) & (host.tree.depth >= 0)
        self.all = found
        self._of_name = np.full(len(events.names), NONE, np.int64)
        for name in np.unique(events.name[found]).tolist():
            id = _region_id(events.names[name])
            self._of_name[name] = self._numbers.setdefault(id, len(self._numbers))
        self.event = np.flatnonzero(found & window.contains(events.start_ns))
        self.name = events.name

    def number(self, id: str) -> int:
        """Return the number of an id; one that no run has for an id that did not run."""
        return self._numbers.get(id, len(self._numbers))

    def numbers(self, events: Int64) -> Int64:
        """Return the number of each of these runs."""
        return self._of_name[self.name[events]]


def _by_number(numbers: Int64) -> Callable[[int], Int64]:
    """Return a function that finds the places of a number, in order."""
    order = np.argsort(numbers, kind="stable")
    in_order = numbers[order]
    return lambda number: order[slice(*np.searchsorted(in_order, (number, number + 1)))]


def _graph_breaks(log: CompileLog, host: Host, window: Window) -> list[GraphBreak]:
    """Find the breaks, and the runs of the code at each: between a graph of the function that broke, and the
    start of the function that torch made of the code after the break."""
    regions = _Regions(host, window)
    around = host.tree.nearest_of(regions.all)
    inner = regions.event
    above = host.tree.parent[inner]
    outer = np.where(above == NONE, NONE, around[above])
    inner, outer = inner[outer != NONE], outer[outer != NONE]
    from_ns = _after_graph(host, inner, outer)
    length_ns = np.where(from_ns == NONE, 0, host.events.start_ns[inner] - from_ns)
    inside, goes_on = regions.numbers(inner), _goes_on(log.compilations)
    places_of = _by_number(regions.numbers(outer))
    own: dict[tuple[str, int, str], list[Int64]] = defaultdict(list)
    met: dict[tuple[str, int, str], list[LoggedBreak]] = defaultdict(list)
    for broken in log.breaks:
        key = broken.file, broken.line, broken.reason
        met[key].append(broken)
        places = places_of(regions.number(broken.id))
        resumed = [regions.number(id) for line in broken.stack for id in goes_on.get(line, ())]
        own[key].append(places[np.isin(inside[places], resumed)])
    result = []
    for key, some in own.items():
        runs = np.unique(np.concatenate(some))
        event = int(inner[runs][np.argmax(length_ns[runs])]) if len(runs) else NONE
        result.append(GraphBreak(met[key][0], len(met[key]), len(runs), int(length_ns[runs].sum()), event))
    return sorted(result, key=lambda found: (-found.between_ns, -found.runs))


def _goes_on(compilations: Iterable[LoggedCompilation]) -> dict[tuple[str, int], list[str]]:
    """Ids of the functions that go on after a break, by the file and the line that they begin with."""
    found: dict[tuple[str, int], list[str]] = defaultdict(list)
    for compilation in compilations:
        resumed = RESUMED_FUNCTION.search(compilation.function)
        if resumed is not None:
            found[compilation.file, int(resumed["line"][:9])].append(compilation.id)
    return found


def _without_graphs(log: CompileLog, host: Host, window: Window) -> list[WithoutGraph]:
    skipped = {c.id: c for c in log.compilations if c.no_graph}
    if not skipped:
        return []
    regions, duration_ns = _Regions(host, window), host.events.duration_ns
    places_of = _by_number(regions.numbers(regions.event))
    result = []
    for compilation in skipped.values():
        own = regions.event[places_of(regions.number(compilation.id))]
        longest = int(own[np.argmax(duration_ns[own])]) if len(own) else NONE
        result.append(WithoutGraph(compilation, len(own), int(duration_ns[own].sum()), longest))
    return sorted(result, key=lambda found: -found.host_ns)


def _region_id(name: str) -> str:
    found = COMPILED_REGION.fullmatch(name)
    return f"{found['function']}/{found['before']}" if found else ""


def _after_graph(host: Host, inner: Int64, outer: Int64) -> Int64:
    """End of the last graph that ran in the outer function before the inner one, or else that function's
    start; NONE if no graph is marked in it, as other back ends than Inductor do not. Shape of inner."""
    events = host.events
    graphs = np.flatnonzero(match(events, COMPILED_GRAPH) & (host.tree.depth >= 0))
    found = np.full(len(inner), NONE, np.int64)
    for thread in np.unique(events.thread[inner]):
        own = events.thread[inner] == thread
        begins_ns, ends_ns = events.start_ns[outer[own]], events.end_ns[outer[own]]
        of_graphs = np.sort(events.end_ns[graphs[events.thread[graphs] == thread]])
        before = np.searchsorted(of_graphs, events.start_ns[inner[own]], side="right")
        last = np.r_[NONE, of_graphs][before]
        first, end = np.searchsorted(of_graphs, begins_ns), np.searchsorted(of_graphs, ends_ns, side="right")
        found[own] = np.where(first < end, np.maximum(last, begins_ns), NONE)
    return found
