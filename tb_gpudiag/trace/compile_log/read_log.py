"""Read the structured log of torch.compile.

Each entry is a line with a time, a process and JSON, such as
`V1126 10:02:47.287000 27125 torch/_dynamo/utils.py:2350] {"artifact": {"name": …}, "frame_id": 0, …}`. Lines
of its payload follow, each behind a tab; `has_payload` is their MD5. torch adds kinds of entries with each
release: only the few that say why something was compiled are read, and all others are skipped.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import IO, Any, Final

from tb_gpudiag.errors import NotATrace, Unreadable
from tb_gpudiag.trace.compile_log.log import (
    CompileLog,
    FailedGuard,
    LoggedBreak,
    LoggedCompilation,
    cut,
    failed_guard,
    failed_guards,
    graph_break,
    no_graph,
    with_new_values,
)
from tb_gpudiag.trace.credentials.removing import cleaned
from tb_gpudiag.trace.files.opening import open_local
from tb_gpudiag.vocabulary.patterns import lazy_re

# torch gives up on a function after 8 compilations by default. Real jobs have some hundred.
MOST_COMPILATIONS: Final = 20_000

# Longer numbers are addresses of threads, which torch before 2.5 wrote in place of the process.
_LARGEST_PID: Final = 1 << 22
# Of a file. Other texts give a line at most nine digits, too.
_MOST_LINES: Final = 10**9
UNKNOWN_PID: Final = 0

_HEAD: Final = lazy_re(
    rb'[A-Z]\d{4} \d\d:\d\d:\d\d\.\d{6} (?P<pid>\d{1,20}) [^\n"]*?\] (?P<json>\{.*)', re.DOTALL
)
_VERSION: Final = lazy_re(r"\d[\w.+-]{0,60}")
_NAMES: Final = (
    b'{"compilation_metrics"',
    b'"recompile_reasons"',
    b'"dynamo_graph_break_reason"',
    b'{"dynamo_cpp_guards_str"',
    b'"torch_version"',
    b'_cache_hit"',
    b'_cache_miss"',
)
_WITH_PAYLOAD: Final = frozenset(
    {"recompile_reasons", "dynamo_graph_break_reason", "dynamo_cpp_guards_str", "torch_version"}
)
_CACHES: Final = {
    "inductor_fx_local_cache": "FX graph",
    "inductor_fx_remote_cache": "remote FX graph",
    "aotautograd_local_cache": "AOTAutograd",
    "aotautograd_remote_cache": "remote AOTAutograd",
}


# torch before 2.7 counts neither in its figures.
_CACHE_ARTIFACTS: Final = {"fx_graph_cache": "FX graph", "aotautograd_cache": "AOTAutograd"}


@dataclass
class _Reading:
    """What was read so far."""

    pid: int = 0
    rank: int = -1
    torch: str = ""
    guards: dict[str, tuple[FailedGuard, ...]] = field(default_factory=dict)
    cached: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # by id and "hit" or "miss"
    compilations: list[LoggedCompilation] = field(default_factory=list)
    latest: dict[str, int] = field(default_factory=dict)  # place of the last compilation with this id
    functions: dict[str, int] = field(default_factory=dict)  # the same of a function's number
    breaks: list[LoggedBreak] = field(default_factory=list)
    malformed: int = 0
    full: bool = False


def read_compile_log(path: str, folder: str = "") -> CompileLog:
    """Read one log. folder: see open_local.

    Raises:
        NotATrace: it is something else.
        Unreadable: it cannot be opened or read.
    """
    reading = _Reading()
    try:
        with open_local(path, folder) as content:
            lines = LogLines(content, lambda start: any(name in start for name in _NAMES))
            for line, payload in lines.of_interest():
                try:
                    _read_entry(line, payload, reading)
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
                    reading.malformed += 1
    except OSError as error:
        raise Unreadable(error.strerror or str(error), where=path) from error
    if not lines.entries:
        raise NotATrace(
            "it is not a structured log of torch.compile",
            where=path,
            remedy="name a file dedicated_log_torch_trace_*.log, which TORCH_TRACE=DIR writes",
        )
    notes = []
    if lines.stopped or reading.full:
        notes.append(f"It is too long: its end, after {lines.entries:,} entries, was not read.")
    log = CompileLog(
        os.path.basename(path),
        reading.pid,
        reading.rank,
        reading.torch,
        reading.compilations,
        reading.breaks,
        lines.entries,
        lines.malformed + reading.malformed,
        notes,
    )
    return cleaned(log)


def pid_of_log(content: bytes) -> int | None:
    """Return the process that wrote a log, of its first bytes; 0 if it does not say, None if it is no log."""
    head = _HEAD.match(content)
    return _pid(head["pid"]) if head is not None else None


def _read_entry(line: bytes, payload: bytes, reading: _Reading) -> None:
    """Read one entry of interest. Raises whatever `read_compile_log` catches."""
    head = _HEAD.match(line)
    if head is None:
        raise ValueError(line[:80])
    entry = json.loads(head["json"])
    reading.pid = reading.pid or _pid(head["pid"])
    if isinstance(entry.get("rank"), int) and 0 <= entry["rank"] < 1 << 24:
        reading.rank = entry["rank"]
    kind = next(iter(entry))
    if kind == "artifact":
        kind = entry["artifact"]["name"]
    cache, _, outcome = kind.rpartition("_")
    if cache in _CACHE_ARTIFACTS and len(reading.cached) < MOST_COMPILATIONS:
        reading.cached.setdefault((_id(entry), outcome), []).append(_CACHE_ARTIFACTS[cache])
    read = _READERS.get(kind)
    if read is not None:
        text = _checked(payload, entry["has_payload"]) if kind in _WITH_PAYLOAD else ""
        read(_id(entry), entry, text, reading)


def _checked(lines: bytes, md5: str) -> str:
    """Return a payload without the tabs before its lines. Raises ValueError: its MD5 is another."""
    payload = lines.replace(b"\r\n", b"\n").replace(b"\n\t", b"\n")[1:].removesuffix(b"\r")
    if hashlib.md5(payload, usedforsecurity=False).hexdigest() != md5:
        raise ValueError("payload")
    return payload.decode("utf-8", "replace")


def _pid(digits: bytes) -> int:
    pid = int(digits)
    return pid if pid <= _LARGEST_PID else UNKNOWN_PID


def _id(entry: dict[str, Any]) -> str:
    """`3/2`, and `!1/3/2` below compiled autograd. The attempt is left out: it is the same compilation."""
    parts = entry.get("frame_id"), entry.get("frame_compile_id")
    name = "/".join("-" if part is None else str(int(part)) for part in parts)
    autograd = entry.get("compiled_autograd_id")
    return name if autograd is None else f"!{int(autograd)}/{name}"


def _read_version(id: str, entry: dict[str, Any], payload: str, reading: _Reading) -> None:
    version = str(json.loads(payload)["pytorch_version"])
    reading.torch = version if _VERSION.fullmatch(version) else ""


def _read_reasons(id: str, entry: dict[str, Any], payload: str, reading: _Reading) -> None:
    if len(reading.guards) < MOST_COMPILATIONS:
        reading.guards[id] = failed_guards(payload)


def _read_guards(id: str, entry: dict[str, Any], payload: str, reading: _Reading) -> None:
    if id in reading.guards:
        reading.guards[id] = with_new_values(reading.guards[id], payload)


def _read_break(id: str, entry: dict[str, Any], payload: str, reading: _Reading) -> None:
    if len(reading.breaks) < MOST_COMPILATIONS:
        reading.breaks.append(graph_break(id, payload))
    else:
        reading.full = True


def _read_metrics(id: str, entry: dict[str, Any], payload: str, reading: _Reading) -> None:
    found, latest = entry["compilation_metrics"], reading.latest.get(id)
    compiled = _compilation(id, found, reading)
    if latest is not None and (not compiled.function or found.get("is_forward") is False):
        before = reading.compilations[latest]
        reading.compilations[latest] = replace(  # its backward pass
            before,
            hits=tuple(dict.fromkeys(before.hits + compiled.hits)),
            misses=tuple(dict.fromkeys(before.misses + compiled.misses)),
            no_graph=before.no_graph or compiled.no_graph,
        )
    elif len(reading.compilations) < MOST_COMPILATIONS:
        function = id.rpartition("/")[0]
        if not compiled.function and function in reading.functions:  # given up before it was looked at
            known = reading.compilations[reading.functions[function]]
            compiled = replace(compiled, function=known.function, file=known.file, line=known.line)
        reading.latest[id] = reading.functions[function] = len(reading.compilations)
        reading.compilations.append(compiled)
    else:
        reading.full = True


def _compilation(id: str, found: dict[str, Any], reading: _Reading) -> LoggedCompilation:
    """Read figures that torch has of one compilation, and take what was read of it before."""

    def text(name: str) -> str:
        return cut(str(found.get(name) or ""))

    def caches(outcome: str) -> tuple[str, ...]:
        counted = [name for key, name in _CACHES.items() if found.get(f"{key}_{outcome}_count")]
        return tuple(dict.fromkeys([*counted, *reading.cached.pop((id, outcome), ())]))

    guards = reading.guards.pop(id, ())
    if not guards and text("recompile_reason"):
        guards = (failed_guard(str(found["recompile_reason"])),)
    failed = ": ".join(filter(None, (text("fail_type"), text("fail_reason"))))
    return LoggedCompilation(
        id,
        text("co_name"),
        text("co_filename"),
        _line(found.get("co_firstlineno")),
        _ns(found.get("start_time_us"), 1_000) or _ns(found.get("start_time"), 1_000_000_000),
        _ns(found.get("duration_us"), 1_000) or _ns(found.get("entire_frame_compile_time_s"), 1_000_000_000),
        guards,
        caches("hit"),
        caches("miss"),
        no_graph(str(found.get("cudagraph_skip_reason") or "")),
        cut(failed.split("\n", 1)[0]),
    )


def _line(value: Any) -> int:
    """Return the number of a line; 0 for what is none."""
    return value if isinstance(value, int) and 0 < value < _MOST_LINES else 0


def _ns(value: Any, unit: int) -> int:
    """Return nanoseconds; 0 for what is no time."""
    found = int(float(value or 0) * unit) if not isinstance(value, int) else value * unit
    return found if 0 < found < 1 << 62 else 0


_Reader = Callable[[str, dict[str, Any], str, _Reading], None]
_READERS: Final[dict[str, _Reader]] = {
    "torch_version": _read_version,
    "recompile_reasons": _read_reasons,
    "dynamo_cpp_guards_str": _read_guards,
    "dynamo_graph_break_reason": _read_break,
    "compilation_metrics": _read_metrics,
}


# A small function leaves 200 to 400 KB for each compilation, most of it configuration and generated code.
MOST_BYTES: Final = 2 << 30
# The largest entry of interest seen takes 60 KB.
MOST_ENTRY_BYTES: Final = 8 << 20
# Each compilation has about four.
MOST_OF_INTEREST: Final = 100_000
# Output of a program in its log has fewer lines. Reading goes on no further.
MOST_MALFORMED: Final = 100_000
BLOCK_BYTES: Final = 256 << 10

# What decides whether an entry is of interest is at its start.
_NAME_BYTES: Final = 400
_LINE: Final = lazy_re(rb"\n([^\t\n][^\n]*)")


@dataclass
class LogLines:
    """Reads a log. `entries` counts all of them, `malformed` the lines that are neither an entry nor its
    payload. `stopped`: reading stopped at a limit.

    is_of_interest: asked with the start of each entry.
    """

    content: IO[bytes]
    is_of_interest: Callable[[bytes], bool]
    entries: int = 0
    malformed: int = 0
    stopped: bool = False

    def of_interest(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield each entry of interest with its payload, cut off at MOST_ENTRY_BYTES. Raises OSError."""
        found, head, payload = 0, b"", b""
        for block in self._blocks():
            at = 0
            for line in _LINE.finditer(block):
                if head:
                    yield head, (payload + block[at : line.start()])[:MOST_ENTRY_BYTES]
                    found += 1
                head = line[1][:MOST_ENTRY_BYTES] if self._counts(line[1]) else b""
                payload, at = b"", line.end()
            payload = (payload + block[at:])[:MOST_ENTRY_BYTES] if head else b""
            if found > MOST_OF_INTEREST or self.malformed > MOST_MALFORMED:
                self.stopped = True
                return
        if head:
            yield head, payload

    def _counts(self, line: bytes) -> bool:
        """Count a line. Return whether it is an entry of interest."""
        if not (line[:1].isupper() and line[1:5].isdigit()):
            self.malformed += 1
            return False
        self.entries += 1
        return self.is_of_interest(line[:_NAME_BYTES])

    def _blocks(self) -> Iterator[bytes]:
        """Yield blocks of whole lines, each line behind a line feed. The end of a very long line is lost."""
        rest, left = b"", MOST_BYTES
        while block := self.content.read(min(BLOCK_BYTES, left)):
            left -= len(block)
            end = block.rfind(b"\n")
            if end >= 0:
                yield b"\n" + rest + block[:end]
                rest = block[end + 1 :]
            elif len(rest) < MOST_ENTRY_BYTES:
                rest += block
        self.stopped = not left and bool(self.content.read(1))
        if rest:
            yield b"\n" + rest
