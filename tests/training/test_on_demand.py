"""A schedule that records when a file is touched, a signal comes, or a step is slow, and only then."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from types import ModuleType

import pytest

from tb_gpudiag import DiagnosisHandler
from tb_gpudiag.training import on_demand
from tb_gpudiag.training.on_demand import OnDemand
from tb_gpudiag.training.outliers import LEAST_STEPS


class Action(Enum):
    """torch's ProfilerAction."""

    NONE = auto()
    WARMUP = auto()
    RECORD = auto()
    RECORD_AND_SAVE = auto()


RECORDING = ["WARMUP", "RECORD", "RECORD_AND_SAVE"]


@pytest.fixture(autouse=True)
def torch_and_signal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work without torch, and leave SIGUSR2 as it was."""
    profiler = ModuleType("torch.profiler")
    profiler.ProfilerAction = Action  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "torch.profiler", profiler)
    monkeypatch.setattr(on_demand, "LOOK_EVERY_S", 0.0)
    before = signal.getsignal(signal.SIGUSR2)
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGUSR2, before)


class Clock:
    """A job whose steps take as long as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now_s)

    def steps(self, schedule: OnDemand, *durations_s: float) -> list[str]:
        actions = []
        for duration_s in durations_s:
            self.now_s += duration_s
            actions.append(schedule(0).name)
        return actions


def actions(schedule: OnDemand, count: int) -> list[str]:
    return [schedule(step).name for step in range(count)]


def made(folder: Path, *, slow_step: bool = False) -> OnDemand:
    return DiagnosisHandler(folder).on_demand(active=2, warmup=1, trigger="slow_step" if slow_step else None)


def test_touching_the_file_records_once(tmp_path: Path) -> None:
    file = tmp_path / "profile-now"
    file.touch()  # of a job before
    schedule = made(tmp_path)
    assert actions(schedule, 3) == ["NONE"] * 3
    for number in (1, 2):
        os.utime(file, ns=(number, number))
        assert actions(schedule, 5) == [*RECORDING, "NONE", "NONE"]
    file.unlink()
    assert actions(schedule, 2) == ["NONE"] * 2
    file.touch()
    assert actions(schedule, 4) == [*RECORDING, "NONE"]


def test_a_signal_records_with_the_newest_schedule(tmp_path: Path) -> None:
    old, new = made(tmp_path), made(tmp_path)
    os.kill(os.getpid(), signal.SIGUSR2)
    assert actions(new, 4) == [*RECORDING, "NONE"]
    assert actions(old, 2) == ["NONE"] * 2


def test_a_program_that_uses_the_signal_keeps_it(tmp_path: Path) -> None:
    came = []
    signal.signal(signal.SIGUSR2, lambda *_: came.append(True))
    schedule = made(tmp_path)
    os.kill(os.getpid(), signal.SIGUSR2)
    assert (came, actions(schedule, 2)) == ([True], ["NONE"] * 2)


def test_a_signal_that_faulthandler_handles_stays_its(tmp_path: Path) -> None:
    with (tmp_path / "stacks").open("w+") as stacks:
        faulthandler.register(signal.SIGUSR2, stacks)
        try:
            schedule = made(tmp_path)
            os.kill(os.getpid(), signal.SIGUSR2)
        finally:
            faulthandler.unregister(signal.SIGUSR2)
        assert (stacks.seek(0), actions(schedule, 2)) == (0, ["NONE"] * 2)
        assert "most recent call first" in stacks.read()


def test_where_no_signal_can_be_handled_the_log_says_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def make() -> None:
        thread = threading.Thread(target=made, args=(tmp_path,))
        thread.start()
        thread.join()

    make()
    (message,) = caplog.messages
    assert "SIGUSR2 would end this process" in message
    assert message.endswith(f"touch {tmp_path / 'profile-now'}")
    made(tmp_path)
    make()
    assert len(caplog.messages) == 1


def test_a_slow_step_records_the_next_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    schedule = made(tmp_path, slow_step=True)
    assert set(clock.steps(schedule, *[0.1] * (LEAST_STEPS + 1))) == {"NONE"}
    assert clock.steps(schedule, 0.19) == ["NONE"]
    assert clock.steps(schedule, 0.21, 0.5, 0.5) == RECORDING
    # Saving the recording takes long, and is no slow step. Another one comes too soon.
    assert clock.steps(schedule, 5.0, 0.1, 0.3, 0.1) == ["NONE"] * 4
    clock.now_s += on_demand.AFTER_SLOW_S
    assert clock.steps(schedule, 0.0)[0] == "WARMUP"  # the pause was a slow step


def test_the_first_steps_of_a_job_are_not_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = made(tmp_path, slow_step=True)
    assert set(Clock(monkeypatch).steps(schedule, 5, 0.1, 3, 0.1, 0.1, 2)) == {"NONE"}


def test_without_the_trigger_slow_steps_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(Clock(monkeypatch).steps(made(tmp_path), *[0.1] * 30, 9.0, 0.1)) == {"NONE"}


def test_arguments_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    handler = DiagnosisHandler(tmp_path)
    with pytest.raises(ValueError, match="at least one step"):
        handler.on_demand(active=0)
    with pytest.raises(ValueError, match="slow_step"):
        handler.on_demand(trigger="fast_step")  # type: ignore[arg-type]
