from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.idle.allocator_in_step import RULE
from tb_gpudiag.wording.quantity import duration, number, share_of
from tests.builder import HostThread
from tests.rules.stage import Act, facts_of, figures, finding, healthy, is_clear, one_gap, severity


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


def _alternating(pairs: int) -> Act:
    def act(main: HostThread, at: float, us: float) -> None:
        each = us / (2 * pairs)
        for i in range(pairs):
            main.call("hipMalloc", at=at + 2 * i * each, us=each)
            main.call("hipFree", at=at + (2 * i + 1) * each, us=each)

    return act


def test_says_that_the_cache_is_off_if_allocations_and_frees_alternate(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(one_gap(_alternating(11), 300), tmp_path)))
    assert "the cache is switched off" in found.summary
    assert "PYTORCH_NO_HIP_MEMORY_CACHING" in found.fix.text
    assert figures(found)["hipFree"] == (number(11, "call"),)


def test_does_not_say_that_the_cache_is_off_just_under_the_threshold(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(one_gap(_alternating(10), 300), tmp_path)))  # 19 turns
    assert "switched off" not in found.summary


def _bursts(main: HostThread, at: float, us: float) -> None:
    for i in range(500):
        main.call("cudaMalloc" if i // 22 % 2 else "cudaFree", at=at + i * us / 500, us=us / 500)


def test_bursts_of_calls_are_a_cache_that_is_emptied(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(one_gap(_bursts, 300), tmp_path)))  # 22 turns in 500 calls
    assert "switched off" not in found.summary


def _empty_cache(main: HostThread, at: float, us: float) -> None:
    main.frame("torch/cuda/memory.py(170): empty_cache", at=at, us=us)
    for i in range(4):
        main.call("cudaFree", at=at + i * us / 4, us=us / 4)


def _asks_again(frees: int) -> Act:
    """An operator that allocates, frees blocks, and allocates again."""

    def act(main: HostThread, at: float, us: float) -> None:
        main.op("aten::empty", at=at, us=us)
        each = us / (frees + 2)
        for i in range(frees + 2):
            name = "cudaMalloc" if i in {0, frees + 1} else "cudaFree"
            main.call(name, at=at + i * each, us=each)

    return act


def test_an_operator_that_frees_cached_blocks_and_asks_again_found_memory_full(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(one_gap(_asks_again(5), 300), tmp_path)))
    assert "Memory was probably full" in found.summary
    assert "smaller batch" in found.fix.text


def test_an_operator_that_frees_what_it_got_does_not_show_that_memory_was_full(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(one_gap(_asks_again(1), 300), tmp_path)))
    assert "full" not in found.summary


def test_names_empty_cache_if_its_frame_was_recorded(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(one_gap(_empty_cache, 300), tmp_path)))
    assert found.fix.text == "Remove torch.cuda.empty_cache() from the loop."
    assert figures(found)["torch.cuda.empty_cache()"] == (
        number(1, "call"),
        number(4, "free"),
    )


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(one_gap(_malloc, 9), tmp_path)))


def test_an_allocation_while_the_gpu_is_busy_costs_nothing(tmp_path: Path) -> None:
    trace = healthy()
    HostThread(trace, trace.recording.host[0].thread).call("cudaMalloc", at=400, us=500)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


@pytest.mark.parametrize(("calls", "expected"), [(1, Severity.INFO), (2, Severity.WARNING)])
def test_a_single_call_may_be_a_late_growth_of_the_cache(
    calls: int, expected: Severity, tmp_path: Path
) -> None:
    def act(main: HostThread, at: float, us: float) -> None:
        for i in range(calls):
            main.call("cudaMalloc", at=at + i * us / calls, us=us / calls)

    facts = facts_of(one_gap(act, 50), tmp_path)
    assert severity(RULE, finding(RULE.check(facts)), facts) == expected
