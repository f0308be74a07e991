from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.kernels.weight_reading import RULE
from tb_gpudiag.wording.quantity import duration, number
from tests.builder import TraceBuilder
from tests.rules.stage import STEP_AT, facts_of, figures, finding, is_clear, one_step, removed_ns

GEMM = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>()"
GEMV = "void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4, false>()"
ONE_REQUEST = "execute_context_0(0)_generation_1(1)"


def _server(matmul: str, us: float, mark: str, folder: Path) -> Facts:
    """Facts of four steps of 1,000 us of a server, each with a matmul of so many of them."""
    trace = TraceBuilder(devices=("NVIDIA H100 80GB HBM3",))
    main = trace.thread()
    for step in range(4):
        at = 1_000.0 * step
        main.annotation(mark, at=at, us=200)
        main.launch(matmul, at=at + 50, us=10, runs_at=at + 70, runs_us=us)
        main.launch(
            "void vllm::act_and_mul_kernel<half>", at=at + 80, us=10, runs_at=at + 70 + us, runs_us=200
        )
    return facts_of(trace, folder)


def test_smaller_weights_take_half_of_the_time_of_a_decode_step(tmp_path: Path) -> None:
    facts = _server(GEMM, 700, ONE_REQUEST, tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == 4 * 700_000
    assert removed_ns(found, facts) == 4 * 350_000
    assert found.removable is not None
    assert found.removable.least is None
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO
    assert figures(found)["Matmuls of a few tokens"][0] == duration(4 * 700_000)
    assert figures(found)["Tokens per step"] == (number(1),)
    assert "If requests wait" in found.fix.text
    assert "--quantization" in found.fix.code


@pytest.mark.parametrize(
    ("matmul", "us", "mark"),
    [
        (GEMM, 700, "execute_context_1(4096)_generation_0(0)"),  # a prompt
        (GEMM, 700, "execute_context_0(0)_generation_149(149)"),  # an H100 multiplies for as long as it reads
        (GEMM, 200, ONE_REQUEST),
        (GEMM.replace("bf16", "e4m3"), 700, ONE_REQUEST),
        ("void marlin::Marlin<__nv_bfloat16, 256, 1, 8, 8, 4>", 700, ONE_REQUEST),
    ],
)
def test_many_tokens_little_time_and_small_weights_are_clear(
    matmul: str, us: float, mark: str, tmp_path: Path
) -> None:
    assert is_clear(RULE.check(_server(matmul, us, mark, tmp_path)))


@pytest.mark.parametrize(
    ("matmul", "us", "trains", "clear"),
    [(GEMV, 800, False, False), (GEMV, 800, True, True), (GEMM, 800, False, True), (GEMV, 490, False, True)],
)
def test_without_marks_only_products_with_a_vector_count(
    matmul: str, us: float, trains: bool, clear: bool, tmp_path: Path
) -> None:
    """Not in training, nor where the GPU mostly waits."""
    trace, main = one_step(devices=("NVIDIA H100 80GB HBM3",))
    main.op("aten::mm", at=STEP_AT, us=15)
    main.launch(matmul, at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=us)
    if trains:
        main.annotation("Optimizer.step#SGD.step", at=STEP_AT + 30, us=5)
    answer = RULE.check(facts_of(trace, tmp_path))
    assert is_clear(answer) == clear
    if not clear:
        assert "quantize_" in finding(answer).fix.code
