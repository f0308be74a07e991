"""The step clock: phases of real steps, what it must not disturb, and real jobs of ranks that drift."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tb_gpudiag import DiagnosisHandler
from tb_gpudiag.report.diagnosis import diagnose_path
from tb_gpudiag.service.processes.child import ChildMessage
from tb_gpudiag.service.processes.process_setup import NICE, worker_environment
from tb_gpudiag.training import clock_sender
from tb_gpudiag.training.slow_steps import BLOCK_STEPS, RECENT
from tb_gpudiag.training.step_clock import StepClock
from tb_gpudiag.training.step_phases import MOST_MARKS, GarbageTimes, PhaseSampling, first_with_gradient
from tb_gpudiag.vocabulary.written import PHASES
from tests.patience import HANGS_S
from tests.training.stage import handler

pytestmark = pytest.mark.slow

MS = 1_000_000


class Time:
    """A clock that only moves when told, in ms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        self.clocks: list[StepClock] = []
        monkeypatch.setattr(time, "perf_counter_ns", lambda: self.now_ns)

    def passes(self, ms: float) -> None:
        self.now_ns += round(ms * MS)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch, torch: Any) -> Iterator[Time]:
    monkeypatch.setattr(clock_sender.ClockSender, "start", lambda _: None)
    time = Time(monkeypatch)
    yield time
    for clock in time.clocks:
        clock.close()


class Loop:
    """A loop with a clock, each of whose phases takes as long as told."""

    def __init__(self, torch: Any, now: Time, folder: Path, **options: Any) -> None:
        self.torch, self.now = torch, now

        class Model(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(4, 4)

            def forward(self, x: Any) -> Any:
                now.passes(20)
                return self.layer(x)

        class Slow(torch.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(_: Any, x: Any) -> Any:
                return x.clone()

            @staticmethod
            def backward(_: Any, gradient: Any) -> Any:
                now.passes(30)
                return gradient

        class Optimizer(torch.optim.SGD):  # type: ignore[misc]
            def step(self) -> None:
                now.passes(5)
                super().step()

        self.model, self.slow = Model(), Slow.apply
        self.optimizer = Optimizer(self.model.parameters(), lr=0.1)
        with handler(folder) as made:
            self.clock = made.step_clock(self.model, self.optimizer, **options)
        now.clocks.append(self.clock)

    def batches(self, count: int) -> Iterator[Any]:
        for _ in range(count):
            self.now.passes(10)
            yield self.torch.rand(2, 4, requires_grad=True)

    def forward_and_backward(self, batch: Any) -> None:
        self.model(self.slow(batch)).sum().backward()

    def steps(self, count: int) -> None:
        for batch in self.clock(self.batches(count)):
            self.forward_and_backward(batch)
            self.optimizer.step()

    def rows(self) -> list[dict[str, float]]:
        names = ("number", "total", *PHASES)
        return [dict(zip(names, row, strict=True)) for row in self.clock._sender.rows]


STEP = {"total": 68.0, "input": 10.0, "forward": 20.0, "backward": 30.0, "optimizer": 5.0, "other": 3.0}


def test_a_step_has_its_phases(torch: Any, now: Time, tmp_path: Path) -> None:
    loop = Loop(torch, now, tmp_path)
    for batch in loop.clock(loop.batches(4)):
        loop.forward_and_backward(batch)
        now.passes(3)
        loop.optimizer.step()
    loop.clock.close()
    assert loop.rows() == [{"number": n, **STEP, "wait": 0.0, "garbage": 0.0} for n in range(4)]


def test_a_step_of_several_batches_ends_after_the_optimizer(torch: Any, now: Time, tmp_path: Path) -> None:
    loop = Loop(torch, now, tmp_path)
    for number, batch in enumerate(loop.clock(loop.batches(7))):
        loop.forward_and_backward(batch)
        if number % 3 == 2:
            loop.optimizer.step()
    assert [(row["total"], row["forward"], row["optimizer"]) for row in loop.rows()] == [(185, 60, 5)] * 2


@pytest.fixture
def each_third(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time the phases of each third step, as of short ones."""
    monkeypatch.setattr(PhaseSampling, "untimed", lambda _, step: -step % 3)


@pytest.mark.usefixtures("each_third")
def test_short_steps_have_phases_now_and_then(torch: Any, now: Time, tmp_path: Path) -> None:
    loop = Loop(torch, now, tmp_path)
    for number, batch in enumerate(loop.clock(loop.batches(8))):
        loop.forward_and_backward(batch)
        now.passes(3)
        if number % 2:  # of two batches each
            loop.optimizer.step()
    loop.optimizer.step()
    loop.clock.step()
    loop.clock.close()
    assert not loop.model._forward_hooks
    rows = loop.rows()
    assert [row["number"] for row in rows] == list(range(5))
    assert [row["total"] for row in rows] == [131, 131, 131, 131, 5]
    has_phases = [True, False, False, True, False]
    for phase, ms in (("forward", 40), ("input", 20), ("other", 6)):
        assert [row[phase] == ms for row in rows] == has_phases
        assert [math.isnan(row[phase]) for row in rows] == [not each for each in has_phases]
    assert [row["garbage"] for row in rows] == [0] * 5


@pytest.mark.usefixtures("each_third")
def test_a_loss_of_an_earlier_step_is_no_phase(torch: Any, now: Time, tmp_path: Path) -> None:
    loop = Loop(torch, now, tmp_path)
    loss = loop.model(torch.rand(2, 4)).sum()
    for _ in range(3):
        loop.clock.step()
        loss.backward(retain_graph=True)
    loop.clock.step()
    assert [row["backward"] for row in loop.rows()] == pytest.approx([0, math.nan, math.nan, 0], nan_ok=True)


@pytest.mark.usefixtures("each_third")
@pytest.mark.parametrize("inner", [False, True])
def test_compiled_models_are_not_compiled_again(torch: Any, now: Time, tmp_path: Path, inner: bool) -> None:
    torch._dynamo.reset()
    model = torch.nn.Linear(4, 4)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with handler(tmp_path) as made, made.step_clock(model if inner else compiled) as clock:
        compiled(torch.rand(2, 4)).sum().backward()
        with torch._dynamo.config.patch(error_on_recompile=True):
            for _ in range(7):
                clock.step()
                compiled(torch.rand(2, 4)).sum().backward()
        assert clock.is_on
        assert clock.number == 7


def test_without_a_loader_a_step_is_told(torch: Any, now: Time, tmp_path: Path) -> None:
    loop = Loop(torch, now, tmp_path)
    for batch in loop.batches(2):
        loop.forward_and_backward(batch)
        loop.optimizer.step()
        loop.clock.step()
    assert [row["total"] for row in loop.rows()] == [65, 65]


def test_evaluation_is_no_forward_phase(torch: Any, now: Time, tmp_path: Path) -> None:
    loop = Loop(torch, now, tmp_path)
    with torch.no_grad():
        loop.model(torch.rand(2, 4))
    loop.clock.step()
    assert [(row["forward"], row["other"]) for row in loop.rows()] == [(0, 20)]


def test_garbage_collection_is_not_the_phases_around_it(torch: Any, now: Time, tmp_path: Path) -> None:
    loop = Loop(torch, now, tmp_path)
    loop.model.layer.register_forward_pre_hook(lambda *_: print(gc.collect()))
    gc.callbacks.append(lambda what, _: now.passes(7) if what == "start" else None)
    try:
        loop.model(torch.rand(2, 4, requires_grad=True))
    finally:
        gc.callbacks.pop()
    loop.clock.step()
    (row,) = loop.rows()
    assert (row["forward"], row["garbage"] % 7, row["total"]) == (20, 0, 20 + row["garbage"])
    assert row["garbage"] > 0


def test_a_signal_during_a_collection_ends_the_training(torch: Any, tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def collect(times: int) -> None:
        for _ in range(times):
            gc.collect()

    kept = [[] for _ in range(300_000)]  # type: ignore[var-annotated]
    # What a signal raises in a callback of hypothesis, or in what another test has left, Python only prints.
    others = gc.callbacks.copy()
    gc.callbacks.clear()
    gc.collect()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with handler(tmp_path) as made, made.step_clock(torch.nn.Linear(4, 4)) as clock:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            with pytest.raises(KeyboardInterrupt):
                collect(100)
            assert clock.is_on
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.callbacks.extend(others)
    assert kept


@pytest.mark.usefixtures("each_third")
def test_collections_of_untimed_steps_are_theirs(torch: Any, now: Time, tmp_path: Path) -> None:
    loop = Loop(torch, now, tmp_path)
    gc.callbacks.append(lambda what, _: now.passes(7) if what == "start" else None)
    try:
        for number, batch in enumerate(loop.clock(loop.batches(7))):
            loop.forward_and_backward(batch)
            for _ in range(number == 4):
                gc.collect()
            loop.optimizer.step()
    finally:
        gc.callbacks.pop()
    rows = loop.rows()
    assert rows[4]["garbage"] >= 7
    assert rows[4]["garbage"] - rows[3]["garbage"] == rows[4]["total"] - rows[3]["total"]


@pytest.mark.parametrize("inner", [False, True])
def test_compiled_models_are_not_broken_into_graphs(
    torch: Any, now: Time, tmp_path: Path, inner: bool
) -> None:
    model = torch.nn.Linear(4, 4)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with handler(tmp_path) as made, made.step_clock(model if inner else compiled) as clock:
        compiled(torch.rand(2, 4)).sum().backward()
        assert clock.is_on


def test_a_model_with_hooks_can_be_copied_and_saved(torch: Any, now: Time, tmp_path: Path) -> None:
    loop = Loop(torch, now, tmp_path)
    average = copy.deepcopy(loop.model)
    average(torch.rand(2, 4)).sum().backward()
    plain = torch.nn.Linear(4, 4)
    with handler(tmp_path / "plain") as made, made.step_clock(plain):
        pickle.loads(pickle.dumps(plain))(torch.rand(2, 4)).sum().backward()
    loop.clock.step()
    assert loop.rows()[0]["forward"] == 0


def test_after_a_loop_the_model_can_be_compiled_to_torchscript(torch: Any, now: Time, tmp_path: Path) -> None:
    loop = Loop(torch, now, tmp_path)
    for _ in range(2):
        for batch in loop.clock(loop.batches(2)):
            for _validation in loop.clock([batch]):
                pass
            loop.forward_and_backward(batch)
            loop.optimizer.step()
        assert not loop.model._forward_pre_hooks
        assert not loop.model._forward_hooks
    plain = torch.nn.Linear(4, 4)
    with handler(tmp_path / "plain") as made, made.step_clock(plain) as clock:
        for _ in clock(range(2)):
            plain(torch.rand(2, 4)).sum().backward()
        assert clock.is_on
        assert torch.jit.script(plain)(torch.zeros(2, 4)).shape == (2, 4)
    loop.clock.close()
    assert [row["forward"] for row in loop.rows()] == [20] * 4


@pytest.mark.parametrize("output", [{"loss": 0}, [None, 0], (0,), {"a": {"b": 0}}])
def test_the_loss_may_be_anywhere_in_an_output(torch: Any, output: Any) -> None:
    tensor = torch.rand(2, requires_grad=True) * 2
    put = eval(repr(output).replace("0", "tensor"), {"tensor": tensor})
    assert first_with_gradient(put, torch) is tensor.grad_fn
    assert first_with_gradient(tensor.detach(), torch) is None
    assert first_with_gradient("text", torch) is None


def test_a_clock_that_fails_is_off_and_says_so(
    torch: Any, now: Time, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop(torch, now, tmp_path)
    loop.clock._sender = None
    for batch in loop.clock(loop.batches(3)):
        loop.forward_and_backward(batch)
        loop.optimizer.step()
    assert not loop.clock.is_on
    assert not loop.model._forward_hooks
    assert "the step clock stopped" in caplog.text


def test_a_clock_may_fail_while_torch_calls_the_hooks_of_an_optimizer(
    torch: Any, now: Time, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop(torch, now, tmp_path)
    for register in (loop.optimizer.register_step_pre_hook, loop.optimizer.register_step_post_hook):
        register(lambda *_: None)
    for batch in loop.batches(2):
        loop.forward_and_backward(batch)
        loop.clock._gpu = object()  # type: ignore[assignment]
        loop.optimizer.step()
        assert not loop.clock.is_on
    assert caplog.text.count("the step clock stopped") == 1
    loop.clock.close()
    assert (
        len(loop.optimizer._optimizer_step_pre_hooks) == len(loop.optimizer._optimizer_step_post_hooks) == 1
    )


def test_no_hook_stays_where_an_optimizer_takes_none(torch: Any, now: Time, tmp_path: Path) -> None:
    model, callbacks = torch.nn.Linear(4, 4), [*gc.callbacks]
    with handler(tmp_path) as made:
        assert not made.step_clock(model, object()).is_on
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert gc.callbacks == callbacks


def test_a_batch_is_not_kept_for_the_loop(torch: Any, now: Time, tmp_path: Path) -> None:
    batches = iter(Loop(torch, now, tmp_path).clock([torch.rand(2)] for _ in range(2)))
    batch = weakref.ref(next(batches)[0])
    assert batch() is None


def test_a_loader_is_iterated_over_when_the_loop_begins(torch: Any, now: Time, tmp_path: Path) -> None:
    class Loader:
        begun = 0

        def __iter__(self) -> Iterator[int]:
            self.begun += 1
            return iter(range(2))

    loader = Loader()
    batches = iter(Loop(torch, now, tmp_path).clock(loader))
    assert loader.begun == 1
    assert list(batches) == [0, 1]


def test_an_output_that_is_kept_gathers_no_hooks(torch: Any, now: Time, tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.rand(2))
    kept = weight * 2

    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self) -> Any:
            return weight, kept

    model = Model()
    with handler(tmp_path) as made, made.step_clock(model) as clock:
        for _ in range(5):
            model()
            clock.step()
        model()
        assert not weight._backward_hooks
        assert len(clock._nodes) == 1


def test_a_step_without_an_end_gathers_no_hooks(torch: Any, now: Time, tmp_path: Path) -> None:
    """The program has made another optimizer than the clock's."""
    loop = Loop(torch, now, tmp_path)
    for batch in loop.clock(loop.batches(MOST_MARKS + 9)):
        loop.forward_and_backward(batch)
    assert len(loop.clock._nodes) == MOST_MARKS


@pytest.mark.parametrize("where", ["in a hook", "in a recording"])
def test_what_the_handler_of_a_signal_raises_is_the_programs(
    torch: Any, now: Time, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    class Preempted(Exception):
        pass

    def raise_it(*_: object) -> None:
        raise Preempted

    owner, name = (
        (GarbageTimes, "take") if where == "in a hook" else (torch.profiler.profile, "export_chrome_trace")
    )
    loop = Loop(torch, now, tmp_path, active=1, warmup=0, with_stack=False)
    loop.clock._recorder._schedule.arm()
    before = signal.signal(signal.SIGALRM, raise_it)
    try:
        monkeypatch.setattr(owner, name, lambda *_, **__: signal.raise_signal(signal.SIGALRM))
        with pytest.raises(Preempted):
            loop.steps(5)
    finally:
        monkeypatch.undo()
        signal.signal(signal.SIGALRM, before)
    assert loop.clock.is_on


def test_a_profile_function_of_the_program_stays(torch: Any, now: Time, tmp_path: Path) -> None:
    def note(*_: object) -> None:
        pass

    before = sys.getprofile()
    loop = Loop(torch, now, tmp_path, active=1, warmup=0)
    loop.clock._recorder._schedule.arm()
    sys.setprofile(note)
    try:
        loop.steps(5)
        assert sys.getprofile() is note
    finally:
        sys.setprofile(before)
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_a_clock_that_is_not_closed_ends_with_its_model(torch: Any, tmp_path: Path) -> None:
    threads, callbacks = set(threading.enumerate()), len(gc.callbacks)
    with handler(tmp_path) as made:
        model = torch.nn.Linear(4, 4)
        clock = made.step_clock(model)
        (thread,) = set(threading.enumerate()) - threads
        del model, clock
        gc.collect()
        thread.join(HANGS_S)
        assert (thread.is_alive(), len(gc.callbacks)) == (False, callbacks)


def test_a_newer_clock_takes_the_place_of_the_one_before_it(
    torch: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A notebook's cell that runs again makes a clock, and the model still has the hooks of the last one."""
    model, threads = torch.nn.Linear(4, 4), set(threading.enumerate())
    first, second = DiagnosisHandler(tmp_path / "log"), DiagnosisHandler(tmp_path / "other")
    older = first.step_clock(model)
    (thread,) = set(threading.enumerate()) - threads
    other, newer = second.step_clock(model), first.step_clock(model)
    thread.join(HANGS_S)
    assert (older.is_on, other.is_on, newer.is_on, thread.is_alive()) == (False, True, True, False)
    assert len(model._forward_hooks) == 2
    assert [record.message for record in caplog.records] == [
        f"gpudiag: a newer step clock writes to {tmp_path / 'log'}: the older one ends"
    ]
    other.close()
    newer.close()
    assert not set(threading.enumerate()) - threads


def test_a_helper_that_the_end_of_the_program_starts_has_normal_priority(tmp_path: Path) -> None:
    class Helper:
        nice = NICE
        asked_with: ClassVar[list[int]] = []

        def ask(self, *_: object) -> ChildMessage:
            self.asked_with.append(self.nice)
            return ChildMessage({"said": [], "why": ""})

        def stop(self) -> None:
            pass

        close = stop

    sender = clock_sender.ClockSender(str(tmp_path), lambda: (0, 1))
    sender._child = Helper()  # type: ignore[assignment]
    sender.start()
    sender.close()
    assert Helper.asked_with == [0]


def test_a_model_that_is_saved_whole_needs_no_gpudiag(torch: Any, now: Time, tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 4)
    with handler(tmp_path) as made, made.step_clock(model) as clock:
        saved = pickle.dumps(model)
        copied = copy.deepcopy(clock)
    assert b"gpudiag" not in saved
    assert list(copied(range(3))) == [0, 1, 2]
    copied.step()
    copied.close()
    assert not copied.is_on


def test_a_model_that_takes_no_hooks_has_no_clock(torch: Any, tmp_path: Path) -> None:
    with handler(tmp_path) as made:
        clock = made.step_clock(model=object())
        assert list(clock(range(3))) == [0, 1, 2]
        assert len(clock(range(3))) == 3
        assert not clock.is_on


def test_another_profiler_is_not_disturbed(torch: Any, now: Time, tmp_path: Path) -> None:
    loop = Loop(torch, now, tmp_path, active=1, warmup=0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as other:
        loop.clock._recorder._schedule.arm()
        for batch in loop.clock(loop.batches(4)):
            loop.forward_and_backward(batch)
            loop.optimizer.step()
    assert not list(tmp_path.glob("*.json"))
    assert any(event.key == "aten::linear" for event in other.key_averages())
    for batch in loop.clock(loop.batches(4)):
        loop.forward_and_backward(batch)
        loop.optimizer.step()
    (recording,) = tmp_path.glob("*.json")
    assert [(name, why) for name, why, _ in loop.clock._sender.made] == [(recording.name, "on demand")]


def job(torch: Any, folder: Path, world: int, fault: str, rank: int, at: int, steps: int) -> list[str]:
    """Run a job. Return what each rank said."""
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("torch without Gloo")
    command = [sys.executable, "-m", "tests.training.clock_job", str(folder)]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [*command, *map(str, (world, fault, rank, at, steps))],
        capture_output=True,
        timeout=HANGS_S,
        env=worker_environment(),
        cwd=root,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return [path.read_text(encoding="utf-8") for path in sorted(folder.glob("said.*"))]


AT, STEPS = 250, 450
NEAR = (RECENT + 1) * BLOCK_STEPS
"""A late rank is seen in the median of its newest blocks, once the next one is looked at."""


@pytest.mark.parametrize(
    ("world", "fault", "rank", "words", "rules"),
    [
        (2, "loader", 1, "waiting for the next batch (input)", {"GD101"}),
        (4, "sleep", 2, "in forward", {"GD102"}),
        (2, "garbage", 0, "in garbage collection", {"GD102"}),
    ],
)
def test_a_drift_is_recorded_where_it_begins(
    torch: Any, tmp_path: Path, world: int, fault: str, rank: int, words: str, rules: set[str]
) -> None:
    said = job(torch, tmp_path, world, fault, rank, AT, STEPS)
    whys = re.findall(r"recording 6 steps from step \d+: (.*)", said[rank])
    blamed = [why for why in whys if f"rank {rank} of {world}" in why and words in why]
    assert blamed, said
    since = int(re.findall(r"(?:since about|compared with) step (\d+)", blamed[0])[0])
    assert abs(since - AT) < NEAR
    reports = [diagnose_path(str(path)) for path in (tmp_path / "log").glob("*.pt.trace.json")]
    own = [report for report in reports if report.trace.reason == blamed[0] and report.trace.rank == rank]
    assert rules <= {finding.rule for finding in own[0].findings}, own[0].verdict.sentence
    assert {report.trace.rank for report in reports if report.trace.reason == blamed[0]} == {
        0 if rank else 1,
        rank,
    }


def test_a_healthy_job_records_hardly_anything(torch: Any, tmp_path: Path) -> None:
    said = job(torch, tmp_path, 2, "none", 0, 0, STEPS)
    assert not [line for line in said if "recording" in line]


ENDS_WHILE_IT_RECORDS = """
import asyncio, sys
import torch
from tb_gpudiag import DiagnosisHandler

clock = DiagnosisHandler(sys.argv[1]).step_clock(active=500, activities=[torch.profiler.ProfilerActivity.CPU])
clock._recorder._schedule.arm()

def train():
    for _ in range(9):
        torch.rand(4) + 1
        clock.step()

if sys.argv[2] == "closed":
    with clock:
        asyncio.run(asyncio.to_thread(train))
else:
    train()
"""


@pytest.mark.parametrize("how", ["closed", "not closed"])
def test_a_program_may_end_while_the_clock_records(torch: Any, tmp_path: Path, how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS_WHILE_IT_RECORDS, tmp_path, how],
        timeout=HANGS_S,
        env=worker_environment(),
        check=False,
    )
    assert done.returncode == 0
    assert len(list(tmp_path.glob("*.pt.trace.json"))) == 1


FORKS = """
import os, resource, sys
import torch
from tb_gpudiag import DiagnosisHandler

with DiagnosisHandler(sys.argv[1]).step_clock(
    active=6, warmup=0, activities=[torch.profiler.ProfilerActivity.CPU]
) as clock:
    clock._recorder._schedule.arm()
    one = torch.ones(4)
    for step in range(9):
        torch.rand(4) + 1
        clock.step()
        if step == 4:
            assert torch.autograd._profiler_enabled()
            child = os.fork()
            if not child:
                clock.step()
                clock.close()
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                for _ in range(20_000):
                    torch.add(one, one, out=one)
                os._exit(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before > 4_000)
            assert os.waitpid(child, 0)[1] == 0
"""


def test_a_process_that_is_forked_goes_on_without_the_recording(torch: Any, tmp_path: Path) -> None:
    """It may be a worker of a loader, and long."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS, tmp_path], timeout=HANGS_S, env=worker_environment(), check=False
    )
    assert done.returncode == 0
    assert len(list(tmp_path.glob("*.pt.trace.json"))) == 1
