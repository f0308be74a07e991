"""What the structured log of torch.compile says about one process. Texts are the log's own."""

from __future__ import annotations

from dataclasses import field

from tb_gpudiag.frozen import dataclass


@dataclass(frozen=True)
class FailedGuard:
    """A guard of an earlier compilation that no longer held, so the function was compiled again.

    of: the id of that compilation. text: the guard, such as `G['SCALE'] == 2.0`, or torch's sentence about a
    tensor. now: the same guard of the new compilation, if it has one: `G['SCALE'] == 3.0`.
    file, line: the user's line that uses the guarded value; "" and 0 if the log does not say.
    """

    text: str
    of: str = ""
    now: str = ""
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class NoGraph:
    """Why CUDA graphs were not used for compiled code. file, line: the user's line at fault; "" and 0 if the
    log does not say."""

    reason: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class LoggedCompilation:
    """One compilation of one function. Times are ns; start_ns is Unix time, 0 if the log does not say.

    id: `function/before`, as torch writes it: function 3, compiled twice before, is `3/2`.
    guards: why it was compiled again; of the latest earlier compilation first.
    hits, misses: of torch.compile's caches on disk and elsewhere, by their names; backward passes included.
    no_graph: None if CUDA graphs were used, or not wanted. failed: why the compilation failed; "" if it did
    not.
    """

    id: str
    function: str = ""
    file: str = ""
    line: int = 0
    start_ns: int = 0
    duration_ns: int = 0
    guards: tuple[FailedGuard, ...] = ()
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    no_graph: NoGraph | None = None
    failed: str = ""


@dataclass(frozen=True)
class LoggedBreak:
    """A break of a graph, or a function that was given up. file, line: the user's line that caused it.

    id: of the compilation that met it. stack: (file, line) of the user's frames, outermost first.
    """

    id: str
    reason: str
    file: str = ""
    line: int = 0
    function: str = ""
    stack: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class CompileLog:
    """One log: one process.

    pid: 0 if the log does not say (torch before 2.5). rank: -1 if it does not say.
    entries: those that were read; malformed: entries of interest that could not be read, and lines that are
    none. notes: what was left out, one line each.
    """

    name: str
    pid: int = 0
    rank: int = -1
    torch: str = ""
    compilations: list[LoggedCompilation] = field(default_factory=list)
    breaks: list[LoggedBreak] = field(default_factory=list)
    entries: int = 0
    malformed: int = 0
    notes: list[str] = field(default_factory=list)
