"""Kernel families over the step window, unfused attention, and collectives."""

from __future__ import annotations

import numpy as np
import pytest

from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.collectives import collectives
from tb_gpudiag.facts.kernels.kernels import unfused_attention
from tb_gpudiag.vocabulary.kernel_families import Family
from tests.builder import HostThread, TraceBuilder
from tests.facts import facts_of
from tests.real_traces import FILES, real_facts
from tests.with_each import with_each

US = 1000


def device_of(facts: Facts) -> DeviceFacts:
    assert facts.device is not None
    return facts.device


def test_families_are_over_the_step_window_and_covered_time_counts_overlaps_once() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=100, us=900)
    trace.kernel("ampere_sgemm_128x64_nn", at=50, us=100)  # half of it before the window
    trace.kernel("nvjet_hsh_256x128_64x4_NNT", at=200, us=100)
    trace.kernel("nvjet_hsh_64x8_64x16_NNT", at=250, us=100, stream=20)
    trace.kernel("nvjet_hsh_64x8_64x16_NNT", at=2000, us=100)
    main.copy("DtoD", at=400, us=10, runs_at=420, runs_us=30, bytes=4096)
    gemm, copy = device_of(facts_of(trace)).kernels.by_family()
    assert (gemm.family, gemm.kernels, gemm.time_ns) == (Family.GEMM, 3, 250 * US)
    assert gemm.covered_ns == 200 * US
    assert gemm.tensor_core_ns == 200 * US
    assert (copy.family, copy.kernels, copy.time_ns) == (Family.COPY, 1, 30 * US)


def attention(main: HostThread, operator: str, between: list[str]) -> None:
    """Launch two matmuls with kernels of 10 µs in between, which run from 200 µs."""
    gemm = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
    for i, kernel in enumerate([gemm, *between, gemm]):
        main.op(operator if kernel == gemm else "aten::softmax", at=100 + 8 * i, us=7)
        main.launch(kernel, at=102 + 8 * i, us=4, runs_at=200 + 10 * i, runs_us=10)


SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>()"
SCALE = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float> >()"


@with_each(
    ("operator", "between", "found_us"),
    [
        ("aten::bmm", [SCALE, SOFTMAX, SCALE], 30),
        ("aten::baddbmm", [SOFTMAX], 10),
        ("aten::addmm", [SOFTMAX], 0),  # a classifier's softmax
        ("aten::bmm", [SCALE], 0),
        ("aten::bmm", [SCALE] * 9 + [SOFTMAX], 0),  # too far away to be one attention
    ],
)
def test_unfused_attention_is_a_softmax_between_two_batched_matmuls(
    operator: str, between: list[str], found_us: int
) -> None:
    trace = TraceBuilder()
    attention(trace.thread(), operator, between)
    facts = facts_of(trace)
    kernels = device_of(facts).kernels
    found = unfused_attention(kernels, facts.host)
    assert len(found.softmax) == (found_us > 0)
    assert int(kernels.duration_ns[found.between].sum()) == found_us * US


def test_a_collective_is_exposed_where_nothing_computes() -> None:
    trace = TraceBuilder()
    trace.kernel("volta_sgemm_128x32_nt", at=0, us=100)
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", at=60, us=100, stream=20)
    trace.kernel("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", at=200, us=10, stream=20)
    device = device_of(facts_of(trace))
    reduce, gather = collectives(device.kernels, device.busy, device.window)
    assert (reduce.name, reduce.kernels, reduce.time_ns, reduce.exposed_ns) == (
        "AllReduce",
        1,
        100 * US,
        60 * US,
    )
    assert (gather.name, gather.exposed_ns) == ("AllGather", 10 * US)


SLEEP_KERNEL = "spin_kernel"
"""The kernel of `torch.cuda._sleep` only passes time: it belongs to no family."""


@pytest.mark.parametrize("file", FILES)
def test_names_of_real_traces_are_nearly_all_known(file: str) -> None:
    """Kernels without a family (old Triton names, sorting) take at most 3% of kernel time."""
    facts = real_facts(file)
    sleeps = [i for i, name in enumerate(facts.events.names) if SLEEP_KERNEL in name]
    for device in facts.devices:
        kernels = device.kernels
        works = ~np.isin(facts.events.name[kernels.event], sleeps)
        unknown = works & (kernels.family == Family.OTHER)
        assert kernels.duration_ns[unknown].sum() <= 0.03 * kernels.duration_ns[works].sum()
