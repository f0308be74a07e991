from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.launches.launch_bound import RULE
from tb_gpudiag.wording.quantity import duration, number, share_of
from tests.builder import TraceBuilder
from tests.rules.stage import cannot_tell, facts_of, figures, finding, is_clear


def _confetti(kernel_us: float, kernels: int = 50, slow_us: float = 0) -> TraceBuilder:
    """Build a step in which, every 20 µs, an operator of 18 µs launches a short kernel: launched at 8 µs for
    7 µs, starting 1 µs later. With `slow_us`, one more operator follows that is slow by itself."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=20 * kernels + slow_us)
    main.frame("model.py(88): forward", at=0, us=20 * kernels)
    for i in range(kernels):
        main.op("aten::add", at=20 * i, us=18)
        main.launch("add", at=20 * i + 8, us=7, runs_at=20 * i + 16, runs_us=kernel_us)
    if slow_us:
        end = 20 * kernels + slow_us
        main.op("aten::sort", at=end - slow_us, us=slow_us)
        main.launch("sort", at=end - 10, us=7, runs_at=end - 2, runs_us=3)
    return trace


def test_fires_on_kernels_shorter_than_their_launches(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_confetti(3), tmp_path)))
    # Before each kernel 8 µs of operator overhead, 7 of the launch call and 1 of latency. The 1 µs between
    # operators is Python.
    cost_ns = 50 * 16_000
    assert found.cost_ns == cost_ns
    evidence = figures(found)
    assert evidence["Idle in short launch gaps"] == (
        duration(cost_ns),
        share_of(cost_ns, 1_000_000, "of the step window"),
    )
    assert evidence["Launches"] == (number(50, "launch", "launches"),)
    assert evidence["Launched on an idle GPU"] == (share_of(50, 50, "of the launches"),)
    assert found.places[0].operator == "aten::add"
    assert found.places[0].file == "model.py"


def test_says_how_long_launches_take_where_that_is_long(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    for at in range(0, 1000, 50):
        main.op("aten::add", at=at, us=12)
        main.launch("add", at=at + 3, us=7, runs_at=at + 46, runs_us=3)
    label = "From launch to start on an idle GPU"
    assert figures(finding(RULE.check(facts_of(trace, tmp_path))))[label][0] == duration(36_000)
    assert label not in figures(finding(RULE.check(facts_of(_confetti(3), tmp_path / "usual"))))


def test_names_the_operator_with_most_launches_and_a_batch_size_of_one(tmp_path: Path) -> None:
    trace = _confetti(3)
    main = trace.thread()
    for i in range(4):
        main.op("aten::linear", at=200 * i, us=10, shapes=[[1, 128, 768], [768, 768], [768]])
    evidence = figures(finding(RULE.check(facts_of(trace, tmp_path))))
    assert evidence["Operator with most launches"] == (
        "“aten::add”",
        number(50, "launch", "launches"),
    )
    assert evidence["Batch size"][0] == number(1)


@pytest.mark.parametrize("first", [[64, 128, 768], [128, 768], []])
def test_does_not_mention_the_batch_size_if_a_layer_gets_more_items(first: list[int], tmp_path: Path) -> None:
    trace = _confetti(3)
    main = trace.thread()
    for i in range(4):
        main.op("aten::linear", at=200 * i, us=10, shapes=[[1, 128, 768], [768, 768], [768]])
    main.op("aten::linear", at=900, us=10, shapes=[first, [768, 768]])
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert "Batch size" not in figures(found)


def test_fewer_launches_do_not_save_the_time_of_a_slow_operator(tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    bare = finding(RULE.check(facts_of(_confetti(3), tmp_path)))
    both = finding(RULE.check(facts_of(_confetti(3, slow_us=4000), tmp_path / "slow")))
    assert bare.removable is not None
    assert both.removable is not None
    assert both.removable.most.host.total - bare.removable.most.host.total < 100_000


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    # The GPU computes for 19.2 of 20 µs. The rest of each gap, 4%, is launch and latency.
    assert is_clear(RULE.check(facts_of(_confetti(19.2), tmp_path)))


def test_long_gaps_do_not_count(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=9000)
    for i in range(3):
        main.op("aten::unique", at=3000 * i, us=2500)
        main.launch("sort", at=3000 * i + 2480, us=10, runs_at=3000 * i + 2495, runs_us=500)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_cannot_tell_without_launches(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().step(0, at=0, us=100)
    trace.kernel("gemm", at=10, us=20)
    assert cannot_tell(RULE.check(facts_of(trace, tmp_path / "unlinked")))
