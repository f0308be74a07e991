"""Phases on a GPU, read when the GPU has passed them."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, ClassVar

import pytest

from tb_gpudiag.training.step_phases import GpuMarks
from tb_gpudiag.vocabulary.written import BACKWARD, FORWARD, GARBAGE, INPUT, OPTIMIZER, OTHER, PHASES


class Event:
    """torch.cuda.Event on a GPU that is `behind` marks behind the host."""

    made: ClassVar[list[Event]] = []

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0
        self.made.append(self)

    def record(self) -> None:
        self.at = self.gpu.now_ms

    def query(self) -> bool:
        return self.at <= self.gpu.passed_ms

    def elapsed_time(self, other: Event) -> float:
        assert self.query()
        assert other.query()
        return other.at - self.at

    gpu: Any = None


class Gpu:
    """torch.cuda of that GPU."""

    now_ms = passed_ms = 0.0
    Event = Event

    @staticmethod
    def is_current_stream_capturing() -> bool:
        return False


def test_gpu_phases_are_read_when_the_gpu_has_passed_them() -> None:
    gpu = Event.gpu = Gpu()
    Event.made = []
    rows: deque[tuple[float, ...]] = deque()
    marks = GpuMarks(gpu, rows, len(PHASES), GARBAGE)
    marks.mark(OTHER)
    for number in range(100):
        for phase, ms in ((INPUT, 1), (FORWARD, 20), (BACKWARD, 30), (OPTIMIZER, 5), (OTHER, 2)):
            marks.mark(phase)
            gpu.now_ms += ms
        marks.mark(OTHER)
        if number == 50:
            marks.drop_step()
        else:
            marks.end_step(number, 58.0, 0.5)
        gpu.passed_ms = max(0.0, gpu.now_ms - 100)
    assert [row[0] for row in rows] == [n for n in range(len(rows) + 1) if n != 50]
    assert len(rows) > 95
    assert set(rows[3][1:]) == set(rows[80][1:]) == {58.0, 1, 20, 30, 0, 5, 0.5, 2}
    assert len(Event.made) < 40  # they are used again


def test_a_gpu_has_no_marks_in_steps_without_phases() -> None:
    gpu = Event.gpu = Gpu()
    Event.made = []
    rows: deque[tuple[float, ...]] = deque()
    marks = GpuMarks(gpu, rows, len(PHASES), GARBAGE)
    for number in range(6):
        is_timed = number % 3 == 0
        if number != 2 and number != 5:
            marks.restart(OTHER if is_timed else None)
        if is_timed:
            marks.mark(FORWARD)
        gpu.now_ms += 20
        if is_timed:
            marks.mark(OTHER)
        marks.end_step(number, 58.0, 0.5)
        gpu.passed_ms = gpu.now_ms
    assert [row[0] for row in rows] == list(range(6))
    forward = [row[2 + FORWARD] for row in rows]
    assert forward == pytest.approx([20, *[math.nan] * 2, 20, *[math.nan] * 2], nan_ok=True)
    assert [row[2 + GARBAGE] for row in rows] == [0.5] * 6
