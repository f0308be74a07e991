"""GD102 on jobs without a GPU: where the main thread's time goes."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import CannotTell, Severity
from tb_gpudiag.rules.idle.host_bound import RULE
from tb_gpudiag.rules.recording import warmup_recorded
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.wording.quantity import number
from tests.builder import HostThread, TraceBuilder
from tests.rules.stage import (
    facts_of,
    figures,
    finding,
    findings,
    is_clear,
)


def _python(main: HostThread, at: float, us: float) -> None:
    main.frame("augment.py(40): crop", at=at, us=us)


def _on_cpu(act: Callable[[HostThread, float], object], steps: int = 4) -> TraceBuilder:
    """Build steps of 1,000 µs on the CPU: 100 µs of computing, then something for 900 µs."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for step in range(steps):
        at = step * 1_000
        main.step(step, at=at, us=1_000).frame("train.py(12): train_step", at=at, us=1_000)
        main.op("aten::mm", at=at, us=100)
        act(main, at + 100)
    return trace


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("<built-in function collect>", "Garbage collection takes 90.0% of the main thread's time"),
        ("torch/serialization.py(945): save", "Saving files takes 90.0% of the main thread's time"),
        ("<built-in function sleep>", "Sleeping takes 90.0% of the main thread's time"),
        ("logging/__init__.py(1489): info", "Logging takes 90.0% of the main thread's time"),
    ],
)
def test_a_host_task_of_a_job_on_the_cpu(name: str, title: str, tmp_path: Path) -> None:
    def act(main: HostThread, at: float) -> None:
        main.frame("train.py(40): chore", at=at, us=900).frame(name, at=at, us=900)

    found = finding(RULE.check(facts_of(_on_cpu(act), tmp_path)))
    assert found.title == title
    assert (found.cost_ns, found.places[0].function) == (4 * 900_000, "chore")
    assert figures(found)["Calls"] == (number(4, "call"), number(1, suffix="per step"))
    assert found.claims == {}


def test_python_of_a_job_on_the_cpu(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_on_cpu(lambda main, at: _python(main, at, 900)), tmp_path)))
    assert found.title == "Python between operators takes 90.0% of the main thread's time"
    assert found.places[0].function == "crop"


def _turns(main: HostThread, at: float) -> None:
    """Twelve times a line of Python, and an operator after it that computes."""
    main.frame("train.py(40): fill", at=at, us=898)
    for turn in range(12):
        main.op("aten::select", at=at + 74 * turn + 50, us=22)


def _draws(main: HostThread, at: float) -> None:
    main.frame("buffer.py(9): draw", at=at, us=898).frame("random.py(480): sample", at=at + 1, us=890)
    main.frame("<built-in method append of list object at 0x7f01>", at=at + 5, us=10)


def _calls_back(main: HostThread, at: float) -> None:
    main.frame("hooks/events.py(7): emit", at=at, us=898).frame("functools.py(9): apply", at=at + 1, us=890)
    _python(main, at + 2, 880)


@pytest.mark.parametrize(
    ("act", "says", "advice"),
    [
        (_turns, "it is a loop", "for all items at once"),
        (_draws, "Most of it is in sample (random.py).", "Call it less often"),
        (_calls_back, "", "This line takes it: see what it does"),
        (lambda main, at: _python(main, at, 898), "", "This line takes it: see what it does"),
    ],
    ids=["loop", "call", "called back", "line"],
)
def test_the_advice_follows_what_the_trace_shows_of_the_time(
    act: Callable[[HostThread, float], object], says: str, advice: str, tmp_path: Path
) -> None:
    """Only a line that a step comes to many times is a loop."""
    found = finding(RULE.check(facts_of(_on_cpu(act), tmp_path)))
    assert says in found.summary
    assert advice in found.fix.text


@pytest.mark.parametrize(
    "name", ["gymnasium/wrappers/common.py(120): step", "game/board.py(8): env_step", "rl.py(3): simulate"]
)
def test_stepping_an_environment_is_no_loop_over_tensors(name: str, tmp_path: Path) -> None:
    def act(main: HostThread, at: float) -> None:
        main.frame("rl.py(40): play", at=at, us=898).frame(name, at=at, us=890)

    found = finding(RULE.check(facts_of(_on_cpu(act), tmp_path)))
    assert found.title.startswith("Stepping the environment takes")
    assert "many environments at once" in found.fix.text


@pytest.mark.parametrize(("computing", "severity"), [(9_300, Severity.INFO), (5_000, Severity.WARNING)])
def test_much_that_was_not_recorded_is_a_warning(computing: int, severity: Severity, tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for step in range(4):
        main.step(step, at=step * 13_000, us=13_000).op("aten::mm", at=step * 13_000, us=computing)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert "work that was not recorded" in found.title
    assert found.severity is severity


def test_a_pause_in_one_step_is_not_usual(tmp_path: Path) -> None:
    """As of a garbage collector that runs by itself: GD106 is about single steps."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    ends = [100.0 * step for step in range(1, 7)]
    ends = [at + 5_000 * (at > 300) for at in ends]
    for step, (at, end) in enumerate(pairwise([0.0, *ends])):
        main.step(step, at=at, us=end - at).op("aten::mm", at=at, us=90)
    facts = facts_of(trace, tmp_path)
    assert is_clear(RULE.check(facts))


@pytest.mark.parametrize(("stalls", "usual"), [(6, False), (4, True)])
def test_pauses_of_a_process_that_lacks_a_core_are_not_usual(
    stalls: int, *, usual: bool, tmp_path: Path
) -> None:
    """Frames that usually take 20 us take 5 ms now and then. Some operators that compute nothing do, too."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    at = 0.0
    for step in range(4):
        began = at
        for i in range(50):
            us = 5_000.0 if i in {10, 30} else 20.0
            main.frame("library.py(7): look_up", at=at, us=us)
            at += us
            us = 2_000.0 if i == 20 or (i == 40 and step < stalls - 4) else 30.0
            main.op("aten::view", at=at, us=us)
            at += us
            main.op("aten::mm", at=at, us=200)
            at += 200
        main.step(step, at=began, us=at - began)
    answer = RULE.check(facts_of(trace, tmp_path))
    assert is_clear(answer) is not usual


def test_large_inputs_beside_small_ones_are_no_pauses(tmp_path: Path) -> None:
    """One matmul in forty is large and takes 8 ms, in a process that lacks a core: Python takes a fifth."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    at = 0.0
    for step in range(4):
        began = at
        for i in range(40):
            main.frame("train.py(9): train", at=at, us=60)
            us, shape = (8_000.0, [1_024, 1_024]) if i == 20 else (30.0, [8, 8])
            main.op("aten::mm", at=at + 60, us=us, shapes=[shape, shape])
            at += 60 + us
            us = 2_000.0 if i in {10, 30} else 30.0
            main.op("aten::view", at=at, us=us)
            at += us
        main.step(step, at=began, us=at - began)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_what_recording_adds_between_operators_is_not_python(tmp_path: Path) -> None:
    short, long = TraceBuilder(devices=()), TraceBuilder(devices=())
    for trace, gap_us in ((short, 12), (long, 18)):
        main = trace.thread()
        for i in range(400):
            main.op("aten::mm", at=i * (30 + gap_us), us=30)
        for step in range(4):
            main.step(step, at=step * 100 * (30 + gap_us), us=100 * (30 + gap_us))
    assert is_clear(RULE.check(facts_of(short, tmp_path / "short")))
    assert finding(RULE.check(facts_of(long, tmp_path / "long")))


def test_python_that_calls_many_functions_is_usual(tmp_path: Path) -> None:
    """As a progress bar: recording may take most of this time, and need not."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for step in range(4):
        at = step * 2_000.0
        main.step(step, at=at, us=2_000).op("aten::mm", at=at, us=800)
        main.frame("train.py(9): draw", at=at + 800, us=1_200)
        for i in range(1_190):
            main.frame("train.py(12): <genexpr>", at=at + 802 + i, us=0.8)
    assert finding(RULE.check(facts_of(trace, tmp_path))).title.startswith("Python between operators")


def test_a_pause_in_one_step_does_not_hide_what_is_usual(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    at = 0.0
    for step in range(6):
        us = 1_400.0 if step == 3 else 1_000.0
        main.step(step, at=at, us=us).op("aten::mm", at=at, us=600)
        for i in range(32):
            main.op("aten::add", at=at + 610 + i * 12, us=10)
        at += us
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.title.startswith("CPU operator overhead takes 30.0%")


def test_many_small_operators_are_overhead_and_few_large_ones_compute(tmp_path: Path) -> None:
    def small(main: HostThread, at: float) -> None:
        for i in range(90):
            main.op("aten::add", at=at + i * 10, us=9)

    facts = facts_of(_on_cpu(small), tmp_path)
    found = finding(RULE.check(facts))
    assert found.title == "CPU operator overhead takes 81.0% of the main thread's time"
    assert figures(found)["Operators"] == (number(360, "operator"), number(90, suffix="per step"))
    verdict = find_verdict(facts)
    assert verdict.limiter == "python"  # nothing is launched on a GPU
    assert "Dispatching small operators limits this job." in verdict.sentence
    large = facts_of(_on_cpu(lambda main, at: main.op("aten::mm", at=at, us=900)), tmp_path)
    assert is_clear(RULE.check(large))
    assert find_verdict(large).limiter == "compute"


def test_an_operator_that_was_interrupted_is_still_small(tmp_path: Path) -> None:
    def small(main: HostThread, at: float) -> None:
        for i in range(60):
            main.op("aten::add", at=at + i * 10, us=300 if (at, i) == (100, 59) else 9)

    overhead, *_ = findings(RULE.check(facts_of(_on_cpu(small), tmp_path)))
    assert overhead.title.startswith("CPU operator overhead")
    assert overhead.cost_ns == (4 * 60 - 1) * 9_000 + 300_000


@pytest.mark.parametrize(("count", "reported"), [(25, True), (17, False)])
def test_a_loop_takes_time_in_small_operators_and_between_them(
    count: int, *, reported: bool, tmp_path: Path
) -> None:
    """Neither is much: 20% and 22%, together 42%; or 14% and 15%."""

    def loop(main: HostThread, at: float) -> None:
        for i in range(count):
            main.op("aten::fill_", at=at + i * 16.8, us=8)
        main.op("aten::mm", at=at + count * 16.8, us=900 - count * 16.8)

    answer = RULE.check(facts_of(_on_cpu(loop), tmp_path))
    assert (
        finding(answer).title.startswith("CPU operator overhead takes 20.0%")
        if reported
        else is_clear(answer)
    )


def test_a_pause_in_one_step_hides_no_overhead(tmp_path: Path) -> None:
    """The other steps have it: 60% of theirs, and 12% of all time."""

    def small(main: HostThread, at: float) -> None:
        for i in range(60):
            main.op("aten::add", at=at + i * 10, us=10)
        main.op("aten::mm", at=at + 600, us=300)

    trace = _on_cpu(small)
    trace.thread().step(4, at=4_000, us=16_000).op("aten::mm", at=4_000, us=100)
    overhead = finding(RULE.check(facts_of(trace, tmp_path)))
    assert overhead.title.startswith("CPU operator overhead takes 12.0%")


@pytest.mark.parametrize(("us", "judged"), [(19_000, False), (21_000, True)])
def test_one_short_call_on_a_cpu_is_not_judged(us: float, *, judged: bool, tmp_path: Path) -> None:
    """First calls are slower. Without a mark, ten operators with Python between them are one call."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for turn in range(10):
        main.op(f"aten::op{turn}", at=us / 10 * turn, us=us / 40)
    main.op("aten::last", at=us - 1, us=1)
    answer = RULE.check(facts_of(trace, tmp_path))
    assert isinstance(answer, CannotTell) is not judged


@pytest.mark.parametrize("waits", [True, False])
def test_ddp_waits_inside_of_cpp_for_its_buffers(tmp_path: Path, *, waits: bool) -> None:
    name = "_broadcast_coalesced" if waits else "count_words"

    def act(main: HostThread, at: float) -> None:
        main.frame(f"<built-in method {name} of PyCapsule object at 0x7f>", at=at, us=900)
        main.op("c10d::broadcast_", at=at + 5, us=10)

    trace = _on_cpu(act)
    other = trace.thread("gloo")
    for step in range(4):
        other.op("gloo:broadcast", at=step * 1_000 + 110, us=880, shapes=[[8_388_608]])
    answer = RULE.check(facts_of(trace, tmp_path))
    if waits:
        assert is_clear(answer)
    else:
        assert finding(answer).title.startswith("Python between operators")


def test_short_calls_without_an_operator_are_no_operators(tmp_path: Path) -> None:
    """Python between them is too short to be told from what recording takes."""
    calls = [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaMalloc", "pid": 1, "tid": 1, "ts": 10 * n, "dur": 5}
        for n in range(300)
    ]
    steps = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": 750 * n, "dur": 750}
        for n in range(4)
    ]
    frame = {"ph": "X", "cat": "python_function", "name": "train.py(1): main", "ts": 0, "dur": 3_000}
    events = [{"pid": 1, "tid": 1, **event} for event in (*calls, *steps, frame)]
    path = tmp_path / "cpu.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert is_clear(RULE.check(Facts(read_trace(str(path)))))


def _locked(other: str, *, first_us: float = 3_000) -> TraceBuilder:
    """Six steps of 10 ms (the first longer) that take a lock by `with`, which has no frame, and compute. From
    its start on, another thread holds a lock for 9 ms, and releases it, at the address `other`."""
    trace = TraceBuilder(devices=())
    main, thread = trace.thread(), trace.thread()
    at = 0.0
    for step in range(6):
        waits = first_us if step == 0 else 9_000
        main.step(step, at=at, us=waits + 1_000)
        main.frame("train.py(12): update", at=at + 1, us=waits + 998)
        main.op("aten::mm", at=at + waits, us=900)
        main.frame(_release("0x7f01"), at=at + waits + 950, us=1)
        thread.frame("sync.py(30): publish", at=at, us=waits).frame(_release(other), at=at + waits - 10, us=1)
        at += waits + 1_000
    return trace


def _release(address: str) -> str:
    return f"<built-in method __exit__ of _thread.lock object at {address}>"


@pytest.mark.parametrize(("other", "waits"), [("0x7f01", True), ("0x7f02", False)])
def test_a_lock_that_another_thread_releases_was_waited_for(
    other: str, *, waits: bool, tmp_path: Path
) -> None:
    facts = facts_of(_locked(other), tmp_path)
    found = finding(RULE.check(facts))
    assert found.title.startswith("Waiting for a lock" if waits else "Python between operators")
    assert (find_verdict(facts).limiter == "waiting") == waits
    assert found.places[0].function == "update"
    if waits:
        assert figures(found)["Calls"] == (number(6, "call"), number(1, suffix="per step"))
        assert "Meanwhile, in the other thread: publish (sync.py, defined at line 30)" in figures(found)


@pytest.mark.parametrize(("other", "clear"), [("0x7f01", True), ("0x7f02", False)])
def test_a_first_step_that_waits_for_a_lock_is_no_warm_up(other: str, *, clear: bool, tmp_path: Path) -> None:
    facts = facts_of(_locked(other, first_us=40_000), tmp_path)
    assert is_clear(warmup_recorded.RULE.check(facts)) == clear


@pytest.mark.parametrize(
    ("node", "cause"), [("AddBackward0", Cause.DISPATCH), ("AlignBackward", Cause.PYTHON)]
)
def test_only_a_function_of_the_user_s_own_runs_python_in_a_node(
    node: str, cause: Cause, tmp_path: Path
) -> None:
    """Torch's own nodes have a number. What takes long in one is no Python: the thread lost its core."""

    trace = TraceBuilder(devices=())
    main = trace.thread()
    for step in range(4):
        at = step * 3_000
        main.step(step, at=at, us=3_000).frame("train.py(12): train_step", at=at, us=3_000)
        main.op("aten::mm", at=at, us=100)
        main.op(node, at=at + 110, us=2_800, sequence=step, forward_thread=1)
    spans = facts_of(trace, tmp_path).main_thread_spans
    longest = spans.take(spans.end_ns - spans.start_ns >= 2_700_000)
    assert {Cause(one) for one in longest.cause} == {cause}


@pytest.mark.parametrize(
    ("outer", "inner", "said"),
    [
        (
            "train.py(9): log_metric",
            "<built-in method recv of socket object at 0x1>",
            "Logging limits this job.",
        ),
        ("train.py(9): update", "torch/serialization.py(944): save", "Saving files limits this job."),
        ("train.py(9): free", "<built-in function collect>", "Garbage collection limits this job."),
    ],
)
def test_the_verdict_names_the_task_that_takes_most(
    outer: str, inner: str, said: str, tmp_path: Path
) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for step in range(4):
        at = 1000 * step
        main.step(step, at=at, us=1000)
        main.frame(outer, at=at + 10, us=700).frame(inner, at=at + 20, us=680)
        main.op("aten::mm", at=at + 750, us=50, sequence=step)
        main.op("MmBackward0", at=at + 810, us=150, sequence=step, forward_thread=1)
    facts = facts_of(trace, tmp_path)
    verdict = find_verdict(facts)
    assert (verdict.limiter, said in verdict.sentence) == ("python", True), verdict.sentence
