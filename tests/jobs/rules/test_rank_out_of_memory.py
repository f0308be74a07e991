"""GD611: memory snapshots of all ranks as one job: who failed, for what, and whether the others held it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.members import find_sets
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.jobs.report.job_view import job_document
from tb_gpudiag.jobs.rules.job_registry import JOB_RULES
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.text import document_text
from tb_gpudiag.rules.answer import CannotTell, Clear, RuleAnswer
from tb_gpudiag.trace.files.find import find_traces
from tests.builder import SnapshotBuilder
from tests.report.views.formats import one_space

MIB = 2**20
FORWARD = ["train.py(20): step", "model.py(80): forward"]
(RULE,) = [rule for rule in JOB_RULES if rule.id == "GD611"]


def snapshot(
    folder: Path,
    rank: int,
    *,
    more_mib: int = 0,
    failed_mib: int = 0,
    history: bool = True,
    name: str = "rank{}_memory_snapshot.pickle",
) -> None:
    """Write what a rank leaves that has 10 GiB allocated, and more if a function keeps it."""
    made = SnapshotBuilder()
    made.segment(40_000 * MIB)
    made.allocate(8_192 * MIB, at=1, stack=["train.py(10): main", "model.py(40): build"])
    made.allocate(2_048 * MIB, at=2, stack=FORWARD)
    if more_mib:
        made.allocate(more_mib * MIB, at=3, stack=["train.py(30): evaluate", "metrics.py(7): gather"])
    if failed_mib:
        made.out_of_memory(failed_mib * MIB, at=4, device_free=500 * MIB, stack=FORWARD)
    if not history:
        made.forget(0)
    folder.mkdir(parents=True, exist_ok=True)
    made.write(folder, name.format(rank))


def jobs_of(folder: Path) -> list[pb.JobReport]:
    return list(build_jobs(digest_file(file)[1] for file in find_traces(str(folder)).files).reports)


def answer_of(folder: Path) -> RuleAnswer:
    (found,) = find_sets(digest_file(file)[1] for file in find_traces(str(folder)).files).sets
    return RULE.check(JobFacts(found))


def only_finding(folder: Path) -> pb.Finding:
    (job,) = jobs_of(folder)
    (finding,) = job.findings
    assert (finding.rule, finding.severity) == ("GD611", pb.Finding.ERROR)
    return finding


def test_it_says_who_failed_for_what_and_what_it_held_more(tmp_path: Path) -> None:
    for rank in range(4):
        failed = rank == 2
        snapshot(tmp_path, rank, more_mib=9_216 * failed, failed_mib=30_000 * failed)
    finding = only_finding(tmp_path)
    assert one_space(finding.title) == "Rank 2 ran out of memory: an allocation of 29.3 GiB failed"
    assert "9 GiB more than the median of the others" in one_space(finding.summary)
    assert "9 GiB more at metrics.py:7 in gather." in one_space(finding.summary)
    assert [place.function for place in finding.places] == ["gather"]
    assert finding.fix.text.startswith("Give the ranks equal memory")


def test_where_the_others_held_the_same_the_fix_is_that_of_the_ranks_own_report(tmp_path: Path) -> None:
    for rank in range(4):
        snapshot(tmp_path, rank, failed_mib=30_000 * (rank == 1))
    finding = only_finding(tmp_path)
    assert "The other ranks held as much" in finding.summary
    assert not finding.fix.text.startswith("Give the ranks equal memory")


def test_all_ranks_may_fail(tmp_path: Path) -> None:
    for rank in range(3):
        snapshot(tmp_path, rank, failed_mib=30_000 + rank)
    (job,) = jobs_of(tmp_path)
    finding, own = job.findings
    assert own.rule == "GD402"
    assert finding.title.startswith("Ranks 0–2 ran out of memory")
    assert "on every rank" in finding.summary


def test_a_job_in_which_nothing_failed_has_no_finding(tmp_path: Path) -> None:
    for rank in range(3):
        snapshot(tmp_path, rank, more_mib=9_216 * (rank == 0))
    assert isinstance(answer_of(tmp_path), Clear)
    (job,) = jobs_of(tmp_path)
    assert not job.findings
    assert "10 GiB to 19 GiB" in one_space(job.verdict.sentence)


def test_snapshots_without_a_history_say_so_and_name_the_call(tmp_path: Path) -> None:
    for rank in range(3):
        snapshot(tmp_path, rank, history=False)
    answer = answer_of(tmp_path)
    assert isinstance(answer, CannotTell)
    assert "_record_memory_history()" in answer.how_to_record
    (job,) = jobs_of(tmp_path)
    text = one_space(document_text(job_document([job])))
    assert "The snapshot of rank 0, 1, 2 has no history" in text
    assert "step" not in text


def test_the_failed_rank_alone_may_have_a_history(tmp_path: Path) -> None:
    """Nothing is said of what it held more: the others' memory is of unknown places."""
    for rank in range(3):
        failed = rank == 1
        snapshot(tmp_path, rank, more_mib=9_216 * failed, failed_mib=30_000 * failed, history=failed)
    finding = only_finding(tmp_path)
    assert "9 GiB more than the median of the others." in one_space(finding.summary)
    assert not finding.places


@pytest.mark.parametrize(
    "name", ["oom_rank-{}_snapshot.pickle", "snapshot_oom_rank-{}.pickle", "Rank_{}.pickle.gz"]
)
def test_names_say_the_rank(tmp_path: Path, name: str) -> None:
    for rank in (0, 3):
        snapshot(tmp_path, rank, name=name)
    (job,) = jobs_of(tmp_path)
    assert [one.rank for one in job.ranks] == [0, 3]
    assert list(job.missing_ranks) == [1, 2]


def test_other_names_are_no_ranks(tmp_path: Path) -> None:
    for number in (0, 1):
        snapshot(tmp_path, number, name="step_{}_snapshot.pickle")
        snapshot(tmp_path, number, name="frank{}_snapshot.pickle")
    assert not jobs_of(tmp_path)


def test_of_several_snapshots_of_a_rank_the_failed_one_counts(tmp_path: Path) -> None:
    for rank in (0, 1):
        snapshot(tmp_path, rank)
    snapshot(tmp_path, 1, failed_mib=30_000, name="oom_rank-{}.pickle")
    finding = only_finding(tmp_path)
    assert finding.title.startswith("Rank 1 ran out of memory")
