from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tb_gpudiag.arrays import NONE
from tb_gpudiag.rules.answer import CannotTell, Severity
from tb_gpudiag.rules.memory import memory_leak
from tb_gpudiag.rules.memory.host_memory_leak import RULE
from tb_gpudiag.rules.shared.leak_state import LEAST_BYTES_PER_STEP
from tb_gpudiag.rules.verdict import find_verdict
from tests.builder import TraceBuilder
from tests.conftest import SHARED_TRACES
from tests.real_traces import real_facts
from tests.rules.memory_stage import MIB, build_model, job, only
from tests.rules.stage import cannot_tell, facts_of, healthy, is_clear


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


def test_a_buffer_that_was_full_before_the_recording_may_look_like_a_leak(tmp_path: Path) -> None:
    """torch's CPU profiler drops the frees of memory that was allocated before the recording."""
    facts = facts_of(job([MIB] * 6, device=None), tmp_path)
    found = only(RULE.check(facts))
    assert found.cost_bytes_per_step == MIB
    assert found.severity == Severity.WARNING
    assert not found.sure
    assert "seems to grow" in found.title
    assert "before the recording" in found.summary
    assert "RSS" in found.fix.text
    assert "grows" not in find_verdict(facts).sentence


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
    answer = RULE.check(facts_of(trace, tmp_path))
    assert isinstance(answer, CannotTell)
    assert "7 allocations" in answer.reason.replace("\xa0", " ")
    assert "threads" in answer.reason


def test_a_small_leak_is_a_warning(tmp_path: Path) -> None:
    trace = job([LEAST_BYTES_PER_STEP] * 6, device=None)
    build_model(trace)
    found = only(RULE.check(facts_of(trace, tmp_path)))
    assert found.sure
    assert found.severity == Severity.WARNING


def test_logged_numbers_and_freed_memory_are_not_a_leak(tmp_path: Path) -> None:
    for number, size in enumerate((0, 4, LEAST_BYTES_PER_STEP - 1)):
        assert is_clear(RULE.check(facts_of(job([size] * 6, device=None), tmp_path / str(number))))


def test_a_gpu_leak_is_not_a_host_leak(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(job([MIB] * 6), tmp_path)))


def test_cannot_tell_without_memory_events(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(healthy(), tmp_path)))


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
