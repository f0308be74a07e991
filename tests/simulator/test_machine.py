"""The machine follows its costs: cases small enough to compute by hand."""

from __future__ import annotations

import json

from tests.builder import TopLevel, to_bytes
from tests.simulator import Costs, Machine, find_truth

ROUND = Costs(launch=5_000, latency=2_000, turnaround=1_000, wake=6_000, copy_call=7_000)


def test_a_launch_its_latency_and_a_kernel_queued_behind_another() -> None:
    machine = Machine(noise=0, costs=ROUND)
    machine.spend(10_000, "python")
    machine.launch("long", 50_000)  # called 10, returned 15, runs 17 to 67 µs
    machine.spend(3_000, "dispatch")
    machine.launch("queued", 4_000)  # called 18, returned 23, runs 68 to 72 µs
    assert [(work.start_ns, work.end_ns) for work in machine.work] == [(17_000, 67_000), (68_000, 72_000)]
    truth = find_truth(machine, [("step", 0, machine.now_ns)])
    assert truth.window_end_ns == 72_000
    assert truth.busy_ns == 54_000
    assert truth.idle_ns == {"python": 10_000, "launch": 5_000, "latency": 2_000 + 1_000}
    assert truth.trigger_ns == {"starved": 17_000, "queued": 1_000}


def test_a_sync_drains_the_queue_and_returns_after_its_wake() -> None:
    machine = Machine(noise=0, costs=ROUND)
    machine.launch("first", 20_000)  # runs 7 to 27 µs
    machine.sync()  # returns at 33 µs
    machine.spend(2_000, "python")
    machine.launch("second", 10_000)  # called 35, returned 40, runs 42 to 52 µs
    assert machine.now_ns == 40_000
    truth = find_truth(machine, [("step", 0, machine.now_ns)])
    assert truth.idle_ns == {"launch": 10_000, "latency": 4_000, "sync": 6_000, "python": 2_000}
    assert truth.trigger_ns == {"starved": 7_000, "drained": 15_000}


def test_a_pageable_copy_blocks_its_caller_and_a_pinned_one_does_not() -> None:
    pinned, pageable = Machine(noise=0, costs=ROUND), Machine(noise=0, costs=ROUND)
    assert pinned.copy("HtoD", 24_000_000, pinned=True) == 7_000 + 2_000 + 1_500 + 1_000_000
    assert pinned.now_ns == 7_000
    assert pageable.copy("HtoD", 24_000_000, pinned=False) == 7_000 + 2_000 + 1_500 + 4_000_000
    assert pageable.now_ns == 4_010_500 + 6_000
    (span,) = pageable.recording.gpu
    assert span.name == "Memcpy HtoD (Pageable -> Device)"


def test_outstanding_launches_never_exceed_the_queue_depth() -> None:
    machine = Machine(noise=0, costs=Costs(launch=1_000, latency=2_000, turnaround=1_000, queue_depth=4))
    for _ in range(20):
        machine.launch("kernel", 9_000)
        unfinished = [work for work in machine.work if work.end_ns > machine.now_ns]
        assert len(unfinished) <= 4
    assert any(work.returned_ns - work.called_ns > 1_000 for work in machine.work)


def test_held_work_is_queued_not_late() -> None:
    machine = Machine(noise=0, costs=ROUND)
    machine.launch("first", 100_000)  # runs 7 to 107 µs
    machine.hold(150_000)
    machine.launch("held", 10_000)  # launched while the first one runs
    truth = find_truth(machine, [("step", 0, machine.now_ns)])
    assert truth.idle_ns["queued"] == 150_000 - 107_000


def test_work_on_two_streams_is_busy_time_once() -> None:
    machine = Machine(noise=0, costs=ROUND)
    machine.launch("one", 30_000)  # runs 7 to 37 µs
    machine.launch("other", 30_000, stream=9)  # runs 12 to 42 µs
    assert find_truth(machine, [("step", 0, machine.now_ns)]).busy_ns == 35_000


def test_all_time_under_one_cause_belongs_to_it() -> None:
    machine = Machine(noise=0, costs=ROUND)
    with machine.all_for("input"):
        machine.spend(8_000, "dispatch")
    machine.launch("kernel", 1_000)
    assert find_truth(machine, [("step", 0, machine.now_ns)]).idle_ns["input"] == 8_000


def test_a_free_waits_for_the_gpu() -> None:
    machine = Machine(noise=0, costs=Costs(launch=5_000, latency=2_000, release=100_000))
    machine.launch("kernel", 50_000)  # runs 7 to 57 µs
    machine.release_to_driver()
    assert machine.now_ns == 57_000 + 100_000


def test_spans_are_on_the_thread_that_ran() -> None:
    machine = Machine(noise=0, costs=ROUND)
    with machine.span("frame", "train.py(1): main"):
        with machine.on_autograd(1_000), machine.span("op", "aten::mm"):
            machine.launch("kernel", 1_000)
    content = json.loads(to_bytes(machine.recording, "C2", TopLevel()))
    threads = {e["name"]: e["tid"] for e in content["traceEvents"] if e["ph"] == "X" and e["pid"] == 4242}
    assert threads["train.py(1): main"] == machine.main
    assert threads["aten::mm"] == threads["cudaLaunchKernel"] == machine.autograd
