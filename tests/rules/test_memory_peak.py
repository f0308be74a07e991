from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.memory_peak import check
from tb_gpudiag.rules.rule import Severity
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.rules.memory_stage import MIB, job, only
from tests.rules.stage import cannot_tell, facts_of, healthy, is_clear, without_gpu
from tests.simulator import simulate


@pytest.mark.parametrize(("taken", "fires"), [(83, True), (81, False)])
def test_it_fires_where_the_peak_leaves_less_than_a_tenth(taken: int, fires: bool, tmp_path: Path) -> None:
    trace = job([0] * 5, start=8 * MIB, taken=taken * MIB, device_bytes=100 * MIB)
    answer = check(facts_of(trace, tmp_path))
    if not fires:
        assert is_clear(answer)
        return
    found = only(answer)
    assert found.severity is Severity.WARNING
    assert "9.0 %" in found.title
    assert found.cost_bytes == taken * MIB  # what was there before is not counted


def test_memory_that_ran_out_is_an_error_however_much_is_left(tmp_path: Path) -> None:
    trace = job([0] * 5)
    trace.raw(
        {
            "ph": "i",
            "s": "t",
            "cat": "cpu_instant_event",
            "name": "[OutOfMemory]",
            "pid": 4242,
            "tid": 4242,
            "ts": _stamp(trace, 215),
            "args": {
                "Device Type": 1,
                "Device Id": 0,
                "Bytes": 64 * MIB,
                "Total Allocated": 8 * MIB,
                "Total Reserved": 16 * MIB,
            },
        }
    )
    found = only(check(facts_of(trace, tmp_path)))
    assert found.severity is Severity.ERROR
    assert "ran out of memory" in found.title


def test_a_cache_that_is_emptied_to_get_memory_is_told(tmp_path: Path) -> None:
    for reserved, fires in ((50, True), (49, False)):
        trace = job([0] * 5, reserved=reserved * MIB, device_bytes=100 * MIB)
        main = trace.thread()
        main.op("aten::empty", at=200, us=50).call("cudaFree", at=205, us=10).call(
            "cudaMalloc", at=220, us=10
        )
        answer = check(facts_of(trace, tmp_path / str(reserved)))
        if fires:
            assert "empty its cache 1 time" in only(answer).title
        else:
            assert is_clear(answer)


def test_a_healthy_job_has_room(tmp_path: Path) -> None:
    assert is_clear(check(facts_of(job([0] * 5), tmp_path)))


def test_without_memory_gpu_or_totals_it_cannot_tell(tmp_path: Path) -> None:
    for number, trace in enumerate((healthy(), without_gpu(), job([0] * 5, generation="A"))):
        assert cannot_tell(check(facts_of(trace, tmp_path / str(number))))


def test_activations_speak_for_checkpoints_and_smaller_batches(tmp_path: Path) -> None:
    facts = Facts(read_trace(str(simulate("little_room").write(tmp_path))))
    found = only(check(facts))
    assert "activations" in found.summary
    assert "checkpoint(" in found.fix.code
    assert "scaled_dot_product_attention" not in found.fix.code  # there is none in this job
    assert found.places[0].operator == "aten::addmm"


def _stamp(trace: TraceBuilder, us: float) -> float:
    """The stamp of a moment of the story: the first event's, and so much more."""
    first = next(e for e in trace.document()["traceEvents"] if e["name"] == "ProfilerStep#0")
    return float(first["ts"]) + us
