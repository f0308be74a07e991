"""The verdict ranks parts that add up to the step window, and its numbers are the account's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.core.steady import Steady
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Finding, Fix, Saving, Severity
from tb_gpudiag.rules.outcome import RuleFinding
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.shared.kernel_time import KernelTime
from tb_gpudiag.rules.shared.lost_time import lost_time, split_window
from tb_gpudiag.rules.shared.verdict_sentences import first_fix_sentence, left_out_sentences
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.wording.format import share
from tests.builder import TraceBuilder
from tests.facts import facts_of as story_facts_of
from tests.rules.stage import STEP_AT, facts_of, healthy, one_gap, one_step, without_gpu
from tests.simulator.diagnosed import simulated_facts
from tests.simulator.scenarios import different_scenarios
from tests.with_each import with_each
from tests.wording.plain import plain

LIMITERS = {
    "healthy": "compute",
    "input_pipeline": "input",
    "launch_bound": "launch",
    "host_sync": "compute",  # 73% computing, 24% synchronizing
    "compilation_in_step": "compile",
    "allocator_in_step": "memory",
}
"""Simulated scenario -> what limits it."""


@pytest.mark.slow
@pytest.mark.parametrize("scenario", different_scenarios())
def test_parts_add_up_to_the_step_window(scenario: str) -> None:
    facts = simulated_facts(scenario)
    if facts.device is None:
        pytest.skip("a job without a GPU has no window to split")
    lost = lost_time(facts)
    parts = split_window(facts.device.window_account, lost)
    assert parts.window_ns == facts.window.duration_ns
    assert all(ns >= 0 for ns in vars(parts).values())
    assert sum(parts.by_limiter.values()) + parts.computing_ns == parts.seen_ns


@pytest.mark.slow
@pytest.mark.parametrize("scenario", LIMITERS)
def test_the_limiter_is_what_was_planted(scenario: str) -> None:
    assert find_verdict(simulated_facts(scenario)).limiter == LIMITERS[scenario]


def test_the_sentence_has_the_accounts_numbers(tmp_path: Path) -> None:
    facts = facts_of(one_gap(lambda main, at, us: main.loader(at=at, us=us), 400), tmp_path)
    assert facts.device is not None
    verdict = find_verdict(facts)
    assert verdict.limiter == "input"
    assert share(verdict.busy_share) in verdict.sentence


def test_a_healthy_job_is_limited_by_computing(tmp_path: Path) -> None:
    assert find_verdict(facts_of(healthy(), tmp_path)).limiter == "compute"


@pytest.mark.parametrize(
    ("us", "blocks", "told"),
    [(2, 8, True), (2, 80, False), (20, 8, False)],
    ids=["tiny kernels", "short kernels that fill the GPU", "long kernels"],
)
def test_a_model_that_is_too_small_for_its_gpu_is_told_so(
    us: int, blocks: int, told: bool, tmp_path: Path
) -> None:
    """On a GPU with 80 multiprocessors."""
    trace, main = one_step()
    for i in range(10):
        at = STEP_AT + i * 90
        main.op("aten::mm", at=at, us=80)
        main.launch("gemm", at=at + 60, us=10, runs_at=at + 68, runs_us=us, grid=(blocks, 1, 1))
    sentence = plain(KernelTime(facts_of(trace, tmp_path)).small_model_sentence)
    small = "its kernels take 2 µs on average, and have blocks for 10.0% of the multiprocessors"
    assert (small in sentence) == ("too small for this GPU" in sentence) == told


def test_a_job_without_a_gpu_speaks_of_the_main_thread(tmp_path: Path) -> None:
    verdict = find_verdict(facts_of(without_gpu(), tmp_path))
    assert verdict.sentence.startswith("No GPU activity was recorded. ")
    assert verdict.busy_share == 0


@pytest.mark.parametrize(
    ("computing_us", "small", "limiter", "said"),
    [
        (600, 20, "compute", "CPU-bound: 60.0% of its time goes to matmuls, convolutions and the like."),
        (530, 28, "compute", "and the like. Beside it, 28.0% in operators of a few microseconds each, "),
        (480, 28, "python", "microseconds each. Beside it, 24.0% in Python between operators."),
        (500, 49, "python", "After computing (50.0%), the main thread is longest in operators of a few"),
        (350, 55, "python", "Dispatching small operators limits this job."),
    ],
)
def test_without_a_gpu_the_verdict_names_what_leads_and_what_is_near(
    computing_us: float, small: int, limiter: str, said: str, tmp_path: Path
) -> None:
    """A step of 1,000 µs: operators of 10 µs each, Python in the rest."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1_000)
    main.frame("train.py(1): train", at=0, us=1_000)
    main.op("aten::mm", at=0, us=computing_us)
    for number in range(small):
        main.op("aten::add", at=computing_us + number * 10, us=10)
    verdict = find_verdict(facts_of(trace, tmp_path))
    assert verdict.limiter == limiter
    assert said in plain(verdict.sentence)


def test_without_a_limiter_the_verdict_names_the_parts_that_are_there(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1_000)
    main.frame("train.py(1): train", at=0, us=1_000)
    main.op("aten::mm", at=0, us=200)
    main.op("c10d::allreduce_", at=200, us=400)
    verdict = find_verdict(facts_of(trace, tmp_path))
    assert verdict.limiter == "mixed"
    assert "40.0% in collectives, 40.0% in Python between operators" in plain(verdict.sentence)
    assert "loading" not in verdict.sentence


def test_first_run_work_is_what_was_recorded() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.call("cudaStreamCreateWithFlags", at=0, us=200_000)
    main.call("cudaFree", at=200_000, us=100_000)
    main.launch("gemm", at=300_000, us=5, runs_at=300_008, runs_us=1_000)
    verdict = find_verdict(story_facts_of(trace))
    assert verdict.limiter == "initialization"
    assert ", in “cudaStreamCreateWithFlags”, in “cudaFree”." in plain(verdict.sentence)


@pytest.mark.parametrize(("exposed_us", "limits"), [(250, False), (380, True)])
def test_a_part_that_is_far_shorter_than_computing_does_not_limit_the_job(
    exposed_us: float, *, limits: bool, tmp_path: Path
) -> None:
    """All-reduces that nothing hides, in a step of 1,000 µs that computes the rest of 900 µs."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1_000)
    main.launch("gemm", at=1, us=5, runs_at=10, runs_us=900 - exposed_us)
    main.launch(
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL", at=7, us=5, runs_at=910 - exposed_us, runs_us=exposed_us
    )
    main.launch("add", at=980, us=5, runs_at=990, runs_us=10)
    verdict = find_verdict(facts_of(trace, tmp_path))
    assert verdict.limiter == "communication"
    assert ("Communication limits this job." in verdict.sentence) is limits
    assert ("After computing (66" in verdict.sentence) is not limits


@with_each(
    ("window", "said"),
    [
        ((0, 800), "The last 200 ns of the recording are left out: they come after the GPU's last work."),
        (
            (200, 1_000),
            "The first 200 ns of the recording are left out: they come before the GPU's first work.",
        ),
        (
            (200, 800),
            "The first 200 ns and the last 200 ns of the recording are left out: they come before the GPU's "
            "first work and come after the GPU's last work.",
        ),
        ((0, 1_000), ""),
    ],
)
def test_what_is_left_out_says_where_it_was(window: tuple[int, int], said: str) -> None:
    none = Steps([], np.zeros(0, np.int64), np.zeros(0, np.int64))
    steady = Steady(Window(0, 1_000), Window(*window), none, np.zeros(0, np.int64))
    assert plain(" ".join(left_out_sentences(steady, inferred=False))) == said


def test_the_limiter_is_what_the_host_does_most() -> None:
    facts = simulated_facts("launch_bound")
    assert find_verdict(facts, _ranked("GD301", "GD102", "GD201")).limiter == "launch"


@pytest.mark.parametrize(("ranked", "limiter"), [(["GD301", "GD102"], "python"), (["GD201"], "launch")])
def test_of_two_alike_the_first_finding_decides(ranked: list[str], limiter: str, tmp_path: Path) -> None:
    facts = facts_of(_python_and_launches(), tmp_path)
    assert find_verdict(facts, _ranked(*ranked)).limiter == limiter


def _ranked(*ids: str, low_ns: int = 0) -> list[RuleFinding]:
    finding = Finding("", "", Fix(""), cost_ns=500_000, saving=Saving(low_ns, 200_000))
    rules = {rule.id: rule for rule in RULES}
    return [RuleFinding(rules[id], finding, Severity.WARNING) for id in ids]


def test_a_first_finding_about_something_else_is_explained(tmp_path: Path) -> None:
    """1,000 µs of waiting for data, in which another fix comes first."""
    facts = facts_of(one_gap(lambda main, at, us: main.loader(at=at, us=us), 400), tmp_path)
    assert find_verdict(facts, _ranked("GD101", "GD103")).sentence == find_verdict(facts).sentence
    sure = find_verdict(facts, _ranked("GD103", "GD101", low_ns=150_000))
    assert sure.limiter == "input"
    assert "(GD103) comes first: fixing it probably saves 15.0% to 20.0% of the time." in sure.sentence
    bound = find_verdict(facts, _ranked("GD302", "GD101")).sentence
    assert "(GD302) comes first: fixing it may save up to 20.0% of the time." in bound


def _with_profiler(us: float) -> TraceBuilder:
    """Steps in which the profiler takes so long, and then small kernels follow one another for 1 ms."""
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(4):
        begin = (1000 + us) * step
        main.step(step, at=begin, us=1000 + us)
        main.frame("torch/autograd/profiler.py(793): __exit__", at=begin, us=us)
        for i in range(20):
            at = begin + us + 50 * i
            main.op("aten::mul", at=at, us=45)
            main.launch("mul", at=at + 5, us=5, runs_at=at + 12, runs_us=10)
    return trace


def test_the_profilers_own_time_is_not_work_in_a_queue(tmp_path: Path) -> None:
    verdict = find_verdict(facts_of(_with_profiler(2000), tmp_path))
    assert verdict.limiter == "unknown"
    assert "The profiler itself kept it idle" in verdict.sentence


def test_what_the_profiler_leaves_is_judged_without_it(tmp_path: Path) -> None:
    """A third of the time is the profiler's, most of the rest launches."""
    verdict = find_verdict(facts_of(_with_profiler(500), tmp_path))
    assert verdict.limiter == "launch"
    assert "For another 33.3% of it, the profiler itself kept it idle" in verdict.sentence


def _python_and_launches() -> TraceBuilder:
    """Steps of 1.9 ms of Python, then operators whose kernels take as long to launch."""
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(4):
        begin = 4000 * step
        main.step(step, at=begin, us=4000)
        main.frame("train.py(7): prepare", at=begin, us=1900)
        for i in range(20):
            at = begin + 2000 + 100 * i
            main.op("aten::mul", at=at, us=95)
            main.launch("mul", at=at + 80, us=10, runs_at=at + 93, runs_us=4)
    return trace


def _handful(*, trains: bool) -> TraceBuilder:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=5000)
    for i in range(4):
        main.op("aten::mul", at=1000 * i, us=20)
        main.launch("mul", at=1000 * i + 5, us=5, runs_at=1000 * i + 15, runs_us=10)
    if trains:
        main.annotation("Optimizer.step#SGD.step", at=4500, us=100)
    return trace


def test_a_marked_step_of_a_training_is_enough_to_judge(tmp_path: Path) -> None:
    assert find_verdict(facts_of(_handful(trains=True), tmp_path)).limiter == "python"


def test_a_handful_of_kernels_is_too_little_to_judge(tmp_path: Path) -> None:
    facts = facts_of(_handful(trains=False), tmp_path)
    verdict = find_verdict(facts)
    assert verdict.limiter == "unknown"
    assert "Only 4 kernels and copies" in verdict.sentence
    outcome = run_rules(facts, RULES)
    assert not [found for found in outcome.findings if found.severity > Severity.INFO]
    assert {"GD102", "GD201"} <= {rule.id for rule, _ in outcome.unchecked}


@pytest.mark.parametrize(("name", "limiter"), [("decode video", "python"), ("", "unknown")])
def test_unseen_work_in_a_range_of_the_users_own_is_named(name: str, limiter: str, tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(4):
        at = 10_000 * step
        main.step(step, at=at, us=10_000)
        if name:
            main.annotation(name, at=at, us=8_000)
        for i in range(20):
            main.op("aten::mm", at=at + 8_000 + 100 * i, us=90)
            main.launch("gemm", at=at + 8_010 + 100 * i, us=10, runs_at=at + 8_025 + 100 * i, runs_us=95)
    verdict = find_verdict(facts_of(trace, tmp_path))
    assert verdict.limiter == limiter
    assert ("most of it in “decode video”" in verdict.sentence) is bool(name)
    assert "with_stack=True" in verdict.sentence


def test_nothing_comes_first_where_the_first_finding_is_about_the_limiter() -> None:
    found = {
        rule.id: RuleFinding(rule, Finding("", "", Fix(""), cost_ns=900, saving=saving), Severity.WARNING)
        for rule in RULES
        for saving in [None if rule.id == "GD102" else Saving(0, 100)]
        if rule.id in ("GD102", "GD501")
    }
    about_limiter, other = found["GD102"], found["GD501"]
    assert first_fix_sentence("python", [about_limiter, other], 1_000) == ""
    assert "comes first" in first_fix_sentence("python", [other, about_limiter], 1_000)


def test_without_a_gpu_kernels_of_compiled_code_compute(tmp_path: Path) -> None:
    """With stacks they are frames, which are Python elsewhere."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=2_000)
    main.frame("train.py(1): train", at=0, us=2_000)
    main.op("Torch-Compiled Region: 0/0", at=0, us=800)
    main.frame("<built-in function kernel>", at=100, us=700)
    main.op("Torch-Compiled Region: 0/0", at=1_000, us=800)
    main.frame("<built-in function kernel>", at=1_100, us=700)
    verdict = find_verdict(facts_of(trace, tmp_path))
    assert verdict.limiter == "compute"
    assert verdict.sentence.endswith(
        "This job is CPU-bound: 80.0% of its time goes to “Torch-Compiled Region: 0/0”."
    )


@pytest.mark.parametrize(
    ("us", "limiter", "said"),
    [
        (400, "compute", "took 40.0% of the main thread's time: that is no part of the job."),
        (600, "unknown", "The profiler itself took 60.0% of the main thread's time: record more steps"),
    ],
)
def test_without_a_gpu_the_profilers_own_time_is_not_the_jobs_python(
    us: float, limiter: str, said: str, tmp_path: Path
) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1_000)
    main.frame("train.py(1): train", at=0, us=1_000)
    main.frame("torch/profiler/profiler.py(838): step", at=0, us=us)
    main.op("aten::mm", at=us, us=400)
    verdict = find_verdict(facts_of(trace, tmp_path))
    assert verdict.limiter == limiter
    assert said in plain(verdict.sentence)


@pytest.mark.parametrize(("us", "named"), [(500, True), (400, False)])
def test_one_kernel_that_takes_half_of_the_time_is_named(us: float, *, named: bool, tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for at in range(0, 5_000, 1_000):
        main.launch("own_kernel", at=at, us=5, runs_at=at + 10, runs_us=us)
        for part in range(5):
            main.launch(
                f"other_{part}", at=at + 10 * part + 10, us=5, runs_at=at + 10 + us + 90 * part, runs_us=88
            )
    verdict = find_verdict(facts_of(trace, tmp_path))
    assert verdict.limiter == "compute"
    assert ("One kernel, “own_kernel”, takes" in verdict.sentence) == named
