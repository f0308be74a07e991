"""A large trace to measure with, made by repeating a small one, and the time and peak memory of a program."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tb_gpudiag.trace.kineto.structure import elements
from tests.builder import TraceBuilder
from tests.conftest import SHARED_TRACES

SIZE_BYTES = 500 << 20

_NUMBER = re.compile(rb'"(ts|correlation|id|External id|Ev Idx|Python id|Python parent id)":\s*(\d+)')
_SAME_NUMBERS = {b"id": b"correlation", b"Python parent id": b"Python id"}

# With the processes that it started: some tools read each rank in one of its own.
_BEGIN = """
import os, time
began, cpu_began = time.perf_counter(), sum(os.times()[:4])
"""
_END = """
import os
seconds, cpu_seconds = time.perf_counter() - began, sum(os.times()[:4]) - cpu_began
"""
# Every measured program ends with this. The peak is the process's own: ru_maxrss would include the parent's.
_REPORT = """
import json, resource
try:
    peak_kb = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
except OSError:
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_bytes": peak_kb * 1024, "result": result}
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Measured:
    """One program's run."""

    seconds: float  # without the start of Python and imports
    cpu_seconds: float  # of all its threads and processes, likewise
    peak_bytes: int  # of the whole process
    result: int


def large_trace(folder: Path, size_bytes: int = SIZE_BYTES) -> Path:
    """Write a trace of about this size by repeating the events of a real one, or of a built one without
    it.

    The repetitions follow one another in time and in their ids, as in a recording of this length: sorting and
    joining cost what they do there, and nothing seems to be missing.
    """
    before, events, after = _parts()
    numbers: dict[bytes, list[int]] = {}
    for found in _NUMBER.finditer(events):
        numbers.setdefault(_SAME_NUMBERS.get(found[1], found[1]), []).append(int(found[2]))
    span = {key: max(found) - min(found) + (1_000 if key == b"ts" else 1) for key, found in numbers.items()}
    path = folder / "large.1.pt.trace.json"
    with path.open("wb") as file:
        file.write(before + events)
        for number in range(1, size_bytes // len(events)):
            file.write(b"," + _shifted(events, {key: number * of_one for key, of_one in span.items()}))
        file.write(after)
    return path


def small_trace(folder: Path) -> Path:
    """Write a built trace of about 1 MB."""
    path = folder / "small.1.pt.trace.json"
    path.write_bytes(_built(kernels_a_step=40))
    return path


def _shifted(events: bytes, by: dict[bytes, int]) -> bytes:
    def number(found: re.Match[bytes]) -> bytes:
        key = found[1]
        return b'"%s": %d' % (key, int(found[2]) + by[_SAME_NUMBERS.get(key, key)])

    return _NUMBER.sub(number, events)


def packed(path: Path) -> Path:
    """Write the same file with gzip."""
    target = path.with_name(path.name + ".gz")
    with path.open("rb") as source, gzip.open(target, "wb", compresslevel=1) as file:
        while block := source.read(1 << 20):
            file.write(block)
    return target


def print_table(header: str, lines: Callable[[Path, int], Iterable[str]], size_bytes: int) -> None:
    """Print each line of a table as soon as it is measured. The command's first argument is the file's size
    in MB, if it has one."""
    if len(sys.argv) > 1:
        size_bytes = int(sys.argv[1]) * 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        print(header)
        for line in lines(Path(folder), size_bytes):
            print(line, flush=True)


def measured(
    program: str, path: Path, python: str = sys.executable, folders: Sequence[Path] = ()
) -> Measured:
    """Run `program` in a process of its own.

    The program finds the file's name in `path` and sets `result` to a number. What precedes a line `#
    measured` (imports) is not timed. folders: where it finds modules, next to those of `python`.
    Raises RuntimeError if the program fails.
    """
    prepare, _, timed = program.partition("# measured\n")
    lines = [f"path = {str(path)!r}", prepare, _BEGIN, timed, _END, _REPORT]
    repository = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [python, "-c", "\n".join(lines)],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [repository, *folders]))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"a measured program failed:\n{done.stderr}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def _parts() -> tuple[bytes, bytes, bytes]:
    """Split a trace into the text before its events, the events without brackets, and the text after them."""
    real = sorted((SHARED_TRACES / "h100_owlv2").glob("*.gz"))
    content = gzip.decompress(real[0].read_bytes()) if real else _built()
    begin = content.index(b"[", content.index(b'"traceEvents"')) + 1
    end = begin + elements(content[begin:]).array_end
    return content[:begin], content[begin:end].strip(), content[end:]


def _built(kernels_a_step: int = 500) -> bytes:
    builder = TraceBuilder()
    main = builder.thread()
    for step in range(20):
        at = step * 100_000
        main.step(step, at=at, us=99_000)
        main.frame("train.py(12): train", at=at, us=99_000)
        main.loader(at=at, us=20_000)
        for kernel in range(kernels_a_step):
            begin = at + 20_000 + kernel * 150
            main.frame(f"model.py({kernel % 50}): forward", at=begin, us=140)
            main.op(f"aten::op{kernel % 40}", at=begin + 10, us=100)
            main.launch(f"kernel{kernel % 60}", at=begin + 50, us=10, runs_at=begin + 70, runs_us=60)
    return builder.bytes()
