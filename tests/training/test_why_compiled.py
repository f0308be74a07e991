"""Why torch.compile compiled again, of a real torch: planted reasons and lines, and a stopwatch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.compile_reasons import NO_LOG, CompileReasons, main_guards
from tb_gpudiag.report.diagnosis import only_trace, read_facts
from tb_gpudiag.service.processes.process_setup import worker_environment
from tb_gpudiag.vocabulary.marks import GuardKind, guard_kind
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("compile_job.py")

# What changes for each function, a part of torch's text, and whether the log knows the line that uses it.
PLANTED = {
    "attribute": ("forward", GuardKind.VALUE, "factor == 1.5", True),
    "global": ("uses_global", GuardKind.VALUE, "G['SCALE'] == 2.0", True),
    "closure": ("uses_closure", GuardKind.VALUE, "mode == 'cosine'", True),
    "shape": ("takes_shapes", GuardKind.SIZE, "expected 8, actual 9", False),
    "dtype": ("takes_dtypes", GuardKind.DTYPE, "expected Float, actual Double", False),
    "gradients": ("takes_gradients", GuardKind.MODE, "grad_mode", False),
}


class Job(NamedTuple):
    facts: Facts
    reasons: CompileReasons
    known: list[dict[str, Any]]


def record(folder: Path, *arguments: str) -> Job:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), *arguments],
        capture_output=True,
        timeout=HANGS_S,
        env={
            **worker_environment(),
            "TORCH_TRACE": str(folder),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
            "PATH": os.environ["PATH"],
        },
        check=False,
    )
    print(done.stderr.decode(errors="replace")[-2_000:])
    assert done.returncode == 0
    (trace,) = folder.glob("*.pt.trace.json")
    facts = read_facts(only_trace(str(trace)))
    assert facts.compile_reasons is not NO_LOG
    return Job(facts, facts.compile_reasons, json.loads((folder / "known.json").read_text()))


@pytest.fixture(scope="module")
def job(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return record(tmp_path_factory.mktemp("job"), "cudagraphs")


def line_of(comment: str) -> int:
    """Return the line of the program that ends with this comment."""
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {comment}")]
    return found


def test_every_recompilation_has_its_reason_and_line(job: Job) -> None:
    guards = main_guards(job.reasons.log.compilations)
    found = {c.function: guards[c] for c in job.reasons.by_event.values()}
    assert set(found) == {function for function, *_ in PLANTED.values()}
    for name, (function, kind, text, has_line) in PLANTED.items():
        guard = found[function][0]
        assert guard_kind(guard.text) == kind, name
        assert text in guard.text
        assert guard.line == (line_of(name) if has_line else 0)
    assert not job.reasons.strangers
    assert not job.reasons.log.malformed


def test_a_new_string_is_named(job: Job) -> None:
    guards = main_guards(job.reasons.log.compilations)
    (found,) = [guards[c] for c in job.reasons.by_event.values() if c.function == "uses_closure"]
    assert "tangent" in found[0].now


def test_a_recompilation_costs_what_a_stopwatch_says(job: Job) -> None:
    """The call that compiled again, and that function's other calls."""
    for event, compilation in job.reasons.by_event.items():
        (name,) = [name for name, (function, *_) in PLANTED.items() if function == compilation.function]
        calls = sorted(call["us"] for call in job.known if call["name"] == name and call["step"])
        added_us = calls[-1] - calls[0]
        cost_us = int(job.facts.events.duration_ns[event]) / 1e3
        assert 0.5 * added_us <= cost_us <= 1.01 * calls[-1], name


def test_every_break_has_its_line_and_reason(job: Job) -> None:
    breaks = {found.broken.line: found for found in job.reasons.breaks}
    for name, text in (("print", "`print`"), ("item", "Tensor.item()"), ("unsupported", "getpid")):
        found = breaks[line_of(name)]
        assert text in found.broken.reason
        assert Path(found.broken.file) == PROGRAM
        assert found.runs == len(job.facts.steps), name


def test_without_cuda_the_reason_for_no_cuda_graphs_is_the_cpu(job: Job) -> None:
    found = {without.compilation.function: without for without in job.reasons.without_graphs}
    without = found["uses_global"]
    assert without.compilation.no_graph is not None
    assert "cpu device" in without.compilation.no_graph.reason
    assert without.runs


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a compiler")
def test_inductors_caches_miss_what_is_new(torch: Any, tmp_path: Path) -> None:
    """With gradients on and no input that needs them, the graph is the same as before."""
    job = record(tmp_path, "inductor", "shape", "gradients", "print")
    compiled = {c.function: c for c in job.reasons.by_event.values()}
    assert compiled["takes_shapes"].misses == ("FX graph", "AOTAutograd")
    assert "FX graph" not in compiled["takes_gradients"].misses
    (broken,) = job.reasons.breaks
    assert broken.runs
    calls = [call["us"] for call in job.known if call["name"] == "print" and call["step"]]
    assert 0 < broken.between_ns / 1e3 < sum(calls)
