"""What limits a job is in the same words wherever it is shown. A job without a GPU computes on the CPU."""

from __future__ import annotations

import pytest

from tb_gpudiag.jobs.history.history_view import history_document
from tb_gpudiag.jobs.report.job_view import Diagnosed, directory_document, job_document
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.compose import limiter

GPU = "NVIDIA H100"

WORDS = {"CPU": ("CPU computing", ""), "GPU": ("GPU computing", GPU)}


@pytest.mark.parametrize(("word", "gpu"), WORDS.values(), ids=WORDS)
def test_computing_is_that_of_the_cpu_without_a_gpu(word: str, gpu: str) -> None:
    other = "CPU computing" if gpu else "GPU computing"
    run = pb.RunRow(run="a", kind="trace", limiter="compute", busy_share=0.9 if gpu else 0.0)
    rank = pb.JobRank(limiter="compute", device_name=gpu)
    point = pb.HistoryPoint(limiter="compute", device_name=gpu)
    report = pb.Report(trace=pb.TraceInfo(kind="trace"), verdict=pb.Verdict(limiter="compute"))
    if gpu:
        report.devices.add(name=gpu)
    assert limiter(report) == word
    for shown in (
        directory_document([Diagnosed(run, report)] * 2),
        job_document([pb.JobReport(ranks=[rank], verdict=pb.Verdict(limiter="compute"))]),
        history_document([pb.History(points=[point])]),
    ):
        assert word in str(shown)
        assert other not in str(shown)
