"""JobReports: the contract's fields, bounded lists, and the same facts in every format."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.jobs.report.job_view import job_document
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.html import document_html
from tb_gpudiag.report.views.markdown import document_markdown
from tb_gpudiag.report.views.text import document_text
from tb_gpudiag.report.wire import to_dict, to_json
from tests.digest.made import parts
from tests.jobs.ranks.pipelines import gpipe, pipeline
from tests.jobs.ranks.stage import MS, facts_of, job
from tests.wording.plain import plain


def slow_job() -> pb.JobReport:
    own = job(4, 5, own_ms=lambda r, s: 12.0 if r == 2 else 10.0, cause="input", transfer_ms=0.05)
    (report,) = build_jobs(own).reports
    return report


def test_a_report_has_the_figures_of_the_contract() -> None:
    data = json.loads(to_json(slow_job()))
    assert (data["run"], data["world_size"], data["parallelism"], data["missing_ranks"]) == (
        "run",
        4,
        "DDP",
        [],
    )
    assert [rank["rank"] for rank in data["ranks"]] == [0, 1, 2, 3]
    assert data["ranks"][0]["waiting_us"] == pytest.approx(10_000)
    assert data["ranks"][2]["waiting_us"] == 0
    assert data["ranks"][2]["last_in"] >= 5
    assert data["clocks"]["basis"] == "ONE_HOST"
    assert data["collectives"]["matched"] == 10
    worst = data["collectives"]["worst"][0]
    assert (worst["last_rank"], worst["skew_us"], worst["transfer_us"]) == (2, 2_000, 50)
    assert worst["waiting_us"] == {"0": 2_000, "1": 2_000, "2": 0, "3": 2_000}
    assert (worst["why"], worst["why_us"]) == ("input", 2_000)
    assert data["verdict"]["limiter"] == "input"
    assert data["verdict"]["headline"].startswith(
        "Rank 2 comes late because of waiting for data, which costs "
    )
    assert [finding["rule"] for finding in data["findings"]] == ["GD602"]
    assert [step["last_rank"] for step in data["steps"]] == [2] * 5
    assert data["slowdown"]["s"] == pytest.approx(13.1 / 11.1, rel=0.02)
    assert data["findings"][0]["saving"]["basis"] == "replayed"


def test_a_late_rank_is_a_hint_where_another_is_as_late_at_the_same_collective() -> None:
    """Rank 2 is late there, too, but not over the step. By a replay, fixing rank 1 saves 0.1 ms."""
    first, later = {1: 13.0, 2: 12.9}, {2: 1.1}
    ranks = job(
        4,
        5,
        own_ms=lambda rank, step: first.get(rank, 10.0),
        later_ms=lambda rank, step: later.get(rank, 4.0),
        cause="python",
        about=lambda rank: {"devices": 1},
    )
    (report,) = build_jobs(ranks).reports
    (finding,) = (one for one in report.findings if one.rule == "GD602")
    assert (finding.severity, finding.saving.basis) == (pb.Finding.INFO, "replayed")
    assert finding.saving.high_us <= 5 * 110
    assert "because other ranks are late, too" in finding.summary
    assert not report.verdict.headline


@pytest.mark.parametrize(
    ("own_ms", "sentence"),
    [
        (lambda rank, step: 10.0, "Computing limits every rank: 99.1% of its time. "),
        (
            lambda rank, step: 10.0 + 0.4 * (rank == 2),
            "Waiting for other ranks is minor: rank 2 is latest, but ",
        ),
    ],
)
def test_the_verdict_on_ranks_that_are_alike(own_ms: Callable[[int, int], float], sentence: str) -> None:
    (report,) = build_jobs(job(4, 5, own_ms=own_ms, transfer_ms=0.05)).reports
    assert sentence in report.verdict.sentence


def _hosts_ahead_by(lead_ms: float, *findings: pb.Finding) -> pb.JobReport:
    """A step of 20 collectives. Rank 2's host calls one each 31 ms, and its GPU waits for that; the others
    are ahead by `lead_ms`, so that their GPUs wait inside the collectives instead. findings: its report's."""

    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        late_ns = round((31 * number + 30 - (0 if rank == 2 else lead_ms)) * MS)
        row["host_start_ns"] = max(0, min(late_ns, row["start_ns"]))
        row["host_ns"] = parts(dispatch=row["start_ns"] - row["since_ns"])

    def own_ms(rank: int, _step: int) -> float:
        return 30.0 if rank == 2 else 5.0

    ranks = job(
        4,
        1,
        collectives=20,
        own_ms=own_ms,
        later_ms=own_ms,
        cause="dispatch",
        change=change,
        about=lambda rank: {"devices": 1},
    )
    ranks[2] = replace(ranks[2], findings=list(findings))
    return build_jobs(ranks).reports[0]


def test_waiting_for_a_host_that_is_hardly_later_is_no_communication() -> None:
    report = _hosts_ahead_by(35)
    assert report.verdict.limiter == pb.Verdict.launch
    assert "Launching kernels limits every rank" in report.verdict.sentence
    assert "Waiting for other ranks is minor: rank 2 is latest" in report.verdict.sentence
    assert "ommunication" not in report.verdict.sentence
    (slow,) = (one for one in report.unchecked if one.rule == "GD602")
    assert "takes 35" in plain(slow.reason)  # 25 ms in each collective, 500 ms in all, are no lateness


def test_operators_that_take_long_by_themselves_are_no_launches() -> None:
    """Hosts that are taken off their cores inside operators, as their own reports say."""
    slow = pb.Finding(rule="GD102", severity=pb.Finding.ERROR, cost_us=300_000)
    report = _hosts_ahead_by(35, slow)
    assert report.verdict.limiter == pb.Verdict.python
    assert "The host's own code limits every rank" in report.verdict.sentence


def test_waiting_for_a_host_that_is_far_later_is_what_limits() -> None:
    report = _hosts_ahead_by(600)
    assert report.verdict.limiter == pb.Verdict.communication
    assert "Waiting for other ranks costs more: rank 2 is latest" in report.verdict.sentence


@pytest.mark.parametrize(("transfer_ms", "absent"), [(1.0, False), (30.0, True)])
def test_a_rank_without_a_trace_is_no_later_than_the_last_if_that_ends_the_wait(
    transfer_ms: float, *, absent: bool
) -> None:
    """Three of four ranks: rank 2 is 20 ms later than the others in each collective."""

    def own_ms(rank: int, _step: int) -> float:
        return 30.0 if rank == 2 else 10.0

    ranks = job(
        4, 3, own_ms=own_ms, later_ms=own_ms, transfer_ms=transfer_ms, about=lambda rank: {"devices": 1}
    )
    (report,) = build_jobs(ranks[:3]).reports
    assert ("ranks without a trace" in report.verdict.sentence) is absent
    assert report.HasField("slowdown") is not absent


def test_no_replay_makes_a_slow_stage_like_its_peers_since_it_has_none() -> None:
    (report,) = build_jobs(pipeline(gpipe, 4, 24, slow=1)).reports
    assert not report.HasField("slowdown")


def test_every_format_says_the_same() -> None:
    document = job_document([slow_job()])
    for text in (document_text(document), document_markdown(document), document_html(document)):
        plain = " ".join(text.replace("\u00a0", " ").replace("&#39;", "'").split())
        assert "Rank 2 takes 2 ms longer than its peers" in plain
        assert "GD602" in plain
        assert "Collectives with most waiting" in plain


def test_ranks_that_cannot_be_read_are_problems() -> None:
    (report,) = build_jobs(job(4)[:3], [NotATrace("cut off", where="worker3.json")]).reports
    assert [problem.where for problem in report.problems] == ["worker3.json"]
    assert list(report.missing_ranks) == [3]
    assert "worker3.json: cut off" in document_text(job_document([report]))


def test_a_thousand_missing_ranks_are_bounded() -> None:
    (report,) = build_jobs(job(2, about=lambda rank: {"world_size": 100_000})).reports
    assert (report.missing, len(report.missing_ranks)) == (99_998, 1_000)


def test_names_of_the_trace_are_shown_as_text() -> None:
    evil = "<script>alert(1)</script>\x1b[2J"
    (report,) = build_jobs(job(2, host=lambda rank: evil)).reports
    html = document_html(job_document([report]))
    assert "<script>alert" not in html
    assert "\x1b" not in document_text(job_document([report]))


def test_two_jobs_have_an_overview() -> None:
    reports = build_jobs([*job(4), *job(2, about=lambda rank: {"id": f"other{rank}"})]).reports
    assert len(reports) == 2
    assert "2 jobs" in document_text(job_document(reports))


def test_the_same_recordings_have_the_same_id() -> None:
    first, second = (build_jobs(job(3)).reports[0] for _ in range(2))
    assert first.id == second.id
    assert to_dict(first) == to_dict(second)
    assert facts_of(job(3)).set.ranks == [0, 1, 2]


def test_recordings_of_different_steps_have_a_report() -> None:
    def change(rank: int, number: int, row: dict[str, object]) -> None:
        row["sequence"] = number + 500 * (rank == 1)

    (report,) = build_jobs(job(2, 4, change=change)).reports
    assert report.collectives.matched == 0
    assert not report.HasField("slowdown")
    assert report.verdict.limiter == pb.Verdict.unknown
    assert [finding.rule for finding in report.findings] == ["GD605"]
    assert "no collective in common" in report.verdict.sentence
