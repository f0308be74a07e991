from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.transfers.copy_patterns import RULE
from tb_gpudiag.wording.format import share
from tb_gpudiag.wording.quantity import bandwidth, duration, number, share_of, size
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, figures, findings, healthy, is_clear

SIZE = 1 << 20


def _there_and_back(
    trips: int = 3, *, host_us: float = 100, back: int = SIZE, new_step: bool = False
) -> TraceBuilder:
    """Build steps of 1,000 µs. In each, the GPU computes for 790 µs, copies to the host for 10 µs, is idle
    for host_us, copies back for 10 µs, and computes again."""
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(trips):
        at = 1000.0 * i
        main.step(2 * i, at=at, us=850 if new_step else 1000)
        main.frame("train.py(9): filter_boxes", at=at, us=1000)
        main.launch("gemm", at=at + 1, us=5, runs_at=at + 10, runs_us=790)
        main.copy("DtoH", at=at + 20, us=791, runs_at=at + 800, runs_us=10, bytes=SIZE)
        returns = at + 810 + host_us
        if new_step:
            main.step(2 * i + 1, at=at + 850, us=150)
        main.copy("HtoD", at=returns - 6, us=5, runs_at=returns, runs_us=10, bytes=back, pinned=True)
        main.launch("gemm", at=returns - 1, us=1, runs_at=returns + 10, runs_us=at + 1010 - returns - 10)
    return trace


def _tiny(copies: int, *, idle_us: float = 10, step_us: float = 1000, bytes: int = 64) -> TraceBuilder:
    """Build a step whose GPU is idle for idle_us before each of several copies of 2 µs, and else computes."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=step_us)
    main.launch("gemm", at=0, us=5, runs_at=0, runs_us=100)
    for i in range(copies):
        at = 100 + i * (idle_us + 2)
        main.op("aten::to", at=at, us=idle_us + 1)
        main.copy(
            "HtoD",
            at=at + 1,
            us=idle_us - 2,
            runs_at=at + idle_us,
            runs_us=2,
            bytes=bytes,
            pinned=True,
        )
    ends = 100 + copies * (idle_us + 2)
    main.launch("gemm", at=ends - 1, us=1, runs_at=ends, runs_us=step_us - ends)
    return trace


def test_fires_on_tensors_copied_to_the_host_and_back(tmp_path: Path) -> None:
    facts = facts_of(_there_and_back(), tmp_path)
    (one,) = findings(RULE.check(facts))
    assert one.cost_ns == 3 * 120_000  # both copies, and the time between them
    evidence = figures(one)
    assert evidence["Time without computing"] == (
        duration(360_000),
        share_of(360_000, facts.window.duration_ns, "of the step window"),
    )
    assert evidence["Round trips"] == (number(3, "round trip"), size(3 * SIZE, "each way"))
    assert (one.places[0].file, one.places[0].line) == ("train.py", 9)


def test_other_rules_do_not_count_a_round_trip_again(tmp_path: Path) -> None:
    facts = facts_of(_there_and_back(), tmp_path)
    assert facts.device is not None
    found = run_rules(facts, RULES).findings
    assert "GD303" in {f.rule.id for f in found}
    idle_or_copying = facts.window.duration_ns - facts.device.busy.computing.total
    assert sum(f.finding.cost_ns for f in found) <= idle_or_copying


@pytest.mark.parametrize(
    "trace",
    [
        _there_and_back(2),
        _there_and_back(back=SIZE + 1),
        _there_and_back(new_step=True),
        _there_and_back(host_us=-5),  # the copy out has not ended: double buffering
        _tiny(9),
        _tiny(10, bytes=64 * 1024),
        _tiny(10, step_us=6_100),  # 120 µs are 1.97%
        healthy(),
    ],
    ids=["twice", "another size", "in another step", "at once", "nine", "not tiny", "under 2%", "healthy"],
)
def test_just_under_the_thresholds_is_clear(trace: TraceBuilder, tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_fires_on_many_tiny_copies(tmp_path: Path) -> None:
    (one,) = findings(RULE.check(facts_of(_tiny(10), tmp_path)))
    assert one.cost_ns == 10 * 12_000
    assert one.title.startswith(f"10 tiny copies to the GPU cost {share(0.12)}")
    assert figures(one)["Tiny copies"] == (
        number(10, "copy", "copies"),
        size(64, "median size"),
    )


def test_a_loop_of_copies_is_no_loop_of_kernels(tmp_path: Path) -> None:
    outcome = run_rules(facts_of(_tiny(20), tmp_path), RULES)
    assert [found.rule.id for found in outcome.findings if found.rule.id in ("GD202", "GD303")] == ["GD303"]


def test_compares_the_bandwidth_with_pinned_copies(tmp_path: Path) -> None:
    (one,) = findings(RULE.check(facts_of(_there_and_back(), tmp_path)))
    gb_per_s = SIZE / 10_000
    assert figures(one)["Effective bandwidth"] == (
        bandwidth(gb_per_s),
        bandwidth(gb_per_s, "reached by pinned copies of this trace"),
    )
