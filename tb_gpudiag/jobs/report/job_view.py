"""JobReports, and all of a log directory, as the document that text, Markdown and HTML show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from tb_gpudiag.jobs.rules.job_words import LATE_RECORDING, collective_text
from tb_gpudiag.jobs.step_parts import part_noun
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import full_place, sentence_above, urgency
from tb_gpudiag.report.views.compose import any_rule, report_view, step_text
from tb_gpudiag.report.views.compose import heading as trace_name
from tb_gpudiag.report.views.compose import limiter as trace_limiter
from tb_gpudiag.report.views.document import (
    Column,
    ColumnOf,
    Command,
    Document,
    Kind,
    Lines,
    ReportView,
    Section,
    Table,
    lines,
    table,
    table_of,
    tables,
)
from tb_gpudiag.report.views.finding_sections import findings, unchecked
from tb_gpudiag.report.wire import GENERATOR
from tb_gpudiag.vocabulary.marks import kind_of_steps
from tb_gpudiag.wording.format import count, numbers_text, share, time_us
from tb_gpudiag.wording.quantity import duration, number, share_of, size
from tb_gpudiag.wording.vocabulary import bottleneck, limiter_word

RANKS_SHOWN: Final = 32
"""Rows of the table of ranks. The latest rank is first: the others wait for it, so it waits least."""

# More reports than this fill so many screens that nobody reads them: the table shows which one to look at.
MOST_IN_FULL: Final = 4

COLLECTIVES_SHOWN: Final = 10


class JobReports(NamedTuple):
    """Reports of the sets of ranks that were found, and notes on digests that are in none."""

    reports: Sequence[pb.JobReport]
    notes: Sequence[str]


def job_document(reports: Sequence[pb.JobReport]) -> Document:
    overview = _overview(reports)
    return Document(
        title=overview.title if overview else " ".join(map(heading, reports)),
        overview=overview,
        reports=tuple(map(job_view, reports)),
        example=any_rule(reports),
    )


class Diagnosed(NamedTuple):
    """The report on a recording or a job, and its row in the table of runs."""

    row: pb.RunRow
    report: pb.Report | pb.JobReport

    @property
    def name(self) -> str:
        """What the table and the report call it."""
        return (
            heading(self.report) if isinstance(self.report, pb.JobReport) else trace_name(self.report.trace)
        )

    @property
    def limiter(self) -> str:
        """What limits it, in words."""
        return _limiter(self.report) if isinstance(self.report, pb.JobReport) else trace_limiter(self.report)

    def view(self) -> ReportView:
        return job_view(self.report) if isinstance(self.report, pb.JobReport) else report_view(self.report)


def directory_document(diagnosed: Iterable[Diagnosed]) -> Document:
    """Build the document of a log directory: a table of its runs and jobs, and the reports if they are few.

    diagnosed: all jobs, and the traces that are not a rank of one of them.
    """
    found = sorted(diagnosed, key=lambda each: worst_first(each.row))
    in_full = len(found) <= MOST_IN_FULL
    views = tuple(each.view() for each in found) if in_full else ()
    overview = _run_table(found) if len(found) > 1 else None
    has_jobs = any(isinstance(each.report, pb.JobReport) for each in found)
    whole = Command("gpudiag diagnose PATH --run RUN", "shows one run in full.")
    ranks = Command("gpudiag diagnose TRACE", "shows one rank in full.")
    return Document(
        title=f"Diagnosis: {overview.title if overview else views[0].heading}",
        overview=overview,
        reports=views,
        example=any_rule([each.report for each in found]),
        generator=GENERATOR,
        more=tuple([whole] * (not in_full) + [ranks] * has_jobs),
    )


def heading(report: pb.JobReport) -> str:
    """`run · 8 ranks`, or `run · validation steps · 2 ranks` where the names of the files say it."""
    ranks = count(len(report.ranks), "rank")
    if report.world_size > len(report.ranks):
        ranks = f"{len(report.ranks):,} of {report.world_size:,} ranks"
    runs = set() if report.run in ("", ".") else {report.run}
    kinds = {kind_of_steps(rank.worker) for rank in report.ranks}
    of_all = kinds - {""} if len(kinds) == 1 else set()
    return f"Job {' · '.join([*runs, *of_all, ranks])}"


_OVERVIEW: Final = (Column("Job"), Column("Bottleneck"), Column("First finding"), Column("Other findings"))


def _overview(reports: Sequence[pb.JobReport]) -> Table | None:
    if len(reports) < 2:
        return None
    rows = [
        (
            heading(report),
            _limiter(report),
            next((f"{finding.rule} {finding.title}" for finding in report.findings), "none"),
            ", ".join(dict.fromkeys(finding.rule for finding in report.findings[1:])),
        )
        for report in reports
    ]
    return table("overview", count(len(reports), "job"), _OVERVIEW, rows)


def is_of_memory(report: pb.JobReport) -> bool:
    """Whether its ranks left memory snapshots, which have no times."""
    return any(one.id == "rank_memory" for one in report.tables)


def job_view(report: pb.JobReport) -> ReportView:
    columns: list[ColumnOf[pb.JobCollective]] = [
        (Column("Number", Kind.NUMBER), lambda one: str(one.index)),
        (
            Column("Collective"),
            lambda one: " ".join(filter(None, [collective_text(one.kind), one.annotation])),
        ),
        (Column("Group", Kind.CODE), lambda one: one.group),
        (Column("Size", Kind.NUMBER), lambda one: size(one.bytes) if one.bytes else ""),
        (Column("Arrivals differ by", Kind.NUMBER), lambda one: duration(one.skew_us * 1e3)),
        (Column("Transfer", Kind.NUMBER), lambda one: duration(one.transfer_us * 1e3)),
        (Column("Last rank", Kind.NUMBER), lambda one: str(one.last_rank)),
        (Column("Why it was late"), _why),
        (Column("At", Kind.CODE), lambda one: full_place(one.place) if one.HasField("place") else ""),
    ]
    shown = report.collectives.worst[:COLLECTIVES_SHOWN]
    said = [f"{problem.where}: {problem.what}" for problem in report.problems]
    of_memory = is_of_memory(report)
    if report.missing and not of_memory and not any("missing" in note for note in report.notes):
        said.append(f"Missing: ranks {numbers_text(report.missing_ranks)}")
    compared = report.collectives.matched or of_memory
    sections: list[Section] = [
        findings(
            report,
            "The rules on ranks have no finding."
            if compared
            else "The ranks could not be compared: see the verdict.",
        ),
        *([] if of_memory else [_ranks(report)]),
        *tables(report.tables, "rank_memory", "held_by_rank"),
        *tables(report.tables, "stages", "units"),
        table_of("collectives", "Collectives with most waiting", shown, columns),
        *tables(report.tables, "sizes"),
        _slowdown(report.slowdown),
        unchecked(report),
        lines("memory_notes" if of_memory else "notes", "Notes on the recordings", [*said, *report.notes]),
    ]
    clocks = _CLOCKS[report.clocks.basis]
    if report.clocks.residual_us:
        clocks += f" (ends agree within {time_us(report.clocks.residual_us)})"
    found = report.collectives
    step, matched = step_text(report.step_time), count(found.matched, "collective")
    parts = [report.parallelism, step, f"{matched} matched", clocks]
    if found.unmatched:
        parts.insert(3, f"{count(found.unmatched, 'operation')} not matched")
    return ReportView(
        heading=heading(report),
        path=", ".join(dict.fromkeys(rank.device_name for rank in report.ranks if rank.device_name))
        or ("" if of_memory else "CPU"),
        about="memory snapshots" if of_memory else " · ".join(part for part in parts if part),
        headline=report.verdict.headline or bottleneck(_limiter(report)),
        verdict=sentence_above(report.verdict, report.findings),
        sections=tuple(section for section in sections if section),
    )


def _limiter(report: pb.JobReport) -> str:
    return limiter_word(
        pb.Verdict.Limiter.Name(report.verdict.limiter), on_gpu=any(rank.device_name for rank in report.ranks)
    )


_CLOCKS: Final = {
    pb.Clocks.ONE_HOST: "one clock",
    pb.Clocks.COLLECTIVES: "clocks aligned by the ends of collectives",
    pb.Clocks.NONE: "clocks cannot be compared",
}


def _ranks(report: pb.JobReport) -> Table:
    shown = sorted(report.ranks, key=lambda rank: (rank.waiting_us, -rank.last_in))[:RANKS_SHOWN]
    more = len(report.ranks) > len(shown)
    title = "Ranks, latest first" + (f" ({len(shown)} of {len(report.ranks):,})" if more else "")
    columns: list[ColumnOf[pb.JobRank]] = [
        (Column("Rank"), lambda rank: f"rank {rank.rank}"),
        (Column("Host"), lambda rank: rank.host),
        (Column("Step", Kind.NUMBER), lambda rank: duration(rank.step_us * 1e3)),
        (
            Column("Busy", Kind.NUMBER),
            lambda rank: share(rank.busy_us, rank.window_us) if rank.busy_us else "",
        ),
        (Column("Waiting", Kind.NUMBER), lambda rank: duration(rank.waiting_us * 1e3)),
        (Column("Transfer", Kind.NUMBER), lambda rank: duration(rank.transfer_us * 1e3)),
        (Column("Exposed", Kind.NUMBER), lambda rank: duration(rank.exposed_communication_us * 1e3)),
        (Column("Last in", Kind.NUMBER), lambda rank: number(rank.last_in)),
        (
            Column("Clock", Kind.NUMBER),
            lambda rank: duration(rank.clock_offset_us * 1e3) if rank.clock_offset_us else "",
        ),
        (
            Column("Own bottleneck"),
            lambda rank: limiter_word(pb.Verdict.Limiter.Name(rank.limiter), on_gpu=bool(rank.device_name)),
        ),
    ]
    return table_of("ranks", title, shown, columns)


def _why(one: pb.JobCollective) -> str:
    if one.why == LATE_RECORDING:
        return f"its recording started late, by {time_us(one.why_us)}"
    if not one.why:
        return ""
    what = "computing" if one.why == "computing" else part_noun(one.why)
    return f"{time_us(one.why_us)} more {what}"


def _slowdown(found: pb.Slowdown) -> Lines:
    """How much faster the job would be without stragglers. Empty if it could not be replayed."""
    if not found.s:
        return lines("slowdown", "Without stragglers", [])
    said = [
        f"The job takes {found.s:.3f} times as long as without stragglers: the mean step takes "
        f"{time_us(found.step_us)} instead of {time_us(found.ideal_step_us)}. Replayed, with an error of "
        f"{share(found.error_share)}."
    ]
    return lines("slowdown", "Without stragglers", said)


def worst_first(row: pb.RunRow) -> tuple[float | str, ...]:
    """Sort as the page's table of runs does; what is equally urgent, by name."""
    return *(-part for part in urgency(partial(getattr, row))), row.run, row.worker


def _run_table(found: Sequence[Diagnosed]) -> Table:
    jobs = sum(each.row.kind == pb.TraceInfo.job for each in found)
    recordings = len(found) - jobs
    parts = [count(jobs, "job")] * bool(jobs) + [count(recordings, "recording")] * bool(recordings)
    columns: list[ColumnOf[Diagnosed]] = [
        (Column("Run, worst first"), lambda each: each.name),
        (
            Column("Step", Kind.NUMBER, "Median duration of a step."),
            lambda each: duration(each.row.step_us * 1_000) if each.row.step_us else "",
        ),
        (
            Column("GPU busy", Kind.NUMBER, "Share of the step window in which the busiest GPU worked."),
            lambda each: share_of(each.row.busy_share, 1) if each.row.busy_share else "",
        ),
        (Column("Bottleneck"), lambda each: each.limiter),
        (Column("First finding"), lambda each: each.row.first_title or "none"),
        (Column("First fix saves", Kind.NUMBER, "Share of the step."), lambda each: _saves(each.row)),
    ]
    name, why = found[0].name.partition(".pt.trace.json")[0], found[0].row.why or "No run has a finding"
    title = f"Worst of {' and '.join(parts)}: {name}." + f" {why}." * (len(found) > MOST_IN_FULL)
    return table_of("overview", title, found, columns)


def _saves(row: pb.RunRow) -> str:
    low, high = share(row.low_saving_share), share(row.saving_share)
    ends = f"{low} to {high}" if low != high else high
    return (ends if row.low_saving_share else f"at most {high}") if row.saving_share else ""
