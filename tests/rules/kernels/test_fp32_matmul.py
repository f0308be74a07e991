from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.kernels.fp32_matmul import RULE
from tb_gpudiag.rules.kernels.unaligned_matmul import RULE as UNALIGNED
from tb_gpudiag.wording.quantity import duration, share_of, throughput
from tests.builder import DeviceProperties, TraceBuilder
from tests.rules.stage import (
    STEP_AT,
    STEP_US,
    cannot_tell,
    facts_of,
    figures,
    finding,
    is_clear,
    one_step,
    removed_ns,
)


def matmul(name: str, share: float, device: DeviceProperties, folder: Path) -> Facts:
    """Facts of a step with one kernel, which takes this share of the step window."""
    trace, main = one_step()
    trace.recording.devices = [device]
    main.frame("train.py(12): train", at=STEP_AT, us=STEP_US)
    main.op("aten::mm", at=STEP_AT, us=15)
    main.launch(name, at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=STEP_US * share)
    return facts_of(trace, folder)


A100 = DeviceProperties("NVIDIA A100-SXM4-80GB", compute_major=8)
V100 = DeviceProperties("Tesla V100-SXM2-32GB", compute_major=7)
T4 = DeviceProperties("Tesla T4", compute_major=7, compute_minor=5)
P100 = DeviceProperties("Tesla P100-PCIE-16GB", compute_major=6)
GTX = DeviceProperties("NVIDIA GeForce GTX 1660 Ti", compute_major=7, compute_minor=5)


def test_fires_on_fp32_matmuls_and_bounds_the_saving_by_the_peaks(tmp_path: Path) -> None:
    facts = matmul("ampere_sgemm_128x64_nn", 0.5, A100, tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == 500_000
    # 312 TFLOP/s instead of 19.5, and TF32's 156, of which half is sure.
    assert removed_ns(found, facts) == 468_750
    assert found.removable is not None
    assert found.removable.least is not None
    assert found.removable.least.shorter.share.tolist() == [pytest.approx(0.75)]
    assert figures(found)["Saved by TF32 at the stated peaks"] == (duration(437_500),)
    assert (found.places[0].file, found.places[0].operator) == ("train.py", "aten::mm")
    assert RULE.severity_of(found, facts.window.duration_ns) == Severity.WARNING
    assert found.claims[0].total == 500_000
    evidence = figures(found)
    assert evidence["FP32 on CUDA cores"] == (
        duration(500_000),
        share_of(500_000, 1_000_000, "of the step window"),
    )
    assert evidence["FP32 share"] == (share_of(1, 1, "of the matmul time"),)
    assert evidence["Stated TF32 peak"] == (throughput(156),)


def test_16_bits_also_halve_the_bytes_of_other_fp32_kernels(tmp_path: Path) -> None:
    trace, main = one_step()
    trace.recording.devices = [A100]
    begins = STEP_AT + 60
    for number, (name, us) in enumerate(
        [
            ("ampere_sgemm_128x64_nn", 320),
            ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float> >()", 200),
            ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::BFloat16> >()", 90),
            ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4> >()", 80),
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", 70),
        ]
    ):
        main.launch(name, at=STEP_AT + 10 * number, us=5, runs_at=begins, runs_us=us)
        begins += us
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert removed_ns(found, facts) == 320_000 * (1 - 19.5 / 312) + 200_000 / 2


def test_other_kernels_stay_as_they_are_where_most_matmuls_are_in_16_bits_already(tmp_path: Path) -> None:
    trace, main = one_step()
    trace.recording.devices = [A100]
    begins = STEP_AT + 60
    for name, us in (
        ("ampere_sgemm_128x64_nn", 100),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", 500),
        ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float> >()", 200),
    ):
        main.launch(name, at=begins - 40, us=5, runs_at=begins, runs_us=us)
        begins += us
    facts = facts_of(trace, tmp_path)
    assert removed_ns(finding(RULE.check(facts)), facts) == 100_000 * (1 - 19.5 / 312)


def test_tf32_is_no_gain_on_geforce(tmp_path: Path) -> None:
    geforce = DeviceProperties("NVIDIA GeForce RTX 4090", compute_major=8, compute_minor=9)
    facts = matmul("ampere_sgemm_128x64_nn", 0.5, geforce, tmp_path)
    found = finding(RULE.check(facts))
    assert removed_ns(found, facts) == 250_000  # 165.2 TFLOP/s instead of 82.6
    assert "set_float32_matmul_precision" not in found.fix.code
    assert "For TF32 this GPU has the same peak" in found.summary
    assert not any("TF32" in label and "Saved" in label for label in figures(found))


def test_a_gpu_that_is_not_listed_may_gain_by_tf32(tmp_path: Path) -> None:
    unheard = DeviceProperties("NVIDIA RTX 1234 Ada Generation", compute_major=8, compute_minor=9)
    found = finding(RULE.check(matmul("ampere_sgemm_128x64_nn", 0.5, unheard, tmp_path)))
    assert "TF32 may be faster" in found.summary
    assert "set_float32_matmul_precision" in found.fix.code
    assert "8.9" in str(figures(found)["Peaks assumed of"][0])


def test_a_workstation_card_is_twice_as_fast_with_tf32(tmp_path: Path) -> None:
    a4000 = DeviceProperties("NVIDIA RTX A4000", compute_major=8, compute_minor=6)
    found = finding(RULE.check(matmul("ampere_sgemm_128x64_nn", 0.5, a4000, tmp_path)))
    assert figures(found)["Saved by TF32 at the stated peaks"] == (duration(250_000),)
    assert "set_float32_matmul_precision" in found.fix.code


def test_a_gpu_without_tf32_gets_a_hint_at_mixed_precision(tmp_path: Path) -> None:
    facts = matmul("volta_sgemm_128x64_nn", 0.5, V100, tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) == Severity.INFO
    assert "float16" in found.fix.code
    assert "Stated TF32 peak" not in figures(found)


@pytest.mark.parametrize(
    ("name", "share", "device"),
    [
        ("ampere_sgemm_128x64_nn", 0.049, A100),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_nn", 0.9, A100),
        ("void gemv2T_kernel_val<int, int, float, float, float>()", 0.9, A100),
        ("maxwell_sgemm_128x64_nn", 0.9, P100),
        ("turing_sgemm_128x64_nn", 0.9, GTX),
    ],
)
def test_short_kernels_tensor_cores_and_gpus_without_them_are_clear(
    name: str, share: float, device: DeviceProperties, tmp_path: Path
) -> None:
    assert is_clear(RULE.check(matmul(name, share, device, tmp_path)))


def test_cannot_tell_without_properties_of_the_gpu(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(unnamed("maxwell_sgemm_128x64_nn", tmp_path)))


def unnamed(kernel: str, folder: Path) -> Facts:
    """Facts of a kernel in a file that lists no GPU, as torch 1.8 wrote them."""
    trace = TraceBuilder(devices=())
    trace.kernel(kernel, at=0, us=100)
    return facts_of(trace, folder)


@pytest.mark.parametrize(
    ("kernel", "severity", "fix"),
    [
        ("volta_sgemm_128x64_nn", Severity.INFO, "Use mixed precision, with loss scaling."),
        ("volta_scudnn_128x64_relu_interior_nn_v1", Severity.INFO, "Use mixed precision, with loss scaling."),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_simt_sgemm", Severity.WARNING, "Try TF32, or use mixed"),
    ],
)
def test_kernels_of_a_gpu_that_is_not_named_show_its_formats(
    kernel: str, severity: Severity, fix: str, tmp_path: Path
) -> None:
    facts = unnamed(kernel, tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) == severity
    assert found.fix.text.startswith(fix)
    assert removed_ns(found, facts) == pytest.approx(100_000 * 15 / 16)
    assert not any("stated peaks" in label for label in figures(found))


def test_bf16_before_ampere_is_fp32_and_the_fix_is_fp16(tmp_path: Path) -> None:
    """magma emulates it on a T4: a public recording took 25 ms so, and 8 ms in FP16."""
    name = (
        "void magma_sgemmEx_kernel<float, __nv_bfloat16, __nv_bfloat16, true, false, 6, 4, 6, 3, 4>(int, int)"
    )
    facts = matmul(name, 0.5, T4, tmp_path / "t4")
    found = finding(RULE.check(facts))
    assert found.cost_ns == 500_000
    assert found.title.startswith("50.0% of the time goes to bf16 matmuls")
    assert found.fix.text.startswith("Use float16 instead of bfloat16")
    assert "float16" in found.fix.code
    assert is_clear(UNALIGNED.check(facts))
    on_a100 = matmul(name, 0.5, A100, tmp_path / "a100")
    assert is_clear(RULE.check(on_a100))
    assert finding(UNALIGNED.check(on_a100)).cost_ns == 500_000
