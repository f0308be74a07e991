"""A Report as Markdown, for pasting into an issue. The trace's names never become markup or mentions."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views import inferred_sections, memory_sections, sections

# A comment that renders as nothing keeps "@name" and "#12" from becoming a mention and a link to an issue.
_NOTHING = "<!-- -->"


def to_markdown(reports: Sequence[pb.Report]) -> str:
    """Reports, one under the other; before several, a table of them."""
    overview = sections.overview_rows(reports)
    table = "\n".join(_table(sections.overview_title(reports), sections.OVERVIEW_TITLES, overview))
    parts = [table.strip()] if overview else []
    parts += ["\n".join(_lines(report)) for report in reports]
    return "\n".join(f"{part}\n" for part in parts)


def _lines(report: pb.Report) -> Iterable[str]:
    yield f"## {text(sections.heading(report.trace))}"
    yield ""
    yield f"{code(report.trace.path)}  "
    yield text(sections.trace_line(report.trace))
    yield ""
    yield f"**{text(sections.limiter(report))}.** {text(report.verdict.sentence)}"
    for device in report.devices:
        yield from _account(sections.account(device, len(report.steps)))
    yield from _list(
        inferred_sections.title(report), [text(line) for line in inferred_sections.lines(report)]
    )
    yield from ["", "### Findings", ""]
    if not report.findings:
        yield "Nothing found to fix."
    for number, finding in enumerate(report.findings, start=1):
        yield from _finding(number, finding, sections.code(report, number))
    yield from _table("In which order", sections.PLAN_TITLES, sections.plan_rows(report))
    yield from _table("Where the host's time went", sections.HOST_TITLES, sections.host_rows(report))
    yield from _table("GPU time by kernel family", sections.FAMILY_TITLES, sections.family_rows(report))
    yield from _table("Launches", sections.HOTSPOT_TITLES, sections.hotspot_rows(report))
    yield from _list("Launch queues", [text(line) for line in sections.queue_lines(report)])
    yield from _table("Waits for the GPU", sections.SYNC_TITLES, sections.sync_rows(report))
    memory = report.memory
    yield from _list("Memory", [text(line) for line in memory_sections.lines(memory)])
    yield from _table("What grows", memory_sections.SITE_TITLES, memory_sections.site_rows(memory))
    yield from _table("What the peak holds", memory_sections.PEAK_TITLES, memory_sections.peak_rows(memory))
    pieces = memory_sections.segment_rows(memory)
    yield from _table("Segments that are partly free", memory_sections.SEGMENT_TITLES, pieces)
    unchecked = [f"{text(rules)}: {text(lacks)}" for rules, lacks in sections.unchecked_rows(report)]
    yield from _list("Cannot tell from this trace", unchecked)
    clear = [f"{text(rule)}: {text(saw)}" for rule, saw in sections.clear_rows(report)]
    yield from _list("Looked at, nothing wrong", clear)
    yield from _list("Notes on the file", [text(note) for note in report.trace.notes])


def _account(account: sections.Account) -> Iterable[str]:
    yield from ["", f"### {text(account.title)}", "", "| part | time | share |", "| --- | ---: | ---: |"]
    for row in account.rows:
        yield f"| {text(row.label)} | {row.time} | {row.share} |"
    yield f"| **step window** | **{account.total}** | **100 %** |"


def _finding(number: int, finding: pb.Finding, code_text: str) -> Iterable[str]:
    severity = sections.SEVERITIES[finding.severity]
    yield f"#### {number}. {severity} {finding.rule} {text(finding.name)}: {text(finding.title)}"
    yield ""
    yield text(finding.summary)
    yield ""
    if cost := sections.cost(finding):
        yield f"- cost: {text(cost)}"
    for evidence in finding.evidence:
        yield f"- {text(evidence.label)}: {text(evidence.value)}"
    for place, time in sections.places(finding):
        yield f"- at {code(place)}" + (f" {time}" if time else "")
    yield ""
    if finding.fix.text:
        yield f"**Fix.** {text(finding.fix.text)}"
    if code_text:
        fence = "`" * max(3, _longest_run(code_text) + 1)
        yield from ["", f"{fence}python", code_text, fence]
    if finding.fix.url:
        yield from ["", f"<{finding.fix.url}>"]
    yield ""


def _table(title: str, titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterable[str]:
    if not rows:
        return
    titles, rows = sections.filled_columns(titles, rows)
    yield from ["", f"### {title}", "", f"| {' | '.join(titles)} |"]
    yield f"| {' | '.join('---:' if title in sections.NUMBERS else '---' for title in titles)} |"
    for row in rows:
        yield f"| {' | '.join(text(cell) for cell in row)} |"


def _list(title: str, items: list[str]) -> Iterable[str]:
    if items:
        yield from ["", f"### {title}", "", *(f"- {item}" for item in items)]


def text(words: str) -> str:
    """Text that Markdown and HTML leave as it is, on one line."""
    plain = html.escape(" ".join(words.split()), quote=False)
    plain = re.sub(r"([\\`*_\[\]|~])", r"\\\1", plain)
    plain = re.sub(r"^(\d*)([-+.)])(?=\s|$)", r"\1\\\2", plain)  # would begin a list
    return re.sub(r"([@#]|\b(?:https?|ftp|www))", rf"\1{_NOTHING}", plain)


def code(words: str) -> str:
    """Text as a code span: nothing inside it is markup, a link or a mention."""
    words = " ".join(words.split())
    if not words:
        return ""
    fence = "`" * (_longest_run(words) + 1)
    edge = " " if words.startswith("`") or words.endswith("`") else ""
    return f"{fence}{edge}{words}{edge}{fence}"


def _longest_run(words: str) -> int:
    return max((len(run) for run in re.findall("`+", words)), default=0)
