"""Blocks of kernels on ROCm, which records grids instead of blocks per multiprocessor."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tests.trace.support import read_bytes
from tests.with_each import with_each


def blocks(*events: dict[str, Any]) -> list[float | None]:
    whole = [{"ph": "X", "pid": 2, "tid": 0, "ts": i, "dur": 1, **event} for i, event in enumerate(events)]
    found = read_bytes(json.dumps({"traceEvents": whole}).encode()).events.blocks
    return [None if np.isnan(value) else float(value) for value in found]


def kernel(name: str, grid: object, block: object, **args: object) -> dict[str, Any]:
    return {"cat": "kernel", "name": name, "args": {"grid": grid, "block": block, **args}}


@with_each(
    ("name", "grid", "block", "expected"),
    [
        ("void at::native::vectorized_elementwise_kernel<4>()", [16384, 2, 1], [256, 1, 1], 32768),
        # Tensile and MIOpen: in threads.
        ("Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1", [512, 4, 1], [256, 1, 1], 8),
        ("igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1", [9216, 1, 8], [256, 1, 1], 288),
        ("batched_transpose_32x32_half", [1000, 1, 1], [256, 1, 1], 4),
        ("attn_fwd", [0, 0, 0], [0, 0, 0], None),
        ("attn_fwd", None, [256, 1, 1], None),
        ("attn_fwd", [1, 2], [256, 1, 1], None),
        ("attn_fwd", "many", {"x": 1}, None),
        ("attn_fwd", [1, 10**300, 1], [1, 1, 1], None),
        ("attn_fwd", [1, 1.5, 1], [1, 1, 1], None),
    ],
)
def test_blocks_of_a_grid(name: str, grid: object, block: object, expected: float | None) -> None:
    assert blocks(kernel(name, grid, block)) == [expected]


def test_only_kernels_without_blocks_per_multiprocessor_and_hip_launches_have_blocks() -> None:
    launch = {"grid dim": [512, 4, 1], "block dim": [256, 1, 1]}
    found = blocks(
        kernel("gemm", [8, 1, 1], [256, 1, 1], **{"blocks per SM": 0.1}),
        {"cat": "cuda_runtime", "name": "hipExtModuleLaunchKernel", "args": launch},
        {"cat": "cuda_runtime", "name": "hipModuleLaunchKernel", "args": launch},
        {"cat": "cuda_runtime", "name": "hipLaunchKernel", "args": {"grid": [3, 1, 1], "block": [64, 1, 1]}},
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": launch},
        {"cat": "cpu_op", "name": "aten::mm", "args": launch},
    )
    assert found == [None, 8, 2048, 3, None, None]
