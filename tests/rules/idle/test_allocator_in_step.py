from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.idle.allocator_in_step import RULE
from tb_gpudiag.wording.quantity import duration, number, share_of
from tests.builder import HostThread
from tests.rules.stage import cannot_tell, facts_of, figures, finding, healthy, is_clear, one_gap, without_gpu


def _malloc(main: HostThread, at: float, us: float) -> None:
    main.op("aten::empty", at=at, us=us)
    main.call("cudaMalloc", at=at, us=us)


def test_fires_on_idle_inside_an_allocation_and_counts_the_calls(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(one_gap(_malloc, 50), tmp_path)))
    assert found.cost_ns == 50_000
    evidence = figures(found)
    assert evidence["Idle during memory calls"] == (
        duration(50_000),
        share_of(50_000, 1_000_000, "of the step window"),
    )
    assert evidence["cudaMalloc"] == (number(1, "call"),)
    assert found.places[0].operator == "aten::empty"


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(one_gap(_malloc, 9), tmp_path)))


def test_an_allocation_while_the_gpu_is_busy_costs_nothing(tmp_path: Path) -> None:
    trace = healthy()
    HostThread(trace, trace.recording.host[0].thread).call("cudaMalloc", at=400, us=500)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_cannot_tell_without_a_gpu(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(without_gpu(), tmp_path)))
