from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.better_recording import BetterRecording, better_recording
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.wording.good_recording import RECORDING
from tests.builder import BASE_NS, EPOCH_NS, TraceBuilder
from tests.rules.stage import facts_of, one_gap, without_gpu


def _better(trace: TraceBuilder, folder: Path) -> BetterRecording:
    facts = facts_of(trace, folder)
    found = better_recording(run_rules(facts, RULES), facts)
    assert found is not None
    return found


def test_names_what_was_not_recorded(tmp_path: Path) -> None:
    found = _better(one_gap(lambda main, at, us: main.op("aten::x", at=at, us=us), 100), tmp_path)
    assert found.sentence.startswith("Not recorded: shapes, memory. ")
    assert "checks skipped." in found.sentence
    assert found.code == RECORDING


def test_says_what_else_the_hints_say(tmp_path: Path) -> None:
    """A kernel without a launch is no missing part, and no problem of the job."""
    trace = one_gap(lambda main, at, us: main.op("aten::x", at=at, us=us), 100)
    trace.kernel("alone", at=330, us=20)
    found = _better(trace, tmp_path)
    assert "of the GPU work has no launch in the trace." in found.sentence


def test_a_job_on_the_cpu_lacks_no_gpu(tmp_path: Path) -> None:
    found = _better(without_gpu(), tmp_path)
    assert "Not recorded: GPU" not in found.sentence
    assert "Rules about GPUs did not apply." in found.sentence
    assert "the diagnosis is about the host" not in found.sentence  # the verdict says it


def test_no_recipe_records_what_is_not_read(tmp_path: Path) -> None:
    trace = without_gpu()
    at = (EPOCH_NS - BASE_NS) / 1_000 + 200
    trace.raw({"ph": "X", "cat": "mtia_ccp_events", "name": "run", "pid": 1, "tid": 2, "ts": at, "dur": 50})
    assert _better(trace, tmp_path).code == ""
