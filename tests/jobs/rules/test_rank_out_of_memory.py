"""GD611: memory snapshots of all ranks as one job: who failed, for what, and whether the others held it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.jobs.compare.comparison import compare
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
from tests.trace.memory.test_memory_viz import page

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
    path = folder / name.format(rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    made.write(path.parent, path.name)


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
    assert one_space(finding.title) == (
        "Rank 2 ran out of memory: an allocation of 29.3 GiB failed at model.py:80 in forward"
    )
    assert "9 GiB more than the median of the others: 9 GiB more of" in one_space(finding.summary)
    assert "9 GiB more at metrics.py:7 in gather." in one_space(finding.summary)
    assert [place.function for place in finding.places] == ["gather"]
    assert finding.fix.text.startswith("Give the ranks equal memory")


def test_where_the_others_held_the_same_the_fix_is_that_of_the_ranks_own_report(tmp_path: Path) -> None:
    for rank in range(4):
        snapshot(tmp_path, rank, failed_mib=30_000 * (rank == 1))
    finding = only_finding(tmp_path)
    assert "The other ranks held as much" in finding.summary
    assert not finding.fix.text.startswith("Give the ranks equal memory")


def test_the_places_are_where_it_held_more(tmp_path: Path) -> None:
    """Rank 1 failed before it evaluated, as the others did, with a larger batch."""
    for rank in range(3):
        made, failed = SnapshotBuilder(), rank == 1
        made.segment(60_000 * MIB)
        made.allocate((30_000 if failed else 2_048) * MIB, at=1, stack=FORWARD)
        if failed:
            made.out_of_memory(40_000 * MIB, at=2, stack=FORWARD)
        else:
            made.allocate(9_216 * MIB, at=2, stack=["train.py(30): evaluate"])
        made.write(tmp_path, f"oom_rank-{rank}_snapshot.pickle")
    finding = only_finding(tmp_path)
    assert [(place.file, place.line) for place in finding.places] == [("model.py", 80)]
    assert "The largest part is 27.3 GiB more at model.py:80 in forward." in one_space(finding.summary)


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
    assert "No history in the snapshots of ranks 0–2: what held memory there is unknown. Call torch" in text
    assert "step" not in text


def test_ranks_without_a_history_do_not_count_in_what_held_the_memory(tmp_path: Path) -> None:
    for rank in range(3):
        snapshot(tmp_path, rank, history=rank != 1)
    (job,) = jobs_of(tmp_path)
    (held,) = (table for table in job.tables if table.id == "held_by_rank")
    columns = {column.id: column for column in held.columns}
    assert set(columns["least"].numbers) == {2_048 * MIB, 8_192 * MIB}


def test_a_failure_is_not_gone_where_no_history_would_show_it(tmp_path: Path) -> None:
    for rank in range(2):
        snapshot(tmp_path / "before", rank, failed_mib=30_000 * rank)
        snapshot(tmp_path / "after", rank, history=False)
    sides = (
        [digest_file(file)[1] for file in find_traces(str(tmp_path / name)).files]
        for name in ("before", "after")
    )
    found = compare(*sides)
    assert not found.findings.gone
    assert "none in the candidate" not in found.sentence


def test_the_failed_rank_alone_may_have_a_history(tmp_path: Path) -> None:
    """Nothing is said of what it held more: the others' memory is of unknown places."""
    for rank in range(3):
        failed = rank == 1
        snapshot(tmp_path, rank, more_mib=9_216 * failed, failed_mib=30_000 * failed, history=failed)
    finding = only_finding(tmp_path)
    assert "9 GiB more than the median of the others." in one_space(finding.summary)
    assert not finding.places


@pytest.mark.parametrize(
    "name",
    [
        "oom_rank-{}_snapshot.pickle",  # Megatron
        "snapshot_oom_rank-{}.pickle",
        "snapshot_oom_rank_{}.pickle",
        "memory_snapshot-rank{}.pickle",  # NeMo
        "rank{}.oom_snapshot.pickle",  # Composer
        "oom_rank{}/snapshot.pickle",  # torchtnt: a folder for each rank
        "memory_snapshot_time1712345678.12_rank{}_snapshot.pickle",  # slime
        "memory_snapshot_rank{}_step6.pkl",
        "Rank_{}.pickle.gz",
    ],
)
def test_names_say_the_rank(tmp_path: Path, name: str) -> None:
    for rank in (0, 3):
        snapshot(tmp_path, rank, name=name)
    (job,) = jobs_of(tmp_path)
    assert [one.rank for one in job.ranks] == [0, 3]
    assert list(job.missing_ranks) == [1, 2]


def test_an_empty_file_of_a_rank_is_told_and_the_rank_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (0, 2):
        snapshot(tmp_path, rank, failed_mib=30_000 * (rank == 2))
    (tmp_path / "rank1_memory_snapshot.pickle").touch()
    assert main(["diagnose", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "rank1_memory_snapshot.pickle: the file is empty" in err
    assert "No snapshot of rank 1 could be read" in one_space(out)


def test_a_page_of_the_same_snapshot_is_no_recording_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (0, 1):
        snapshot(tmp_path, rank, failed_mib=30_000 * rank, name="rank{}.oom_snapshot.pickle")
        content = (tmp_path / f"rank{rank}.oom_snapshot.pickle").read_bytes()
        (tmp_path / f"rank{rank}.oom_trace_plot.html").write_bytes(page(content))
    assert main(["diagnose", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("Job 2 ranks")


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
