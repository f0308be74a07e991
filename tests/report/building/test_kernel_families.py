"""GPU time by kernel family in the Report and in every format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.wording.format import share
from tests.builder import TraceBuilder
from tests.report.reports import report_of, rows_of
from tests.report.views.formats import FORMATS, one_space, words_in


def matmuls_and_a_copy() -> TraceBuilder:
    """Kernels on GPU 1 and a short one on GPU 0, in a window of 1,000 µs."""
    trace = TraceBuilder(devices=("Test GPU", "Test GPU"))
    main = trace.thread()
    main.step(0, at=100, us=1000)
    trace.kernel("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", at=200, us=300, device=1)
    trace.kernel("ampere_sgemm_128x64_nn", at=500, us=100, device=1)
    trace.kernel("ampere_sgemm_128x64_nn", at=550, us=100, device=1, stream=20)
    trace.kernel("batched_transpose_32x32_half", at=700, us=50, device=1)
    trace.kernel("a_kernel_of_my_own", at=200, us=10)
    return trace


def test_each_device_has_its_families_most_time_first(tmp_path: Path) -> None:
    report = report_of(matmuls_and_a_copy(), tmp_path)
    rows = rows_of(report, "kernel_families")
    assert [(row["gpu"], row["family"], row["kernels"]) for row in rows] == [
        ("GPU 1", "Matmul", 3),
        ("GPU 1", "Data movement", 1),
        ("GPU 0", "Other", 1),
    ]
    assert (rows[0]["kernel_time"], rows[0]["tensor_cores"]) == (500, 0.6)
    assert rows[0]["kernel_share"] == pytest.approx(0.45)  # 50 µs of them overlap


def test_every_format_shows_the_busiest_devices(tmp_path: Path) -> None:
    report = report_of(matmuls_and_a_copy(), tmp_path)
    for format in FORMATS:
        _, section = words_in(format, report).split("GPU time by kernel family")
        for cell in ("Matmul", "500 µs", share(0.45), share(0.6), "Data movement"):
            assert one_space(cell) in section
        assert "GPU time by kernel family" not in words_in(format, pb.Report())
