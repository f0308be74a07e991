"""Gap chains: what ran before a gap, what launched the work that ended it, what the host did meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.errors import UsageError
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.timeline import prepare_timeline
from tb_gpudiag.report.slices.timeline_chains import MOST_SEGMENTS, gap_chain
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.real_traces import first_in


def facts_of(trace: TraceBuilder, folder: Path) -> Facts:
    return Facts(read_trace(str(trace.write(folder))))


def drained() -> TraceBuilder:
    """gemm, a sync until its end, Python in train.py, then add."""
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("train.py(10): main", at=0, us=500).frame("train.py(20): train_step", at=5, us=480)
    main.op("aten::mm", at=10, us=20).launch("gemm", at=15, us=5, runs_at=30, runs_us=100)
    main.sync(at=40, us=95)
    main.op("aten::add", at=300, us=30).launch("add", at=310, us=10, runs_at=325, runs_us=10)
    return trace


def test_a_chain_has_the_work_before_and_after_the_launch_and_the_host(tmp_path: Path) -> None:
    facts = facts_of(drained(), tmp_path)
    arrays = prepare_timeline(facts)
    gaps = facts.devices[0].ledger.gaps
    number = int((gaps.start_ns == 130_000).nonzero()[0][0])
    chain = gap_chain(arrays, 0, number)
    assert (chain.start_us, chain.end_us, chain.trigger) == (130, 325, pb.TriggerTime.drained)
    assert (chain.before.name, chain.before.operator, chain.before.stream) == ("gemm", "aten::mm", 7)
    assert (chain.after.name, chain.after.operator, chain.after.start_us) == ("add", "aten::add", 325)
    assert (chain.launch.name, chain.launch.operator) == ("cudaLaunchKernel", "aten::add")
    assert (chain.launch.start_us, chain.launch.duration_us) == (310, 10)
    assert chain.launch.thread.startswith("main: ")
    assert list(chain.launch.stack) == ["train.py(10): main", "train.py(20): train_step", "aten::add"]
    segments = [
        (pb.CauseTime.Cause.Name(part.cause), part.name, part.start_us, part.duration_us)
        for part in chain.host
    ]
    assert segments == [
        ("sync", "cudaStreamSynchronize", 130, 5),
        ("python", "train.py(20): train_step", 135, 165),
        ("dispatch", "aten::add", 300, 10),
        ("launch", "cudaLaunchKernel", 310, 10),
        ("latency", "cudaLaunchKernel", 320, 5),
    ]
    assert chain.host[1].place == "train_step (train.py, defined at line 20)"
    assert {part.cause: part.us for part in chain.by_cause} == {
        part.cause: part.duration_us for part in chain.host
    }


def test_the_end_of_the_recording_ends_a_gap_without_work(tmp_path: Path) -> None:
    facts = facts_of(drained(), tmp_path)
    last = len(facts.devices[0].ledger.gaps) - 1
    chain = gap_chain(prepare_timeline(facts), 0, last)
    assert chain.before.name == "add"
    assert not chain.HasField("after")
    assert not chain.HasField("launch")
    assert chain.end_us == 500


def test_a_chain_of_work_without_a_launch_has_none(tmp_path: Path) -> None:
    trace = drained().kernel("ghost", at=450, us=5)
    facts = facts_of(trace, tmp_path)
    number = int((facts.devices[0].ledger.gaps.end_ns == 450_000).nonzero()[0][0])
    chain = gap_chain(prepare_timeline(facts), 0, number)
    assert chain.after.name == "ghost"
    assert not chain.HasField("launch")
    assert [part.cause for part in chain.host] == [pb.CauseTime.unlinked]
    assert chain.trigger == pb.TriggerTime.unknown


def test_the_stack_contains_frames_that_cause_no_gap(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    # The GPU is busy whenever the outer frame is the innermost one.
    trace.kernel("before", at=0, us=20).kernel("after", at=480, us=20)
    main.frame("train.py(1): outer", at=0, us=500).frame("train.py(2): inner", at=10, us=480)
    main.launch("gemm", at=300, us=5, runs_at=310, runs_us=10)
    facts = facts_of(trace, tmp_path)
    number = int((facts.devices[0].ledger.gaps.end_ns == 310_000).nonzero()[0][0])
    chain = gap_chain(prepare_timeline(facts), 0, number)
    assert list(chain.launch.stack) == ["train.py(1): outer", "train.py(2): inner"]


def test_old_traces_show_the_call_stack_of_their_operators(tmp_path: Path) -> None:
    trace = TraceBuilder("A")
    main = trace.thread()
    main.frame("train.py(10): main", at=0, us=500).frame("train.py(20): train_step", at=5, us=480)
    main.op("aten::mm", at=10, us=20).launch("gemm", at=15, us=5, runs_at=30, runs_us=100)
    main.op("aten::add", at=300, us=30).launch("add", at=310, us=10, runs_at=325, runs_us=10)
    facts = facts_of(trace, tmp_path)
    number = int((facts.devices[0].ledger.gaps.start_ns == 130_000).nonzero()[0][0])
    stack = list(gap_chain(prepare_timeline(facts), 0, number).launch.stack)
    assert stack == ["train.py(10): main", "train.py(20): train_step", "aten::add"]


def test_a_gap_of_very_many_segments_sums_the_shortest(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("first", at=0, us=5, runs_at=10, runs_us=10)
    for i in range(500):
        main.op(f"aten::op{i}", at=30 + i * 10, us=4 + i % 3)
    main.launch("last", at=5100, us=5, runs_at=5110, runs_us=10)
    facts = facts_of(trace, tmp_path)
    number = int((facts.devices[0].ledger.gaps.start_ns == 20_000).nonzero()[0][0])
    chain = gap_chain(prepare_timeline(facts), 0, number)
    assert MOST_SEGMENTS < len(chain.host) <= MOST_SEGMENTS + len(chain.by_cause)
    assert sum(part.duration_us for part in chain.host) == pytest.approx(5090, abs=1e-6)
    for cause in chain.by_cause:
        of_cause = sum(part.duration_us for part in chain.host if part.cause == cause.cause)
        assert of_cause == pytest.approx(cause.us, abs=1e-6)


@pytest.mark.parametrize(("device", "gap"), [(1, 0), (-1, 0), (0, 10_000), (0, -1), (0, 2**31)])
def test_an_unknown_gap_is_a_usage_error(tmp_path: Path, device: int, gap: int) -> None:
    arrays = prepare_timeline(facts_of(drained(), tmp_path))
    with pytest.raises(UsageError):
        gap_chain(arrays, device, gap)


@pytest.mark.parametrize(
    "name", ["h100_bert_small", "mi300_vllm_graph", "v100_dlrm_8ranks", "b200_vllm_eager"]
)
def test_on_real_traces_the_host_accounts_for_every_gap(name: str, shared_traces: Path) -> None:
    facts = first_in(name)
    arrays = prepare_timeline(facts)
    for device in facts.devices:
        gaps = device.ledger.gaps
        for number in range(len(gaps)):
            chain = gap_chain(arrays, device.id, number)
            length_us = (gaps.end_ns[number] - gaps.start_ns[number]) / 1000
            assert sum(part.duration_us for part in chain.host) == pytest.approx(length_us, abs=1e-3)
            assert sum(part.us for part in chain.by_cause) == pytest.approx(length_us, abs=1e-3)
            if chain.HasField("before"):
                assert chain.before.start_us + chain.before.duration_us == pytest.approx(chain.start_us)
            if chain.HasField("after"):
                assert chain.after.start_us == pytest.approx(chain.end_us)
