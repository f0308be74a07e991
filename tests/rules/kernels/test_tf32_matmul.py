from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.kernels.tf32_matmul import RULE
from tb_gpudiag.wording.quantity import duration, number
from tests.builder import TraceBuilder
from tests.rules.stage import STEP_AT, facts_of, figures, finding, is_clear, one_step, removed_ns

TF32 = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>()"
HALF = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align8>()"
ADD = "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float> >()"


def _job(matmul: str, us: float, add_us: float = 0, *, trains: bool = True) -> TraceBuilder:
    trace, main = one_step(devices=("NVIDIA A100-SXM4-80GB",))
    main.op("aten::mm", at=STEP_AT, us=15)
    main.launch(matmul, at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=us)
    if add_us:
        main.launch(ADD, at=STEP_AT + 12, us=5, runs_at=STEP_AT + 20 + us, runs_us=add_us)
    if trains:
        main.annotation("Optimizer.step#SGD.step", at=STEP_AT + 30, us=5)
    return trace


@pytest.mark.parametrize("name", [TF32, "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32"])
def test_bf16_would_halve_the_time_and_the_bytes(name: str, tmp_path: Path) -> None:
    facts = facts_of(_job(name, 400, 200), tmp_path)  # the GPU is busy 60% of the step
    found = finding(RULE.check(facts))
    assert found.cost_ns == 400_000
    assert removed_ns(found, facts) == 300_000
    assert found.removable is not None
    assert found.removable.least is None  # nothing is sure: the matmul may wait for memory
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO
    assert figures(found)["TF32 on tensor cores"][0] == duration(400_000)
    assert figures(found)["Kernels"] == (number(1),)
    assert "autocast" in found.fix.code


def test_inference_runs_in_16_bits_as_a_whole(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_job(TF32, 600, trains=False), tmp_path)))
    assert "model.to(torch.bfloat16)" in found.fix.code


@pytest.mark.parametrize(
    ("name", "us"), [(TF32, 249), (HALF, 900), ("ampere_sgemm_128x64_nn", 900), (TF32, 499)]
)
def test_little_time_and_other_formats_are_clear(name: str, us: float, tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_job(name, us), tmp_path)))
