"""Peaks of GPUs: dense matmuls in TFLOP/s and memory bandwidth in TB/s, as their makers state them.

Sources, one for each block of rows:
- V100: NVIDIA V100 datasheet (2020). T4: NVIDIA T4 datasheet (2019).
- A100, A30, A10, A40: their NVIDIA datasheets (2020 to 2022).
- L4, L40S: their NVIDIA datasheets (2023); the stated tensor peaks are with sparsity; half of that is dense.
- H100, H200, B200: NVIDIA H100 (2023), H200 (2024) and HGX B200 (2025) datasheets, likewise.
- GeForce: NVIDIA's architecture white papers on GA102, Ada and RTX Blackwell (appendix A of each); half
precision with FP32 accumulation, as PyTorch has it.

A40, L40S, B200 and the RTX 4090 were checked against the makers' pages; the other rows were not yet. They
only scale estimates (fp32_matmul, roofline).
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Peaks(NamedTuple):
    """TFLOP/s of dense matmuls (tf32 is 0 where the GPU has none), and TB/s of memory."""

    fp32: float
    tf32: float
    half: float
    bandwidth: float


# The first name that the device's name contains decides, so longer names precede those that they contain.
DEVICE_PEAKS: tuple[tuple[str, Peaks], ...] = (
    (r"V100-(SXM|DGX)", Peaks(15.7, 0.0, 125.0, 0.9)),
    (r"V100-PCIE", Peaks(14.0, 0.0, 112.0, 0.9)),
    (r"Tesla T4", Peaks(8.1, 0.0, 65.0, 0.32)),
    (r"A100-(SXM4|PCIE)-40GB", Peaks(19.5, 156.0, 312.0, 1.555)),
    (r"A100-SXM4-80GB", Peaks(19.5, 156.0, 312.0, 2.039)),
    (r"A100", Peaks(19.5, 156.0, 312.0, 1.935)),
    (r"\bA30\b", Peaks(10.3, 82.0, 165.0, 0.933)),
    (r"\bA10\b", Peaks(31.2, 62.5, 125.0, 0.6)),
    (r"\bA40\b", Peaks(37.4, 74.8, 149.7, 0.696)),
    (r"\bL40S\b", Peaks(91.6, 183.0, 366.0, 0.864)),
    (r"\bL4\b", Peaks(30.3, 60.0, 121.0, 0.3)),
    (r"H100 PCIe", Peaks(51.0, 378.0, 756.0, 2.0)),
    (r"H200", Peaks(67.0, 494.0, 989.0, 4.8)),
    (r"H100", Peaks(67.0, 494.0, 989.0, 3.35)),
    (r"\bB200\b", Peaks(75.0, 1_125.0, 2_250.0, 8.0)),
    (r"RTX 3090(?! Ti)", Peaks(35.6, 35.6, 71.0, 0.936)),
    (r"RTX 4090", Peaks(82.6, 82.6, 165.2, 1.008)),
    (r"RTX 5080", Peaks(56.3, 56.3, 112.6, 0.96)),
    (r"RTX 5090", Peaks(104.8, 104.8, 209.5, 1.792)),
)


def peaks_of(device: str) -> Peaks | None:
    """Return the peaks of a device by the name that the trace gives it; None if it is not listed."""
    return next((peaks for name, peaks in DEVICE_PEAKS if re.search(name, device, re.I)), None)
