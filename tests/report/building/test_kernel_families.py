"""GPU time by kernel family: in the Report, and in every view."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.html import to_html
from tb_gpudiag.report.views.markdown import to_markdown
from tb_gpudiag.report.views.text import to_text
from tests.builder import TraceBuilder
from tests.report.reports import report_of


def products_and_a_copy() -> TraceBuilder:
    """On GPU 1, and a little on GPU 0: over a window of 1,000 µs."""
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
    report = report_of(products_and_a_copy(), tmp_path)
    assert [(f.device, f.family, f.kernels) for f in report.kernel_families] == [
        (1, "gemm", 3),
        (1, "copy", 1),
        (0, "other", 1),
    ]
    gemm = report.kernel_families[0]
    assert (gemm.us, gemm.tensor_core_us) == (500, 300)
    assert gemm.share == pytest.approx(0.45)  # 50 µs of it side by side


def test_every_view_shows_the_busiest_devices(tmp_path: Path) -> None:
    report = report_of(products_and_a_copy(), tmp_path)
    for view in (to_text([report]), to_markdown([report]), to_html([report])):
        _, section = view.split("GPU time by kernel family")
        for cell in ("gemm", "500 µs", "45.0 %", "60.0 %", "copy"):
            assert cell in section
    assert "GPU time by kernel family" not in to_text([pb.Report()])
