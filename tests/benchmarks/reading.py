"""Measure how fast a large trace is read, compared with `json.load` of the same file in the same run.

python -m tests.benchmarks.reading [MEGABYTES]

Each row is a process of its own. The ratios are what matters: seconds differ between machines and moments.
The reader uses two cores: where others use them too, its CPU time says more than its wall time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.traces import SIZE_BYTES, Measured, large_trace, measured, packed, print_table

JSON_LOAD = "json.load alone"
READ = "read_trace"
DIAGNOSE = "whole diagnosis"

# As the command and the analyses of the tab do it, in a process of their own.
DIAGNOSIS = """
from tb_gpudiag.service.processes.process_setup import do_without_pandas, use_environment
use_environment()
do_without_pandas()
from tb_gpudiag.report.diagnosis import diagnose_path  # with all imports
# measured
result = diagnose_path(path).trace.events
"""

PROGRAMS = {
    JSON_LOAD: """
import json
# measured
with open(path, encoding="utf-8") as file:
    result = len(json.load(file)["traceEvents"])
""",
    READ: """
from tb_gpudiag.trace.read import read_trace
# measured
result = read_trace(path).events_read
""",
    DIAGNOSE: DIAGNOSIS,
}
"""What is measured on the plain file. The other rows are compared with the first."""

FASTER_THAN_JSON = 3.0
"""Aim for reading: the ratio of times."""

MEMORY_OF_FILE = 3.0
"""Aim for every row but the first: peak memory divided by the file's size."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    measured: Measured
    faster: float  # times as fast as json.load alone
    memory: float  # peak divided by the file's size


def rows(folder: Path, size_bytes: int) -> Iterator[Row]:
    """Measure one row after the other."""
    path = large_trace(folder, size_bytes)
    size = path.stat().st_size
    base: Measured | None = None
    for name, program in PROGRAMS.items():
        found = measured(program, path)
        base = base or found
        yield Row(name, found, base.seconds / found.seconds, found.peak_bytes / size)
    if base is not None:
        found = measured(PROGRAMS[READ], packed(path))
        yield Row(f"{READ}, gzip", found, base.seconds / found.seconds, found.peak_bytes / size)


def line(row: Row) -> str:
    """Format the row."""
    found = row.measured
    times = f"{found.seconds:8.2f} s {row.faster:8.1f} x {found.cpu_seconds:8.2f} s"
    return f"{row.name:24}{times} {found.peak_bytes / 1e6:8.0f} MB {row.memory:8.2f} x {found.result:12,}"


HEADER = f"{'':24}{'time':>10} {'faster':>10} {'CPU':>10} {'peak':>11} {'of file':>10} {'events':>12}"


def main() -> None:
    print_table(HEADER, lambda folder, size_bytes: map(line, rows(folder, size_bytes)), SIZE_BYTES)
    print(f"aims: reading {FASTER_THAN_JSON:g} x as fast as json.load, peak < {MEMORY_OF_FILE:g} x the file")


if __name__ == "__main__":
    main()
