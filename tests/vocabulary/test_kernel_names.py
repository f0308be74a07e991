"""Kernel names that were recorded: their family, their arithmetic."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.vocabulary.kernel_families import Arithmetic, Family
from tb_gpudiag.vocabulary.kernel_names import (
    KernelName,
    collective_kind,
    communicates,
    function_name,
    read_names,
)
from tests.with_each import with_each

NAMES = [
    line.split(maxsplit=1)
    for line in (Path(__file__).parent / "kernel_names.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def read_name(name: str) -> KernelName:
    return read_names([name])[0]


def test_a_recorded_name_is_of_its_family() -> None:
    families = [[read_name(name).family.label, name] for _, name in NAMES]
    assert families == NAMES


def test_the_names_have_every_family() -> None:
    assert {family for family, _ in NAMES} == {family.label for family in Family}


@with_each(
    ("name", "arithmetic", "unaligned"),
    [
        ("ampere_sgemm_128x64_nn", Arithmetic.FP32_CORES, False),
        ("volta_scudnn_128x64_relu_interior_nn_v1", Arithmetic.FP32_CORES, False),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>()",
            Arithmetic.FP32_CORES,
            False,
        ),
        (
            "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw_tilesize128x128x8_stage3_warpsize2x2x1_g1_"
            "ffma_aligna4_alignc4_execute_kernel__5x_cudnn",
            Arithmetic.FP32_CORES,
            False,
        ),
        ("ampere_fp16_sgemm_fp16_128x64_tn", Arithmetic.HALF_ON_FP32_CORES, False),
        ("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn", Arithmetic.TENSOR_CORES, False),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_cublas", Arithmetic.TENSOR_CORES, False),
        ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", Arithmetic.TENSOR_CORES, False),
        (
            "void marlin_moe_wna16::Marlin<1125899906909960l, 128, 1, 8, 4, true, 4, 8, false>(int4 const*)",
            1,
            False,
        ),
        ("void Marlin<256, 1, 8, 8, 4, 8>(int4 const*, int4 const*, int4*)", 1, False),
        (
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<machete::MacheteMma<>>>()",
            1,
            False,
        ),
        ("Cijk_Ailk_Bljk_SB_MT128x64x16_SN_1LDSB0_APM1", Arithmetic.FP32_CORES, False),
        ("Cijk_Ailk_Bljk_S_B_Bias_UserArgs_MT64x64x16_MI16x16x1_SN", Arithmetic.TENSOR_CORES, False),
        ("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>()", 1, True),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>()", 1, True),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>()",
            1,
            False,
        ),
        # TF32 has four elements in 16 bytes.
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>()", 1, False),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1>()", 1, True),
        (
            "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16>()",
            Arithmetic.UNKNOWN,
            False,
        ),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::tf32_functor>()", 0, False),
        ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u>(float*)", Arithmetic.TENSOR_CORES, False),
        ("_w8a8_block_fp8_matmul", Arithmetic.TENSOR_CORES, False),
        ("volta_dgemm_64x64_nn", Arithmetic.FP64, False),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>()",
            Arithmetic.FP64,
            False,
        ),
        ("Cijk_Alik_Bljk_DB_MT64x64x16_MI16x16x4x1_SN", Arithmetic.FP64, False),
        ("void gemv2T_kernel_val<int, int, double, double, double, double, 128>()", Arithmetic.FP64, False),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<double> >(int)",
            Arithmetic.FP64,
            False,
        ),
        # An optimizer's scalars, and limits of a function for any type, are `double`.
        (
            "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>, float*, double>()",
            Arithmetic.UNKNOWN,
            False,
        ),
        (
            "void elementwise_kernel<4, nan_to_num_kernel_cuda(c10::optional<double>)::{lambda(float)#1}>()",
            0,
            0,
        ),
    ],
)
def test_a_name_tells_what_multiplies(name: str, arithmetic: int, unaligned: bool) -> None:
    assert (read_name(name).arithmetic, read_name(name).unaligned) == (arithmetic, unaligned)


@with_each(
    ("name", "shortens"),
    [
        ("ampere_sgemm_128x64_nn", True),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)", True),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half> >()",
            False,
        ),
        (
            "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>, float*, double>()",
            False,
        ),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", False),
        ("Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN", False),
        ("Cijk_Ailk_Bljk_SB_MT128x64x16_SN", True),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", False),
    ],
)
def test_mixed_precision_halves_the_bytes_of_fp32_kernels(name: str, shortens: bool) -> None:
    assert read_name(name).shortens is shortens


@with_each(
    ("name", "any_size"),
    [
        ("Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_AF0EM8_AF1EM8_ASE_ASEM64_GSU2", False),
        ("Cijk_Ailk_Bljk_BBS_BH_MT256x112x64_MI16x16x16x1_SN_AF0EM1_AF1EM1_ASE_ASEM1_GSU1", True),
        ("sgemm_AF0EM1_ASEM1", False),
    ],
)
def test_tensile_says_which_sizes_a_kernel_takes(name: str, any_size: bool) -> None:
    assert read_name(name).any_size is any_size


def test_a_function_is_named_without_arguments() -> None:
    assert function_name("void at::f<4, g(int)::{lambda()#1}>(int, h<2>)") == "void at::f"
    assert function_name("void (anonymous namespace)::f<1>(int)") == "void ::f"
    assert function_name("E<(((8)>(0)))&&x<1>::y, void>::type f<2>()") == "E::type f"
    assert function_name("volta_sgemm_128x32_nt") == "volta_sgemm_128x32_nt"
    assert function_name("cut_off<int, std::array<char*") == "cut_off"


@given(st.text())
def test_any_text_has_a_family(name: str) -> None:
    assert read_name(name).family in Family


@with_each(
    ("kernel", "does"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", True),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", True),
        ("rcclGenericKernel<1, false>(ncclDevComm*)", True),
        ("void vllm::all_reduce_kernel<float>(int)", True),
        ("void at::native::reduce_kernel<512, 1>(int)", False),
        ("sm90_xmma_gemm_bf16bf16_bf16f32", False),
        ("triton_poi_fused_all_reduce_add_2", False),
        ("void x::softmax_kernel<BlockAllReduce>(int)", False),
    ],
)
def test_which_kernels_communicate(kernel: str, does: bool) -> None:
    assert communicates([kernel]).tolist() == [does]


def test_many_names_are_read_as_each_of_them_is() -> None:
    names = [name for _, name in NAMES]
    many = read_names([*names, *(f"{number}_{name}" for number in range(4) for name in names)])
    assert many[: len(names)] == [read_name(name) for name in names]


@with_each(
    ("kernel", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", "AllReduce"),
        ("void deep_ep::internode::dispatch<true>(int)", "dispatch"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_Generic"),
    ],
)
def test_which_collective_a_kernel_runs(kernel: str, kind: str) -> None:
    assert collective_kind(kernel) == kind
