from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.memory import memory_leak
from tb_gpudiag.rules.memory.host_memory_leak import RULE
from tb_gpudiag.rules.shared.growth import LEAST_BYTES_PER_STEP
from tb_gpudiag.training.noting_tensors import KEY
from tb_gpudiag.wording.quantity import size
from tests.builder import MemoryEvent, TraceBuilder
from tests.conftest import SHARED_TRACES
from tests.real_traces import real_facts
from tests.rules.memory_stage import MIB, STEP_US, build_model, job, only, steps_of
from tests.rules.noted_stage import check_noted, held_by, noted
from tests.rules.stage import cannot_tell, facts_of, is_clear


def test_a_growing_list_on_the_host_is_found_with_its_line(tmp_path: Path) -> None:
    trace = job([MIB] * 6, device=None)
    build_model(trace)
    facts = facts_of(trace, tmp_path)
    found = only(RULE.check(facts))
    assert found.cost_bytes_per_step == MIB
    assert found.memory_device == NONE
    assert found.title.startswith("Host memory grows by")
    assert found.places[0].line == 7
    assert found.severity == Severity.ERROR  # 10 GiB after ten thousand steps
    assert cannot_tell(memory_leak.RULE.check(facts))  # GPU memory was not recorded


@pytest.mark.parametrize("stay", [False, True])
def test_modules_that_a_step_builds_for_itself_hide_no_beginning(stay: bool, tmp_path: Path) -> None:
    """A server makes its model first, and a client's in each step. A recording from later on shows modules of
    any step alike."""
    trace = job([MIB] * 6, device=None)
    build_model(trace)
    maker = trace.thread("client")
    for step in range(6):
        at = step * STEP_US + 50
        maker.frame("/opt/python3.11/site-packages/torch/nn/modules/linear.py(98): __init__", at=at, us=5)
        local = maker.alloc(512, at=at + 1, device=None)
        if not stay:
            maker.free(local, at=at + 20)
    answer = RULE.check(facts_of(trace, tmp_path))
    assert only(answer).cost_bytes_per_step == pytest.approx(MIB, rel=0.01)
    assert only(answer).sure is not stay


def test_growth_that_a_full_buffer_would_look_like_is_said_with_its_probability(tmp_path: Path) -> None:
    """torch's CPU profiler drops the frees of memory that was allocated before the recording."""
    found = only(RULE.check(facts_of(job([MIB] * 6, device=None), tmp_path)))
    assert not found.sure
    assert found.severity == Severity.WARNING
    assert "in 10: a full buffer that drops its oldest entries would look the same" in found.summary
    assert found.cost_bytes_per_step == MIB
    assert found.places[0].line == 7


@pytest.mark.parametrize("went", [0, 1])
def test_tensors_that_came_and_did_not_go_are_a_leak(went: int, tmp_path: Path) -> None:
    written = noted({MIB: 12, 512: 2}, {MIB: went, 512: 2}, steps=14)
    found = only(check_noted([MIB] * 12, written, tmp_path))
    assert found.cost_bytes_per_step == pytest.approx(MIB * (12 - went) / 12, rel=0.25)


def test_nearly_as_many_tensors_that_went_are_no_sure_leak(tmp_path: Path) -> None:
    assert not isinstance(check_noted([MIB] * 6, noted({MIB: 6}, {MIB: 5}), tmp_path), list)


@pytest.mark.parametrize("went", [6, 9])
@pytest.mark.parametrize("older", [(), (3, 4)])
def test_as_many_tensors_that_went_are_a_full_buffer(
    went: int, older: tuple[int, ...], tmp_path: Path
) -> None:
    """older: steps in which torch reports the free of an entry that is older than the recording."""
    trace = job([MIB] * 6, device=None, top_level={KEY: noted({MIB: 6}, {MIB: went})})
    for step in older:
        at_ns = int((step * STEP_US + 60) * 1000)
        trace.recording.memory.append(MemoryEvent(trace.thread().tid, at_ns, -MIB, 4096 * step, None))
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


@pytest.mark.parametrize(
    "written",
    [
        {**noted({MIB: 6}, {}), "came": {"x": 1}},
        {"came": []},
        "text",
    ],
)
def test_what_are_no_notes_decides_nothing(written: object, tmp_path: Path) -> None:
    plain = only(RULE.check(facts_of(job([MIB] * 6, device=None), tmp_path / "plain")))
    assert only(check_noted([MIB] * 6, written, tmp_path)).summary == plain.summary


@pytest.mark.parametrize(
    ("functions", "place"),
    [
        ([["/home/me/train.py(3): train"]], "train"),  # it gets what keep() returns
        ([["/home/me/train.py(3): train", "/home/me/train.py(7): keep"]], "keep"),
        ([["/home/me/train.py(0): train"], ["/home/me/train.py(7): keep"]], "train"),  # it is nearer
        ([["/home/me/train.py(30): train"], ["/home/me/other.py(3): train"]], "keep"),  # other functions
        ([[None, "text"], "text"], "keep"),
    ],
)
def test_the_place_is_the_innermost_function_that_reaches_what_is_held(
    functions: list[Any], place: str, tmp_path: Path
) -> None:
    notes = {**noted({MIB: 6}, {}), "holders": held_by(*functions)}
    assert only(check_noted([MIB] * 6, notes, tmp_path)).places[0].function == place


def test_the_place_is_nearest_to_what_holds_the_tensors_of_all_sites(tmp_path: Path) -> None:
    """A function that calls what keeps them allocates as much."""
    functions = ["/home/me/train.py(7): keep"], ["/home/me/train.py(3): train"]
    trace = TraceBuilder(
        top_level={KEY: {**noted({MIB: 18}, {}, recorded=6), "holders": held_by(*functions)}}
    )
    trace.recording.memory_start[None] = 8 * MIB
    for main, at in steps_of(trace, 6, built=False):
        main.frame("train.py(3): train", at=at + 1, us=96)
        main.op("aten::clone", at=at + 5, us=20)
        main.alloc(MIB, at=at + 10, device=None)
        main.alloc(MIB, at=at + 11, device=None)
        main.frame("train.py(7): keep", at=at + 40, us=20).op("aten::mul", at=at + 42, us=10)
        main.alloc(MIB, at=at + 45, device=None)
    assert only(RULE.check(facts_of(trace, tmp_path))).places[0].function == "keep"


APPEND = "<built-in method append of list object at 0x7f0000000001>"
UPDATE, COMPUTE = "/home/me/metric.py(7): update", "/home/me/metric.py(9): compute"
CALLBACK, FIT = ["/home/me/train.py(30): on_step_end"], ["/home/me/train.py(3): fit"]


GRAPH = ": retained autograd graph"
NODES = {
    "history": [[at, at * MIB] for at in (5, 10, 14, 20)],
    "nodes": [[14, 40], [20, 100]],
}


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"holders": held_by([], graph=0.6)}, GRAPH),  # only a graph holds them
        ({"holders": held_by([], graph=0.6), "nodes": [[14, 40], [20, 41]]}, ""),  # or TorchScript
        ({"holders": held_by([], graph=0.1)}, ""),
        ({"holders": held_by([], graph=7.0)}, ""),
        ({"holders": held_by([], graph="0.6")}, ""),
        ({"holders": held_by([], graph=None)}, ""),
        ({"attached": {str(MIB): 5}}, GRAPH),  # results
        ({"attached": {str(MIB): 2}}, ""),  # of another leak
        ({"attached": {str(MIB): 5}, "nodes": [[14, 40], [20, 40]]}, ""),
        ({"attached": {str(MIB): 5}, "nodes": [[14, 50_000], [20, 50_000]]}, ""),  # too many to say
        ({"attached": {str(MIB): 5}, "nodes": [[13, 40], [20, 100]]}, ""),
    ],
)
def test_a_graph_is_what_nodes_and_tensors_say(more: dict[str, Any], cause: str, tmp_path: Path) -> None:
    notes = noted({MIB: 6}, {}) | NODES | more
    trace = job([MIB] * 6, device=None, operator="aten::log", top_level={KEY: notes})
    found = only(RULE.check(facts_of(trace, tmp_path)))
    assert found.title == f"Host memory grows by {size(MIB, 'per step')}{cause}"


@pytest.mark.parametrize(
    "holders",
    [
        "text",
        [None],
        [{"bytes": "x", "functions": []}],
        [{"bytes": MIB, "functions": "text"}],
        held_by([], type="deque", entries=1, limit=10**30),
    ],
)
def test_holders_that_are_none_are_left_out(holders: object, tmp_path: Path) -> None:
    assert only(check_noted([MIB] * 6, {**noted({MIB: 6}, {}), "holders": holders}, tmp_path))


CHUNKS = [0, 0, 0, 0, 8, 0, 0, 0, 16, 0, 0, 0]
"""What a store takes that grows by eight at a time, in MiB."""


STEADY = [[step, 2 * MIB * step] for step in (4, 8, 16, 32, 40, 52)]


@pytest.mark.parametrize(
    ("history", "found"),
    [
        (STEADY, True),
        ([[step, 2 * MIB * min(step, 16)] for step in (1, 2, 4, 8, 16, 32, 40, 52)], False),
        ([[52, 4], [40, 3], [8, 2], [1, 1]], False),
        ([[1, "2"]], False),
        ("text", False),
    ],
)
def test_steady_growth_since_the_start_is_a_leak_however_uneven_the_floor(
    history: object, found: bool, tmp_path: Path
) -> None:
    kept = [size * MIB for size in CHUNKS]
    notes = {**noted({8 * MIB: 1, 16 * MIB: 1}, {}, steps=52), "history": history}
    answer = check_noted(kept, notes, tmp_path)
    assert isinstance(answer, list) == found
    if found:
        one = only(answer)
        assert one.cost_bytes_per_step == pytest.approx(2 * MIB, rel=0.5)
        assert one.places[0].function == "keep"


@pytest.mark.parametrize("phase", range(5))
@pytest.mark.parametrize("room", [100, 4])
def test_what_each_fifth_step_keeps_is_a_leak_unless_it_is_full(
    phase: int, room: int, tmp_path: Path
) -> None:
    kept = [5 * MIB * (step % 5 == phase) for step in range(21, 33)]
    came = sum(map(bool, kept))
    notes = noted({5 * MIB: came}, {5 * MIB: came} if room < 100 else {}, steps=33)
    held = [(at, min(room, (at + 4 - phase) // 5)) for at in (4, 8, 12, 16, 21, 33)]
    answer = check_noted(kept, notes | {"history": [[at, 5 * MIB * count] for at, count in held]}, tmp_path)
    if room < 100:
        assert not isinstance(answer, list)
    else:
        assert only(answer).places[0].function == "keep"


def test_allocations_that_another_thread_frees_are_not_a_leak(tmp_path: Path) -> None:
    """The profiler does not see the free, but the address is allocated again."""
    trace = TraceBuilder()
    main, address = trace.thread(), None
    for step in range(8):
        at = step * 100.0
        main.step(step, at=at, us=98)
        main.op("aten::clone", at=at + 5, us=10)
        again = main.alloc(MIB, at=at + 6, device=None)
        address = address or again
        event = trace.recording.memory[-1]
        trace.recording.memory[-1] = replace(event, address=address)
    assert not isinstance(RULE.check(facts_of(trace, tmp_path)), list)


def test_a_small_leak_is_a_warning(tmp_path: Path) -> None:
    trace = job([LEAST_BYTES_PER_STEP] * 6, device=None)
    build_model(trace)
    found = only(RULE.check(facts_of(trace, tmp_path)))
    assert found.severity == Severity.WARNING


def test_logged_numbers_and_freed_memory_are_not_a_leak(tmp_path: Path) -> None:
    for number, kept in enumerate((0, 4, LEAST_BYTES_PER_STEP - 1)):
        assert is_clear(RULE.check(facts_of(job([kept] * 6, device=None), tmp_path / str(number))))


def test_a_gpu_leak_is_not_a_host_leak(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(job([MIB] * 6), tmp_path)))


def test_a_real_leak_on_the_cpu_is_found(shared_traces: Path) -> None:
    files = sorted((SHARED_TRACES / "cpu_torch213" / "leaky").iterdir())
    assert len(files) == 2
    for file in files:
        found = only(RULE.check(real_facts(file)))
        assert found.cost_bytes_per_step == 6_464
        where = found.places[0]
        # The function that ran when the recording began: its number is no line that costs.
        assert (where.function, where.line) == ("run", 0)
    for file in (SHARED_TRACES / "cpu_torch213" / "dl_workers0").iterdir():
        assert not isinstance(RULE.check(real_facts(file)), list)
