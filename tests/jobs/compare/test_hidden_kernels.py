"""A side whose CUDA graphs are one event each hides its kernels."""

from __future__ import annotations

import pytest

from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.trace.files.find import find_traces
from tests.conftest import SHARED_TRACES
from tests.jobs.compare.sides import finding, trace

REPORTS = SHARED_TRACES.parent / "nsys"


def compared(graph_ns: int, *, swap: bool = False) -> pb.Comparison:
    kernels = [{"name": "gemm", "family": "gemm", "count": 8, "time_ns": 8_000_000}]
    graphs = [
        {"name": "CUDA graph 4", "family": "other", "count": 8, "time_ns": graph_ns},
        {"name": "relu", "family": "elementwise", "count": 8, "time_ns": 8_000},
    ]
    sides = [
        [trace([1000] * 8, "a", findings=[finding("GD501", 800), finding("GD101", 90)], kernels=kernels)],
        [trace([800] * 8, "b", kernels=graphs)],
    ]
    return compare(*(reversed(sides) if swap else sides))


@pytest.mark.parametrize("swap", [False, True])
def test_findings_about_kernels_are_neither_gone_nor_new(swap: bool) -> None:
    found = compared(7_000_000, swap=swap)
    assert [each.rule for each in (found.findings.new if swap else found.findings.gone)] == ["GD101"]
    (note,) = [note for note in found.notes if "CUDA graphs" in note]
    assert note.startswith("The base runs" if swap else "The candidate runs")


def test_short_graphs_hide_nothing() -> None:
    found = compared(100)
    assert [each.rule for each in found.findings.gone] == ["GD501", "GD101"]
    assert not [note for note in found.notes if "CUDA graphs" in note]


@pytest.mark.real
def test_a_real_pair() -> None:
    if not REPORTS.is_dir():
        pytest.skip("no real reports")
    digests = {file.worker: digest_file(file)[1] for file in find_traces(str(REPORTS)).files}
    found = compare([digests["a100_forward_eager"]], [digests["a100_forward_compiled"]])
    computing = next(part for part in found.causes if part.cause == pb.CauseTime.computing)
    assert (round(computing.base_us / 1e3), round(computing.candidate_us / 1e3)) == (8414, 7811)
    assert not [each.rule for each in found.findings.gone if each.rule.startswith("GD5")]
    notes = " ".join(found.notes).replace("\N{NO-BREAK SPACE}", " ")
    assert "7.81 s per step, in CUDA graphs" in notes
    assert "8.41 s for its kernels" in notes
