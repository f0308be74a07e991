"""A step clock beside a profiler of the program. Neither has a real session: two may end the process."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.training import clock_sender
from tb_gpudiag.training.step_clock import StepClock
from tests.training.stage import handler

pytestmark = pytest.mark.slow

PHASES = ("NONE", "WARMUP", "RECORD")


class Session:
    """torch's session: what was done to it, and whether it records."""

    def __init__(self, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.records = False
        for name in ("prepare", "enable", "disable"):
            monkeypatch.setattr(torch.autograd.profiler, f"_{name}_profiler", self._call(name))
        monkeypatch.setattr(torch.autograd, "_profiler_enabled", lambda: self.records)
        monkeypatch.setattr(torch.autograd.profiler, "_is_profiler_enabled", False)  # a dropped one leaves it
        monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", self._call("export"))

    def _call(self, name: str) -> Any:
        def call(*_: Any, **__: Any) -> None:
            self.calls.append(name)
            self.threads.add(threading.get_ident())
            self.records = name == "enable"

        return call


@pytest.fixture
def session(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(clock_sender.ClockSender, "start", lambda _: None)
    return Session(torch, monkeypatch)


def program_profiler(torch: Any, session: Session, phase: str) -> Any:
    """Return one that stays in a phase, and takes no session."""

    class Profiler(torch.profiler.profile):  # type: ignore[misc]
        def prepare_trace(self) -> None:
            session.calls.append("program's")

        def start_trace(self) -> None:
            pass

        def stop_trace(self) -> None:
            pass

    action = torch.profiler.ProfilerAction[phase]
    return Profiler(activities=[torch.profiler.ProfilerActivity.CPU], schedule=lambda _: action)


def recording_clock(torch: Any, folder: Path, **options: Any) -> StepClock:
    """Return a clock that has been told to record."""
    with handler(folder) as made:
        clock = made.step_clock(
            active=2, warmup=2, activities=[torch.profiler.ProfilerActivity.CPU], with_stack=False, **options
        )
    clock._recorder._schedule.arm()
    return clock


def steps(clock: StepClock, count: int, profiler: Any = None) -> None:
    for _ in range(count):
        if profiler is not None:
            profiler.step()
        clock.step()


RECORDING = ["prepare", "enable", "disable", "export"]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("first", ["clock", "profiler"])
def test_nothing_is_recorded_while_another_profiler_is_entered(
    torch: Any, session: Session, tmp_path: Path, phase: str, first: str
) -> None:
    profiler = program_profiler(torch, session, phase)
    if first == "profiler":
        profiler.start()
    with recording_clock(torch, tmp_path) as clock:
        if first == "clock":
            profiler.start()
        steps(clock, 9, profiler)
        assert not set(session.calls) & set(RECORDING)
        profiler.stop()
        steps(clock, 5)
        assert [call for call in session.calls if call != "program's"] == RECORDING


@pytest.mark.parametrize("how", ["with", "autograd", "low level"])
@pytest.mark.parametrize(("done", "end"), [(3, ["enable", "disable"]), (5, ["disable"])])
def test_a_recording_ends_before_another_profiler_begins(
    torch: Any, session: Session, tmp_path: Path, how: str, done: int, end: list[str]
) -> None:
    made = {
        "with": lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
        "autograd": lambda: torch.autograd.profiler.profile(use_cpu=True),
        "low level": lambda: torch.profiler._KinetoProfile(activities=[torch.profiler.ProfilerActivity.CPU]),
    }[how]()
    with recording_clock(torch, tmp_path) as clock:
        steps(clock, done)
        before = len(session.calls)
        made.start() if how == "low level" else made.__enter__()
        assert session.calls[before:] == [*end, "prepare", "enable"]
        steps(clock, 9)
        assert session.calls[before + len(end) :] == ["prepare", "enable"]
        made.stop() if how == "low level" else made.__exit__(None, None, None)
        clock._recorder._schedule.arm()
        steps(clock, 5)
    assert session.calls[before + len(end) + 3 :] == RECORDING


def test_a_recording_whose_session_was_taken_is_left_alone(
    torch: Any, session: Session, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with recording_clock(torch, tmp_path) as clock:
        steps(clock, 4)
        assert session.records
        session.records = False
        before = [*session.calls]
        steps(clock, 9)
        assert clock.is_on
    assert session.calls == before
    assert "gave up its recording" in caplog.text


def test_a_recording_is_left_alone_when_another_thread_begins_one(
    torch: Any, session: Session, tmp_path: Path
) -> None:
    profiler = program_profiler(torch, session, "WARMUP")
    with recording_clock(torch, tmp_path) as clock:
        steps(clock, 4)
        before = len(session.calls)
        thread = threading.Thread(target=profiler.start)
        thread.start()
        thread.join()
        steps(clock, 9)
    assert session.calls[before:] == ["program's"]


@pytest.mark.parametrize("how", ["its thread steps again", "its thread ends"])
def test_a_recording_ends_on_the_thread_that_began_it(
    torch: Any, session: Session, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    with ThreadPoolExecutor(1) as training:
        with recording_clock(torch, tmp_path) as clock:
            training.submit(steps, clock, 4).result()
            steps(clock, 9)
        assert session.calls == RECORDING[:2]
        assert "another thread makes the recording" in caplog.text
        if how == "its thread steps again":
            training.submit(steps, clock, 1).result()
            assert session.calls == RECORDING
    assert session.calls == RECORDING
    assert len(session.threads) == 1


def test_torch_is_as_it_was_after_the_last_clock(torch: Any, session: Session, tmp_path: Path) -> None:
    def methods() -> list[Any]:
        kinds = (torch.profiler.profile, torch.profiler._KinetoProfile, torch.autograd.profiler.profile)
        return [value for kind in kinds for value in vars(kind).values()]

    before = methods()
    with recording_clock(torch, tmp_path), recording_clock(torch, tmp_path):
        assert methods() != before
    assert methods() == before
