from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.memory.forward_as_training import RULE
from tb_gpudiag.wording.quantity import number, size
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, figures, finding, is_clear

MIB = 2**20


def _forward(
    *, kept: int = 300, start: int = 200, gradients: bool = True, backward: bool = False, device: int = 65_536
) -> TraceBuilder:
    """Build a forward pass of a model of `start` MiB, whose layers allocate 50 MiB each and free it, but for
    `kept` MiB in all. device: MiB of its memory."""
    trace = TraceBuilder(device_bytes=device * MIB)
    trace.recording.memory_start[0] = start * MIB
    main = trace.thread()
    main.step(0, at=0, us=1000)
    for layer in range(20):
        at = 10 + 40 * layer
        main.op("aten::linear", at=at, us=30, sequence=layer if gradients else None)
        main.launch("gemm", at=at + 1, us=2, runs_at=at + 5, runs_us=30)
        address = main.alloc(50 * MIB, at=at + 4)
        if 50 * layer >= kept:
            main.free(address, at=at + 20)
    if backward:
        main.op(
            "autograd::engine::evaluate_function: MmBackward0", at=900, us=20, forward_thread=1, sequence=0
        )
    return trace


def test_fires_on_memory_that_a_forward_pass_keeps(tmp_path: Path) -> None:
    facts = facts_of(_forward(), tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_bytes == 300 * MIB
    assert found.memory_device == 0
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO
    assert figures(found)["Allocated before it"] == (size(200 * MIB),)
    assert figures(found)["Allocated at the end"] == (size(500 * MIB),)
    assert "inference_mode" in found.fix.code
    assert "model.eval" not in found.fix.text
    assert "If this is inference" in found.summary


@pytest.mark.parametrize(
    "trace",
    [
        _forward(kept=250),  # little
        _forward(start=400),  # little beside the model
        _forward(gradients=False),  # a result that the job keeps
        _forward(backward=True),
    ],
)
def test_little_memory_and_trainings_are_clear(trace: TraceBuilder, tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_a_tenth_of_the_device_is_enough(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_forward(start=2000), tmp_path / "large")))
    found = finding(RULE.check(facts_of(_forward(start=2000, device=3000), tmp_path / "small")))
    assert found.cost_bytes == 300 * MIB


def test_layers_in_training_mode_are_named(tmp_path: Path) -> None:
    trace = _forward(gradients=False)
    main = trace.thread()
    settings = {"Concrete Inputs": ["", "", "", "", "", "True", "0.1", "1e-05", "True"]}
    main.op("aten::batch_norm", at=900, us=5, shapes=[[8, 64, 9, 9]], types=["float"], more=settings)
    main.op("aten::native_dropout", at=910, us=5)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.title.startswith("BatchNorm and dropout in training mode")
    assert figures(found)["BatchNorm in training mode"] == (number(1, "call"),)
    assert found.fix.text == "In inference, call model.eval()."
    assert found.cost_bytes == 0


def test_kernels_show_the_mode_of_batch_norm(tmp_path: Path) -> None:
    for name, trains in (("bn_fw_tr_1C11_kernel_NCHW", True), ("bn_fw_inf_1C11_kernel_NCHW", False)):
        trace = _forward(gradients=False)
        trace.thread().launch(f"void cudnn::{name}<float>()", at=900, us=5, runs_at=950, runs_us=9)
        answer = RULE.check(facts_of(trace, tmp_path / name))
        assert is_clear(answer) is not trains


def test_batch_norm_in_evaluation_mode_is_clear(tmp_path: Path) -> None:
    trace = _forward(gradients=False)
    settings = {"Concrete Inputs": ["", "", "", "", "", "False", "0.1", "1e-05", "True"]}
    trace.thread().op("aten::batch_norm", at=900, us=5, shapes=[[8, 64]], types=["float"], more=settings)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))
