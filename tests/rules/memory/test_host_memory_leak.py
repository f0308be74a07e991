from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.memory import memory_leak
from tb_gpudiag.rules.memory.host_memory_leak import check
from tb_gpudiag.rules.rule import Severity
from tb_gpudiag.rules.shared.leak import LEAST_BYTES_PER_STEP
from tb_gpudiag.trace.events import NONE
from tests.conftest import SHARED_TRACES
from tests.real_traces import real_facts
from tests.rules.memory_stage import MIB, job, only
from tests.rules.stage import cannot_tell, facts_of, healthy, is_clear


def test_a_growing_list_on_the_host_is_found_with_its_line(tmp_path: Path) -> None:
    facts = facts_of(job([MIB] * 6, device=None), tmp_path)
    found = only(check(facts))
    assert found.cost_bytes_per_step == MIB
    assert found.memory_device == NONE
    assert found.title.startswith("Host memory grows by")
    assert found.places[0].line == 7
    assert found.severity == Severity.ERROR  # 10 GiB after ten thousand steps
    assert cannot_tell(memory_leak.check(facts))  # GPU memory was not recorded


def test_a_small_leak_is_a_warning(tmp_path: Path) -> None:
    found = only(check(facts_of(job([LEAST_BYTES_PER_STEP] * 6, device=None), tmp_path)))
    assert found.severity == Severity.WARNING


def test_logged_numbers_and_freed_memory_are_not_a_leak(tmp_path: Path) -> None:
    for number, size in enumerate((0, 4, LEAST_BYTES_PER_STEP - 1)):
        assert is_clear(check(facts_of(job([size] * 6, device=None), tmp_path / str(number))))


def test_a_gpu_leak_is_not_a_host_leak(tmp_path: Path) -> None:
    assert cannot_tell(check(facts_of(job([MIB] * 6), tmp_path)))


def test_cannot_tell_without_memory_events(tmp_path: Path) -> None:
    assert cannot_tell(check(facts_of(healthy(), tmp_path)))


def test_a_real_leak_on_the_cpu_is_found(shared_traces: Path) -> None:
    files = sorted((SHARED_TRACES / "cpu_torch213" / "leaky").iterdir())
    assert len(files) == 2
    for file in files:
        found = only(check(real_facts(file)))
        assert found.cost_bytes_per_step == 6_464
        assert found.places[0].line == 20
    for file in (SHARED_TRACES / "cpu_torch213" / "dl_workers0").iterdir():
        assert not isinstance(check(real_facts(file)), list)
