"""MFU in words: one line under the verdict, its parts, and operators by what they lose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.report import report_pb2 as pb
from tests.builder import DeviceProperties
from tests.facts.kernels.test_mfu import ADD, ALL_REDUCE, GEMM, Job
from tests.report.reports import report_of, rows_of
from tests.report.views.formats import FORMATS, one_space, words_in


def mfu_of(job: Job, folder: Path) -> pb.Mfu:
    return report_of(job.trace, folder).mfu


def trained(*, shapes: bool = True) -> Job:
    job = Job(shapes=shapes)
    job.run("aten::mm", GEMM, 200)
    job.run("aten::add", ADD, 50)
    job.run("nccl:all_reduce", ALL_REDUCE, 30)
    job.idle(99)
    job.run("aten::mm", GEMM, 160)
    return job


def test_one_line_names_the_mfu_and_the_peak(tmp_path: Path) -> None:
    """By hand: 2 × 139 µs of 539 µs, of which 99 µs are idle."""
    report = report_of(trained().trace, tmp_path)
    found = report.mfu
    assert one_space(found.sentence) == "MFU 51.6% of 989 TFLOP/s (BF16)."
    assert sum(part.us for part in found.parts) == pytest.approx(539, abs=0.01)
    model = next(part for part in found.parts if part.part == pb.MfuPart.model)
    assert model.us / 539 == pytest.approx(found.mfu, rel=1e-4)
    assert found.model_teraflops == pytest.approx(2 * 2 * 4096**3 / 539e6, rel=1e-3)
    worst = rows_of(report, "operator_rates")[0]
    assert (worst["operator"], worst["calls"]) == ("aten::mm", 2)
    assert worst["shapes"] == "[[4096,4096],[4096,4096]]"
    assert worst["beyond_roofline"] == pytest.approx(360 - 278, abs=0.5)


def test_every_format_has_the_line_and_all_parts(tmp_path: Path) -> None:
    report = report_of(trained().trace, tmp_path)
    for words in (one_space(words_in(form, report)) for form in FORMATS):
        assert "MFU 51.6% of 989 TFLOP/s (BF16)." in words
        assert "MFU: where the peak of 989 TFLOP/s (BF16) goes" in words
        assert "model FLOPs" in words
        assert "Operators that lose most of the peak" in words


def test_unknown_flops_make_it_a_lower_bound(tmp_path: Path) -> None:
    job = trained()
    job.run("my::fused_mlp", GEMM, 100)
    found = mfu_of(job, tmp_path)
    assert found.at_least
    assert found.sentence.startswith("MFU at least 43.5% of")


def test_rates_above_the_stated_peak_are_said(tmp_path: Path) -> None:
    job = Job()
    job.run("aten::mm", GEMM, 100)
    assert mfu_of(job, tmp_path).sentence.endswith("faster than the stated peak, and count as at the peak.")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    assert mfu_of(trained(shapes=False), tmp_path / "shapes").sentence == (
        "MFU: cannot tell without input shapes. Record with record_shapes=True."
    )
    job = trained()
    job.run("my::fused_mlp", GEMM, 400)
    found = mfu_of(job, tmp_path)
    assert "kernels whose FLOPs are not known, such as “my::fused_mlp”, take" in found.sentence
    assert not found.parts
    job = Job()
    job.trace.recording.devices = [DeviceProperties("Test GPU", compute_major=99)]
    job.run("aten::mm", GEMM, 200)
    sentence = one_space(mfu_of(job, tmp_path / "peak").sentence)
    assert "the peak of this GPU is not known. Its matmuls reach 687 TFLOP/s" in sentence


def test_a_job_without_matmuls_has_no_line(tmp_path: Path) -> None:
    job = Job()
    job.run("aten::add", ADD, 200)
    assert not report_of(job.trace, tmp_path).HasField("mfu")
