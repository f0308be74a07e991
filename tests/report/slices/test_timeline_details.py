"""Search, details of an event, and range statistics."""

from __future__ import annotations

import numpy as np
import pytest

from tb_gpudiag.errors import GpudiagError, UsageError
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.prepared import Prepared
from tb_gpudiag.report.slices.slice_table import Search
from tb_gpudiag.report.slices.timeline import prepare_timeline
from tb_gpudiag.report.slices.timeline_chains import gap_chain
from tb_gpudiag.report.slices.timeline_events import event_at, event_details
from tb_gpudiag.report.slices.timeline_range import find_events, range_statistics
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """mm, a sync until its end, then add; a copy under the add."""
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("train.py(10): main", at=0, us=500).frame("nn.Module: Linear_0", at=5, us=40)
    main.op("aten::mm", at=10, us=20).launch("gemm", at=15, us=5, runs_at=30, runs_us=100)
    main.sync(at=46, us=89)
    main.op("aten::add", at=300, us=30).launch("add", at=310, us=10, runs_at=325, runs_us=10)
    return Facts(read_trace(str(trace.write(tmp_path_factory.mktemp("facts")))))


@pytest.fixture(scope="module")
def prepared(facts: Facts) -> Prepared:
    return prepare_timeline(facts)


def find(prepared: Prepared, text: str, kind: str = "any", *, regex: bool = False) -> pb.Matches:
    return find_events(prepared, Search(text, regex, kind), 10)


def names(found: pb.Matches) -> list[str]:
    return [event.name for event in found.events]


def test_matches_are_in_time_order_with_their_places(prepared: Prepared) -> None:
    found = find(prepared, "A", "operator")
    assert (found.total, names(found)) == (2, ["aten::mm", "aten::add"])
    assert [(event.start_us, event.duration_us) for event in found.events] == [(10, 20), (300, 30)]
    assert sum(found.per_part) == 2


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("add", "kernel", ["add"]),
        ("launch", "call", ["cudaLaunchKernel"] * 2),
        ("linear", "module", ["nn.Module: Linear_0"]),
        ("", "kernel", ["gemm", "add"]),
        ("no such", "any", []),
    ],
)
def test_kinds_limit_what_is_found(prepared: Prepared, text: str, kind: str, expected: list[str]) -> None:
    assert names(find(prepared, text, kind)) == expected


def test_a_pattern_is_re2_and_a_broken_one_is_refused(prepared: Prepared) -> None:
    assert names(find(prepared, "^(gemm|add)$", regex=True)) == ["gemm", "add"]
    broken = find(prepared, "(a", regex=True)
    assert broken.state == pb.ReportState.failed
    assert "Not a valid regular expression" in broken.error.what


@pytest.mark.parametrize("text", ["(a*)*b", "(.*)*" * 20, "\x00", "[[:alpha:]]{1,999}", "a{1000}{1000}"])
def test_hostile_patterns_end(prepared: Prepared, text: str) -> None:
    try:
        find(prepared, text, regex=True)
    except GpudiagError:
        pass


def test_an_answer_begins_near_a_time_or_at_an_index(prepared: Prepared) -> None:
    near = find_events(prepared, Search("", kind="kernel"), 1, None, 300)
    assert (near.first, names(near)) == (1, ["add"])
    assert names(find_events(prepared, Search("", kind="kernel"), 1, 0, None)) == ["gemm"]
    assert names(find_events(prepared, Search("", kind="kernel"), 1, 7, None)) == []


def details(prepared: Prepared, text: str, kind: str) -> pb.EventDetails:
    return event_details(prepared, find(prepared, text, kind).events[0].number)


def linked(found: pb.EventDetails) -> list[tuple[str, bool, str]]:
    return [(pb.EventLink.Kind.Name(link.kind), link.leads_here, link.event.name) for link in found.links]


def test_a_kernel_has_the_stack_of_its_launch_and_the_wait_that_it_ends(prepared: Prepared) -> None:
    found = details(prepared, "gemm", "kernel")
    assert list(found.stack) == ["train.py(10): main", "nn.Module: Linear_0", "aten::mm", "cudaLaunchKernel"]
    assert found.module == "Linear_0"
    assert linked(found) == [
        ("launch", True, "cudaLaunchKernel"),
        ("release", False, "cudaStreamSynchronize"),
    ]


def test_a_kernel_has_the_grid_and_block_that_were_recorded(prepared: Prepared) -> None:
    sizes = details(prepared, "gemm", "kernel").settings.replace(" ", "")
    assert sizes == "[160,1,1]×[256,1,1]"
    assert details(prepared, "mm", "operator").settings == ""


def test_links_go_both_ways(prepared: Prepared) -> None:
    assert linked(details(prepared, "Synchronize", "call")) == [("release", True, "gemm")]
    assert linked(details(prepared, "launch", "call")) == [("launch", False, "gemm")]
    assert linked(details(prepared, "mm", "operator")) == [("launch", False, "gemm")]


def test_a_row_and_a_time_name_an_event(prepared: Prepared) -> None:
    sync = find(prepared, "Synchronize").events[0]
    for us in (sync.start_us, sync.start_us + 1):
        assert event_at(prepared, sync.lane, sync.depth, us).event == sync
    module = event_at(prepared, sync.lane, sync.depth, sync.start_us, previous=True).event
    assert module.name == "nn.Module: Linear_0"
    assert event_at(prepared, sync.lane, sync.depth, module.start_us + module.duration_us).event == sync
    for us, previous in ((1e9, False), (0, True)):
        with pytest.raises(UsageError):
            event_at(prepared, sync.lane, sync.depth, us, previous)
    with pytest.raises(UsageError):
        event_at(prepared, 99, 0, 0)
    with pytest.raises(UsageError):
        event_details(prepared, 10**9)


def test_a_range_adds_up_and_the_window_agrees_with_the_account(facts: Facts, prepared: Prepared) -> None:
    window, device = facts.window, facts.devices[0]
    for start_us, end_us in ((window.start_ns / 1e3, window.end_ns / 1e3), (50, 320), (126, 128.5)):
        found = range_statistics(prepared, start_us, end_us)
        length = end_us - start_us
        gpu, thread = found.devices[0], found.threads[0]
        idle_us = sum(part.us for part in gpu.idle_by_cause)
        busy_us = gpu.computing_us + gpu.copying_us + gpu.communicating_us
        assert busy_us + idle_us + gpu.outside_us == pytest.approx(length)
        parts = (thread.operators_us, thread.calls_us, thread.python_us, thread.annotations_us)
        assert sum(parts) + thread.nothing_us == pytest.approx(length)
    whole = range_statistics(prepared, window.start_ns / 1e3, window.end_ns / 1e3)
    account = device.window_account
    assert whole.devices[0].computing_us == account.computing_ns[0] / 1e3
    assert sum(p.us for p in whole.devices[0].idle_by_cause) == pytest.approx(account.idle_ns.sum() / 1e3)


def test_a_range_clips_what_crosses_its_ends(prepared: Prepared) -> None:
    found = range_statistics(prepared, 12, 80)
    assert [(row.name, row.count, row.self_us) for row in found.kernels] == [("gemm", 1, 50)]
    assert [(row.name, row.self_us, row.total_us) for row in found.operators] == [("aten::mm", 13, 18)]
    assert {row.name: row.self_us for row in found.calls} == {
        "cudaStreamSynchronize": 34,
        "cudaLaunchKernel": 5,
    }


def test_gaps_are_ranked_among_those_that_the_report_counts(facts: Facts, prepared: Prepared) -> None:
    ledger, span = facts.devices[0].ledger, facts.devices[0].span
    inside = [i for i in range(len(ledger.gaps)) if gap_chain(prepared, 0, i).rank]
    assert len(inside) == ledger.gaps_in(span) == gap_chain(prepared, 0, inside[0]).gaps
    longest = max(inside, key=lambda i: int(ledger.gaps.end_ns[i] - ledger.gaps.start_ns[i]))
    assert gap_chain(prepared, 0, longest).rank == 1
    assert not gap_chain(prepared, 0, longest).HasField("longer")


def test_every_number_names_one_event(facts: Facts, prepared: Prepared) -> None:
    found = find_events(prepared, Search(""), 200)
    numbers = [event.number for event in found.events]
    assert numbers == sorted(set(numbers))
    starts = facts.events.start_ns[np.array(numbers)] / 1e3
    assert [event.start_us for event in found.events] == starts.tolist()
