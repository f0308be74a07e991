from __future__ import annotations

from pathlib import Path

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.recording.unrecorded_graphs import RULE
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.wording.quantity import duration
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, figures, finding, is_clear


def _graphs(recorded: list[int], *, lost_us: float = 400) -> TraceBuilder:
    """Build a step of 1 ms for each item: a graph of ten kernels of `lost_us` / 10, of which so many were
    recorded, and an eager kernel after it."""
    trace = TraceBuilder()
    main = trace.thread()
    for step, kernels in enumerate(recorded):
        at = 1_000.0 * step
        main.step(step, at=at, us=1_000)
        graph = [(f"k{i}", at + 20 + i * lost_us / 10, lost_us / 10) for i in range(kernels)]
        main.graph_launch(graph, at=at, us=10)
        main.launch("last", at=at + 20, us=5, runs_at=at + 20 + lost_us, runs_us=980 - lost_us)
    return trace


def test_fires_if_one_launch_lacks_a_kernel(tmp_path: Path) -> None:
    facts = facts_of(_graphs([10, 10, 9, 10]), tmp_path)
    found = finding(RULE.check(facts))
    assert found.title == "Kernels are missing in 1 of 4 CUDA graph launches"
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO


def test_is_a_warning_from_a_tenth_of_the_window(tmp_path: Path) -> None:
    facts = facts_of(_graphs([10, 0, 0, 10]), tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING
    assert figures(found)["Unrecorded time"][0] == duration(2 * 410_000)
    assert "kernels may have run that were not recorded" in find_verdict(facts).sentence


def test_complete_graphs_are_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_graphs([10, 10, 10]), tmp_path)))


def test_unrecorded_time_has_no_other_cause(tmp_path: Path) -> None:
    facts = facts_of(_graphs([10, 0, 0, 10]), tmp_path)
    assert facts.device is not None
    found = facts.device.ledger.by_cause(facts.window)
    assert found[Cause.UNRECORDED] >= 800_000
    assert Cause.QUEUED not in found
