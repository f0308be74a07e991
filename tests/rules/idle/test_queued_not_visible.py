from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.idle.queued_not_visible import RULE
from tb_gpudiag.wording.quantity import duration, number, share_of
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, figures, finding, is_clear, one_gap


def _queued(idle_us: float) -> TraceBuilder:
    """Launch both kernels before the gap; the second one still starts late."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=100, us=1000)
    main.launch("before", at=100, us=5, runs_at=100, runs_us=200)
    main.op("aten::all_reduce", at=110, us=20)
    main.launch("after", at=115, us=5, runs_at=300 + idle_us, runs_us=800 - idle_us)
    return trace


def test_fires_on_idle_time_with_work_queued_and_says_that_the_cause_is_not_visible(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_queued(100), tmp_path)))
    assert found.cost_ns == 100_000
    assert figures(found)["Idle with work queued"] == (
        duration(100_000),
        share_of(100_000, 1_000_000, "of the step window"),
    )
    assert "not visible" in found.summary


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_queued(49), tmp_path)))


def test_a_late_host_is_clear(tmp_path: Path) -> None:
    facts = facts_of(one_gap(lambda main, at, us: main.op("aten::add", at=at, us=us), 300), tmp_path)
    assert is_clear(RULE.check(facts))


def test_idle_time_before_the_first_work_may_be_work_that_was_not_recorded(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.launch("first", at=10, us=5, runs_at=400, runs_us=600)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert figures(found)["Before the first recorded GPU work"][0] == duration(385_000)
    within = finding(RULE.check(facts_of(_queued(100), tmp_path / "within")))
    assert "Before the first recorded GPU work" not in figures(within)


def test_a_suspect_that_the_trace_rules_out_is_not_named(tmp_path: Path) -> None:
    alone = finding(RULE.check(facts_of(_queued(100), tmp_path / "one")))
    assert "another process" in alone.summary
    assert not any(suspect in alone.summary for suspect in ("stream", "rank", "graph"))
    assert "nvidia-smi" in alone.fix.code
    trace = _queued(100)
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", at=320, us=1, stream=20)
    several = finding(RULE.check(facts_of(trace, tmp_path / "several")))
    assert "an event of another stream, another rank, or another process" in several.summary
    assert "enable_cuda_sync_events" in several.fix.code
    assert "Record all ranks" in several.fix.text


def test_a_launch_that_takes_as_long_as_the_others_waited_for_nothing(tmp_path: Path) -> None:
    """Each launch reaches the idle GPU after 40 us, as on Windows, and one after 200."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=2000)
    for at in range(0, 1900, 100):
        main.launch("short", at=at, us=5, runs_at=at + 45, runs_us=5)
    main.launch("late", at=1700 + 60, us=5, runs_at=1765 + 200, runs_us=35)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert figures(found)["Gaps"][0] == number(1, "gap")


def _waiting(*, other_gpu: bool, tid: int | None = None, record: bool = True) -> TraceBuilder:
    """Make the stream of the work that ends the gap wait for an event of stream 20."""
    trace = TraceBuilder()
    main = trace.thread()
    device = int(other_gpu)
    main.launch("before", at=50, us=5, runs_at=60, runs_us=240)
    main.launch("awaited", at=60, us=5, runs_at=100, runs_us=190, stream=20, device=device)
    main.step(0, at=100, us=1000)
    main.call("cudaEventRecord", at=102, us=1)
    main.call("cudaStreamWaitEvent", at=105, us=1)
    main.launch("after", at=115, us=5, runs_at=400, runs_us=700)
    calls = {e["name"]: e for e in trace.document()["traceEvents"] if e.get("cat") == "cuda_runtime"}
    wait = calls["cudaStreamWaitEvent"]
    recorded = calls["cudaEventRecord"]["args"]["correlation"] if record else -1
    arguments = {
        "cuda_sync_kind": "Stream Wait Event",
        "wait_on_stream": 20,
        "wait_on_cuda_event_record_corr_id": recorded,
        "wait_on_cuda_event_id": 3,
        "correlation": wait["args"]["correlation"],
        "device": 0,
    }
    if tid is None:
        arguments["stream"] = 7
    return trace.raw(
        {
            "ph": "X",
            "cat": "cuda_sync",
            "name": "Stream Wait Event",
            "pid": 0,
            "tid": 7 if tid is None else tid,
            "ts": wait["ts"],
            "dur": 2,
            "args": arguments,
        }
    )


@pytest.mark.parametrize("tid", [None, 1_000_007])
@pytest.mark.parametrize("other_gpu", [False, True])
def test_synchronization_events_name_what_the_work_waited_for(
    other_gpu: bool, tid: int | None, tmp_path: Path
) -> None:
    found = finding(RULE.check(facts_of(_waiting(other_gpu=other_gpu, tid=tid), tmp_path)))
    label = f"Waiting for GPU {int(other_gpu)}, stream 20"
    assert figures(found)[label] == (number(1, "gap"), "after “awaited”")
    assert not found.fix.code


def test_synchronization_events_without_a_known_wait_are_said_and_not_advised(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_waiting(other_gpu=False, record=False), tmp_path)))
    assert "none of this work waited" in found.summary
    assert "enable_cuda_sync_events" not in found.fix.code


def test_waits_in_one_operator_are_named_and_made_less_often(tmp_path: Path) -> None:
    """Each product coalesces its matrix and waits for kernels that start late."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=3000)
    for i in range(3):
        at = i * 1000.0
        main.op("aten::_coalesce", at=at, us=900)
        main.launch("thrust", at=at + 10, us=5, runs_at=at + 800, runs_us=5)
        main.sync(at=at + 20, us=790)
        main.launch("gemm", at=at + 910, us=5, runs_at=at + 920, runs_us=70)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert "aten::_coalesce" in found.summary
    assert "aten::_coalesce" in found.fix.text
    assert "aten::" not in finding(RULE.check(facts_of(_queued(100), tmp_path / "alone"))).fix.text


def test_a_host_far_ahead_of_its_queue_is_not_told_to_wait_less(tmp_path: Path) -> None:
    """It waits for all that it launched, and the queue would take as long without the wait."""
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("before", at=0, us=5, runs_at=10, runs_us=590)
    main.step(0, at=0, us=3000)
    for i in range(12):
        main.launch("gemm", at=10.0 * (i + 1), us=5, runs_at=700 + 200 * i, runs_us=100)
    main.op("aten::copy_", at=200, us=2750)
    main.sync(at=210, us=2735)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert "aten::copy_" not in found.summary + found.fix.text
