from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.kernels.unaligned_matmul import RULE
from tb_gpudiag.wording.quantity import duration, share_of
from tests.real_traces import real_facts
from tests.rules.stage import STEP_AT, STEP_US, facts_of, figures, finding, is_clear, one_step, removed_ns

ALIGN1 = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(Params)"


def matmul(name: str, share: float, shapes: list[list[int]] | None, folder: Path) -> Facts:
    """Facts of a step with one kernel, which takes this share of the step window."""
    trace, main = one_step()
    main.op("aten::bmm", at=STEP_AT, us=15, shapes=shapes)
    main.launch(name, at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=STEP_US * share)
    return facts_of(trace, folder)


def test_fires_and_names_the_unaligned_dimensions(tmp_path: Path) -> None:
    found = finding(RULE.check(matmul(ALIGN1, 0.5, [[12, 197, 64], [12, 64, 197]], tmp_path)))
    assert found.cost_ns == 500_000
    evidence = figures(found)
    assert evidence["Kernels for unaligned rows"] == (
        duration(500_000),
        share_of(500_000, 1_000_000, "of the step window"),
    )
    assert evidence["Dimensions not a multiple of 8"] == ("197",)  # the batch of 12 does not count
    assert evidence["Inputs [[12,197,64],[12,64,197]]"] == (duration(500_000),)
    assert found.places[0].operator == "aten::bmm"


def test_kernel_names_are_enough_without_shapes(tmp_path: Path) -> None:
    found = finding(RULE.check(matmul(ALIGN1, 0.5, None, tmp_path)))
    assert not any(e.label.startswith(("Inputs", "Dimensions")) for e in found.evidence)


TENSILE = "Cijk_Ailk_Bljk_BBS_BH_MT256x112x64_MI16x16x16x1_SN_AF0EM1_AF1EM1_ASEM1_ISA942"


@pytest.mark.parametrize(("inner", "fires"), [(4097, True), (4096, False)])
def test_tensile_s_kernels_for_any_size_count_with_unaligned_sizes(
    inner: int, fires: bool, tmp_path: Path
) -> None:
    trace, main = one_step(devices=("AMD Instinct MI300X",))
    shapes = [[4096, inner], [inner, 4096]]
    main.op("aten::mm", at=STEP_AT, us=15, shapes=shapes, types=["c10::BFloat16"] * 2)
    main.launch(TENSILE, at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=400)
    facts = facts_of(trace, tmp_path)
    answer = RULE.check(facts)
    if not fires:
        assert is_clear(answer)
        return
    found = finding(answer)
    # The roofline's 105 µs remain in any case.
    least_ns = 2 * 4096**2 * inner / 1307e3
    assert removed_ns(found, facts) == pytest.approx(min(300_000, 400_000 - least_ns), abs=1)
    assert figures(found)["Dimensions not a multiple of 8"] == ("4097",)


def test_half_precision_on_cuda_cores_counts(tmp_path: Path) -> None:
    found = finding(RULE.check(matmul("ampere_fp16_sgemm_fp16_128x64_tn", 0.2, None, tmp_path)))
    assert found.cost_ns == 200_000
    assert figures(found)["Without tensor cores"] == (duration(200_000),)


# cuDNN's, for the patches of an image in bfloat16.
OF_PATCHES = "void precomputed_convolve_sgemm<__nv_bfloat16, 1024, 5, 5, 4, 3, 3, 1, false>(int, int, int)"


@pytest.mark.parametrize(
    ("name", "share"),
    [
        (OF_PATCHES, 0.9),
        (ALIGN1, 0.049),
        (ALIGN1.replace("align1", "align8"), 0.9),
        ("ampere_sgemm_128x64_nn", 0.9),
    ],
)
def test_short_kernels_and_aligned_matmuls_are_clear(name: str, share: float, tmp_path: Path) -> None:
    assert is_clear(RULE.check(matmul(name, share, [[197, 64], [64, 197]], tmp_path)))


def test_real_odd_sequence_lengths_are_found(shared_traces: Path) -> None:

    (file,) = (shared_traces / "h100_timesformer").glob("*.json.gz")
    found = finding(RULE.check(real_facts(file)))
    assert figures(found)["Dimensions not a multiple of 8"] == ("3137",)
