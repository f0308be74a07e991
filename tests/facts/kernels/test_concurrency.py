"""What kernels leave unused of the GPU, alone and at the same time, against a sum over every nanosecond."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.facts.kernels.multiprocessors import alone, exposed, unused_ns
from tb_gpudiag.vocabulary.kernel_families import Family
from tests.builder import TraceBuilder
from tests.facts import facts_of

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
US = 1_000

Span = tuple[str, int, int, int]
"""Name, start and length in µs, and blocks on a GPU with 80 multiprocessors."""


def kernels(*spans: Span) -> Kernels:
    trace = TraceBuilder()
    main = trace.thread()
    for number, (name, at, us, blocks) in enumerate(spans):
        main.launch(
            name, at=number, us=1, runs_at=50 + at, runs_us=us, grid=(blocks, 1, 1), stream=7 + number
        )
    device = facts_of(trace).device
    assert device is not None
    return device.kernels


def small(found: Kernels) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.asarray((found.blocks_per_sm < 1) & (found.family != Family.COLLECTIVE))


def test_kernels_side_by_side_fill_the_gpu_together() -> None:
    """16 kernels with 5 blocks each fill 80 multiprocessors: nothing is unused."""
    found = kernels(*[("reduce_kernel", 0, 100, 5)] * 16)
    assert unused_ns(found, small(found)).sum() == 0
    found = kernels(*[("reduce_kernel", 0, 100, 5)] * 4)
    assert unused_ns(found, small(found)).tolist() == [100 * US * 3 // 4 // 4] * 4


def test_communication_holds_what_its_blocks_need() -> None:
    found = kernels(("reduce_kernel", 0, 100, 20), (ALL_REDUCE, 0, 100, 24))
    assert unused_ns(found, small(found)).tolist() == [45 * US, 0]
    assert alone(found).total == 100 * US


def test_a_large_kernel_next_to_a_small_one_uses_all_of_the_gpu() -> None:
    found = kernels(("reduce_kernel", 0, 100, 20), ("gemm", 60, 100, 800))
    assert unused_ns(found, small(found)).tolist() == [45 * US, 0]
    assert alone(found).total == 120 * US


def test_what_the_busiest_stream_covers_is_hidden() -> None:
    found = kernels(("gemm", 0, 100, 800), ("copy", 60, 60, 800))
    assert exposed(found, np.array([False, True])).total == 20 * US
    assert exposed(found, np.array([True, False])).total == 60 * US  # the other has over half as much
    assert exposed(found, np.array([True, True])).total == 120 * US


def test_a_stream_that_does_little_hides_nothing() -> None:
    found = kernels(("gemm", 0, 100, 800), ("copy", 60, 49, 800))
    assert exposed(found, np.array([True, False])).total == 100 * US
    assert exposed(found, np.array([False, True])).total == 9 * US


def test_communication_hides_nothing() -> None:
    found = kernels(("gemm", 0, 100, 800), (ALL_REDUCE, 0, 100, 24))
    assert exposed(found, np.array([True, False])).total == 100 * US


SPANS = st.lists(
    st.tuples(
        st.sampled_from(["reduce_kernel", ALL_REDUCE]),
        st.integers(0, 20),
        st.integers(1, 20),
        st.integers(1, 120),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(SPANS)
def test_any_kernels_against_a_sum_over_time(spans: list[Span]) -> None:
    found = kernels(*spans)
    total = lone_us = 0.0
    for now in range(45):
        running = [s for s in spans if s[1] <= now < s[1] + s[2]]
        computing = [s for s in running if s[0] != ALL_REDUCE]
        if any(blocks < 80 for *_, blocks in computing):
            total += max(0.0, 1 - sum(min(1, blocks / 80) for *_, blocks in running))
        lone_us += len(computing) == 1
    assert unused_ns(found, small(found)).sum() == pytest.approx(total * US, abs=len(spans))
    assert alone(found).total == lone_us * US
