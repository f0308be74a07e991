"""Rules on exports of Nsight Systems: what is not known, and how to record it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Finding, Fix, Severity
from tb_gpudiag.rules.outcome import Outcome
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.shared.recording_advice import NSYS_URL, PROFILER_URL, for_recorders
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.wording.good_recording import (
    NSYS_RECORDING,
    NSYS_RECORDING_FOR_FIGURES,
    RECORDING,
    RECORDING_FOR_FIGURES,
)
from tests.builder.nsys import Export, export_of
from tests.rules.torch_options import assert_no_option_of_torch
from tests.simulator.diagnosed import simulated
from tests.some_values import slow

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
    return run_rules(Facts(read_trace(str(export.write(folder / "report.sqlite")))), RULES)


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


@pytest.mark.parametrize("name", ["no_steps", "host_bound", *slow("compilation_in_step", "queued")])
def test_no_advice_of_a_simulated_report_is_about_torch(name: str, tmp_path: Path) -> None:
    recording = simulated(name).recording
    host = [span for span in recording.host if span.kind != "frame"]
    gpu = [span for span in recording.gpu if span.kind != "annotation"]
    path = export_of(replace(recording, host=host, gpu=gpu, memory=[], raw=[])).write(tmp_path / "r.sqlite")
    facts = Facts(read_trace(str(path)))
    found = run_rules(facts, RULES)
    assert found.findings
    assert found.unchecked
    for f in found.findings:
        assert_no_option_of_torch(f.finding.fix.text)
        assert_no_option_of_torch(f.finding.fix.code)
    for _, answer in found.unchecked:
        assert_no_option_of_torch(answer.how_to_record)
    assert_no_option_of_torch(find_verdict(facts).sentence)


@pytest.mark.parametrize("block", [RECORDING, RECORDING_FOR_FIGURES])
def test_blocks_have_their_counterpart(block: str) -> None:
    answer = for_recorders(Finding("title", "summary", Fix("Record again.", block, PROFILER_URL)), {"nsys"})
    assert isinstance(answer, Finding)
    assert answer.fix.code in (NSYS_RECORDING, NSYS_RECORDING_FOR_FIGURES)
    assert answer.fix.url == NSYS_URL
    assert ("--sample=none" in answer.fix.code) == (block == RECORDING_FOR_FIGURES)


def test_the_rest_of_a_fix_stays() -> None:
    code = """# Find the function: record stacks.
with torch.profiler.profile(with_stack=True) as prof:
    ...

# Process the whole batch:
batch = processor(images)"""
    finding = Finding(
        "title", "summary", Fix("Batch it. Record with with_stack=True to see it. Then go on.", code)
    )
    answers = for_recorders([finding], {"nsys"})
    assert isinstance(answers, list)
    (answer,) = answers
    first, second = answer.fix.code.split("\n\n")
    assert first.startswith("# Find the function: record stacks.\n# nsys profile --trace=cuda,nvtx,osrt")
    assert "--python-backtrace=cuda" in first
    assert second == "# Process the whole batch:\nbatch = processor(images)"
    assert answer.fix.text.startswith("Batch it. Run python -X perf")
    assert answer.fix.text.endswith(" Then go on.")
    assert for_recorders([finding], {"torch"}) == [finding]
