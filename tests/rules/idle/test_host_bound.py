from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.answer import Clear, Severity
from tb_gpudiag.rules.idle.host_bound import RULE
from tb_gpudiag.rules.savings import Predicted, with_saving
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.wording.format import time_ns
from tb_gpudiag.wording.quantity import duration, number, share_of
from tests.builder import HostThread, TraceBuilder
from tests.rules.stage import (
    Act,
    cannot_tell,
    facts_of,
    figures,
    finding,
    findings,
    is_clear,
    one_gap,
    saving,
)


def _python(main: HostThread, at: float, us: float) -> None:
    main.frame("augment.py(40): crop", at=at, us=us)


def _late_launch(idle_us: float, step_us: float) -> tuple[TraceBuilder, HostThread]:
    """Build a step from 100 µs on. The GPU has work until 300 µs, and from 306 µs + idle_us to its end."""
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("before", at=50, us=5, runs_at=60, runs_us=240)
    main.step(0, at=100, us=step_us)
    main.launch("after", at=300 + idle_us, us=5, runs_at=306 + idle_us, runs_us=step_us - 206 - idle_us)
    return trace, main


def test_fires_on_python_between_operators_and_names_the_line(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(one_gap(_python, 300), tmp_path)))
    assert found.cost_ns == 300_000
    assert figures(found)["Idle during host work"] == (
        duration(300_000),
        share_of(300_000, 1_000_000, "of the step window"),
    )
    assert (found.places[0].file, found.places[0].line, found.places[0].function) == (
        "augment.py",
        40,
        "crop",
    )


@pytest.mark.parametrize(("mark", "said"), [("forward", True), ("Optimizer.step#Adam.step", False)])
def test_a_bigger_batch_does_not_shorten_an_optimizer(mark: str, said: bool, tmp_path: Path) -> None:
    trace, main = _late_launch(1_500, 2_000)
    main.annotation(mark, at=302, us=1_490)
    for at in range(310, 1_710, 100):
        main.op("aten::add_", at=at, us=95)
    assert ("bigger batch" in finding(RULE.check(facts_of(trace, tmp_path))).fix.text) == said


@pytest.mark.parametrize(("idle_us", "said"), [(900, True), (1_100, False)])
def test_mentions_cuda_graphs_if_python_runs_between_small_kernels(
    idle_us: float, said: bool, tmp_path: Path
) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=3_000)
    main.launch("before", at=50, us=5, runs_at=60, runs_us=240)
    main.launch("after", at=300 + idle_us, us=5, runs_at=306 + idle_us, runs_us=2_694 - idle_us)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert ("CUDA graph" in figures(found)) == said


def test_fires_on_one_long_operator(tmp_path: Path) -> None:
    trace, main = _late_launch(1_500, 3_000)
    main.op("aten::unique", at=200, us=1620)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.cost_ns == 1_505_000  # up to the launch's return
    assert found.title.startswith("Slow CPU operators keep the GPU idle")
    assert found.places[0].operator == "aten::unique"


@pytest.mark.parametrize(
    ("operator_us", "subject"),
    [
        (1_000, "Slow CPU operators and Python keep"),
        (500, "Python and slow CPU operators keep"),
        (100, "Python keeps"),
    ],
)
def test_names_what_is_more_than_a_tenth_of_it(operator_us: int, subject: str, tmp_path: Path) -> None:
    """The account beside the finding shows Python alone: the title must not give both under that name."""
    trace, main = _late_launch(1_500, 3_000)
    main.frame("train.py(30): prepare", at=310, us=1_480)
    main.op("aten::unique", at=350, us=operator_us)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.title.startswith(f"{subject} the GPU idle")


def test_many_operators_that_launch_nothing_are_too_many(tmp_path: Path) -> None:
    """A split into hundreds of views: none is slow, and a bigger batch does not help."""
    trace, main = _late_launch(1_500, 3_000)
    main.op("aten::split_with_sizes", at=200, us=1590)
    for i in range(100):
        main.op("aten::as_strided", at=202 + 15 * i, us=4)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert found.title.startswith("Many small CPU operators")
    assert "fewer and larger operators" in found.fix.text
    assert saving(found, facts).high_ns >= 0.9 * found.cost_ns


def test_views_that_take_long_are_intercepted(tmp_path: Path) -> None:
    """A split into six views, each of them dispatched again from code that was not recorded: not many
    operators are the matter, but what runs inside of each."""
    trace, main = _late_launch(1_500, 3_000)
    main.op("aten::split_with_sizes", at=200, us=1590)
    for i in range(6):
        main.op("aten::narrow", at=210 + 260 * i, us=250)
        main.op("aten::slice", at=270 + 260 * i, us=185)
        main.op("aten::as_strided", at=400 + 260 * i, us=50)
        main.op("aten::as_strided", at=445 + 260 * i, us=4)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert found.title.startswith("Slow views of tensors keep the GPU idle")
    assert "what runs inside of each operator" in found.fix.text
    # Without the views inside of them: 200 µs in each piece, 110 µs in the first after the GPU is idle.
    assert figures(found)["In slow views"][0] == duration(1_110_000)
    assert saving(found, facts).high_ns >= 0.7 * found.cost_ns


@pytest.mark.parametrize(("stall_us", "cores"), [(3_000, True), (900, False)])
def test_operators_that_stall_now_and_then_lack_a_core(stall_us: int, *, cores: bool, tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=200_000)
    for i in range(200):
        at = i * 1_000.0
        if i % 25 == 10:
            main.op("aten::view", at=at - 500, us=stall_us)
        elif i % 25 not in {9, 11, 12, 13}:
            main.op("aten::view", at=at, us=10)
            main.launch("gemm", at=at + 20, us=5, runs_at=at + 26, runs_us=960)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert ("cores of its own" in found.fix.text) is cores
    assert ("oversubscribed" in found.summary) is cores


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(one_gap(_python, 48), tmp_path)))


def test_cannot_tell_without_the_activity_of_a_gpu_that_is_used(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().op("aten::mm", at=0, us=100).step(0, at=0, us=1000)
    assert cannot_tell(RULE.check(facts_of(trace, tmp_path)))


def _task(name: str, *, by: str = "train.py(30): after_batch") -> Act:
    def act(main: HostThread, at: float, us: float) -> None:
        main.frame(by, at=at, us=us)
        main.frame(name, at=at, us=us)

    return act


@pytest.mark.parametrize(
    ("name", "idle_us", "title", "code"),
    [
        ("<built-in function collect>", 21, "Garbage collection", "gc.freeze()"),
        ("logging/__init__.py(1479): info", 21, "Logging", "QueueListener"),
        ("<built-in function print>", 21, "Logging", "% 100"),
        ("torch/serialization.py(944): save", 21, "Saving files", "submit(torch.save"),
        (
            "<built-in method encode of tokenizers.Tokenizer object at 0x7ff1>",
            51,
            "Tokenizing text",
            "batched=True",
        ),
        ("PIL/Image.py(2332): resize", 51, "Preparing images", "use_fast"),
    ],
)
def test_a_host_task_has_its_own_fix_and_names_the_line_that_calls_it(
    name: str, idle_us: float, title: str, code: str, tmp_path: Path
) -> None:
    found = finding(RULE.check(facts_of(one_gap(_task(name), idle_us), tmp_path)))
    assert found.cost_ns == idle_us * 1000
    assert found.title.startswith(title)
    assert code in found.fix.code
    assert (found.places[0].file, found.places[0].function) == ("train.py", "after_batch")
    assert figures(found)["Calls"] == (number(1, "call"),)


@pytest.mark.parametrize(
    ("feeds", "code"),
    [
        ("", "use_fast"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "DataLoader(dataset"),
        ("transformers/pipelines/base.py(1120): __call__", "pipe(dataset, num_workers="),
    ],
)
def test_the_fix_fits_what_feeds_the_job(feeds: str, code: str, tmp_path: Path) -> None:
    trace = one_gap(_task("PIL/Image.py(2332): resize"), 200)
    if feeds:
        HostThread(trace, trace.recording.host[0].thread).frame(feeds, at=20, us=5)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert code in found.fix.code
    assert ("DataLoader(" in found.fix.code) == (code == "DataLoader(dataset")


@pytest.mark.parametrize(
    ("name", "idle_us"),
    [("<built-in function collect>", 19), ("PIL/Image.py(2332): resize", 49)],
)
def test_a_host_task_just_under_its_threshold_is_clear(name: str, idle_us: float, tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(one_gap(_task(name), idle_us), tmp_path)))


def test_a_host_task_and_the_rest_are_two_findings_that_share_no_time(tmp_path: Path) -> None:
    def act(main: HostThread, at: float, us: float) -> None:
        main.frame("<built-in function collect>", at=at + us - 40, us=40)

    facts = facts_of(one_gap(act, 200), tmp_path)
    rest, garbage = findings(RULE.check(facts))
    assert (rest.cost_ns, garbage.cost_ns) == (160_000, 40_000)
    assert "Python" in rest.title
    assert rest.removable is not None
    assert garbage.removable is not None
    assert rest.removable.most.host.total + garbage.removable.most.host.total <= 1_000_000
    assert garbage.removable.most.host.total == 40_000


def test_without_stacks_all_of_it_is_python(tmp_path: Path) -> None:
    trace, main = _late_launch(200, 1_000)
    main.op("aten::mm", at=495, us=20)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.title.startswith("Python keeps")
    evidence = figures(found)
    assert evidence["Longest stretch"] == (duration(195_000), "before “aten::mm”")


def test_compares_preparing_the_input_with_the_gpu_time_of_the_model(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.frame("PIL/Image.py(2332): resize", at=0, us=800)
    main.launch("gemm", at=810, us=5, runs_at=820, runs_us=180)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    longer = f"It takes {time_ns(800_000)}, longer than the GPU computes ({time_ns(180_000)})."
    assert longer in found.summary


def test_a_long_stretch_that_was_not_recorded_is_not_called_python(tmp_path: Path) -> None:
    trace, _ = _late_launch(2_000, 3_000)
    trace.thread().op("aten::mm", at=2290, us=20)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert found.title.startswith("The host keeps")
    assert "with_stack=True" in found.fix.code
    assert "torch.compile" not in found.fix.code
    assert "Python between operators" not in figures(found)
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING
    assert (
        with_saving(found, facts, Predicted(facts.replay, facts.unslowed)).saving is None
    )  # a new recording saves no time


def test_without_operators_nothing_is_called_python(tmp_path: Path) -> None:
    """A recording of ProfilerActivity.CUDA alone shows only runtime calls."""
    facts = facts_of(_late_launch(100, 1_100)[0], tmp_path)
    found = finding(RULE.check(facts))
    assert found.title.startswith("The host keeps")
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO


@pytest.mark.parametrize(("us", "compiles"), [(400, True), (5000, False)])
def test_long_host_work_is_not_compiled(us: float, compiles: bool, tmp_path: Path) -> None:
    trace, _ = _late_launch(us, us + 1_000)
    trace.thread().frame("preprocess.py(3): resize_all", at=200, us=us + 95)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert ("torch.compile" in found.fix.code) == compiles
    assert ("torch.compile" in found.fix.text) == compiles


def test_random_tensors_of_the_cpu_are_named_without_stacks(tmp_path: Path) -> None:
    """What stands in for data is made on the CPU and sent over, step by step."""

    def make_and_send(main: HostThread, at: float, us: float) -> None:
        main.op("aten::randn", at=at, us=us - 30).op("aten::normal_", at=at + 5, us=us - 40)
        main.op("aten::to", at=at + us - 20, us=15)

    trace = one_gap(make_and_send, 400)
    trace.recording.host = [span for span in trace.recording.host if span.kind != "frame"]
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert "Making tensors on the CPU" in found.title
    assert 'device="cuda"' in found.fix.code
    assert found.places[0].operator == "aten::randn"
    assert find_verdict(facts).limiter == "input"


@pytest.mark.parametrize(("us", "named"), [(900, True), (300, False)])
def test_large_tensors_that_the_cpu_fills_are_named(us: float, named: bool, tmp_path: Path) -> None:
    """A counter that is made on the CPU is not: it takes microseconds."""

    def fill(main: HostThread, at: float, length_us: float) -> None:
        main.op("aten::ones", at=at, us=us).op("aten::fill_", at=at + 5, us=us - 10)

    found = finding(RULE.check(facts_of(one_gap(fill, 1_500), tmp_path)))
    assert ("Making tensors on the CPU" in found.title) == named


def test_what_the_cpu_computes_for_a_gpu_is_to_be_moved_there(tmp_path: Path) -> None:
    def sort(main: HostThread, at: float, us: float) -> None:
        main.op("aten::sort", at=at, us=us).op("aten::copy_", at=at + 5, us=50)

    found = finding(RULE.check(facts_of(one_gap(sort, 600), tmp_path)))
    assert found.title.startswith("Computing on the CPU keeps the GPU idle 60")
    assert found.places[0].operator == "aten::sort"
    assert 'x.to("cuda"' in found.fix.code


def test_the_tracers_own_time_is_no_saving(tmp_path: Path) -> None:
    """No fix of the job removes the buffers that the tracer asks for while Python runs."""
    trace = one_gap(_python, 500)
    trace.overhead("Activity Buffer Request", at=320, us=300)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == pytest.approx(200_000, abs=10_000)
    most = saving(found, facts).possible[1] * facts.window.duration_ns
    assert most <= 400_000  # Python's 700 µs but for the buffers


def test_host_work_that_was_not_recorded_comes_first_where_it_is_much(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(4):
        main.launch("gemm", at=i * 2_000, us=5, runs_at=i * 2_000 + 10, runs_us=500)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.records_again
    assert found.leads


@pytest.mark.parametrize("calls", [1, 2])
def test_unrecorded_time_before_a_first_call_of_compiled_code_may_be_its_compilation(
    calls: int, tmp_path: Path
) -> None:
    """Each kernel that torch.compile wrote runs once in it, and more often in a warm recording."""
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("gemm", at=0, us=5, runs_at=10, runs_us=20)
    for call in range(calls):
        for kernel in range(3):
            at = 500_000 + 100 * call + 20 * kernel
            main.launch(f"triton_poi_fused_add_{kernel}", at=at, us=5, runs_at=at + 10, runs_us=10)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert "was not recorded" in found.title
    assert ("torch.compile" in found.summary) is (calls == 1)
    assert ("before the recording" in found.fix.text) is (calls == 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_freeing_large_blocks_between_operators_is_a_finding_of_its_own(workers: int, tmp_path: Path) -> None:
    trace, main = _late_launch(400, 1_000)
    main.loader(at=110, us=20, workers=workers)
    main.frame("train.py(9): main", at=140, us=700)
    batch = main.alloc(2**24, at=130, device=None)
    main.free(batch, at=680)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.title.startswith("Freeing host memory keeps the GPU idle")
    assert found.cost_ns == pytest.approx(400_000, rel=0.05)
    assert ("pin_memory=True" in found.fix.code and "DataLoader" in found.fix.code) == bool(workers)
    assert found.places[0].function == "main"


@pytest.mark.parametrize(("size", "inside"), [(2**19, False), (2**24, True)])
def test_small_blocks_and_what_operators_free_is_the_host_s_other_work(
    size: int, inside: bool, tmp_path: Path
) -> None:
    trace, main = _late_launch(400, 1_000)
    main.frame("train.py(9): main", at=140, us=700)
    if inside:
        main.op("aten::mm", at=290, us=400)
    main.free(main.alloc(size, at=130, device=None), at=680)
    answer = RULE.check(facts_of(trace, tmp_path))
    assert "Freeing" not in str(answer)
    assert isinstance(answer, Clear) == inside


@pytest.mark.parametrize(("us", "most"), [(60_000, True), (40_000, False)])
@pytest.mark.parametrize(
    ("operator", "said"),
    [
        ("aten::ones", "Making tensors on the CPU takes 60.0%"),
        ("aten::sort", "Computing on the CPU takes 60.0%"),
    ],
)
def test_what_the_cpu_makes_and_computes_is_told_without_the_kernels_too(
    operator: str, said: str, us: float, tmp_path: Path, *, most: bool
) -> None:
    """A step takes at least as long as they do, whatever the GPU does meanwhile."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for i in range(2):
        at = 100_000 * i
        main.step(i, at=at, us=100_000).frame("train.py(12): train", at=at, us=99_000)
        main.op(operator, at=at + 1, us=us)
        main.call("cudaLaunchKernel", at=at + 90_000, us=5)
    answer = RULE.check(facts_of(trace, tmp_path))
    assert isinstance(answer, list) == most
    assert (said in str(answer)) == most
