"""A Report for the terminal. The trace's names are shown as text, never as markup."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views import inferred_sections, memory_sections, sections

PLAIN_WIDTH = 110
"""Columns where there is no terminal to ask."""

_BAR_WIDTH = 28
_STYLES = {"ERROR": "bold red", "WARNING": "bold yellow", "INFO": "cyan"}
_PART_STYLES = {"computing": "green", "copying": "cyan", "communicating": "blue"}
_IDLE_STYLE = "red"


def to_text(reports: Sequence[pb.Report]) -> str:
    """Reports as plain text, without colours."""
    out = io.StringIO()
    console = Console(
        file=out, width=PLAIN_WIDTH, color_system=None, force_terminal=False, legacy_windows=False
    )
    print_reports(reports, console)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def print_reports(reports: Sequence[pb.Report], console: Console) -> None:
    """Reports onto a console, one under the other; before several, a table of them."""
    overview = sections.overview_rows(reports)
    if overview:
        console.print(_table(sections.overview_title(reports), sections.OVERVIEW_TITLES, overview))
    for i, report in enumerate(reports):
        if i or overview:
            console.print()
        _print(report, console)


def _print(report: pb.Report, console: Console) -> None:
    console.rule(Text(sections.heading(report.trace), style="bold"), align="left", characters="─")
    console.print(Text(report.trace.path, style="dim"), soft_wrap=True)
    console.print(Text(sections.trace_line(report.trace), style="dim"))
    console.print()
    console.print(Text.assemble((f"{sections.limiter(report)}. ", "bold"), report.verdict.sentence))
    if len(report.findings) > 1:  # the first of them fills a screen
        console.print()
        titles = Table.grid(padding=(0, 2, 0, 0))
        titles.add_column(no_wrap=True)
        for number, finding in enumerate(report.findings, start=1):
            titles.add_row(_name(number, finding), Text(finding.title))
        console.print(Padding(titles, (0, 0, 0, 2)))
    for device in report.devices:
        console.print()
        _print_account(sections.account(device, len(report.steps)), console)
    inferred = [("", line) for line in inferred_sections.lines(report)]
    _print_list(inferred_sections.title(report), inferred, console)
    for number, finding in enumerate(report.findings, start=1):
        console.print()
        _print_finding(number, finding, sections.code(report, number), console)
    if not report.findings:
        console.print()
        console.print(Text("Nothing found to fix."))
    _print_table("In which order", sections.PLAN_TITLES, sections.plan_rows(report), console)
    _print_table("Where the host's time went", sections.HOST_TITLES, sections.host_rows(report), console)
    _print_table("GPU time by kernel family", sections.FAMILY_TITLES, sections.family_rows(report), console)
    _print_table("Launches", sections.HOTSPOT_TITLES, sections.hotspot_rows(report), console)
    _print_list("Launch queues", [("", line) for line in sections.queue_lines(report)], console)
    _print_table("Waits for the GPU", sections.SYNC_TITLES, sections.sync_rows(report), console)
    memory = report.memory
    _print_list("Memory", [("", line) for line in memory_sections.lines(memory)], console)
    _print_table("What grows", memory_sections.SITE_TITLES, memory_sections.site_rows(memory), console)
    held = memory_sections.peak_rows(memory)
    _print_table("What the peak holds", memory_sections.PEAK_TITLES, held, console)
    pieces = memory_sections.segment_rows(memory)
    _print_table("Segments that are partly free", memory_sections.SEGMENT_TITLES, pieces, console)
    _print_list("Cannot tell from this trace", sections.unchecked_rows(report), console)
    _print_list("Looked at, nothing wrong", sections.clear_rows(report), console)
    _print_list("Notes on the file", [("", note) for note in report.trace.notes], console)


def _print_account(account: sections.Account, console: Console) -> None:
    console.print(Text(account.title, style="bold"))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for row in account.rows:
        style = _PART_STYLES.get(row.part, _IDLE_STYLE)
        table.add_row(Text(row.label), Text(row.time), Text(row.share), Text(_bar(row.fraction), style=style))
    table.add_row(Text("step window", style="bold"), Text(account.total, style="bold"), Text("100 %"), Text())
    console.print(Padding(table, (0, 0, 0, 2)))


def _bar(fraction: float) -> str:
    return "█" * round(fraction * _BAR_WIDTH) or ("▏" if fraction > 0 else "")


def _name(number: int, finding: pb.Finding) -> Text:
    severity = sections.SEVERITIES[finding.severity]
    return Text.assemble(f"{number}. ", (severity, _STYLES[severity]), f" {finding.rule} {finding.name}")


def _print_finding(number: int, finding: pb.Finding, code: str, console: Console) -> None:
    console.print(_name(number, finding).append(": ").append(finding.title, style="bold"))
    body = Table.grid(padding=(0, 2, 0, 0))
    body.add_column(no_wrap=True)
    body.add_column()
    if cost := sections.cost(finding):
        body.add_row(Text("cost"), Text(cost))
    for evidence in finding.evidence:
        body.add_row(Text(evidence.label), Text(evidence.value))
    for place, time in sections.places(finding):
        body.add_row(Text("at"), Text(f"{place}  {time}".rstrip()))
    if finding.fix.text:
        body.add_row(Text("fix", style="bold"), Text(finding.fix.text))
    indent = (0, 0, 0, 3)
    console.print(Padding(Text(finding.summary), indent))
    console.print(Padding(body, indent))
    if code:
        for line in code.split("\n"):  # code that is to be copied is not broken
            console.print(Text(f"        {line}".rstrip(), style="green"), soft_wrap=True)
    if finding.fix.url:
        console.print(Text(f"        {finding.fix.url}", style="dim"), soft_wrap=True)


def _print_table(title: str, titles: tuple[str, ...], rows: list[tuple[str, ...]], console: Console) -> None:
    if rows:
        console.print()
        console.print(_table(title, titles, rows))


def _table(title: str, titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    titles, rows = sections.filled_columns(titles, rows)
    table = Table(
        title=title, title_style="bold", title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for heading in titles:
        number = heading in sections.NUMBERS
        table.add_column(
            heading,
            justify="right" if number else "left",
            no_wrap=number,
            header_style="dim",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _print_list(title: str, items: list[tuple[str, str]], console: Console) -> None:
    if not items:
        return
    console.print()
    console.print(Text(title, style="bold"))
    for label, text in items:
        console.print(Padding(Text.assemble((f"{label}: ", "dim") if label else "", text), (0, 0, 0, 2)))
