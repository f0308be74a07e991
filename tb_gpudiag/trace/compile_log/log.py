"""What the structured log of torch.compile says about one process. Texts are the log's own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import field
from typing import Final

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.patterns import lazy_re


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


# A text of the user's program can be of any length. Guards and reasons of torch take up to some hundred.
MOST_CHARACTERS: Final = 600
# Of a payload, reason and stack of the user are at the start.
_MOST_READ: Final = 64 << 10
# Of earlier compilations of one function. torch gives up after 8 by default, and after 256 in all.
MOST_GUARDS: Final = 16
# Frames of the user's code above a break.
_MOST_FRAMES: Final = 64

_OF: Final = lazy_re(r"(?P<of>!?[\d/]+)(?:_\d+)?: ")
_FRAME: Final = lazy_re(r'^ *File "([^"\n]+)", line (\d{1,9}), in ([^\n]*)$', re.MULTILINE)
_BREAK_AT: Final = lazy_re(r"Graph break in user code at ([^\n]{1,4096}):(\d{1,9})$", re.MULTILINE)
_BREAK_REASON: Final = lazy_re(r"^(?:Graph Break )?Reason: (.*)", re.MULTILINE | re.DOTALL)
# After the reason: hints, what only developers of torch need, and stacks.
_AFTER_REASON: Final = lazy_re(
    r"\n[ \t]{0,8}(?:Hint:|Developer debug context:|For more details about|User code traceback:|"
    r"from user code:?\n|Traceback \(most recent call last\)|The graph break occurred in)"
)
_OPCODE: Final = lazy_re(r"Encountered graph break when attempting to trace [^\n]*\n+")
_NO_GRAPH: Final = lazy_re(r"^(skipping cudagraphs due to )+", re.IGNORECASE)
_TORCHS_OWN: Final = "Traceback (most recent call last)"
_LOCAL: Final = lazy_re(r"L\['([^'\n]+)'\]")
_VALUE_GUARD: Final = lazy_re(r"(.+?) (==|is) (.+)")


def failed_guards(payload: str) -> tuple[FailedGuard, ...]:
    """Read the payload of `recompile_reasons`: one reason, or a JSON list of them."""
    texts: object = [payload]
    if payload.startswith("["):
        try:
            texts = json.loads(payload)
        except (ValueError, RecursionError):
            texts = [payload]
    texts = texts if isinstance(texts, list) else [payload]
    return tuple(failed_guard(text) for text in texts[:MOST_GUARDS] if isinstance(text, str) and text)


def failed_guard(text: str) -> FailedGuard:
    """Read `3/1: GUARD  # line of code  # file:line in function`, with or without a stack below it."""
    text = text[:_MOST_READ]
    of = _OF.match(text)
    text = text[of.end() :] if of else text
    guard = text.split("\n", 1)[0].split("  # ", 1)[0].strip()
    frames = _FRAME.findall(text)
    file, line = (frames[-1][0], int(frames[-1][1])) if frames else ("", 0)
    return FailedGuard(cut(guard), of["of"] if of else "", "", cut(file), line)


def with_new_values(guards: Iterable[FailedGuard], new_guards: str) -> tuple[FailedGuard, ...]:
    """Add what each value is now: the guard with the same left side in the text of the new guards."""
    new_guards = _LOCAL.sub(r"\1", new_guards)  # as torch does it in reasons
    return tuple(
        FailedGuard(guard.text, guard.of, _now(guard.text, new_guards), guard.file, guard.line)
        for guard in guards
    )


def _now(guard: str, new_guards: str) -> str:
    parts = _VALUE_GUARD.fullmatch(guard)
    if parts is None:
        return ""
    for operator in dict.fromkeys((parts[2], "==", "is")):
        at = new_guards.find(f"_MATCH: {parts[1]} {operator} ")
        if at >= 0:
            line = new_guards[at:].split("\n", 1)[0].partition(": ")[2].split("  # ", 1)[0].strip()
            return cut(line) if line != guard else ""
    return ""


def graph_break(id: str, payload: str) -> LoggedBreak:
    """Read the payload of `dynamo_graph_break_reason`."""
    payload = payload[:_MOST_READ]
    users = payload.split(_TORCHS_OWN, 1)[0]
    frames = [(cut(file), int(line), cut(name)) for file, line, name in _FRAME.findall(users)[-_MOST_FRAMES:]]
    at = _BREAK_AT.search(users)
    file, line = (cut(at[1]), int(at[2])) if at else (frames[-1][:2] if frames else ("", 0))
    inside = [name for where, number, name in frames if (where, number) == (file, line)]
    return LoggedBreak(
        id,
        _reason(payload),
        file,
        line,
        inside[-1] if inside else "",
        tuple((where, number) for where, number, _ in frames),
    )


def _reason(payload: str) -> str:
    """The sentences that say why, without hints, on one line."""
    found = _BREAK_REASON.search(payload)
    text = found[1] if found else payload
    text = _OPCODE.sub("", text, count=1)
    end = _AFTER_REASON.search(text)
    lines = [line.strip() for line in (text[: end.start()] if end else text).split("\n")]
    title, *more = [line.removeprefix("Explanation: ") for line in lines if line] or [""]
    return cut(f"{title}: {' '.join(more)}" if more and title[-1:] not in ".:" else " ".join([title, *more]))


def no_graph(text: str) -> NoGraph | None:
    """Read `skipping cudagraphs due to REASON. Found from : ` and a stack; None without text."""
    if not text:
        return None
    reason = _NO_GRAPH.sub("", text).split(". Found from", 1)[0].split("\n", 1)[0].strip()
    frames = _FRAME.findall(text)
    file, line = (frames[-1][0], int(frames[-1][1])) if frames else ("", 0)
    return NoGraph(cut(reason), cut(file), line)


def cut(text: str) -> str:
    """Bound a text of the log."""
    return text[:MOST_CHARACTERS]
