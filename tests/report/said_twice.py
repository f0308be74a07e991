"""Figures that are told twice: contradictions between them, and where a user would see one again.

A user takes a figure for told twice where one screen has it again, and asks which of the two counts:

- text: one screen of the command has a share or a rate again, outside of tables of ranks;
- JSON: two fields of one message, or of the messages in it, are equal in every report. Fields that are equal
  in some reports only, such as both ends of a range, or a step and the whole of a recording of one step, are
  two figures. A sentence may have the figure of a field;
- page: the verdict and the titles of findings, which stand below one another, have a figure again; or the
  first screen of the summary, a row of the runs or a job's first screen has (see saidTwice.test.tsx).

What stands in several places of different screens must agree: that is `contradictions`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from statistics import median
from typing import Any

from tb_gpudiag.jobs.report.job_view import MOST_IN_FULL, Diagnosed, directory_document, job_document
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import own_place, without_hints
from tb_gpudiag.report.views.compose import heading, report_view
from tb_gpudiag.report.views.document import Document, Findings, ReportView
from tb_gpudiag.report.views.screen import PLAIN_WIDTH, screen_text
from tb_gpudiag.report.views.text import document_text
from tb_gpudiag.rules.rule import LEAST_ERROR_NS
from tb_gpudiag.rules.run import GENERAL
from tb_gpudiag.rules.savings import LEAST_PLANNED, MORE_THAN_COST
from tb_gpudiag.service.index.run_rows import row_with
from tb_gpudiag.wording.format import share, size_bytes, time_us
from tests.report.views.formats import to_text

EXACT_US = 0.002
"""Times on the wire are exact to a nanosecond; sums of two may be off by two."""

HOST = frozenset({"launch", "python", "compile"})

ABOUT = {
    "GD101": {"input"},
    "GD102": HOST | {"input"},
    "GD103": {"memory"},
    "GD104": HOST,
    "GD105": {"unknown"},
    "GD201": HOST,
    "GD202": HOST,
    "GD203": {"launch"},
    "GD301": {"sync"},
    "GD302": {"copy", "sync"},
    "GD303": {"copy", "sync"},
    "GD304": {"copy", "sync"},
    "GD601": {"communication"},
}
"""Limiters that a finding about idle time is about. Findings about kernels (GD5xx) are about computing."""


def contradictions(report: pb.Report) -> list[str]:
    """Return what the report says in two ways, each as a sentence."""
    checks = (_steps, _savings, _plan, _order, _severities, _busy, _limited_by, _leak, _text)
    return [said for check in checks for said in check(report)]


def contradictions_of_row(row: pb.RunRow, report: pb.Report) -> list[str]:
    """Return where the table of runs says something else than the report."""
    first = next(iter(without_hints(report.findings)), pb.Finding())
    figures = {
        "limiter": (row.limiter, report.verdict.limiter),
        "sentence": (row.sentence, report.verdict.sentence),
        "busy share": (row.busy_share, report.verdict.busy_share),
        "first finding": (row.first_title, first.title),
        "saving": (row.saving_share, first.saving.high_share),
        "step": (row.step_us, report.step_time.median_us),
        "step without the profiler": (row.unprofiled_step_us, report.step_time.unprofiled_us),
    }
    return [f"{name}: {a} in the table, {b} in the report" for name, (a, b) in figures.items() if a != b]


def contradictions_of_job(job: pb.JobReport) -> list[str]:
    """Return where the findings of a job say two things: savings per step, and as shares of the job."""
    step_us = job.step_time.unprofiled_us
    said = [
        f"{_name(finding)} saves {us} us of a step of {step_us} us, or {share:.1%} of the job"
        for finding in job.findings
        for us, share in (
            (finding.saving.low_per_step_us, finding.saving.low_share),
            (finding.saving.high_per_step_us, finding.saving.high_share),
        )
        if abs(us - share * step_us) > EXACT_US
    ]
    return [*said, *_missing(job.findings, document_text(job_document([job])))]


def shares_twice(document: Document) -> list[str]:
    """Return the shares that one screen of the command's says more than once, outside of tables of ranks."""
    said = Counter(re.findall(r"\d+\.\d%", _sentences(document)))
    return [share for share, times in said.items() if times > 1]


_FIGURE = re.compile(r"(?<![\w.])\d[\d,.]*(?:%|[ \u00a0](?:ms|µs|s|[KMG]?i?B))(?![\w/])")


def told_again(view: ReportView, busy_share: float = 0.0) -> list[str]:
    """Return the figures that the verdict and the titles of findings below it have twice. The busy share may
    be that of the one thing that keeps the GPU busy."""
    cards = [card for section in view.sections if isinstance(section, Findings) for card in section.cards]
    said = " ".join([view.first, view.verdict, *(card.title for card in cards)])
    twice = [figure for figure, times in Counter(_FIGURE.findall(said)).items() if times > 1]
    return [figure for figure in twice if figure != share(busy_share)]


FEWEST_DIGITS = 3
"""Small whole numbers, such as counts, are equal by chance."""

FEWEST_EQUAL = 2

COINCIDE = [
    # A field that is 0 where another has its figure would be read as none.
    {"bytes_per_step", "floor_slope_bytes_per_step"},
    {"whole_us", "unprofiled_us"},
    {"median_us"},  # of a step, marked or inferred
    {"mfu", "hfu"},  # until a backward pass repeats what the forward pass computed
    {"peak_reserved_bytes", "reserved_at_peak_bytes"},  # until reserved memory is given back or grows later
    {"low_bytes_per_step", "high_bytes_per_step"},  # of memory that grows by the same in each step
    {"floor_slope_bytes_per_step", "low_bytes_per_step"},
    {"floor_slope_bytes_per_step", "high_bytes_per_step"},
    {"bytes_per_step", "low_bytes_per_step"},
    {"bytes_per_step", "high_bytes_per_step"},
]
"""Fields that differ in recordings beside those that are part of the project."""


def fields_twice(reports: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the pairs of fields of JSON that say one figure: they are equal wherever both have one."""
    equal: dict[tuple[str, str], set[float]] = {}
    different: set[tuple[str, str]] = set()
    for report in reports:
        for path, message in _messages("", report):
            for (a, x), (b, y) in combinations(sorted(_numbers(path, message)), 2):
                if x != y:
                    different.add((a, b))
                elif len(f"{abs(x):.12g}".replace(".", "").strip("0")) >= FEWEST_DIGITS:
                    equal.setdefault((a, b), set()).add(x)
    return [
        f"{a} and {b}"
        for (a, b), figures in equal.items()
        if len(figures) >= FEWEST_EQUAL
        and (a, b) not in different
        and {name.rpartition(".")[2] for name in (a, b)} not in COINCIDE
    ]


def _messages(path: str, value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each message, and the path of its kind."""
    if isinstance(value, Mapping):
        yield path, value
        for name, field in value.items():
            yield from _messages(f"{path}.{name}", field)
    elif isinstance(value, list):
        for item in value:
            yield from _messages(f"{path}[]", item)


def _numbers(path: str, value: Any) -> Iterator[tuple[str, float]]:
    """The figures of a message and of the messages in it, not of those in its lists."""
    if isinstance(value, Mapping):
        for name, field in value.items():
            yield from _numbers(f"{path}.{name}", field)
    elif isinstance(value, int | float) and value and not isinstance(value, bool):
        yield path, value


def figures_of_worst(report: pb.Report, row: pb.RunRow) -> list[str]:
    """Return the figures in the sentence about the worst of many runs: its row of the table has them."""
    name = row.run.partition(".pt.trace.json")[0]
    others = [Diagnosed(row_with([], run=f"{name}/{number}"), pb.Report()) for number in range(MOST_IN_FULL)]
    overview = directory_document([*others, Diagnosed(row, report)]).overview
    title = overview.title.replace(heading(report.trace), "") if overview else ""
    if row.first_rule and f". {row.why}." not in title:
        return [f"{title} does not say {row.why}"]
    return re.findall(r"\d[\d,.]*[ \u00a0]?(?:%|ms|µs|s|[KMG]?i?B)(?!\w)", title)


def _sentences(document: Document) -> str:
    """What one screen says, without tables: ranks can be equally busy."""
    lines = screen_text(document, PLAIN_WIDTH).splitlines()
    return "\n".join(line for line in lines if not line.startswith("  rank "))


def window_us(report: pb.Report) -> float:
    """Length of the step window; 0 without a GPU."""
    return report.devices[0].window_us if report.devices else 0.0


def _steps(report: pb.Report) -> Iterator[str]:
    """The steps add up to the window, and a saving per step is the same share of the step without the
    profiler."""
    step = report.step_time
    for device in report.devices:
        lengths = [account.duration_us for account in device.step_accounts]
        if not lengths:
            continue
        if abs(sum(lengths) - device.window_us) > EXACT_US * len(lengths):
            yield f"steps of {sum(lengths)} us in a window of {device.window_us} us"
        if len(lengths) != step.steps or abs(median(lengths) - step.median_us) > EXACT_US:
            yield f"{len(lengths)} steps of {median(lengths)} us, or {step.steps} of {step.median_us} us"
        if abs(sum(lengths) - step.steps * step.mean_us) > EXACT_US * step.steps:
            yield f"steps of {sum(lengths)} us in all, or {step.steps} of {step.mean_us} us on average"
    if step.inferred and abs(report.inferred_steps.median_us - step.median_us) > EXACT_US:
        yield f"an inferred step takes {report.inferred_steps.median_us} us, or {step.median_us} us"
    for finding in report.findings:
        saving = finding.saving
        if abs(saving.high_per_step_us - saving.high_share * step.unprofiled_us) > EXACT_US:
            yield f"{_name(finding)} saves {saving.high_per_step_us} us of {step.unprofiled_us} us per step"


def _savings(report: pb.Report) -> Iterator[str]:
    for finding in report.findings:
        for said in (*_against_cost(finding, report), *_against_window(finding.saving, report)):
            yield f"{_name(finding)} {said}"


def _against_cost(finding: pb.Finding, report: pb.Report) -> Iterator[str]:
    """In ms, a saving is no more than the cost, or the finding says why."""
    saving, cost_us = finding.saving, finding.cost_us
    if not 0 <= saving.low_us <= (saving.likely_us or saving.high_us) <= saving.high_us:
        yield f"saves {saving.low_us} to {saving.high_us} us, most likely {saving.likely_us} us"
    margin_us = EXACT_US + 1e-6 * cost_us
    more = saving.high_us > MORE_THAN_COST * cost_us + (margin_us if saving.beyond else -margin_us)
    if cost_us and more != bool(saving.beyond) and abs(saving.high_us - MORE_THAN_COST * cost_us) > margin_us:
        yield f"saves {saving.high_us} us of {cost_us} us: '{saving.beyond}'"
    if finding.rule.startswith("GD5") and "host" in saving.beyond:
        yield f"is about kernels, and saves more because {saving.beyond}"


def _against_window(saving: pb.Saving, report: pb.Report) -> Iterator[str]:
    plan = report.plan
    if not plan.fixes:
        return
    whole_us = _whole_us(report)
    low_us, high_us = saving.low_us, saving.high_us
    if plan.per_step:
        low_us, high_us = saving.low_per_step_us, saving.high_per_step_us
        steps = report.step_time.steps
        if abs(saving.high_us - steps * high_us) > EXACT_US * steps:
            yield f"saves {saving.high_us} us, or {high_us} us in {steps} steps"
    if high_us > whole_us + EXACT_US:
        yield f"saves {high_us} us of {whole_us} us"
    for part_us, part in ((low_us, saving.low_share), (high_us, saving.high_share)):
        if abs(part_us - part * whole_us) > EXACT_US:
            yield f"saves {part_us} us, and a share of {part}"


def _plan(report: pb.Report) -> Iterator[str]:
    plan = report.plan
    if not plan.fixes:
        return
    whole_us = left_us = _whole_us(report)
    if whole_us > (report.step_time.mean_us if plan.per_step else window_us(report)) + EXACT_US:
        yield f"the plan is of {whole_us} us, and the mean step takes {report.step_time.mean_us} us"
    if (saved_us := sum(fix.saving_us for fix in plan.fixes)) > whole_us + EXACT_US:
        yield f"the plan saves {saved_us} us of {whole_us} us"
    for fix in plan.fixes:
        left_us -= fix.saving_us
        if abs(fix.likely_us - left_us) > EXACT_US * len(plan.fixes):
            yield f"after {fix.rule} {fix.likely_us} us are left, or {left_us} us"
        if not fix.least_us <= fix.likely_us <= fix.most_us:
            yield f"after {fix.rule} {fix.least_us} us are left at best"
        if report.findings[fix.finding].rule != fix.rule:
            yield f"the plan calls finding {fix.finding} {fix.rule}"
    first = report.findings[plan.fixes[0].finding]
    saved_us = first.saving.likely_per_step_us if plan.per_step else first.saving.likely_us
    if abs(saved_us - plan.fixes[0].saving_us) > EXACT_US:
        yield f"{first.rule} saves {saved_us} us, or {plan.fixes[0].saving_us} us in the plan"


def _whole_us(report: pb.Report) -> float:
    """What the plan's times are of: a step, or the step window where no steps are known."""
    return report.step_time.unprofiled_us if report.plan.per_step else report.plan.whole_us


def _order(report: pb.Report) -> Iterator[str]:
    """Severity and the middle of what a fix saves decide, and the plan is in the order of the findings."""
    planned = [fix.finding for fix in report.plan.fixes]
    if planned != sorted(planned):
        yield f"the plan's order {planned} is not that of the findings"
    replayed = [
        i
        for i, finding in enumerate(report.findings)
        if finding.saving.basis == "replayed" and finding.saving.possible_share >= LEAST_PLANNED + 1e-9
    ]
    if planned[:1] != replayed[:1]:
        yield f"the plan begins with finding {planned[:1]}, and {replayed[:1]} is the first that saves time"
    whole_us = window_us(report)
    ranked = [
        (f.severity, _middle_share(f.saving) * whole_us)
        for f in report.findings
        if f.cost_us and f.certain and f.saving.basis in ("replayed", "at most")
    ]
    for (severity, us), (next_severity, next_us) in pairwise(ranked):
        # What fits any job may count for less, but for no less than this.
        if severity < next_severity or (severity == next_severity and us + EXACT_US < GENERAL * next_us):
            yield f"findings are of these severities, and save these us, in this order: {ranked}"


def _middle_share(saving: pb.Saving) -> float:
    return saving.likely_share or (saving.low_share + saving.high_share) / 2


def _severities(report: pb.Report) -> Iterator[str]:
    for finding in report.findings:
        if finding.severity == pb.Finding.ERROR and 0 < finding.cost_us < LEAST_ERROR_NS / 1_000:
            yield f"{_name(finding)} is an error about {finding.cost_us} us"


def _busy(report: pb.Report) -> Iterator[str]:
    """The verdict's share is the account's, and the sentence's. It is 0 where the sentence has none: while a
    job starts, and where nothing can be known of it."""
    if not report.devices or not window_us(report):
        return
    device = report.devices[0]
    worked_us = device.window_computing_us + device.window_copying_us + device.window_communicating_us
    busy = worked_us / device.window_us
    said = re.search(r"The GPU was busy (.+?) of the step window", report.verdict.sentence)
    if abs(busy * bool(said) - report.verdict.busy_share) > 1e-6:
        yield f"the GPU was busy {busy:.4f} by the account, {report.verdict.busy_share:.4f} by the verdict"
    limiter = pb.Verdict.Limiter.Name(report.verdict.limiter)
    if not said and limiter not in ("unknown", "initialization"):
        yield f"{limiter} limits the job, and the sentence does not say how busy the GPU was"
    if said and said[1] != share(busy):
        yield f"the GPU was busy {share(busy)}, and the verdict says {said[0]}"


def _limited_by(report: pb.Report) -> Iterator[str]:
    """The first finding is about the limiter, or the sentence says why another one comes first: none that is
    surely saves more."""
    limiter = pb.Verdict.Limiter.Name(report.verdict.limiter)
    about_time = [f for f in report.findings if f.cost_us and f.severity and f.saving.high_us]
    if limiter in ("unknown", "mixed", "compute", "initialization") or not about_time:
        return
    first = about_time[0]
    own = [finding for finding in about_time if limiter in _about(finding)]
    if first in own:
        return
    if f"({first.rule}) comes first" not in report.verdict.sentence:
        yield f"{limiter} limits the job, and nothing explains why {_name(first)} comes first"
    elif any(finding.saving.low_us > first.saving.low_us for finding in own):
        yield f"{limiter} limits the job, and {_name(first)} comes before what saves more"


def _leak(report: pb.Report) -> Iterator[str]:
    """The first sentence has the rate of a leak, and the user's function that is to be looked at."""
    first = report_view(report).first
    for finding in [one for one in report.findings if one.cost_bytes_per_step][:1]:
        for said in (size_bytes(finding.cost_bytes_per_step), own_place(finding)):
            if said not in first:
                yield f"{_name(finding)}: the first sentence does not say {said}: {first}"


def _about(finding: pb.Finding) -> frozenset[str]:
    own = {"compute"} if finding.rule.startswith("GD5") else ABOUT.get(finding.rule, ())
    return frozenset(own)


def _text(report: pb.Report) -> Iterator[str]:
    """The text has the same figures."""
    return _missing(without_hints(report.findings), to_text([report]))


def _missing(findings: Sequence[pb.Finding], text: str) -> Iterator[str]:
    text = " ".join(text.replace("\u00a0", " ").split())
    for finding in findings:
        for figure in _figures(finding):
            if figure.replace("\u00a0", " ") not in text:
                yield f"{_name(finding)}: the text does not say {figure}"


def _figures(finding: pb.Finding) -> Sequence[str]:
    if not finding.cost_us or not finding.saving.high_us:
        return []
    saving = finding.saving
    of = " per step" if saving.high_per_step_us else ""
    times = (
        (saving.low_per_step_us, saving.likely_per_step_us, saving.high_per_step_us)
        if of
        else (saving.low_us, saving.likely_us, saving.high_us)
    )
    low, likely, high = map(time_us, times)
    span = f"80% range {low} to {high}" * (low != high) if saving.low_us else f"at most {high}"
    ranges = saving.likely_us and (saving.low_us or likely != high)
    return [f"about {likely}{of} ({span}" if ranges else f"at most {high}{of}"]


def _name(finding: pb.Finding) -> str:
    return f"{finding.rule} ({finding.title})"
