"""What most ranks' own reports find is the job's; what only a late rank's finds explains why it is late."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.rules.answer import Finding
from tests.digest.made import parts, table
from tests.jobs.ranks.stage import MS, check_of, facts_of, job
from tests.with_each import with_each
from tests.wording.plain import plain

check = check_of("slow_rank")

# Five steps of 11.1 ms.
WHOLE_US = 55_500


def own(
    rule: str = "GD102",
    cost_us: float = 30_000,
    severity: int = pb.Finding.WARNING,
    longest_us: float = 30_000,
) -> pb.Finding:
    return pb.Finding(
        rule=rule,
        title=f"Sleeping takes {cost_us / WHOLE_US:.0%} of the time",
        cost_us=cost_us,
        severity=pb.Finding.Severity.Name(severity),
        saving=pb.Saving(low_us=0, high_us=cost_us),
        places=[pb.Place(function="pause", file="train.py", us=cost_us)],
        ranges=[pb.TimeRange(start_us=1, end_us=1 + longest_us)],
        fix=pb.Fix(text="Do not sleep.", code="pass"),
    )


def with_findings(found: Mapping[int, list[pb.Finding]], ranks: int = 4) -> list[Digest]:
    return [
        replace(digest, findings=found.get(rank, []))
        for rank, digest in enumerate(job(ranks, 5, transfer_ms=0.05))
    ]


def reported(digests: list[Digest]) -> pb.JobReport:
    (report,) = build_jobs(digests).reports
    return report


def test_what_all_ranks_find_is_a_finding_of_the_job() -> None:
    costs = [20_000, 24_000, 30_000, 40_000]
    report = reported(with_findings({rank: [own(cost_us=cost)] for rank, cost in enumerate(costs)}))
    (finding,) = report.findings
    assert plain(finding.title) == "On all 4 ranks: Sleeping takes 43% of the time"
    assert (finding.rule, finding.severity, finding.cost_us) == ("GD102", pb.Finding.WARNING, 24_000)
    assert [place.function for place in finding.places] == ["pause"]
    assert not finding.ranges
    assert finding.fix.text == "Do not sleep."


def test_ranks_that_do_it_at_once_save_what_the_one_in_the_middle_loses() -> None:
    costs = [20_000, 24_000, 30_000, 40_000]
    digests = job(4, 5, own_ms=lambda rank, step: 18.0, cause="python", transfer_ms=0.05)  # 10 ms compute
    report = reported(
        [replace(one, findings=[own(cost_us=cost)]) for one, cost in zip(digests, costs, strict=True)]
    )
    saving = report.findings[0].saving
    assert (saving.low_us, saving.high_us, saving.beyond) == (0, 24_000, "")
    assert saving.high_share == pytest.approx(24_000 / (WHOLE_US + 40_000), rel=0.1)


def test_ranks_that_do_it_in_turn_also_save_the_time_that_they_wait() -> None:
    digests = job(4, 8, own_ms=lambda rank, step: 30.0 if rank == step % 4 else 10.0, cause="python")
    report = reported([replace(digest, findings=[own(cost_us=40_000)]) for digest in digests])
    (finding,) = (one for one in report.findings if one.rule == "GD102")
    # Eight steps lose 20 ms each; a rank waits in six of them.
    assert finding.saving.high_us == pytest.approx(160_000)
    assert "replay of the job" in finding.saving.beyond


def test_most_ranks_are_more_than_half() -> None:
    report = reported(with_findings({rank: [own()] for rank in range(3)}))
    assert plain(report.findings[0].title).startswith("On 3 of 4 ranks: ")
    assert not reported(with_findings({rank: [own()] for rank in range(2)})).findings
    both = reported(with_findings({rank: [own()] for rank in range(2)}, ranks=2))
    assert plain(both.findings[0].title).startswith("On both ranks: ")


@with_each("rule", ["GD601", "GD106", "GD905"])
def test_what_is_no_rank_s_own_doing_is_left_to_its_report(rule: str) -> None:
    assert not reported(with_findings({rank: [own(rule)] for rank in range(4)})).findings


def test_a_hint_counts_if_its_fix_would_be_noticed() -> None:
    def hints(cost_us: float) -> pb.JobReport:
        found = own(cost_us=cost_us, severity=pb.Finding.INFO)
        return reported(with_findings({rank: [found] for rank in range(4)}))

    assert [finding.severity for finding in hints(20_000).findings] == [pb.Finding.INFO]
    assert not hints(1_000).findings


def test_the_verdict_speaks_of_all_ranks_if_they_share_most() -> None:
    slow = job(4, 5, own_ms=lambda rank, step: 14.0 if rank == 2 else 10.0, cause="input", transfer_ms=0.05)
    alone = reported(slow)
    assert alone.verdict.headline.startswith("Rank 2 comes late because of waiting for data")
    shared = reported([replace(digest, findings=[own(cost_us=40_000)]) for digest in slow])
    assert [finding.rule for finding in shared.findings] == ["GD102", "GD602"]
    assert not shared.verdict.headline


def of_slow_rank(found: Mapping[int, pb.Finding]) -> Finding:
    """The finding about rank 2, which computes 4 ms longer in each step."""
    digests = job(4, 5, own_ms=lambda rank, step: 14.0 if rank == 2 else 10.0)
    answer = check(
        facts_of(
            [
                replace(digest, findings=[found[rank]] if rank in found else [])
                for rank, digest in enumerate(digests)
            ]
        )
    )
    assert isinstance(answer, Finding)
    return answer


def test_a_late_rank_s_own_report_says_why_and_where() -> None:
    finding = of_slow_rank({2: own("GD511", cost_us=18_000)})
    assert "Its own report says: Sleeping takes 32% of the time (GD511)." in plain(finding.summary)
    assert [place.function for place in finding.places] == ["pause"]
    assert finding.fix.code


def test_what_others_have_too_or_what_is_too_short_explains_no_late_rank() -> None:
    assert "own report" not in of_slow_rank({rank: own("GD511") for rank in range(4)}).summary
    assert "own report" not in of_slow_rank({2: own("GD511", cost_us=5_000)}).summary


@with_each("rule", ["GD101", "GD102"])
def test_what_is_about_another_part_of_the_step_explains_no_rank_that_computes_longer(rule: str) -> None:
    finding = of_slow_rank({2: own(rule)})
    assert "own report" not in finding.summary
    assert "sleep" not in finding.fix.text


def on_cpu(own_ms: Callable[[int, int], float], cause: str, operators_ms: int) -> list[Digest]:
    """Six steps of four ranks on a CPU. operators_ms: how long the operators of rank 2 take, and those of
    others take 10 ms."""

    def on_host(rank: int, number: int, row: dict[str, Any]) -> None:
        row["host_ns"] = row["idle_ns"]
        if rank == 2 and number % 2 == 0:
            row["place"], row["place_ns"] = "evaluate (train.py)", 5 * MS

    def with_kernels(digest: Digest) -> Digest:
        row = {"name": "aten::mm", "family": "gemm", "operator": "aten::mm", "count": 10, "shapes": "[[8,8]]"}
        took = operators_ms if digest.about.rank == 2 else 10
        return replace(digest, kernels=table("kernels", [{**row, "time_ns": took * MS}]))

    ranks = job(4, 6, own_ms=own_ms, cause=cause, change=on_host, about=lambda rank: {"devices": 0})
    return [with_kernels(digest) for digest in ranks]


def late(digests: list[Digest]) -> pb.Finding:
    return next(one for one in reported(digests).findings if one.rule == "GD602")


def test_on_a_cpu_slower_computing_is_a_hint() -> None:
    """Whatever else runs on that rank's core looks the same."""
    finding = late(on_cpu(lambda rank, step: 30.0 if rank == 2 else 10.0, "computing", 30))
    assert (finding.severity, finding.saving.low_us) == (pb.Finding.INFO, 0)
    assert "Another process" in finding.summary


def test_on_a_cpu_a_range_says_how_much_of_it_came_back_in_ranks_that_were_timed() -> None:
    """Rank 2 takes 50 ms longer, and 46 ms in one step, in which its peers take 4 ms more than usual."""
    digests = on_cpu(lambda rank, step: 60.0 if rank == 2 else 14.0 if step == 3 else 10.0, "python", 10)
    saving = late(digests).saving
    assert 0 < saving.low_us < saving.likely_us <= saving.high_us
    late_us = 5 * 50_000 + 46_000
    assert saving.possible_share == pytest.approx(late_us * saving.high_share / saving.high_us, rel=0.01)


def test_on_a_cpu_cores_that_are_shared_slow_all_operators_and_not_a_few() -> None:
    """A rank that computes three times as long, in operators that others do not have, has its cores."""
    finding = late(on_cpu(lambda rank, step: 30.0 if rank == 2 else 10.0, "computing", 10))
    assert finding.severity == pb.Finding.ERROR
    assert "A few of its operators take the time" in finding.summary
    # Less may be the cores.
    little = reported(on_cpu(lambda rank, step: 18.0 if rank == 2 else 10.0, "computing", 10))
    assert "GD602" not in {one.rule for one in little.findings}


@pytest.mark.parametrize(("late_ms", "said"), [(30.0, True), (18.0, False)])
def test_on_a_cpu_a_rank_that_computes_twice_as_long_in_each_step_is_late_without_shapes(
    late_ms: float, said: bool
) -> None:
    """Nothing shows whether it computes more. Ranks that share cores differ by less."""
    digests = on_cpu(lambda rank, step: late_ms if rank == 2 else 10.0, "computing", 10)
    report = reported([replace(digest, kernels=table("kernels", [])) for digest in digests])
    assert ("GD602" in {one.rule for one in report.findings}) == said
    if said:
        assert "shapes were not recorded" in report.findings[0].summary
        assert "more or longer inputs" in report.findings[0].fix.text


@pytest.mark.parametrize(("operators_ms", "severity"), [(10, pb.Finding.ERROR), (30, pb.Finding.INFO)])
def test_on_a_cpu_python_is_stretched_as_operators_are(operators_ms: int, severity: int) -> None:
    finding = late(on_cpu(lambda rank, step: 40.0 if rank == 2 else 10.0, "python", operators_ms))
    assert finding.severity == severity


def test_on_a_cpu_a_problem_of_its_own_is_no_chance() -> None:
    """Rank 2 is late in two of six steps, which the cores of a CPU explain, but not a sleep."""

    digests = on_cpu(lambda rank, step: 80.0 if (rank, step % 3) == (2, 1) else 10.0, "python", 10)

    def severity(found: list[pb.Finding]) -> int:
        ranks = [replace(one, findings=found if one.about.rank == 2 else []) for one in digests]
        return late(ranks).severity

    assert severity([]) == severity([own(cost_us=140_000, severity=pb.Finding.INFO)]) == pb.Finding.INFO
    assert severity([own(cost_us=140_000)]) == pb.Finding.ERROR


def test_on_a_cpu_what_computes_at_random_does_not_hide_a_rank_that_sleeps() -> None:
    def own_ms(rank: int, step: int) -> float:
        return 10.0 + 30 * ((rank * 5 + step * 3) % 4)

    def sleeps(rank: int, _number: int, row: dict[str, Any]) -> None:
        """Rank 3 spends 6 ms of its first 10 on sleeping, and others spend 1 ms."""
        slept = (6 if rank == 3 else 1) * MS
        if row["computing_ns"] >= 10 * MS:
            row["computing_ns"] -= slept
            row["host_ns"] = parts(python=slept)

    ranks = job(4, 6, own_ms=own_ms, change=sleeps, transfer_ms=0.05, about=lambda rank: {"devices": 0})
    finding = late(ranks)
    assert plain(finding.title).startswith("Rank 3 takes 5 ms longer than its peers in every step")
    assert finding.severity > pb.Finding.INFO


def test_on_a_cpu_ranks_that_sleep_in_turn_are_no_chance() -> None:
    """In three of six steps one rank is late, which cores explain, but not a sleep that all reports have."""

    def own_ms(rank: int, step: int) -> float:
        return 60.0 if step % 2 and rank == step // 2 else 10.0

    ranks = on_cpu(own_ms, "python", 10)
    assert late(ranks).severity == pb.Finding.INFO
    finding = late([replace(one, findings=[own(cost_us=30_000)]) for one in ranks])
    assert finding.title.startswith("A different rank is late each time")
    assert finding.severity == pb.Finding.ERROR
    # Short stretches of the same cost, as of small operators, make no rank late.
    assert late([replace(one, findings=[own(longest_us=20)]) for one in ranks]).severity == pb.Finding.INFO


def test_on_a_cpu_a_long_delay_and_a_short_one_happened_once() -> None:
    """Rank 2 was late by 300 ms once; a second step, in which it was late by 25 ms, makes no habit of it."""
    digests = on_cpu(lambda rank, step: {(2, 1): 310.0, (2, 4): 35.0}.get((rank, step), 10.0), "python", 10)
    ranks = [replace(one, findings=[own(cost_us=300_000)] if one.about.rank == 2 else []) for one in digests]
    assert late(ranks).severity == pb.Finding.INFO
    assert "in 1 of 6 steps" in plain(late(ranks).title)


def test_on_a_cpu_a_late_rank_saves_more_than_it_costs_only_as_timed_jobs_show() -> None:
    """Rank 2 is late by 30 ms in two of six steps, and by 8 ms in the others, less than ranks compute."""
    digests = on_cpu(lambda rank, step: (18.0 if step % 3 else 40.0) if rank == 2 else 10.0, "python", 10)
    ranks = [replace(one, findings=[own(cost_us=60_000)] if one.about.rank == 2 else []) for one in digests]
    finding = late(ranks)
    saving, window_us = finding.saving, finding.cost_us / finding.saving.possible_share
    assert finding.cost_us == pytest.approx(2 * 30_000)
    assert saving.low_us < finding.cost_us < saving.high_us < window_us
    assert "timed" in saving.beyond


def test_on_a_cpu_more_work_needs_less_certainty() -> None:
    """Rank 2 has five times the work, in times that differ so much that they alone would show nothing."""

    def own_ms(rank: int, step: int) -> float:
        return (14.0, 40.0, 95.0)[step % 3] if rank == 2 else 10.0 + 12 * ((rank + step) % 3)

    def found(rows: int) -> list[tuple[str, list[str]]]:
        digests = on_cpu(own_ms, "computing", 50)
        kernel = {"name": "aten::mm", "family": "gemm", "operator": "aten::mm", "count": 10}
        ranks = [
            replace(
                one,
                kernels=table(
                    "kernels",
                    [
                        {
                            **kernel,
                            "time_ns": (150 if rank == 2 else 50) * MS,
                            "shapes": f"[[{rows if rank == 2 else 8},8]]",
                        }
                    ],
                ),
            )
            for rank, one in enumerate(digests)
        ]
        loud = [finding for finding in reported(ranks).findings if finding.severity > pb.Finding.INFO]
        return [(finding.rule, [place.function for place in finding.places]) for finding in loud]

    assert found(rows=40) == [("GD603", ["evaluate"])]
    assert not found(rows=8)


def one_step(found: Mapping[int, list[pb.Finding]], late_ms: float = 30.0) -> list[Digest]:
    """One step of four ranks, of which rank 2 is late: that may be chance, as far as its steps tell."""
    own_ms = {2: late_ms}
    ranks = job(4, 1, own_ms=lambda rank, step: own_ms.get(rank, 10.0), cause="dispatch", transfer_ms=0.05)
    return [replace(digest, findings=found.get(rank, [])) for rank, digest in enumerate(ranks)]


def test_what_the_rank_finds_that_all_wait_for_is_the_job_s_if_no_step_tells() -> None:
    (finding,) = reported(one_step({2: [own(cost_us=18_000)]})).findings
    assert plain(finding.title).startswith("On rank 2, which the others wait for: ")


@with_each(
    ("found", "late_ms"),
    [
        ({1: [own(cost_us=18_000)]}, 30.0),  # of a rank that nobody waits for
        ({2: [own(cost_us=18_000, severity=pb.Finding.INFO)]}, 30.0),
        ({2: [own(cost_us=5_000)]}, 30.0),  # too little to explain that the rank is late
        ({2: [own(cost_us=18_000)]}, 12.0),  # hardly anybody waits
    ],
)
def test_other_findings_of_one_rank_are_left_to_its_report(
    found: dict[int, list[pb.Finding]], late_ms: float
) -> None:
    assert not reported(one_step(found, late_ms)).findings


def own_times(kind: str, rank: int, step: int) -> float:
    late = {"always": rank == 1, "in turn": rank == step % 4, "now and then": (rank, step % 3) == (1, 0)}
    return 30.0 if late[kind] else 10.0


@with_each("kind", ["always", "in turn", "now and then"])
@with_each("cause", ["python", "computing"])
def test_no_saving_of_a_job_is_above_its_cost_without_a_reason(kind: str, cause: str) -> None:
    for digests in (
        job(4, 8, own_ms=partial(own_times, kind), cause=cause),
        on_cpu(partial(own_times, kind), cause, 10),
    ):
        findings = reported([replace(one, findings=[own()]) for one in digests]).findings
        assert findings
        for found in findings:
            assert found.saving.high_us <= 1.01 * found.cost_us or found.saving.beyond
