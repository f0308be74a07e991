from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.launches.graph_node_gaps import RULE
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.wording.quantity import duration, number
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, figures, finding, is_clear

NODES = 90


def _graph(gap_us: float, *, operator: str = "aten::copy_", late_us: float = 0) -> TraceBuilder:
    """A step of 1,000 µs with one launch of 90 nodes, one every 10 µs. The host is done with it at once, or
    works on, so that it is late with the launch after it."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1100 + late_us if late_us else 50)
    main.launch("first", at=0, us=5, runs_at=6, runs_us=94)
    main.op(operator, at=8, us=2)
    nodes = [(f"node_{i % 3}", 100 + 10 * i + gap_us, 10 - gap_us) for i in range(NODES)]
    main.graph_launch(nodes, at=10, us=10)
    if late_us:
        main.frame("train.py(12): prepare", at=20, us=980 + late_us)
        main.launch("late", at=1000 + late_us, us=5, runs_at=1006 + late_us, runs_us=10)
    return trace


def test_it_fires_with_its_cost_and_says_how_many_nodes_there_are(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_graph(1), tmp_path)))
    assert found.cost_ns == (NODES - 1) * 1_000
    assert figures(found)["Graph launches"] == (number(1), f"{NODES} nodes each")
    assert figures(found)["From kernel to kernel"] == (
        duration(89_000),
        number(89, "gap"),
        duration(1_000.0, "at the median"),
    )


def test_it_is_not_the_hosts_so_no_rule_about_launches_fires(tmp_path: Path) -> None:
    found = run_rules(facts_of(_graph(4), tmp_path), RULES)
    assert [one.rule.id for one in found.findings if one.rule.family in {"launches", "idle"}] == ["GD203"]


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_graph(0.5), tmp_path)))


def test_a_fifth_of_the_time_is_a_warning(tmp_path: Path) -> None:
    (few,) = run_rules(facts_of(_graph(2), tmp_path / "few"), [RULE]).findings
    (many,) = run_rules(facts_of(_graph(3), tmp_path / "many"), [RULE]).findings
    assert (few.severity, many.severity) == (Severity.INFO, Severity.WARNING)


def test_slow_kinds_of_gaps_get_fixes_of_their_own(tmp_path: Path) -> None:
    trace = _graph(4)
    for span in trace.recording.gpu[2::2]:
        span.kind = "memset"
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert figures(found)["Before or after a copy or memset"][0] == duration(89 * 4_000)
    assert "memsets" in found.fix.text
    assert "torch.empty_like" in found.fix.code


def test_the_saving_is_replayed_up_to_all_of_the_gaps(tmp_path: Path) -> None:
    (found,) = (one for one in run_rules(facts_of(_graph(4), tmp_path), [RULE]).findings)
    assert found.finding.saving is not None
    assert found.finding.saving.low_ns == 0
    assert found.finding.saving.likely_ns == 0
    assert found.finding.saving.high_ns == pytest.approx(found.finding.cost_ns, rel=0.05)


def test_closing_gaps_saves_nothing_where_the_host_is_later_anyway(tmp_path: Path) -> None:
    (found,) = run_rules(facts_of(_graph(4, late_us=500), tmp_path), [RULE]).findings
    assert found.finding.saving is not None
    assert found.finding.saving.high_ns == 0


def test_a_server_gets_fixes_of_serving(tmp_path: Path) -> None:
    fix = finding(RULE.check(facts_of(_graph(4, operator="vllm::all_gather"), tmp_path))).fix
    assert "vLLM" in fix.text
    assert "--max-num-seqs" in fix.code
    assert "torch.compile" not in fix.code


def test_compiled_code_is_not_told_to_compile(tmp_path: Path) -> None:
    code = finding(RULE.check(facts_of(_graph(4, operator="Torch-Compiled Region: 0/0"), tmp_path))).fix.code
    assert "larger batch" in code
    assert "torch.compile" not in code
