"""Places: functions, their callers, and what stands in for them without stacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.places import PlaceTime, by_place
from tb_gpudiag.vocabulary.frames import Frame, LineKind
from tests.builder import TraceBuilder
from tests.real_traces import FILES, real_facts
from tests.rules.stage import facts_of


def _places(trace: TraceBuilder, folder: Path, *, by_operator: bool = False) -> list[PlaceTime]:
    """All operators by place, by their time."""
    host: Host = facts_of(trace, folder).host
    event = np.flatnonzero(host.operator == np.arange(len(host.events)))
    return by_place(host, event, host.events.duration_ns[event], by_operator=by_operator, most=9)


def test_a_function_in_a_package_has_the_function_that_called_it(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("train.py(12): main", at=0, us=1000).frame("transformers/image.py(390): resize", at=10, us=200)
    main.op("aten::add", at=20, us=50)
    main.frame("train.py(40): loss", at=300, us=100).op("aten::mul", at=310, us=20)
    resize, loss = _places(trace, tmp_path)
    assert str(resize.frame) == "resize (transformers/image.py, defined at line 390)"
    assert str(resize.caller) == "main (train.py, defined at line 12)"
    assert str(loss.frame) == "loss (train.py, defined at line 40)"
    assert loss.caller is None


def test_without_stacks_a_range_or_a_module_says_where(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.annotation("load batch", at=5, us=300).op("aten::stack", at=10, us=100)
    main.frame("nn.Module: Attention_3", at=400, us=300).op("aten::bmm", at=410, us=50)
    main.annotation("Optimizer.step#SGD.step", at=800, us=100).op("aten::add_", at=810, us=20)
    found = _places(trace, tmp_path)
    assert [(p.operator, p.module, p.range) for p in found] == [
        ("aten::stack", "", "load batch"),
        ("aten::bmm", "Attention_3", ""),
        ("aten::add_", "", ""),
    ]
    assert all(p.frame is None and p.caller is None for p in found)


def test_a_range_is_named_only_if_all_of_the_time_is_in_it(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("train.py(12): main", at=0, us=1000)
    main.annotation("one", at=5, us=100).op("aten::add", at=10, us=10)
    main.annotation("two", at=205, us=100).op("aten::add", at=210, us=10)
    main.frame("train.py(20): other", at=400, us=100)
    main.annotation("three", at=405, us=80).op("aten::add", at=410, us=5)
    first, second = _places(trace, tmp_path)
    assert (first.range, second.range) == ("", "three")


def test_functions_that_ran_when_the_recording_began_have_no_line(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("train.py(119): main", at=0, us=1000).frame(
        "torch/profiler/profiler.py(639): step", at=1, us=10
    )
    main.op("aten::add", at=20, us=50)
    main.frame("train.py(40): loss", at=100, us=100).op("aten::mul", at=110, us=20)
    running, called = _places(trace, tmp_path)
    assert running.frame == Frame("train.py", 0, "main", LineKind.UNKNOWN)
    assert called.frame == Frame("train.py", 40, "loss", LineKind.DEFINITION)


def test_what_a_function_calls_runs_at_the_line_that_torch_records(tmp_path: Path) -> None:
    """A function of the user's own that is called there has its own place, and so has what is called
    without a frame."""
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("train.py(12): step", at=0, us=1000)
    main.frame("nn.Module: Linear_0", at=10, us=300, called_from="train.py:15")
    main.frame("torch/nn/modules/linear.py(120): forward", at=20, us=280, called_from="torch/nn/module.py:9")
    main.op("aten::linear", at=30, us=200)
    main.frame("<built-in method item of Tensor>", at=400, us=100, called_from="train.py:17")
    main.op("aten::item", at=410, us=80)
    main.frame("train.py(40): loss", at=600, us=100, called_from="train.py:18").op("aten::mul", at=610, us=40)
    main.op("aten::add", at=800, us=20)
    assert [str(found.frame) for found in _places(trace, tmp_path)] == [
        "train.py:15 in step",
        "train.py:17 in step",
        "loss (train.py, defined at line 40)",
        "step (train.py, defined at line 12)",
    ]


def test_a_line_of_another_file_is_no_line_of_the_function(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread().frame("train.py(12): step", at=0, us=1000)
    for at, line in enumerate(["other.py:15", "train.py:", "train.py:x", "15"]):
        main.frame(f"nn.Module: Linear_{at}", at=10 + 100 * at, us=50, called_from=line)
        main.op("aten::linear", at=20 + 100 * at, us=20)
    (found,) = _places(trace, tmp_path)
    assert str(found.frame) == "step (train.py, defined at line 12)"


@pytest.mark.parametrize("file", FILES)
def test_on_real_traces_few_functions_ran_when_the_recording_began(file: str) -> None:
    host = real_facts(file).host
    frames = [host.frame(place) for place in np.unique(host.place)]
    assert sum(frame is not None and frame.line_kind == LineKind.UNKNOWN for frame in frames) <= 200


def test_a_backward_pass_is_where_its_forward_operators_are_not_where_it_was_called(tmp_path: Path) -> None:
    """On a CPU it runs in the thread, and so inside the frame, that called it."""
    trace = TraceBuilder()
    main = trace.thread()
    step = main.frame("train.py(12): step", at=0, us=1000)
    model = step.frame("nn.Module: Net_0", at=10, us=200).frame("net.py(5): forward", at=20, us=100)
    model.op("aten::mm", at=30, us=5, sequence=1)
    model.op("Rows", at=40, us=10, sequence=2)
    engine = step.frame(
        "<built-in method run_backward of torch._C._EngineBase object at 0x1>", at=300, us=600
    )
    rows = engine.op("RowsBackward", at=310, us=200, sequence=2, forward_thread=1)
    rows.frame("net.py(40): backward", at=320, us=180).op("aten::select", at=330, us=100)
    engine.op("MmBackward0", at=520, us=300, sequence=1, forward_thread=1).op("aten::mm", at=530, us=280)
    engine.op("torch::autograd::AccumulateGrad", at=830, us=50)
    found = {(str(one.frame), one.operator): one.module for one in _places(trace, tmp_path, by_operator=True)}
    assert found == {
        ("forward (net.py, defined at line 5)", "aten::mm"): "Net_0",
        ("forward (net.py, defined at line 5)", "MmBackward0"): "Net_0",
        ("forward (net.py, defined at line 5)", "Rows"): "Net_0",
        ("forward (net.py, defined at line 5)", "RowsBackward"): "Net_0",
        ("backward (net.py, defined at line 40)", "aten::select"): "Net_0",
        ("step (train.py, defined at line 12)", "torch::autograd::AccumulateGrad"): "",
    }
