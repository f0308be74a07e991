"""Peaks of GPUs: by name, by compute capability, by AMD's architecture."""

from __future__ import annotations

import pytest

from tb_gpudiag.facts.core.device_properties import DeviceProperties, device_properties, parse_properties
from tb_gpudiag.facts.kernels.peaks import DEVICE_PEAKS, LAPTOP_PEAKS, Peaks, peaks_of
from tb_gpudiag.trace.events import Metadata
from tests.builder import TraceBuilder
from tests.facts import facts_of
from tests.with_each import with_each


def _device(name: str = "", **properties: int) -> DeviceProperties:
    return parse_properties({"name": name, **properties})


def _peaks(device: DeviceProperties) -> Peaks:
    found = peaks_of(device)
    assert found is not None
    return found


@with_each(
    ("name", "half", "bandwidth"),
    [
        ("NVIDIA A100-SXM4-40GB", 312, 1.555),
        ("NVIDIA A100 80GB PCIe", 312, 1.935),
        ("NVIDIA A100-PG509-200", 312, 1.555),
        ("NVIDIA H100 80GB HBM3", 989, 3.35),
        ("NVIDIA H100 PCIe", 756, 2.0),
        ("NVIDIA H200", 989, 4.8),
        ("NVIDIA H20", 148, 4.0),
        ("NVIDIA H800", 989, 3.35),
        ("NVIDIA B200", 2_250, 8.0),
        ("NVIDIA B300 SXM6 AC", 2_250, 8.0),
        ("NVIDIA GB200", 2_500, 8.0),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 88.2, 0.672),
        ("NVIDIA GeForce RTX 4070", 58.2, 0.504),
        ("NVIDIA GH200 480GB", 989, 4.0),
        ("NVIDIA A10G", 70, 0.6),
        ("NVIDIA L4", 121.2, 0.3),
        ("NVIDIA RTX A4000", 76.8, 0.448),
        ("NVIDIA RTX A2000 12GB", 32, 0.288),
        ("NVIDIA RTX 4000 Ada Generation", 106.8, 0.36),
        ("NVIDIA RTX 4000 SFF Ada Generation", 76.8, 0.28),
        ("NVIDIA RTX 6000 Ada Generation", 364.4, 0.96),
        ("NVIDIA RTX 500 Ada Generation Laptop GPU", 38.4, 0.128),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 440, 1.792),
        ("Quadro RTX 6000", 130.4, 0.672),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 79.4, 0.576),
        ("NVIDIA GeForce RTX 5070 Ti", 87.8, 0.896),
        ("Tesla V100-SXM2-32GB", 125, 0.9),
        ("AMD Instinct MI210", 181, 1.638),
        ("AMD Instinct MI250X", 191.5, 1.638),
        ("AMD Instinct MI300X VF", 1_307, 5.3),
        ("AMD Instinct MI325X", 1_307, 6.0),
        ("AMD Instinct MI355X", 2_517, 8.0),
    ],
)
def test_peaks_are_found_by_the_names_in_traces(name: str, half: float, bandwidth: float) -> None:
    peaks = _peaks(_device(name))
    assert (peaks.half, peaks.bandwidth, peaks.assumed) == (half, bandwidth, "")


def test_formats_are_as_fast_as_their_width_suggests() -> None:
    for name, peaks in DEVICE_PEAKS + LAPTOP_PEAKS:
        rates = (0, peaks.fp64, peaks.fp32, peaks.tf32 or peaks.fp32, peaks.half, peaks.fp8 or 1e4)
        assert 0 < peaks.bandwidth <= 8, name
        assert list(rates) == sorted(rates), name
        assert peaks.fp64 > 0, name
        # A stated rate with sparsity would be twice what the next wider format suggests.
        assert not peaks.tf32 or peaks.half / peaks.tf32 == pytest.approx(2, rel=0.02), name
        assert not peaks.fp8 or peaks.fp8 / peaks.half == pytest.approx(2, rel=0.03), name


@with_each(
    ("name", "units", "per_clock", "ghz"),
    [
        ("Tesla V100-SXM2-32GB", 80, 1024, 1.53),
        ("Tesla T4", 40, 1024, 1.59),
        ("NVIDIA A100-SXM4-80GB", 108, 2048, 1.41),
        ("NVIDIA A30", 56, 2048, 1.44),
        ("NVIDIA A10", 72, 1024, 1.695),
        ("NVIDIA A10G", 80, 512, 1.71),
        ("NVIDIA L4", 58, 1024, 2.04),
        ("NVIDIA L40", 142, 512, 2.49),
        ("NVIDIA RTX A4000", 48, 1024, 1.56),
        ("NVIDIA RTX A6000", 84, 1024, 1.8),
        ("NVIDIA RTX 4000 Ada Generation", 48, 1024, 2.175),
        ("NVIDIA RTX 5000 Ada Generation", 100, 1024, 2.55),
        ("NVIDIA RTX 6000 Ada Generation", 142, 1024, 2.505),
        ("NVIDIA RTX 5000 Ada Generation Laptop GPU", 76, 1024, 2.19),
        ("Quadro RTX 6000", 72, 1024, 1.77),
        ("NVIDIA H100 80GB HBM3", 132, 4096, 1.83),
        ("NVIDIA H100 PCIe", 114, 4096, 1.62),
        ("NVIDIA B200", 148, 8192, 1.855),
        # GeForce: half the rate with FP32 accumulation.
        ("NVIDIA GeForce RTX 2080 Ti", 68, 512, 1.545),
        ("NVIDIA GeForce RTX 3090", 82, 512, 1.695),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", 30, 512, 1.703),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 76, 512, 2.04),
        ("NVIDIA GeForce RTX 4090", 128, 512, 2.52),
        ("NVIDIA GeForce RTX 4070", 46, 512, 2.475),
        ("NVIDIA GeForce RTX 5090", 170, 512, 2.407),
        ("NVIDIA GeForce RTX 5080", 84, 512, 2.617),
        ("AMD Instinct MI210", 104, 1024, 1.7),
        ("AMD Instinct MI250X", 110, 1024, 1.7),
        ("AMD Instinct MI300A", 228, 2048, 2.1),
        ("AMD Instinct MI300X", 304, 2048, 2.1),
        ("AMD Instinct MI350X", 256, 4096, 2.2),
        ("AMD Instinct MI355X", 256, 4096, 2.4),
    ],
)
def test_a_stated_peak_is_units_times_operations_per_clock_times_clock(
    name: str, units: int, per_clock: int, ghz: float
) -> None:
    """The dense 16-bit rate a second way: from what one multiprocessor does in a clock."""
    assert _peaks(_device(name)).half == pytest.approx(units * per_clock * ghz / 1e3, rel=0.005)


def test_an_unlisted_gpu_has_the_peaks_of_its_compute_capability() -> None:
    peaks = _peaks(_device("NVIDIA RTX 1234 Ada Generation", computeMajor=8, computeMinor=9, numSms=76))
    assert peaks.half == pytest.approx(60 * 76 / 58)
    assert peaks.bandwidth == 0.128
    assert "8.9" in peaks.assumed
    # The laptop's GPU of this name is not listed, and is slower than the card.
    laptop = _device("NVIDIA RTX A4000 Laptop GPU", computeMajor=8, computeMinor=6, numSms=40)
    assert "8.6" in _peaks(laptop).assumed
    assert peaks_of(_device("NVIDIA Unheard", computeMajor=9, computeMinor=9, numSms=76)) is None
    assert peaks_of(_device()) is None


def test_a_part_of_a_gpu_has_no_stated_peaks() -> None:
    mig = _device("NVIDIA A100-SXM4-40GB MIG 1g.5gb", computeMajor=8, computeMinor=0, numSms=14)
    assert peaks_of(mig) is None
    partition = _device("AMD Instinct MI300X", computeMajor=9, computeMinor=4, numSms=38, warpSize=64)
    assert peaks_of(partition) is None


def test_amd_is_known_by_its_architecture_where_the_name_is_blank() -> None:
    blank = _device(computeMajor=9, computeMinor=4, numSms=304, warpSize=64)
    peaks = _peaks(blank)
    assert (peaks.half, peaks.bandwidth, peaks.assumed) == (980.6, 5.3, "MI300A (gfx942)")


def test_kernels_name_the_architecture_where_the_trace_has_no_properties() -> None:
    trace = TraceBuilder(devices=())
    trace.kernel("Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_GSU2_ISA942_IU1", at=0, us=10)
    peaks = facts_of(trace).gpu.peaks
    assert peaks is not None
    assert peaks.half == 980.6


def test_properties_of_a_gpu_that_is_not_listed_are_those_of_equal_ones() -> None:
    def named(*names: str) -> Metadata:
        return Metadata(device_properties=[{"id": i, "name": name} for i, name in enumerate(names)])

    assert device_properties(named("MI300X"), 2).name == "MI300X"
    assert device_properties(named("MI300X", "MI300X"), 2).name == "MI300X"
    assert device_properties(named("A100", "V100"), 1).name == "V100"
    assert device_properties(named("A100", "V100"), 2).name == ""
