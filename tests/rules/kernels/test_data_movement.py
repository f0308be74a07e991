from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.kernels.data_movement import RULE
from tb_gpudiag.wording.quantity import duration, share_of
from tests.builder import TraceBuilder
from tests.rules.stage import STEP_AT, STEP_US, cannot_tell, facts_of, figures, finding, is_clear, one_step
from tests.with_each import with_each

COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>"


def _moving(us: float, *operators: str, kernel: str = COPY) -> TraceBuilder:
    """Build a step of 1,000 µs: one kernel is launched inside these operators, the other one computes."""
    trace, main = one_step()
    main.frame("model.py(8): forward", at=STEP_AT, us=100)
    for depth, operator in enumerate(operators):
        main.op(operator, at=STEP_AT + depth, us=50 - 2 * depth)
    main.launch(kernel, at=STEP_AT + 20, us=5, runs_at=STEP_AT + 40, runs_us=us)
    main.launch("gemm", at=STEP_AT + 60, us=5, runs_at=STEP_AT + 40 + us, runs_us=900 - us)
    return trace


@pytest.mark.parametrize(
    ("operators", "kernel", "kind", "code"),
    [
        (("aten::linear", "aten::to", "aten::_to_copy", "aten::copy_"), COPY, "casts", "bfloat16"),
        (("aten::contiguous", "aten::clone", "aten::copy_"), COPY, "layout changes", "einsum"),
        (("aten::copy_",), COPY, "tensor copies", "out=buffer"),
        (
            ("aten::conv2d", "aten::cudnn_convolution"),
            "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float>",
            "layout changes",
            "channels_last",
        ),
        (
            ("aten::conv2d", "aten::cudnn_convolution"),
            "void cudnn::ops::convertTensor_kernel<float, float, float, (cudnnKernelDataType_t)2>(float, "
            "float const*, float, float*, unsigned long)",
            "casts",
            "autocast",
        ),
    ],
)
def test_fires_and_names_the_kind_of_data_movement(
    operators: tuple[str, ...], kernel: str, kind: str, code: str, tmp_path: Path
) -> None:
    facts = facts_of(_moving(51, *operators, kernel=kernel), tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == 51_000
    assert found.title.endswith(f"mostly {kind}")
    evidence = figures(found)
    assert evidence["Data movement"] == (duration(51_000), share_of(51_000, 1_000_000, "of the step window"))
    assert evidence[kind.capitalize()][0] == duration(51_000)
    assert code in found.fix.code
    assert ("channels_last" in found.fix.code) == ("nchwToNhwc" in kernel)  # only for convolutions
    assert found.places[0].line == 8
    channels_first = "nchwToNhwc" in kernel  # channels last surely removes these kernels
    severity = found.severity or RULE.severity_of(found, facts.window.duration_ns)
    assert severity is (Severity.WARNING if channels_first else Severity.INFO)
    assert found.removable is not None
    assert (found.removable.least is not None) == channels_first


@pytest.mark.parametrize("compiled", [True, False])
def test_compiled_code_is_not_compiled_again(compiled: bool, tmp_path: Path) -> None:
    operators = ("aten::contiguous", "aten::clone", "aten::copy_")
    around = ("Torch-Compiled Region: 0/0",) if compiled else ()
    found = finding(RULE.check(facts_of(_moving(100, *around, *operators), tmp_path)))
    assert ("torch.compile" in found.fix.code) != compiled


@with_each(
    ("us", "operators"),
    [
        (49, ("aten::contiguous", "aten::clone", "aten::copy_")),
        (400, ("aten::mul",)),  # computes
        (400, ("aten::reshape", "aten::mul")),
    ],
)
def test_short_or_computing_kernels_are_clear(us: float, operators: tuple[str, ...], tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_moving(us, *operators), tmp_path)))


def test_copies_from_the_host_are_left_to_other_rules(tmp_path: Path) -> None:
    trace, main = one_step()
    main.op("aten::to", at=STEP_AT, us=50).op("aten::_to_copy", at=STEP_AT + 1, us=48)
    main.op("aten::copy_", at=STEP_AT + 2, us=46)
    main.copy("HtoD", at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=500, bytes=1 << 20, pinned=True)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_a_copy_by_the_copy_engine_changes_no_layout(tmp_path: Path) -> None:
    """Layouts that differ take a kernel: a copy engine moves bytes as they are."""
    trace, main = one_step()
    main.op("aten::contiguous", at=STEP_AT, us=50).op("aten::clone", at=STEP_AT + 1, us=48)
    main.op("aten::copy_", at=STEP_AT + 2, us=46)
    main.copy("DtoD", at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=500, bytes=1 << 20)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.title.endswith("mostly tensor copies")
    assert "Layout changes" not in figures(found)


def test_cannot_tell_if_the_gpu_was_not_recorded(tmp_path: Path) -> None:
    trace = TraceBuilder()  # has a GPU
    trace.thread().step(0, at=STEP_AT, us=STEP_US).op("aten::copy_", at=STEP_AT, us=900)
    assert cannot_tell(RULE.check(facts_of(trace, tmp_path)))


@pytest.mark.parametrize(("us", "fires"), [(210, True), (190, False)])
def test_casts_of_a_job_on_the_cpu(us: float, fires: bool, tmp_path: Path) -> None:
    trace, main = one_step(devices=())
    main.op("aten::mm", at=STEP_AT, us=500)
    main.op("aten::to", at=STEP_AT + 500, us=us).op("aten::_to_copy", at=STEP_AT + 500, us=us)
    main.op("aten::copy_", at=STEP_AT + 500, us=us)
    answer = RULE.check(facts_of(trace, tmp_path))
    if fires:
        found = finding(answer)
        assert found.cost_ns == us * 1_000
        assert found.title.endswith("of the main thread's time, mostly casts")
    else:
        assert is_clear(answer)


@pytest.mark.parametrize("gpu", [True, False])
def test_what_fsdp_copies_to_send_it_is_not_the_users(gpu: bool, tmp_path: Path) -> None:
    for mark in ("FSDP::post_backward_reduce", "train"):
        if gpu:
            trace = _moving(500, mark, "aten::copy_")
        else:
            trace, main = one_step(devices=())
            main.op("aten::mm", at=STEP_AT, us=500)
            main.annotation(mark, at=STEP_AT + 500, us=400).op("aten::copy_", at=STEP_AT + 500, us=300)
            main.op("aten::cat", at=STEP_AT + 800, us=100)
        assert is_clear(RULE.check(facts_of(trace, tmp_path))) is (mark != "train")
