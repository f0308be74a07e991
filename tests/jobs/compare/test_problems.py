"""Findings that are gone, new or changed, what was promised for them, and memory."""

from __future__ import annotations

from dataclasses import replace

from tb_gpudiag.digest.digest import Digest, MemoryPeaks
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.report import report_pb2 as pb
from tests.jobs.compare.sides import finding, trace

STEPS = [1000] * 8


def compared(base: list[pb.Finding], candidate: list[pb.Finding]) -> pb.Comparison:
    return compare([trace(STEPS, "a", findings=base)], [trace([800] * 8, "b", findings=candidate)])


def test_gone_and_new() -> None:
    found = compared([finding("GD101", 800)], [finding("GD201", 400)]).findings
    assert [each.rule for each in found.gone] == ["GD101"]
    assert [each.rule for each in found.new] == ["GD201"]
    assert not found.changed


def test_what_stays_alike_is_neither() -> None:
    found = compared([finding("GD101", 800)], [finding("GD101", 810)]).findings
    assert [len(found.gone), len(found.new), len(found.changed)] == [0, 0, 0]


def test_a_changed_cost() -> None:
    (change,) = compared([finding("GD101", 1600)], [finding("GD101", 800)]).findings.changed
    assert (change.base.cost_us, change.candidate.cost_us) == (1600, 800)


def test_a_changed_severity() -> None:
    worse = finding("GD101", 800)
    worse.severity = pb.Finding.ERROR
    assert len(compared([finding("GD101", 800)], [worse]).findings.changed) == 1


def test_changed_growth_of_memory() -> None:
    one, other = (
        pb.Finding(rule="GD401", cost_bytes_per_step=1e6),
        pb.Finding(rule="GD401", cost_bytes_per_step=2e6),
    )
    assert len(compared([one], [other]).findings.changed) == 1
    assert not compared([one], [one]).findings.changed


def test_findings_of_one_rule_are_matched_by_place() -> None:
    base = [finding("GD202", 1600, place="f"), finding("GD202", 800, place="g")]
    found = compared(base, [finding("GD202", 810, place="g")]).findings
    assert [each.places[0].function for each in found.gone] == ["f"]


def test_a_finding_whose_place_was_renamed_is_the_same() -> None:
    found = compared([finding("GD202", 800, place="f")], [finding("GD202", 800, place="g")]).findings
    assert [len(found.gone), len(found.new)] == [0, 0]


def test_findings_of_ranks_are_counted_once() -> None:
    base = [trace(STEPS, f"a{rank}", rank=rank, findings=[finding("GD101", 800 + rank)]) for rank in range(3)]
    found = compare(base, [trace(STEPS, f"b{rank}", rank=rank) for rank in range(3)]).findings
    assert [each.cost_us for each in found.gone] == [802]


def with_memory(device: str, peak: int, floors: list[int], id: str) -> Digest:
    rows = [{"device": device, "floor_bytes": floor, "warm_up": i == 0} for i, floor in enumerate(floors)]
    made = trace(STEPS, id, memory=rows)
    return replace(made, about=replace(made.about, memory=[MemoryPeaks(device, peak, 0, 0)]))


def test_memory_of_both_sides() -> None:
    base, candidate = (
        with_memory("GPU 0", 900, [1, 500, 510, 520], "a"),
        with_memory("GPU 1", 800, [9, 300], "b"),
    )
    found = compare([base], [candidate]).memory
    assert [(m.device, m.what, m.base_bytes, m.candidate_bytes) for m in found] == [
        ("GPU 0", "peak", 900, 800),
        ("GPU 0", "floor", 510, 300),
    ]


def test_memory_that_one_side_lacks_is_not_compared() -> None:
    assert not compare([with_memory("GPU 0", 900, [], "a")], [trace(STEPS, "b")]).memory
