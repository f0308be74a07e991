from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.core.device_properties import parse_properties
from tb_gpudiag.facts.core.transfers import pinned_rates
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.savings import predicted_of, with_saving
from tb_gpudiag.rules.transfers.pageable_copies import RULE
from tb_gpudiag.wording.quantity import bandwidth, duration, number, share_of, size
from tests.builder import TraceBuilder
from tests.builder.story import Direction
from tests.rules.stage import facts_of, figures, finding, is_clear
from tests.with_each import with_each

MIB = 2**20


def _copying(
    copy_us: float, *, bytes: int = 8 * MIB, pinned: bool = False, direction: Direction = "HtoD"
) -> TraceBuilder:
    """Build a step of 1,000 µs: a kernel, a copy that overlaps with nothing, and a kernel right after it."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=100, us=1000)
    main.launch("before", at=100, us=5, runs_at=100, runs_us=200)
    main.frame("train.py(30): to_device", at=100, us=1000)
    main.op("aten::copy_", at=110, us=190 + copy_us)
    main.copy(direction, at=115, us=185 + copy_us, runs_at=300, runs_us=copy_us, bytes=bytes, pinned=pinned)
    main.launch("after", at=300 + copy_us, us=5, runs_at=306 + copy_us, runs_us=794 - copy_us)
    return trace


def test_fires_on_exposed_pageable_copies(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_copying(200), tmp_path)))
    assert found.cost_ns == 200_000
    evidence = figures(found)
    assert evidence["Time without computing"] == (
        duration(200_000),
        share_of(200_000, 1_000_000, "of the step window"),
    )
    assert evidence["Pageable copies"] == (
        number(1, "copy", "copies"),
        size(8 * MIB),
        bandwidth(8 * MIB / 200_000),
    )
    assert found.places[0].file == "train.py"
    assert "pin_memory" in found.fix.code


@pytest.mark.parametrize("loader", [True, False])
def test_only_a_job_with_a_loader_is_told_to_let_it_pin(loader: bool, tmp_path: Path) -> None:
    trace = _copying(200)
    if loader:
        trace.thread("feeder").loader(at=0, us=10)
    assert ("DataLoader" in finding(RULE.check(facts_of(trace, tmp_path))).fix.code) == loader


@pytest.mark.parametrize(("direction", "said"), [("HtoD", "from pageable"), ("DtoH", "to pageable")])
def test_says_which_way_the_copies_go(direction: Direction, said: str, tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_copying(200, direction=direction), tmp_path)))
    assert said in found.title


def test_a_call_and_the_copy_that_it_waits_for_are_saved_once(tmp_path: Path) -> None:
    """The host makes data, and waits while it is copied: without the copies, the steps are as long as that
    takes. The call and the copy take the same time, and not twice of it."""
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(4):
        at = 1_000.0 * i
        main.step(i, at=at, us=999)
        main.op("aten::randn", at=at + 1, us=790)
        main.op("aten::copy_", at=at + 799, us=170)
        main.copy("HtoD", at=at + 800, us=165, runs_at=at + 804, runs_us=160, bytes=MIB, pinned=False)
        main.launch("square", at=at + 975, us=4, runs_at=at + 985, runs_us=8)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert found.removable is not None
    saved_ns = facts.replay.unchanged.window_ns - facts.replay.run(found.removable.most).window_ns
    assert saved_ns <= 1.05 * found.cost_ns


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_copying(19), tmp_path)))


def test_in_recordings_without_operators_the_gpus_busy_time_counts(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("before", at=50, us=5, runs_at=60, runs_us=50)
    main.copy("HtoD", at=115, us=20, runs_at=120, runs_us=10, bytes=8 * MIB)
    main.launch("long after", at=20_000, us=5, runs_at=20_010, runs_us=35)
    found = finding(RULE.check(facts_of(trace, tmp_path / "gpu")))
    assert "10.5% of the GPU's busy time" in found.title  # 10 us of 95
    assert found.severity is Severity.INFO
    main.op("aten::copy_", at=110, us=30)
    assert is_clear(RULE.check(facts_of(trace, tmp_path / "host")))


def test_pinned_memory_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_copying(200, pinned=True), tmp_path)))


def test_reading_back_a_few_bytes_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_copying(200, bytes=64 * 1024 - 1), tmp_path)))


@with_each(
    ("capability", "pinned_gb_per_s", "rates"),
    [
        ((7, 0), 0, (3.25, 13)),  # PCIe 3.0
        ((8, 0), 0, (6.5, 26)),
        ((9, 0), 0, (13.75, 55)),
        ((9, 0), 20, (20, 20)),  # as the trace shows it
    ],
)
def test_pinned_copies_run_as_fast_as_the_link(
    capability: tuple[int, int], pinned_gb_per_s: float, rates: tuple[float, float], tmp_path: Path
) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=3000)
    main.copy("HtoD", at=100, us=1000, runs_at=110, runs_us=990, bytes=MIB)
    if pinned_gb_per_s:
        copied = round(pinned_gb_per_s * 100_000)
        main.copy("HtoD", at=1100, us=5, runs_at=1150, runs_us=100, bytes=copied, pinned=True)
    transfers = facts_of(trace, tmp_path).transfers
    gpu = parse_properties({"computeMajor": capability[0], "computeMinor": capability[1]})
    assert pinned_rates(transfers, transfers.to_device, gpu) == pytest.approx(rates)


def test_opposite_directions_overlap_and_copies_hide_under_computing_that_is_there(tmp_path: Path) -> None:
    """Ten copies a way, one after the other, and nothing computes: as pinned ones, they take as long as one
    way does."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=10_000)
    for turn in range(10):
        at = 1000.0 * turn
        main.copy("HtoD", at=at, us=500, runs_at=at + 2, runs_us=497, bytes=MIB)
        main.copy("DtoH", at=at + 500, us=500, runs_at=at + 502, runs_us=497, bytes=MIB)
    facts = facts_of(trace, tmp_path)
    removable = finding(RULE.check(facts)).removable
    assert removable is not None
    assert removable.least is not None
    for change, rate in ((removable.least, 6.5), (removable.most, 26)):
        left_ns = facts.replay.run(change).window_ns
        assert left_ns == pytest.approx(10 * MIB / rate, rel=0.05)


@pytest.mark.parametrize("computing_us", [20, 400])
def test_copies_hide_only_under_computing_that_is_there(computing_us: int, tmp_path: Path) -> None:
    """Ten copies of 1 MiB, which take 40 µs over the link at best, each before a kernel."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=10_000)
    for turn in range(10):
        at = 1000.0 * turn
        main.copy("HtoD", at=at, us=500, runs_at=at + 2, runs_us=497, bytes=MIB)
        main.launch("gemm", at=at + 501, us=5, runs_at=at + 505, runs_us=computing_us)
    facts = facts_of(trace, tmp_path)
    found = with_saving(finding(RULE.check(facts)), facts, predicted_of(facts), RULE.kind_of_fix)
    removable, saving = found.removable, found.saving
    assert removable is not None
    assert saving is not None
    left_ns = facts.replay.run(removable.most).window_ns
    needed_ns = max(10 * MIB / 26, 10 * computing_us * 1000)
    assert left_ns >= needed_ns
    assert facts.window.duration_ns - saving.high_ns >= 0.99 * needed_ns


def test_a_fix_removes_the_waits_and_part_of_the_copies(tmp_path: Path) -> None:
    """They run beside the computing."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=3000)
    for i in range(4):
        at = 100 + 600 * i
        main.op("aten::to", at=at, us=520)
        main.copy("HtoD", at=at + 1, us=500, runs_at=at + 10, runs_us=491, bytes=6 * 491_000)
        main.sync(at=at + 502, us=10)
    main.launch("gemm", at=2600, us=5, runs_at=2610, runs_us=300)
    facts = facts_of(trace, tmp_path)
    removable = finding(RULE.check(facts)).removable
    assert removable is not None
    assert removable.least is not None
    assert len(removable.least.beside.to_device) == len(removable.most.beside.to_device) == 4
    assert removable.least.unblocked == removable.most.unblocked
    names = [facts.events.names[facts.events.name[i]] for i in removable.most.unblocked]
    assert names == ["cudaMemcpyAsync", "cudaStreamSynchronize"] * 4
