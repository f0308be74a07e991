"""Rules on exports of Nsight Systems: what is not known, and how to record it."""

from __future__ import annotations

from pathlib import Path

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import Severity
from tb_gpudiag.rules.run import Outcome, run_rules
from tb_gpudiag.trace.read import read_trace
from tests.builder.nsys import Export

MS = 1_000_000


def forward(graph_ms: int) -> Export:
    """Ten forward passes: one graph of this length each, and 10 ms of kernels launched one by one."""
    export = Export()
    for i in range(10):
        at = i * 200 * MS
        export.call("cudaGraphLaunch_v10000", at, at + 1000, 2 * i + 1)
        export.gpu("GRAPH_TRACE", at + 2000, at + graph_ms * MS, 2 * i + 1, graphId=4)
        export.call("cudaLaunchKernel_v7000", at + 3000, at + 4000, 2 * i + 2)
        export.kernel("gemm", at + graph_ms * MS, at + (graph_ms + 10) * MS, 2 * i + 2)
    return export


def outcome(export: Export, folder: Path) -> Outcome:
    return run_rules(Facts(read_trace(str(export.write(folder / "report.sqlite")))))


def test_graphs_as_one_event_hide_their_kernels(tmp_path: Path) -> None:
    found = outcome(forward(100), tmp_path)
    (graphs,) = [f for f in found.findings if f.rule.id == "GD909"]
    assert graphs.severity is Severity.INFO
    assert graphs.finding.title == "10 CUDA graphs recorded as one event each, without kernels"
    assert "--cuda-graph-trace=node" in graphs.finding.fix.code
    reasons = {rule.id: answer for rule, answer in found.unchecked if rule.id == "GD501"}
    assert reasons["GD501"].reason.startswith("the kernels inside CUDA graphs, ")


def test_short_graphs_hide_little(tmp_path: Path) -> None:
    found = outcome(forward(1), tmp_path)
    assert [f.rule.id for f in found.findings if f.rule.id == "GD909"] == ["GD909"]
    assert not [rule for rule, answer in found.unchecked if answer.reason.startswith("the kernels inside")]


def test_advice_is_about_nsight_systems(tmp_path: Path) -> None:
    export = forward(1)
    export.add(
        "META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value='HF_TOKEN="hf_' + "ab3" * 12 + '"'
    )
    found = outcome(export, tmp_path)
    by_rule = {f.rule.id: f.finding.fix for f in found.findings}
    assert "range_push" in by_rule["GD901"].text
    assert "nsys profile" in by_rule["GD901"].code
    assert "ENVIRONMENT_VARIABLE" in by_rule["GD907"].code
    advice = " ".join(answer.how_to_record for _, answer in found.unchecked)
    assert "schedule(" not in advice
    assert "record_shapes=True." not in advice.replace("emit_nvtx(record_shapes=True).", "")
