"""Measure how fast traces are diagnosed, compared with other tools for traces in the same run: a large one,
and with the start of the program one of 1 MB, a real one of 15 MB, eight ranks of a job, and a snapshot.

python -m tests.benchmarks.peers [MEGABYTES]

Each measurement is a process of its own, and the tools take turns. The least CPU time counts: ratios of it
depend little on what else the machine does. gpudiag uses two cores, so its ratio of wall times is larger.

A tool that is not installed is left out:

- Holistic Trace Analysis (pip install HolisticTraceAnalysis): HTA_PYTHON names the Python that has it;
- torch-tb-profiler, in .make/torch-tb-profiler (make test installs it);
- torch, whose memory_viz draws snapshots, in .make (make test-torch installs it).

TraceLens is on no package index: the package of this name on PyPI is another project.
"""

from __future__ import annotations

import gzip
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.benchmarks.reading import DIAGNOSIS
from tests.benchmarks.traces import Measured, large_trace, measured, print_table, small_trace
from tests.conftest import REPOSITORY, SHARED_TRACES

OURS = "gpudiag"
_HTA_NAME = "Holistic Trace Analysis"
SIZE_BYTES = 250 << 20
TURNS = 2

_OLD_PLUGIN = REPOSITORY / ".make" / "torch-tb-profiler"


@dataclass(frozen=True)
class Tool:
    """A tool and what it does: parse the file, and compute what it shows first."""

    name: str
    program: str
    python: str = sys.executable
    folders: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    measured: Measured
    ours_faster: float  # times as fast as this tool, by CPU time


_HTA = """
import os
from hta.trace_analysis import TraceAnalysis
# measured
analysis = TraceAnalysis(trace_files={0: path}, trace_dir=os.path.dirname(path))
analysis.get_temporal_breakdown(visualize=False)
analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
result = len(analysis.t.get_trace(0))
"""

_TORCH_TB_PROFILER = """
import tempfile
from torch_tb_profiler.profiler.data import RunProfileData
from torch_tb_profiler.profiler.run_generator import RunGenerator
# measured
with tempfile.TemporaryDirectory() as cache:
    data = RunProfileData.parse("worker", "1", path, cache)
    RunGenerator("worker", "1", data).generate_run_profile()
result = len(data.events)
"""


_OUR_RANKS = """
# measured
import contextlib, io
from tb_gpudiag.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    result = main(["diagnose", path])
"""

_MEMORY_VIZ = """
# measured
import pickle
from torch.cuda._memory_viz import trace_plot
with open(path, "rb") as file:
    result = len(trace_plot(pickle.load(file)))
"""

_HTA_RANKS = """
# measured
import os
from hta.trace_analysis import TraceAnalysis
files = dict(enumerate(os.path.join(path, name) for name in sorted(os.listdir(path))))
analysis = TraceAnalysis(trace_files=files, trace_dir=path)
analysis.get_temporal_breakdown(visualize=False)
analysis.get_idle_time_breakdown(ranks=list(files), visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
result = len(files)
"""


def tools() -> list[Tool]:
    """Return the tools that are installed, ours first."""
    found = [Tool(OURS, DIAGNOSIS)]
    if os.environ.get("HTA_PYTHON"):
        found.append(Tool(_HTA_NAME, _HTA, os.environ["HTA_PYTHON"]))
    if (_OLD_PLUGIN / "torch_tb_profiler").is_dir():
        found.append(Tool("torch-tb-profiler", _TORCH_TB_PROFILER, folders=(_OLD_PLUGIN,)))
    return found


def large_rows(folder: Path, size_bytes: int) -> Iterator[Row]:
    """Measure the tools by turns on a large trace, without what they import."""
    return _rows(large_trace(folder, size_bytes), tools())


def small_rows(folder: Path) -> Iterator[Row]:
    """Measure the tools by turns on a trace of 1 MB, with what they import."""
    return _rows(small_trace(folder), _with_imports())


def real_rows(folder: Path) -> Iterator[Row]:
    """Measure them on a real trace of 15 MB, with what they import; nothing without it."""
    for packed in (SHARED_TRACES / "v100_ddp_resnet_healthy").glob("*.gz"):
        path = folder / "real.1.pt.trace.json"
        path.write_bytes(gzip.decompress(packed.read_bytes()))
        yield from _rows(path, _with_imports())


def rank_rows(folder: Path) -> Iterator[Row]:
    """Measure on eight ranks what reads several, with what it imports; nothing without them."""
    ranks = SHARED_TRACES / "v100_dlrm_8ranks"
    programs = {OURS: _OUR_RANKS, _HTA_NAME: _HTA_RANKS}
    some = [replace(tool, program=programs[tool.name]) for tool in tools() if tool.name in programs]
    if ranks.is_dir():
        yield from _rows(Path(shutil.copytree(ranks, folder / "ranks")), some)


def snapshot_rows() -> Iterator[Row]:
    """Measure a real snapshot of 2.4 MB, and the page that torch makes of it, with what they import; nothing
    without either."""
    snapshot = SHARED_TRACES.parent / "snapshots" / "many_segments_forward.pickle"
    torch = sorted((REPOSITORY / ".make").glob("torch-*/site-packages"))
    if snapshot.exists() and torch:
        viz = Tool("memory_viz", _MEMORY_VIZ, folders=(torch[-1],))
        yield from _rows(snapshot, [_with_imports()[0], viz])


def started_rows(folder: Path) -> Iterator[Row]:
    """Measure everything that is measured with imports."""
    yield from small_rows(folder)
    yield from real_rows(folder)
    yield from rank_rows(folder)
    yield from snapshot_rows()


def _with_imports() -> list[Tool]:
    return [replace(tool, program=f"# measured\n{tool.program}") for tool in tools()]


def _rows(path: Path, chosen: list[Tool]) -> Iterator[Row]:
    taken: dict[str, list[Measured]] = {tool.name: [] for tool in chosen}
    for _ in range(TURNS):
        for tool in chosen:
            taken[tool.name].append(measured(tool.program, path, tool.python, tool.folders))
    least = {name: min(found, key=lambda one: one.cpu_seconds) for name, found in taken.items()}
    for name, found in least.items():
        yield Row(name, found, found.cpu_seconds / least[OURS].cpu_seconds)


def line(row: Row) -> str:
    """Format the row."""
    found = row.measured
    times = f"{found.cpu_seconds:8.2f} s {found.seconds:8.2f} s {row.ours_faster:8.1f} x"
    return f"{row.name:24}{times} {found.peak_bytes / 1e6:8.0f} MB"


HEADER = f"{'':24}{'CPU':>10} {'time':>10} {'gpudiag':>10} {'peak':>11}"


def main() -> None:
    print_table(HEADER, lambda folder, size_bytes: map(line, large_rows(folder, size_bytes)), SIZE_BYTES)
    print_table(HEADER, lambda folder, _: map(line, started_rows(folder)), SIZE_BYTES)


if __name__ == "__main__":
    main()
