"""Growing sites: what each step retains, with its line."""

from __future__ import annotations

import pytest

from tb_gpudiag.facts.memory.floor_table import floor_table
from tb_gpudiag.rules.shared.growth import until_full
from tests.builder import TraceBuilder
from tests.facts.memory.training import STEP_US, leak, only, training, without_the_first_memory_event


def test_healthy_training_has_a_level_floor_and_no_growing_site() -> None:
    trace = TraceBuilder()
    training(trace, 8)
    memory = only(trace)
    assert memory.trend is not None
    assert (memory.trend.per_unit, memory.trend.high) == (0, 0)
    assert memory.sites == []
    assert until_full(memory) == 0


def test_floors_are_those_of_the_hosts_steps() -> None:
    trace = TraceBuilder()
    starts = training(trace)
    assert only(trace).floors.periods.start_ns.tolist() == starts


def test_memory_retained_in_each_step_is_a_site_with_its_line() -> None:
    trace = TraceBuilder(device_bytes=100_000)
    training(trace, 8)
    leak(trace.thread("other"), 8)
    memory = only(trace)
    assert memory.trend is not None
    assert memory.trend.per_unit == 512
    (site,) = memory.sites
    assert (site.operator, site.per_unit, site.size_bytes, site.replaced) == ("aten::clone", 512, 512, False)
    assert site.frame is not None
    assert (site.frame.file, site.frame.line) == ("keep.py", 9)
    assert site.stack.endswith("keep.py(9): remember")
    # The last floor is at its step's start: seven steps have left one each.
    assert (site.count, site.steps) == (7, 7)
    room = memory.capacity_bytes - memory.peak_allocated_bytes
    assert until_full(memory) == pytest.approx(room / 512)


def test_a_cache_that_is_replaced_by_a_larger_one_is_a_site() -> None:
    trace = TraceBuilder()
    training(trace, 8)
    main, held = trace.thread("other"), None
    for step in range(8):
        at = STEP_US * step + 200
        main.frame("cache.py(4): extend", at=at, us=50).op("aten::cat", at=at + 5, us=20)
        larger = main.alloc(1024 * (step + 1), at=at + 8)
        if held is not None:
            main.free(held, at=at + 30)
        held = larger
    (site,) = only(trace).sites
    assert (site.operator, site.per_unit, site.count, site.replaced) == ("aten::cat", 1024, 1, True)


def test_a_cache_that_has_filled_is_not_a_growing_site() -> None:
    trace = TraceBuilder()
    training(trace, 12)
    leak(trace.thread("other"), 5)
    memory = only(trace)
    assert memory.trend is not None
    assert memory.trend.earlier > 0
    assert memory.trend.later == 0
    assert memory.sites == []


def test_sites_and_memory_from_before_add_up_to_each_floor() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    early = main.alloc(4096, at=-5)
    training(trace, 6)
    leak(main, 6)
    main.free(early, at=3 * STEP_US + 500)
    facts = without_the_first_memory_event(trace)
    (memory,) = facts.memory
    table = floor_table(memory.allocations, memory.floors)
    before = memory.floors.bytes[table.column] - table.bytes.sum(axis=0)
    assert before.tolist() == [4096, 4096, 0, 0, 0]


@pytest.mark.parametrize(
    ("modules", "shown"), [(["Linear_0"], "Linear_0"), (["Linear_0", "Linear_7"], "Linear")]
)
def test_a_site_names_its_module_or_the_class_of_several(modules: list[str], shown: str) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(5):
        main.step(step, at=STEP_US * step, us=STEP_US)
        main.frame("model.py(20): forward", at=STEP_US * step, us=900)
        for place, module in enumerate(modules):
            at = STEP_US * step + 100 * place
            main.frame(f"nn.Module: {module}", at=at + 1, us=90).op("aten::mm", at=at + 10, us=50)
            main.alloc(512, at=at + 20)
    (site,) = only(trace).sites
    assert (site.module, site.count, site.per_unit) == (shown, 4 * len(modules), 512 * len(modules))
