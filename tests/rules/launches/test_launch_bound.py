from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.launches.launch_bound import RULE
from tests.builder import TraceBuilder
from tests.rules.stage import cannot_tell, facts_of, finding, healthy, is_clear, without_gpu


def _confetti(kernel_us: float, kernels: int = 50, slow_us: float = 0) -> TraceBuilder:
    """Every 20 µs an operator of 18 µs launches a kernel (at 8 µs, 7 µs, starting 1 µs later) that soon
    ends. `slow_us`: one more operator after them, which is slow by itself."""
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
    # Before each kernel 8 µs of dispatch, 7 of launching and 1 of latency; the 1 µs between operators is
    # Python's.
    assert found.cost_ns == 50 * 16_000
    assert {e.label: e.text for e in found.evidence}["issued on an empty queue"] == "100 %"
    assert found.places[0].operator == "aten::add"
    assert found.places[0].file == "model.py"


def test_names_the_operator_with_most_launches_and_a_batch_of_one(tmp_path: Path) -> None:
    trace = _confetti(3)
    main = trace.thread()
    for i in range(4):
        main.op("aten::linear", at=200 * i, us=10, shapes=[[1, 128, 768], [768, 768], [768]])
    evidence = {e.label: e.text for e in finding(RULE.check(facts_of(trace, tmp_path))).evidence}
    assert evidence["operator with most launches"] == "aten::add: 50, 50 a step"
    assert evidence["items in a batch"].startswith("1,")


@pytest.mark.parametrize("first", [[64, 128, 768], [128, 768], []])
def test_says_nothing_of_batches_where_a_layer_gets_more(first: list[int], tmp_path: Path) -> None:
    trace = _confetti(3)
    main = trace.thread()
    for i in range(4):
        main.op("aten::linear", at=200 * i, us=10, shapes=[[1, 128, 768], [768, 768], [768]])
    main.op("aten::linear", at=900, us=10, shapes=[first, [768, 768]])
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert "items in a batch" not in {e.label for e in found.evidence}


def test_an_operator_that_is_slow_by_itself_is_not_what_fewer_launches_give_back(tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    bare = finding(RULE.check(facts_of(_confetti(3), tmp_path)))
    both = finding(RULE.check(facts_of(_confetti(3, slow_us=4000), tmp_path / "slow")))
    assert bare.removable is not None
    assert both.removable is not None
    assert both.removable.most.host.total - bare.removable.most.host.total < 100_000


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    # 19.2 µs of 20 are computed: what is left of each gap is the launch's end and the latency, 4 %.
    assert is_clear(RULE.check(facts_of(_confetti(19.2), tmp_path)))


def test_many_launches_far_ahead_of_the_gpu_are_health(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(healthy(), tmp_path)))


def test_long_gaps_are_not_made_by_a_launch(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=9000)
    for i in range(3):
        main.op("aten::unique", at=3000 * i, us=2500)
        main.launch("sort", at=3000 * i + 2480, us=10, runs_at=3000 * i + 2495, runs_us=500)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_cannot_tell_without_a_gpu_or_without_launches(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(without_gpu(), tmp_path / "cpu")))
    trace = TraceBuilder()
    trace.thread().step(0, at=0, us=100)
    trace.kernel("gemm", at=10, us=20)
    assert cannot_tell(RULE.check(facts_of(trace, tmp_path / "unlinked")))
