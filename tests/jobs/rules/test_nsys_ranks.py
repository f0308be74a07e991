"""Ranks that Nsight Systems recorded: advice names its options, and those of torch for ranks of torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.jobs.report.job_report import build_jobs, run_job_rules
from tb_gpudiag.jobs.report.job_view import job_document
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.html import document_html
from tb_gpudiag.report.views.text import document_text
from tb_gpudiag.report.wire import to_json
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.vocabulary.recorded import Recorder
from tests.builder.nsys import export_of
from tests.jobs.ranks.stage import facts_of, job
from tests.rules.torch_options import assert_no_option_of_torch
from tests.simulator.jobs import DistributedJob, JobFault
from tests.simulator.jobs.testing import simulated_job
from tests.with_each import with_each


def about_nsys(rank: int) -> dict[str, Recorder]:
    return {"recorder": "nsys"}


def report_of(fault: JobFault, folder: Path) -> pb.JobReport:
    """Return the report of a job of exports with this fault."""
    run = simulated_job(DistributedJob("ddp", ranks=4, steps=3, fault=fault))
    for rank, recording in enumerate(run.recordings):
        export = export_of(recording)
        for variable in (f'RANK="{rank}"', 'WORLD_SIZE="4"'):
            export.add("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value=variable)
        export.write(folder / f"rank{rank}.sqlite")
    (report,) = build_jobs([digest_file(file)[1] for file in find_traces(str(folder)).files]).reports
    return report


@pytest.mark.slow
def test_a_job_of_reports_names_no_option_of_torch(tmp_path: Path) -> None:
    report = report_of(JobFault("late_start", (3,), 8), tmp_path)
    assert "GD606" in {finding.rule for finding in report.findings}
    document = job_document([report])
    for text in (document_text(document), to_json(report), document_html(document)):
        assert "torch.cuda.profiler.start()" in text
        assert "nsys profile" in text
        assert_no_option_of_torch(text)


def test_ranks_of_both_recorders_get_both_advices() -> None:
    def recorded(rank: int) -> dict[str, Recorder]:
        return {"recorder": "nsys" if rank else "torch"}

    late = job(4, 5, start_ms=lambda rank: 8.0 if rank == 3 else 0.0, about=recorded)
    (report,) = build_jobs(late).reports
    (finding,) = [finding for finding in report.findings if finding.rule == "GD606"]
    assert "With torch.profiler: Start the recordings together: step the profiler" in finding.fix.text
    assert "With Nsight Systems: Start the recordings together: call torch.cuda" in finding.fix.text
    assert finding.fix.code.index("profiler.step()") < finding.fix.code.index("nsys profile")
    assert finding.fix.url.endswith("profiler.html")
    (note,) = [note for note in report.notes if "host time" in note]
    assert note.startswith("torch.profiler recorded rank 0, Nsight Systems recorded rank 1, 2, 3: they cost")


def test_collectives_of_different_recorders_are_not_matched_and_not_wrong() -> None:
    """torch.profiler knows process groups and sequence numbers. A rank of Nsight Systems only lacks them."""

    def without_group(rank: int, number: int, row: dict[str, Any]) -> None:
        if rank == 3:
            row |= {"group": "", "sequence": -1}

    recorders: list[Recorder] = ["torch", "torch", "torch", "nsys"]
    mixed = job(4, 5, change=without_group, about=lambda rank: {"recorder": recorders[rank]})
    (report,) = build_jobs(mixed).reports
    assert not report.findings
    (answer,) = [one for one in report.unchecked if one.rule == "GD605"]
    assert answer.reason.startswith("Nsight Systems does not say which process group")
    assert answer.how_to_record == "Record all ranks with the same profiler."
    assert "Nsight Systems does not say" in report.verdict.sentence
    (same,) = build_jobs(job(4, 5, change=without_group)).reports
    assert [finding.rule for finding in same.findings] == ["GD605"]


@with_each("steps", [0, 1, 5])
def test_no_rule_names_options_of_torch(steps: int) -> None:
    def odd(rank: int, number: int, row: dict[str, object]) -> None:
        if rank == 2 and number == 3:
            row["kind"] = "all_gather"

    digests = job(4, steps, change=odd, own_ms=lambda r, s: 10.0 + 9 * (r == s % 4), about=about_nsys)
    outcome = run_job_rules(facts_of(digests))
    assert outcome.unchecked or outcome.findings
    for _, answer in outcome.unchecked:
        assert_no_option_of_torch(answer.how_to_record)
    for found in outcome.findings:
        assert_no_option_of_torch(found.finding.fix.text)
        assert_no_option_of_torch(found.finding.fix.code)
    if steps == 5:
        (mismatched,) = [found.finding for found in outcome.findings if found.rule.id == "GD605"]
        assert "# The same steps on all ranks:\n# nsys profile" in mismatched.fix.code


def test_a_fix_about_ranks_but_not_about_recording_stays() -> None:
    digests = job(4, 5, own_ms=lambda r, s: 14.0 if r == 2 else 10.0, cause="python", about=about_nsys)
    (found,) = [found for found in run_job_rules(facts_of(digests)).findings if found.rule.id == "GD602"]
    assert "gc.collect()" in found.finding.fix.code
    assert "nsys" not in found.finding.fix.code


def test_a_report_without_a_rank_says_how_nsight_systems_gets_it() -> None:
    digests = [replace(one, about=replace(one.about, rank=-1, recorder="nsys")) for one in job(2)]
    notes = " ".join(build_jobs(digests).notes)
    assert "environment of nsys profile" in notes
    assert "init_process_group" not in notes
