"""Trainings of many kinds give the same losses, calls and random numbers with our hooks and without."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.training import clock_sender
from tb_gpudiag.training.helper import DiagnosisQueue
from tb_gpudiag.training.profiled_steps import ProfiledSteps
from tb_gpudiag.training.step_phases import GpuMarks, PhaseSampling
from tb_gpudiag.vocabulary.written import GARBAGE, PHASES
from tests.training.stage import handler
from tests.training.test_gpu_marks import Event, Gpu

pytestmark = pytest.mark.torch


@contextmanager
def nothing(_folder: Path, _model: Any, _optimizer: Any) -> Iterator[tuple[Any, Any]]:
    yield lambda loader: loader, lambda: None


@contextmanager
def clock(folder: Path, model: Any, optimizer: Any, arm: bool = False) -> Iterator[tuple[Any, Any]]:
    import torch

    with (
        handler(folder) as made,
        made.step_clock(
            model,
            optimizer,
            active=1,
            warmup=1,
            activities=[torch.profiler.ProfilerActivity.CPU],
            with_stack=False,  # for stacks, torch 2.13 reads gradients so that a torch function mode sees it
        ) as clock,
    ):
        if arm:
            clock._recorder._schedule.arm()
        else:
            Event.gpu = gpu = Gpu()
            clock._gpu = GpuMarks(gpu, clock._sender.rows, len(PHASES), GARBAGE)
        yield clock, lambda: None
        assert clock.is_on
    if arm and clock.number > 3:
        assert [*folder.glob("*.json")]


@contextmanager
def short_steps(folder: Path, model: Any, optimizer: Any) -> Iterator[tuple[Any, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PhaseSampling, "untimed", lambda _, step: -step % 3)
        with clock(folder, model, optimizer) as found:
            yield found


@contextmanager
def recording_clock(folder: Path, model: Any, optimizer: Any) -> Iterator[tuple[Any, Any]]:
    with clock(folder, model, optimizer, arm=True) as found:
        yield found


@contextmanager
def profiled(folder: Path, model: Any, optimizer: Any) -> Iterator[tuple[Any, Any]]:
    """As the callbacks do it: a handler, and notes about tensors."""
    import torch

    options = {
        "activities": [torch.profiler.ProfilerActivity.CPU],
        "schedule": torch.profiler.schedule(wait=0, warmup=1, active=1),
        "profile_memory": True,
    }
    with handler(folder, keep=1) as made:
        steps = ProfiledSteps(made, options)
        steps.start()
        yield lambda loader: loader, steps.step
        steps.stop()
    assert [*folder.glob("*.json")]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Cases, and what each gives without anything of ours."""
    torch = pytest.importorskip("torch")
    from tests.training.training_cases import CASES, train

    distributed = torch.distributed
    has_ranks = distributed.is_available() and distributed.is_gloo_available()
    if has_ranks:
        store = tmp_path_factory.mktemp("ranks") / "store"
        distributed.init_process_group("gloo", f"file://{store}", rank=0, world_size=1)
    gc.collect()
    gc.freeze()  # else NotingTensors goes through all that was imported, in each case
    names = [name for name in CASES if has_ranks or name not in ("DDP", "FSDP")]
    yield {name: (CASES[name], train(CASES[name], lambda *made: nothing(Path(), *made))) for name in names}
    gc.unfreeze()
    if has_ranks:
        distributed.destroy_process_group()


@pytest.mark.parametrize("ours", [nothing, clock, short_steps, recording_clock, profiled])
def test_a_training_is_the_same(
    cases: dict[str, Any], ours: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.training.training_cases import same

    monkeypatch.setattr(clock_sender.ClockSender, "start", lambda _: None)
    monkeypatch.setattr(DiagnosisQueue, "put", lambda *_: [])
    changed = dict[str, Any]()
    for number, (name, (case, expected)) in enumerate(cases.items()):
        if ours in (recording_clock, profiled) and (case.is_slow or case.wrap is not same):
            continue  # recordings do not look at outputs
        found = _trained(case, ours, tmp_path / str(number))
        pairs = {(name, part): (got, expected.get(part)) for part, got in found.items()}
        changed |= {place: pair for place, pair in pairs.items() if repr(pair[0]) != repr(pair[1])}
    assert not changed


def _trained(case: Any, ours: Callable[..., Any], folder: Path) -> dict[str, Any]:
    """Return what the training gives, or how it fails, and warnings about hooks."""
    from tests.training.training_cases import train

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            found: dict[str, Any] = train(case, lambda *made: ours(folder, *made))
        except Exception as error:
            return {"error": error}
    about_hooks = [str(one.message) for one in warned if "hook" in str(one.message)]
    return found | ({"warnings": about_hooks} if about_hooks else {})
