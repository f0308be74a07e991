"""Peaks of GPUs: dense matmuls in TFLOP/s and memory bandwidth in TB/s, as their makers state them.

All matmul rates are dense: where a data sheet states the rate with sparsity, half of it. FP64 and FP32 are
the rates of matmuls, on tensor or matrix cores where these take the format. GeForce: half precision and FP8
with FP32 accumulation, as PyTorch has it. AMD's MI200 series: rates of one of the two dies of a card, because
each is a device of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tb_gpudiag.facts.core.device_properties import LEAST_UNITS, DeviceProperties


@dataclass(frozen=True)
class Peaks:
    """TFLOP/s of dense matmuls (0 where the GPU does not have the format), and TB/s of memory.

    assumed: whose peaks these are if the device's name is not listed, "" if it is.
    matrix_fp32: matrix cores take FP32 as it is, so that kernels on them are not necessarily TF32.
    """

    fp64: float
    fp32: float
    tf32: float
    half: float
    fp8: float
    bandwidth: float
    assumed: str = ""
    matrix_fp32: bool = False


# The first name that the device's name contains decides, so longer names precede those that they contain.
DEVICE_PEAKS: tuple[tuple[str, Peaks], ...] = (
    # NVIDIA V100 data sheet (2020), T4 data sheet (2019).
    (r"V100-(SXM|DGX)", Peaks(7.8, 15.7, 0, 125, 0, 0.9)),
    (r"V100-PCIE", Peaks(7.0, 14.0, 0, 112, 0, 0.9)),
    (r"Tesla T4", Peaks(0.25, 8.1, 0, 65, 0, 0.32)),
    # NVIDIA A100 data sheet (2022); the A800 differs in NVLink only. PG509 is the A100 of Meta's servers.
    (r"A[18]00-(SXM4|PCIE)-40GB|A100-PG509", Peaks(19.5, 19.5, 156, 312, 0, 1.555)),
    (r"A[18]00-SXM4-80GB", Peaks(19.5, 19.5, 156, 312, 0, 2.039)),
    (r"\bA[18]00\b", Peaks(19.5, 19.5, 156, 312, 0, 1.935)),
    # NVIDIA A30, A10, A40, RTX A6000 data sheets (2021 and 2022).
    (r"\bA30\b", Peaks(10.3, 10.3, 82, 165, 0, 0.933)),
    (r"\bA10\b", Peaks(0.49, 31.2, 62.5, 125, 0, 0.6)),
    (r"\bA40\b", Peaks(0.58, 37.4, 74.8, 149.7, 0, 0.696)),
    (r"\bRTX A6000\b", Peaks(0.6, 38.7, 77.4, 154.8, 0, 0.768)),
    # NVIDIA L4, L40, L40S, RTX 6000 Ada data sheets (2023); L20: Lenovo's product guide (2024).
    (r"\bL40S\b", Peaks(1.4, 91.6, 183, 362, 733, 0.864)),
    (r"\bL40\b", Peaks(1.4, 90.5, 90.5, 181, 362, 0.864)),
    (r"\bL20\b", Peaks(0.93, 59.8, 59.8, 119.5, 239, 0.864)),
    (r"\bL4\b", Peaks(0.47, 30.3, 60, 121, 242, 0.3)),
    (r"RTX 6000 Ada", Peaks(1.4, 91.1, 182.1, 364.2, 728.5, 0.96)),
    # NVIDIA H100 (2023) and H200 (2024) data sheets. H800 (2023): the same but for FP64 and NVLink.
    (r"H100 NVL", Peaks(60, 60, 417, 835, 1_671, 3.9)),
    (r"H100 PCIe", Peaks(51, 51, 378, 756, 1_513, 2.0)),
    (r"H200 NVL", Peaks(60, 60, 418, 836, 1_671, 4.8)),
    (r"H200", Peaks(67, 67, 494, 989, 1_979, 4.8)),
    (r"H100|GH200", Peaks(67, 67, 494, 989, 1_979, 3.35)),
    (r"H800 PCIe", Peaks(0.8, 51, 378, 756, 1_513, 2.0)),
    (r"H800", Peaks(1.0, 67, 494, 989, 1_979, 3.35)),
    # NVIDIA H20 product brief (2024). The model with 141 GB and H20-3e have 4.8 TB/s.
    (r"\bH20-3e|\bH20\b.*141", Peaks(1.0, 44, 74, 148, 296, 4.8)),
    (r"\bH20\b", Peaks(1.0, 44, 74, 148, 296, 4.0)),
    # NVIDIA HGX B200 and HGX B300 data sheets (2025), an eighth of the board; GB200 and GB300 NVL72, a 72nd.
    (r"\bGB200\b", Peaks(40, 80, 1_250, 2_500, 5_000, 8.0)),
    (r"\bB200\b", Peaks(37, 75, 1_125, 2_250, 4_500, 8.0)),
    (r"\bGB300\b", Peaks(1.3, 80, 1_250, 2_500, 5_000, 8.0)),
    (r"\bB300\b", Peaks(1.2, 75, 1_125, 2_250, 4_500, 8.0)),
    # NVIDIA Turing white paper (2018), reference clocks.
    (r"RTX 2080 Ti", Peaks(0.42, 13.4, 0, 53.8, 0, 0.616)),
    # NVIDIA Ampere GA102 white paper, appendix A (2021).
    (r"RTX 3090 Ti", Peaks(0.63, 40, 40, 80, 0, 1.008)),
    (r"RTX 3090", Peaks(0.56, 35.6, 35.6, 71, 0, 0.936)),
    (r"RTX 3080 Ti", Peaks(0.53, 34.1, 34.1, 68.2, 0, 0.912)),
    (r"RTX 3080", Peaks(0.47, 29.8, 29.8, 59.5, 0, 0.76)),
    (r"RTX 3070 Ti", Peaks(0.34, 21.7, 21.7, 43.5, 0, 0.608)),
    (r"RTX 3070", Peaks(0.32, 20.3, 20.3, 40.6, 0, 0.448)),
    (r"RTX 3060 Ti", Peaks(0.25, 16.2, 16.2, 32.4, 0, 0.448)),
    (r"RTX 3060", Peaks(0.2, 12.7, 12.7, 25.5, 0, 0.36)),
    # NVIDIA Ada white paper, appendix A (2022); the later cards: their product pages, cores × boost clock.
    (r"RTX 4090 D", Peaks(1.15, 73.5, 73.5, 147, 294, 1.008)),
    (r"RTX 4090", Peaks(1.29, 82.6, 82.6, 165.2, 330.3, 1.008)),
    (r"RTX 4080 SUPER", Peaks(0.82, 52.2, 52.2, 104.4, 208.9, 0.736)),
    (r"RTX 4080", Peaks(0.76, 48.7, 48.7, 97.5, 194.9, 0.717)),
    (r"RTX 4070 Ti SUPER", Peaks(0.69, 44.1, 44.1, 88.2, 176.4, 0.672)),
    (r"RTX 4070 Ti", Peaks(0.63, 40.1, 40.1, 80.2, 160.4, 0.504)),
    (r"RTX 4070 SUPER", Peaks(0.55, 35.5, 35.5, 71, 141.9, 0.504)),
    (r"RTX 4070", Peaks(0.46, 29.1, 29.1, 58.3, 116.6, 0.504)),
    (r"RTX 4060 Ti", Peaks(0.34, 22.1, 22.1, 44.1, 88.3, 0.288)),
    (r"RTX 4060", Peaks(0.24, 15.1, 15.1, 30.2, 60.4, 0.272)),
    # NVIDIA RTX Blackwell white paper, appendix A (2025); the later cards: their product pages.
    (r"RTX 5090", Peaks(1.64, 104.8, 104.8, 209.5, 419, 1.792)),
    (r"RTX 5080", Peaks(0.88, 56.3, 56.3, 112.6, 225.1, 0.96)),
    (r"RTX 5070 Ti", Peaks(0.69, 43.9, 43.9, 87.9, 175.8, 0.896)),
    (r"RTX 5070", Peaks(0.48, 30.9, 30.9, 61.7, 123.5, 0.672)),
    (r"RTX 5060 Ti", Peaks(0.37, 23.7, 23.7, 47.4, 94.8, 0.448)),
    (r"RTX 5060", Peaks(0.3, 19.2, 19.2, 38.4, 76.8, 0.448)),
    # NVIDIA RTX PRO 6000 Blackwell data sheet (2025): 125 TFLOP/s FP32, 4,000 TFLOP/s FP4 with sparsity.
    (r"RTX PRO 6000", Peaks(1.95, 125, 250, 500, 1_000, 1.792)),
    # AMD Instinct MI210 (2022), MI250 and MI250X (2021) data sheets: matrix rates; a die is half of a card.
    (r"MI210", Peaks(45.3, 45.3, 0, 181, 0, 1.638)),
    (r"MI250X", Peaks(47.9, 47.9, 0, 191.5, 0, 1.638)),
    (r"MI250", Peaks(45.3, 45.3, 0, 181, 0, 1.638)),
    # AMD Instinct MI300A, MI300X (2023), MI325X (2024), MI350X and MI355X (2025) data sheets.
    (r"MI300A", Peaks(122.6, 122.6, 490.3, 980.6, 1_961, 5.3, matrix_fp32=True)),
    (r"MI300X", Peaks(163.4, 163.4, 653.7, 1_307, 2_615, 5.3, matrix_fp32=True)),
    (r"MI325X", Peaks(163.4, 163.4, 653.7, 1_307, 2_615, 6.0, matrix_fp32=True)),
    (r"MI350X", Peaks(72.1, 144.2, 0, 2_307, 4_614, 8.0)),
    (r"MI355X", Peaks(78.6, 157.3, 0, 2_517, 5_033, 8.0)),
)

# Laptop GPUs have the names of faster cards.
_SLOWER = r"Laptop|Max-Q|Mobile"

# A part of a GPU (MIG) has the name of the whole, but not its bandwidth.
_PART = r"\bMIG\b"

# Unlisted names. NVIDIA: peaks of a GPU of that compute capability with this many multiprocessors, which
# scale with their number, and the least bandwidth of a card with that capability. So a kernel reaches at most
# the share of the peaks that is stated.
_CAPABILITIES: dict[tuple[int, int], tuple[int, Peaks]] = {
    (7, 0): (80, Peaks(7.0, 14.0, 0, 112, 0, 0.65)),  # V100-PCIE; Titan V's bandwidth
    (7, 5): (40, Peaks(0.25, 8.1, 0, 32.4, 0, 0.192)),  # GTX 1660's bandwidth
    (8, 0): (108, Peaks(19.5, 19.5, 156, 312, 0, 0.933)),  # A100; A30's bandwidth
    (8, 6): (82, Peaks(0.56, 35.6, 35.6, 71, 0, 0.192)),  # RTX 3090; RTX A2000's bandwidth
    (8, 9): (58, Peaks(0.47, 30.3, 30.3, 60, 121, 0.192)),  # L4, half of its tensor peaks; RTX 4050
    (9, 0): (114, Peaks(51, 51, 378, 756, 1_513, 2.0)),  # H100 PCIe
    (10, 0): (148, Peaks(37, 75, 1_125, 2_250, 4_500, 8.0)),  # B200
    (10, 3): (148, Peaks(1.2, 75, 1_125, 2_250, 4_500, 8.0)),  # B300
    (12, 0): (170, Peaks(1.64, 104.8, 104.8, 209.5, 419, 0.32)),  # RTX 5090; RTX 5050
}

# AMD's architectures: the slowest listed GPU that has it.
_ARCHITECTURES = {"gfx90a": r"MI210", "gfx942": r"MI300A", "gfx950": r"MI350X"}


def peaks_of(device: DeviceProperties) -> Peaks | None:
    """Return the peaks of a device: by its name, or by its architecture or compute capability; None if the
    trace gives none of these, or if the device is a part of a GPU."""
    if re.search(_PART, device.name) or _is_part(device):
        return None
    if not re.search(_SLOWER, device.name, re.I):
        for name, peaks in DEVICE_PEAKS:
            if re.search(name, device.name, re.I):
                return peaks
    return _of_architecture(device.architecture) or _of_capability(device)


def _is_part(device: DeviceProperties) -> bool:
    return 0 < device.multiprocessors < LEAST_UNITS.get(device.architecture, 0)


def _of_architecture(architecture: str) -> Peaks | None:
    if architecture not in _ARCHITECTURES:
        return None
    name = _ARCHITECTURES[architecture]
    return replace(dict(DEVICE_PEAKS)[name], assumed=f"{name} ({architecture})")


def _of_capability(device: DeviceProperties) -> Peaks | None:
    if device.compute_capability not in _CAPABILITIES or not device.multiprocessors:
        return None
    number, peaks = _CAPABILITIES[device.compute_capability]
    share = device.multiprocessors / number
    major, minor = device.compute_capability
    return Peaks(
        peaks.fp64 * share,
        peaks.fp32 * share,
        peaks.tf32 * share,
        peaks.half * share,
        peaks.fp8 * share,
        peaks.bandwidth,
        f"{device.multiprocessors} multiprocessors of compute capability {major}.{minor}, least bandwidth",
    )
