"""A Report as one HTML file: no scripts, nothing fetched, light or dark as the reader's system is.

Everything goes through markupsafe: what is not a Markup of this module is escaped where it is put in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views import inferred_sections, memory_sections, sections

_PAGE = Markup(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<main>
{body}
<footer>{generator}</footer>
</main>
</body>
</html>
"""
)

_STYLE = Markup(
    """:root {
  --ink: #1b1f24; --soft: #57606a; --paper: #ffffff; --card: #f6f8fa; --line: #d0d7de;
  --error: #b3261e; --warning: #8a5a00; --info: #0b5cad;
  --computing: #3f7cac; --copying: #9cc5e3; --communicating: #6457a6; --input: #e8900c;
  --compile: #eea5c5; --sync: #c0392b; --allocator: #7b4a1e; --collective: #b79ad6;
  --python: #e3c73a; --dispatch: #8c8a1c; --launch: #b0277a; --latency: #5f6b7a; --queued: #94a0ad;
  --unlinked: #b9c1ca; --profiler: #d3c9b4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6edf3; --soft: #9da7b1; --paper: #0d1117; --card: #161b22; --line: #30363d;
    --error: #ff8a80; --warning: #ffcc66; --info: #79b8ff;
    --computing: #4f93c9; --copying: #a9d3f2; --communicating: #8678cf; --input: #f2a02b;
    --compile: #f0b1ce; --sync: #dc5a4b; --allocator: #a8713f; --collective: #c7aee4;
    --python: #ecd65c; --dispatch: #aaa72f; --launch: #d24c9c; --latency: #8793a3;
    --queued: #6f7b89; --unlinked: #555f6b; --profiler: #6b6351;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.soft, footer { color: var(--soft); font-size: .85rem; overflow-wrap: anywhere; }
.verdict, details { border: 1px solid var(--line); border-radius: .5rem; background: var(--card); }
.verdict { font-size: 1.1rem; padding: 1rem; }
.bar { display: flex; height: 1.5rem; border-radius: .25rem; overflow: hidden; margin: .5rem 0; }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: .15em; margin-right: .5em; }
table { border-collapse: collapse; font-size: .9rem; max-width: 100%; }
th, td { padding: .2rem 1.2rem .2rem 0; text-align: right; font-variant-numeric: tabular-nums; }
.text { text-align: left; overflow-wrap: anywhere; }
th, td:not(.text) { white-space: nowrap; }
a { color: var(--info); }
th { color: var(--soft); font-weight: normal; }
tfoot td { border-top: 1px solid var(--line); font-weight: 600; }
details { margin: .5rem 0; padding: .6rem 1rem; }
summary { cursor: pointer; font-weight: 600; overflow-wrap: anywhere; }
.ERROR { color: var(--error); } .WARNING { color: var(--warning); } .INFO { color: var(--info); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .5rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
pre { background: var(--paper); border: 1px solid var(--line); border-radius: .3rem; padding: .6rem; }
pre { overflow-x: auto; }
hr { border: 0; border-top: 1px solid var(--line); margin: 2.5rem 0; }
footer { margin-top: 3rem; }"""
)

_PARTS = frozenset({"computing", "copying", "communicating", *sections.CAUSES})


def to_html(reports: Sequence[pb.Report]) -> str:
    """Reports as one page, one under the other; before several, a table of them."""
    several = sections.overview_title(reports)
    title = sections.heading(reports[0].trace) if len(reports) == 1 else several
    generator = reports[0].generator if reports else ""
    overview = _table(several, sections.OVERVIEW_TITLES, sections.overview_rows(reports))
    parts = [overview] if overview else []
    body = Markup("\n<hr>\n").join([*parts, *map(_report, reports)])
    return str(_PAGE.format(title=f"Diagnosis: {title}", style=_STYLE, body=body, generator=generator))


def _report(report: pb.Report) -> Markup:
    parts = [
        Markup('<h1>{}</h1>\n<p class="soft">{}<br>{}</p>').format(
            sections.heading(report.trace), report.trace.path, sections.trace_line(report.trace)
        ),
        Markup('<p class="verdict"><strong>{}.</strong> {}</p>').format(
            sections.limiter(report), report.verdict.sentence
        ),
        *(_account(sections.account(device, len(report.steps))) for device in report.devices),
        _list(inferred_sections.title(report), [("", line) for line in inferred_sections.lines(report)]),
        Markup("<h2>Findings</h2>"),
        *(_finding(f, sections.code(report, n)) for n, f in enumerate(report.findings, start=1)),
        Markup("") if report.findings else Markup("<p>Nothing found to fix.</p>"),
        _table("In which order", sections.PLAN_TITLES, sections.plan_rows(report)),
        _table("Where the host's time went", sections.HOST_TITLES, sections.host_rows(report)),
        _table("GPU time by kernel family", sections.FAMILY_TITLES, sections.family_rows(report)),
        _table("Launches", sections.HOTSPOT_TITLES, sections.hotspot_rows(report)),
        _list("Launch queues", [("", line) for line in sections.queue_lines(report)]),
        _table("Waits for the GPU", sections.SYNC_TITLES, sections.sync_rows(report)),
        _list("Memory", [("", line) for line in memory_sections.lines(report.memory)]),
        _table("What grows", memory_sections.SITE_TITLES, memory_sections.site_rows(report.memory)),
        _table("What the peak holds", memory_sections.PEAK_TITLES, memory_sections.peak_rows(report.memory)),
        _table(
            "Segments that are partly free",
            memory_sections.SEGMENT_TITLES,
            memory_sections.segment_rows(report.memory),
        ),
        _list("Cannot tell from this trace", sections.unchecked_rows(report)),
        _list("Looked at, nothing wrong", sections.clear_rows(report)),
        _list("Notes on the file", [("", note) for note in report.trace.notes]),
    ]
    return Markup("\n").join(part for part in parts if part)


def _account(account: sections.Account) -> Markup:
    bar = Markup("").join(
        Markup('<span style="width:{:.3f}%;background:{}" title="{} {}"></span>').format(
            100 * row.fraction, _colour(row.part), row.label, row.time
        )
        for row in account.rows
    )
    rows = Markup("\n").join(
        Markup(
            '<tr><td class="text"><span class="swatch" style="background:{}"></span>{}</td>'
            "<td>{}</td><td>{}</td></tr>"
        ).format(_colour(row.part), row.label, row.time, row.share)
        for row in account.rows
    )
    return Markup(
        '<h2>{}</h2>\n<div class="bar">{}</div>\n<table>\n<tbody>\n{}\n</tbody>\n'
        '<tfoot><tr><td class="text">step window</td><td>{}</td><td>100 %</td></tr></tfoot>\n</table>'
    ).format(account.title, bar, rows, account.total)


def _colour(part: str) -> str:
    return f"var(--{part})" if part in _PARTS else "var(--soft)"


def _finding(finding: pb.Finding, code: str) -> Markup:
    severity = sections.SEVERITIES[finding.severity]
    cost = sections.cost(finding)
    facts = [("cost", cost)] if cost else []
    facts += [(evidence.label, evidence.value) for evidence in finding.evidence]
    facts += [("at", f"{place} {time}".rstrip()) for place, time in sections.places(finding)]
    lines = Markup("").join(Markup("<dt>{}</dt><dd>{}</dd>").format(label, value) for label, value in facts)
    parts = [
        Markup('<summary><span class="{}">{}</span> {} {}: {}</summary>').format(
            severity, severity, finding.rule, finding.name, finding.title
        ),
        Markup("<p>{}</p>\n<dl>{}</dl>").format(finding.summary, lines),
    ]
    if finding.fix.text:
        parts.append(Markup("<p><strong>Fix.</strong> {}</p>").format(finding.fix.text))
    if code:
        parts.append(Markup("<pre><code>{}</code></pre>").format(code))
    if finding.fix.url.startswith("https://"):
        parts.append(
            Markup('<p><a href="{}" rel="noopener noreferrer">{}</a></p>').format(
                finding.fix.url, finding.fix.url
            )
        )
    return Markup("<details open>\n{}\n</details>").format(Markup("\n").join(parts))


def _table(title: str, titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> Markup:
    if not rows:
        return Markup("")
    titles, rows = sections.filled_columns(titles, rows)
    kinds = ["" if title in sections.NUMBERS else "text" for title in titles]
    head = Markup("").join(
        Markup('<th class="{}">{}</th>').format(kind, cell) for kind, cell in zip(kinds, titles, strict=True)
    )
    body = Markup("\n").join(_row(kinds, row) for row in rows)
    return Markup("<h2>{}</h2>\n<table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}\n</tbody>\n</table>").format(
        title, head, body
    )


def _row(kinds: Iterable[str], row: Iterable[str]) -> Markup:
    cells = (
        Markup('<td class="{}">{}</td>').format(kind, cell) for kind, cell in zip(kinds, row, strict=True)
    )
    return Markup("<tr>{}</tr>").format(Markup("").join(cells))


def _list(title: str, items: list[tuple[str, str]]) -> Markup:
    if not items:
        return Markup("")
    lines = Markup("").join(Markup("<dt>{}</dt><dd>{}</dd>").format(label, text) for label, text in items)
    return Markup("<h2>{}</h2>\n<dl>{}</dl>").format(title, lines)
