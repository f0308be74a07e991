"""Peaks of GPUs: dense matmuls in TFLOP/s and memory bandwidth in TB/s, as their makers state them.

All matmul rates are dense: where a data sheet states the rate with sparsity, half of it. FP64 and FP32 are
the rates of matmuls, on tensor or matrix cores where these take the format. GeForce: half precision and FP8
with FP32 accumulation, as PyTorch has it. Laptops: the highest clock of the range that NVIDIA states. AMD's
MI200 series: rates of one of the two dies of a card, because each is a device of its own.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tb_gpudiag.facts.core.device_properties import LEAST_UNITS, DeviceProperties
from tb_gpudiag.frozen import dataclass


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

    @property
    def bf16(self) -> float:
        """Volta and Turing, which have no TF32 either, multiply bf16 as FP32."""
        return self.half if self.tf32 or self.matrix_fp32 else self.fp32


@dataclass(frozen=True)
class _Series:
    """How the rates of a series of cards relate to their FP32 rate: a white paper states them for one
    multiprocessor and clock, and data sheets of each card mostly FP32 and one rate of the tensor cores."""

    fp64: float
    tf32: float
    half: float
    fp8: float

    def card(self, fp32: float, bandwidth: float) -> Peaks:
        """Return the peaks of the card with these: as data sheets have them, or cores × 2 × boost clock."""
        fp64, tf32, half, fp8 = (
            round(share * fp32, 2) for share in (self.fp64, self.tf32, self.half, self.fp8)
        )
        return Peaks(fp64, fp32, tf32, half, fp8, bandwidth)


# NVIDIA Turing (2018), Ampere GA102 (2021), Ada (2022) and RTX Blackwell (2025) white papers. With FP32
# accumulation, GeForce cards have half the rate of workstation cards with the same chip.
_GEFORCE_20 = _Series(1 / 32, 0, 4, 0)
_QUADRO_RTX = _Series(1 / 32, 0, 8, 0)
_GEFORCE_30 = _Series(1 / 64, 1, 2, 0)
_RTX_A = _Series(1 / 64, 2, 4, 0)
_GEFORCE_40 = _GEFORCE_50 = _Series(1 / 64, 1, 2, 4)
_RTX_ADA = _RTX_PRO = _Series(1 / 64, 2, 4, 8)

# The first name that the device's name contains decides, so longer names precede those that they contain.
DEVICE_PEAKS: tuple[tuple[str, Peaks], ...] = (
    # NVIDIA V100 (2020), V100S (2019) and T4 (2019) data sheets, TITAN V product page (2017).
    (r"V100-(SXM|DGX)", Peaks(7.8, 15.7, 0, 125, 0, 0.9)),
    (r"V100S-PCIE", Peaks(8.2, 16.4, 0, 130, 0, 1.134)),
    (r"V100-PCIE", Peaks(7.0, 14.0, 0, 112, 0, 0.9)),
    (r"TITAN V\b", Peaks(6.9, 13.8, 0, 110, 0, 0.653)),
    (r"\bT4G?\b", Peaks(0.25, 8.1, 0, 65, 0, 0.32)),
    # NVIDIA A100 data sheet (2022); the A800 differs in NVLink only. PG509 is the A100 of Meta's servers.
    (r"A[18]00-(SXM4|PCIE)-40GB|A100-PG509", Peaks(19.5, 19.5, 156, 312, 0, 1.555)),
    (r"A[18]00-SXM4-80GB", Peaks(19.5, 19.5, 156, 312, 0, 2.039)),
    (r"\bA[18]00\b", Peaks(19.5, 19.5, 156, 312, 0, 1.935)),
    # NVIDIA A30, A10, A16, A2, A40 data sheets (2021 and 2022); A16: one of a card's four GPUs. A10G data
    # sheet (2021): half the tensor rate of the A10.
    (r"\bA30\b", Peaks(10.3, 10.3, 82, 165, 0, 0.933)),
    (r"\bA10G\b", _GEFORCE_30.card(35, 0.6)),
    (r"\bA10\b", _RTX_A.card(31.2, 0.6)),
    (r"\bA16\b", _RTX_A.card(4.5, 0.2)),
    (r"\bA2\b", _RTX_A.card(4.5, 0.2)),
    (r"\bA40\b", _RTX_A.card(37.4, 0.696)),
    # NVIDIA L4, L40, L40S data sheets (2023); L20: Lenovo's product guide (2024).
    (r"\bL40S\b", Peaks(1.4, 91.6, 183, 362, 733, 0.864)),
    (r"\bL40\b", _GEFORCE_40.card(90.5, 0.864)),
    (r"\bL20\b", _GEFORCE_40.card(59.8, 0.864)),
    (r"\bL4\b", _RTX_ADA.card(30.3, 0.3)),
    # NVIDIA H100 (2023), GH200 (2023) and H200 (2024) data sheets. H800 (2023): less FP64 and NVLink.
    (r"H100 NVL", Peaks(60, 60, 417, 835, 1_671, 3.9)),
    (r"H100 PCIe", Peaks(51, 51, 378, 756, 1_513, 2.0)),
    (r"H200 NVL", Peaks(60, 60, 418, 836, 1_671, 4.8)),
    (r"GH200.*144", Peaks(67, 67, 494, 989, 1_979, 4.9)),
    (r"GH200", Peaks(67, 67, 494, 989, 1_979, 4.0)),
    (r"H100", Peaks(67, 67, 494, 989, 1_979, 3.35)),
    (r"H200", Peaks(67, 67, 494, 989, 1_979, 4.8)),
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
    # Workstations. NVIDIA RTX PRO 6000 (FP32) and 5000 (2,064 TFLOP/s FP4 with sparsity) data sheets (2025).
    (r"RTX PRO 6000 Blackwell Max-Q", _RTX_PRO.card(110, 1.792)),
    (r"RTX PRO 6000 Blackwell Server", _RTX_PRO.card(120, 1.597)),
    (r"RTX PRO 6000", _RTX_PRO.card(125, 1.792)),
    (r"RTX PRO 5000", _RTX_PRO.card(64.5, 1.344)),
    # NVIDIA data sheets of the RTX Ada (2022 to 2024), RTX A (2020 to 2024) and Quadro RTX (2018) series.
    (r"RTX 6000 Ada", _RTX_ADA.card(91.1, 0.96)),
    (r"RTX 5880 Ada", _RTX_ADA.card(69.3, 0.96)),
    (r"RTX 5000 Ada", _RTX_ADA.card(65.3, 0.576)),
    (r"RTX 4500 Ada", _RTX_ADA.card(39.6, 0.432)),
    (r"RTX 4000 SFF Ada", _RTX_ADA.card(19.2, 0.28)),
    (r"RTX 4000 Ada", _RTX_ADA.card(26.7, 0.36)),
    (r"RTX 2000 Ada", _RTX_ADA.card(12.0, 0.224)),
    (r"RTX A6000", _RTX_A.card(38.7, 0.768)),
    (r"RTX A5500", _RTX_A.card(34.1, 0.768)),
    (r"RTX A5000", _RTX_A.card(27.8, 0.768)),
    (r"RTX A4500", _RTX_A.card(23.7, 0.64)),
    (r"RTX A4000", _RTX_A.card(19.2, 0.448)),
    (r"RTX A2000", _RTX_A.card(8.0, 0.288)),
    (r"RTX A1000", _RTX_A.card(6.7, 0.192)),
    (r"RTX A400", _RTX_A.card(2.7, 0.096)),
    (r"Quadro RTX [68]000|TITAN RTX", _QUADRO_RTX.card(16.3, 0.672)),
    (r"Quadro RTX 5000", _QUADRO_RTX.card(11.2, 0.448)),
    (r"Quadro RTX 4000", _QUADRO_RTX.card(7.1, 0.416)),
    # GeForce: the white papers' appendices; the later cards: their product pages, cores × 2 × boost clock.
    (r"RTX 2080 Ti", _GEFORCE_20.card(13.4, 0.616)),
    (r"RTX 2080 SUPER", _GEFORCE_20.card(11.2, 0.496)),
    (r"RTX 2080", _GEFORCE_20.card(10.1, 0.448)),
    (r"RTX 2070 SUPER", _GEFORCE_20.card(9.1, 0.448)),
    (r"RTX 2070", _GEFORCE_20.card(7.5, 0.448)),
    (r"RTX 2060 SUPER", _GEFORCE_20.card(7.2, 0.448)),
    (r"RTX 2060", _GEFORCE_20.card(6.5, 0.336)),
    (r"RTX 3090 Ti", _GEFORCE_30.card(40, 1.008)),
    (r"RTX 3090", _GEFORCE_30.card(35.6, 0.936)),
    (r"RTX 3080 Ti", _GEFORCE_30.card(34.1, 0.912)),
    (r"RTX 3080", _GEFORCE_30.card(29.8, 0.76)),
    (r"RTX 3070 Ti", _GEFORCE_30.card(21.7, 0.608)),
    (r"RTX 3070", _GEFORCE_30.card(20.3, 0.448)),
    (r"RTX 3060 Ti", _GEFORCE_30.card(16.2, 0.448)),
    (r"RTX 3060", _GEFORCE_30.card(12.7, 0.36)),
    (r"RTX 3050", _GEFORCE_30.card(9.1, 0.224)),
    (r"RTX 4090 D", _GEFORCE_40.card(73.5, 1.008)),
    (r"RTX 4090", _GEFORCE_40.card(82.6, 1.008)),
    (r"RTX 4080 SUPER", _GEFORCE_40.card(52.2, 0.736)),
    (r"RTX 4080", _GEFORCE_40.card(48.7, 0.717)),
    (r"RTX 4070 Ti SUPER", _GEFORCE_40.card(44.1, 0.672)),
    (r"RTX 4070 Ti", _GEFORCE_40.card(40.1, 0.504)),
    (r"RTX 4070 SUPER", _GEFORCE_40.card(35.5, 0.504)),
    (r"RTX 4070", _GEFORCE_40.card(29.1, 0.504)),
    (r"RTX 4060 Ti", _GEFORCE_40.card(22.1, 0.288)),
    (r"RTX 4060", _GEFORCE_40.card(15.1, 0.272)),
    (r"RTX 5090", _GEFORCE_50.card(104.8, 1.792)),
    (r"RTX 5080", _GEFORCE_50.card(56.3, 0.96)),
    (r"RTX 5070 Ti", _GEFORCE_50.card(43.9, 0.896)),
    (r"RTX 5070", _GEFORCE_50.card(30.9, 0.672)),
    (r"RTX 5060 Ti", _GEFORCE_50.card(23.7, 0.448)),
    (r"RTX 5060", _GEFORCE_50.card(19.2, 0.448)),
    (r"RTX 5050", _GEFORCE_50.card(13.2, 0.32)),
    # AMD Instinct MI210 (2022), MI250 and MI250X (2021) data sheets: matrix rates; a die is half of a card.
    (r"MI210", Peaks(45.3, 45.3, 0, 181, 0, 1.638, matrix_fp32=True)),
    (r"MI250X", Peaks(47.9, 47.9, 0, 191.5, 0, 1.638, matrix_fp32=True)),
    (r"MI250", Peaks(45.3, 45.3, 0, 181, 0, 1.638, matrix_fp32=True)),
    # AMD Instinct MI300A, MI300X (2023), MI325X (2024), MI350X and MI355X (2025) data sheets.
    (r"MI300A", Peaks(122.6, 122.6, 490.3, 980.6, 1_961, 5.3, matrix_fp32=True)),
    (r"MI300X", Peaks(163.4, 163.4, 653.7, 1_307, 2_615, 5.3, matrix_fp32=True)),
    (r"MI325X", Peaks(163.4, 163.4, 653.7, 1_307, 2_615, 6.0, matrix_fp32=True)),
    (r"MI350X", Peaks(72.1, 144.2, 0, 2_307, 4_614, 8.0)),
    (r"MI355X", Peaks(78.6, 157.3, 0, 2_517, 5_033, 8.0)),
)

# Laptop GPUs have the names of faster cards. NVIDIA's comparison of GeForce laptops (2021 to 2025) and its
# line card of laptop workstations (2024); RTX 1000 and 500: a sixteenth of the FP8 rate with sparsity.
LAPTOP_PEAKS: tuple[tuple[str, Peaks], ...] = (
    (r"RTX 3080 Ti", _GEFORCE_30.card(23.6, 0.512)),
    (r"RTX 3080", _GEFORCE_30.card(21.0, 0.448)),
    (r"RTX 3070 Ti", _GEFORCE_30.card(17.5, 0.448)),
    (r"RTX 3070", _GEFORCE_30.card(16.6, 0.448)),
    (r"RTX 3060", _GEFORCE_30.card(13.1, 0.336)),
    (r"RTX 3050 Ti", _GEFORCE_30.card(8.7, 0.192)),
    (r"RTX 3050", _GEFORCE_30.card(7.6, 0.192)),
    (r"RTX 4090", _GEFORCE_40.card(39.7, 0.576)),
    (r"RTX 4080", _GEFORCE_40.card(33.9, 0.432)),
    (r"RTX 4070", _GEFORCE_40.card(20.0, 0.256)),
    (r"RTX 4060", _GEFORCE_40.card(14.6, 0.256)),
    (r"RTX 4050", _GEFORCE_40.card(12.1, 0.192)),
    (r"RTX 5090", _GEFORCE_50.card(45.3, 0.896)),
    (r"RTX 5080", _GEFORCE_50.card(35.1, 0.896)),
    (r"RTX 5070 Ti", _GEFORCE_50.card(26.1, 0.672)),
    (r"RTX 5070", _GEFORCE_50.card(21.6, 0.384)),
    (r"RTX 5060", _GEFORCE_50.card(16.6, 0.384)),
    (r"RTX 5050", _GEFORCE_50.card(13.6, 0.384)),
    (r"RTX 5000 Ada", _RTX_ADA.card(42.6, 0.576)),
    (r"RTX 4000 Ada", _RTX_ADA.card(33.6, 0.432)),
    (r"RTX 3500 Ada", _RTX_ADA.card(23.0, 0.432)),
    (r"RTX 3000 Ada", _RTX_ADA.card(19.9, 0.256)),
    (r"RTX 2000 Ada", _RTX_ADA.card(14.5, 0.256)),
    (r"RTX 1000 Ada", _RTX_ADA.card(12.1, 0.192)),
    (r"RTX 500 Ada", _RTX_ADA.card(9.6, 0.128)),
)
_LAPTOP = r"Laptop|Max-Q Design|Mobile"

# A part of a GPU (MIG) has the name of the whole, but not its bandwidth.
_PART = r"\bMIG\b"

# Unlisted names. NVIDIA: peaks of a GPU of that compute capability with this many multiprocessors, which
# scale with their number, and the least bandwidth of a card with that capability. So a kernel reaches at most
# the share of the peaks that is stated.
_CAPABILITIES: dict[tuple[int, int], tuple[int, Peaks]] = {
    (7, 0): (80, Peaks(7.0, 14.0, 0, 112, 0, 0.65)),  # V100-PCIE; Titan V's bandwidth
    (7, 5): (40, Peaks(0.25, 8.1, 0, 32.4, 0, 0.08)),  # T4, half of its tensor peak; MX450's bandwidth
    (8, 0): (108, Peaks(19.5, 19.5, 156, 312, 0, 0.933)),  # A100; A30's bandwidth
    (8, 6): (82, Peaks(0.56, 35.6, 35.6, 71, 0, 0.096)),  # RTX 3090; RTX A400's bandwidth
    (8, 9): (58, Peaks(0.47, 30.3, 30.3, 60, 121, 0.128)),  # L4, half of its tensor peaks; RTX 500 Ada
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
    is_part = 0 < device.multiprocessors < LEAST_UNITS.get(device.architecture, 0)
    if re.search(_PART, device.name) or is_part:
        return None
    listed = LAPTOP_PEAKS if re.search(_LAPTOP, device.name, re.I) else DEVICE_PEAKS
    for name, peaks in listed:
        if re.search(name, device.name, re.I):
            return peaks
    return _of_architecture(device.architecture) or _of_capability(device)


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
