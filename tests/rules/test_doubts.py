"""What makes a recording untrustworthy: nothing is said to limit the job, or it is said first."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.doubts import ABOUT_TIME
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.recorded import Category
from tests.builder import HostThread, TraceBuilder
from tests.facts import facts_of as facts_of_story
from tests.rules.memory_stage import MIB, STEP_US, job
from tests.rules.stage import facts_of, healthy, without_gpu

SECOND_US = 1_000_000


def silent_families(facts: Facts, reason: str) -> set[str]:
    return {rule.family for rule, answer in run_rules(facts, RULES).unchecked if reason in answer.reason}


def many_calls(longest_us: float) -> TraceBuilder:
    """Six steps of ten small operators each on the CPU, of which one call takes longer."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    at = 0.0
    for step in range(6):
        begun = at
        for call in range(10):
            us = longest_us if (step, call) == (4, 5) else 100
            main.op("aten::expand", at=at, us=us, shapes=[[8, 8]])
            at += us + 1
        main.step(step, at=begun, us=at - begun)
    return trace


@pytest.mark.parametrize(("longest_us", "said"), [(20_000, True), (9_000, False)])
def test_one_interrupted_operator_is_no_verdict(longest_us: float, *, said: bool, tmp_path: Path) -> None:
    """A call that takes a hundred times as long as the others takes most of the time."""
    facts = facts_of(many_calls(longest_us), tmp_path)
    verdict = find_verdict(facts)
    assert (verdict.limiter == "unknown") == said
    assert ("interrupted" in verdict.sentence) == said
    assert (silent_families(facts, "interrupted") == ABOUT_TIME) == said


def test_nothing_is_said_about_the_time_of_a_trace_without_activity(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=()).raw({"ph": "i", "name": "mark", "ts": 1.0, "pid": 0, "tid": 0})
    facts = facts_of(trace, tmp_path)
    assert silent_families(facts, "no host or GPU activity") == ABOUT_TIME
    assert "nothing can be said" in find_verdict(facts).sentence


@pytest.mark.parametrize(("silence_s", "said"), [(3_600, True), (50, False)])
def test_an_hour_in_which_nothing_happens_is_no_idle_hour(silence_s: float, *, said: bool) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for turn in range(100):
        at = 100.0 * turn + silence_s * SECOND_US * (turn >= 50)
        main.launch("gemm", at=at, us=5, runs_at=at + 10, runs_us=80)
    verdict = find_verdict(facts_of_story(trace))
    assert ("a clock jumped" in verdict.sentence) == said
    assert verdict.limiter == "unknown"


def test_a_file_that_ends_in_the_middle_says_so_first(tmp_path: Path) -> None:
    whole = facts_of(healthy(), tmp_path)
    cut = Facts(replace(whole.trace, status="PARTIAL"))
    said = find_verdict(cut)
    assert said.sentence.startswith("The file ends in the middle.")
    assert said.limiter == find_verdict(whole).limiter


def test_nothing_is_said_about_gpus_or_the_cpu_if_a_cut_off_file_has_no_gpu(tmp_path: Path) -> None:
    facts = Facts(replace(facts_of(without_gpu(), tmp_path).trace, status="PARTIAL"))
    verdict = find_verdict(facts)
    assert verdict.limiter == "unknown"
    assert "CPU" not in verdict.sentence
    assert "may be among what is missing" in verdict.sentence
    assert silent_families(facts, "ends in the middle") >= ABOUT_TIME
    loud = [found.rule.id for found in run_rules(facts, RULES).findings if found.severity > Severity.INFO]
    assert loud == ["GD906"]


@pytest.mark.parametrize(("tail_us", "said"), [(5_000, True), (500, False)])
def test_a_long_time_after_all_that_was_recorded_is_mentioned(
    tail_us: float, *, said: bool, tmp_path: Path
) -> None:
    trace = facts_of(healthy(), tmp_path).trace
    events = trace.events
    whole = events.category == Category.OTHER  # "PyTorch Profiler (0)", over all of the recording
    assert whole.any()
    tail_ns = int(1e3 * tail_us) * whole
    longer = replace(trace, events=replace(events, duration_ns=events.duration_ns + tail_ns))
    assert find_verdict(Facts(longer)).sentence.startswith("The file goes on for") == said


def test_kernels_without_a_usable_duration_are_counted_and_said_first(tmp_path: Path) -> None:
    document = healthy().document()
    kernels = [event for event in document["traceEvents"] if event.get("cat") == "kernel"]
    for event in kernels:
        event["dur"] = -event["dur"]
    (tmp_path / "host_1.1.pt.trace.json").write_text(json.dumps(document))
    facts = Facts(read_trace(str(tmp_path / "host_1.1.pt.trace.json")))
    assert facts.trace.malformed_events == len(kernels)
    assert "of the file's events are malformed" in find_verdict(facts).sentence
    (found,) = (found for found in run_rules(facts, RULES).findings if found.rule.id == "GD906")
    assert found.severity is Severity.WARNING


def test_nothing_is_said_about_time_if_everything_happens_at_once(tmp_path: Path) -> None:
    document = healthy().document()
    for at, event in enumerate(document["traceEvents"]):
        event |= {"ts": 5_000} | ({"dur": 9_000 - at} if event.get("cat") == "kernel" else {})
    (tmp_path / "host_1.1.pt.trace.json").write_text(json.dumps(document))
    facts = Facts(read_trace(str(tmp_path / "host_1.1.pt.trace.json")))
    verdict = find_verdict(facts)
    assert (verdict.limiter, "The times are wrong" in verdict.sentence) == ("unknown", True)
    assert silent_families(facts, "cannot have run") >= ABOUT_TIME


@pytest.mark.parametrize(
    ("makes", "shapes", "said"),
    [("csr", [[9, 9]], False), ("csr", None, True), ("coo", [[9, 9]], True)],
)
def test_csr_tensors_that_a_recorder_of_shapes_keeps_are_no_leak(
    makes: str, shapes: list[list[int]] | None, tmp_path: Path, *, said: bool
) -> None:
    trace = job([MIB] * 6, device=None)
    main = HostThread(trace, trace.recording.pid)
    for step in range(6):
        main.op(f"aten::to_sparse_{makes}", at=step * STEP_US + 70, us=5, shapes=shapes)
    outcome = run_rules(facts_of(trace, tmp_path), RULES)
    assert ("GD405" in {found.rule.id for found in outcome.findings}) == said
    how = [answer.how_to_record for rule, answer in outcome.unchecked if rule.id == "GD405"]
    assert how == ([] if said else ["Record with profile_memory=True and without record_shapes."])
