"""What a command writes and where: its formats, to standard output or to a file; and `--fail-on`, rule ids
and severities at which it exits with status 1.

Imports what a format needs (rich, jinja2, Protocol Buffers) only if the format is written.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from tb_gpudiag.errors import UsageError
from tb_gpudiag.trace.files.copying import whole_file
from tb_gpudiag.trace.files.local_search import is_recording

if TYPE_CHECKING:
    from tb_gpudiag.report import report_pb2 as pb
    from tb_gpudiag.report.views.document import Document


FailOn = str | int
"""A rule's id, or the least severity."""


def add_fail_on(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on",
        metavar="ID|SEVERITY",
        nargs="+",
        action="extend",
        default=[],
        help="exit with status 1 if this rule finds something, or if a finding has at least this severity "
        "(info, warning, error)",
    )


def sort_out(fail_on: list[str], paths: list[str]) -> tuple[list[FailOn], list[str]]:
    """Return the --fail-on conditions as rule ids and severities, and the paths.

    argparse takes DIR in `--fail-on warning DIR` as a condition. A word that is not an id or a severity, but
    exists, is a path.
    """
    conditions: list[FailOn] = []
    paths = list(paths)
    if not fail_on:
        return conditions, paths
    from tb_gpudiag.jobs.rules.every_rule import EVERY_RULE, find_any_rule  # all rules take a while to import
    from tb_gpudiag.rules.answer import Severity

    for word in (part for value in fail_on for part in value.split(",") if part):
        rule = find_any_rule(word)
        if rule is not None:
            conditions.append(rule.id)
        elif word.upper() in Severity.__members__:
            conditions.append(Severity[word.upper()])
        elif os.path.exists(word) or "://" in word:
            paths.append(word)
        else:
            raise UsageError(
                "--fail-on takes rule ids and severities",
                where=word,
                remedy=f"severities: info, warning, error; ids: {', '.join(rule.id for rule in EVERY_RULE)}",
            )
    return conditions, paths


def is_met(findings: Iterable[pb.Finding], conditions: list[FailOn]) -> bool:
    return any(
        finding.severity >= condition if isinstance(condition, int) else finding.rule == condition
        for finding in findings
        for condition in conditions
    )


FORMATS = ("text", "json", "markdown", "html")


def add_options(parser: argparse.ArgumentParser, more: Sequence[str] = ()) -> None:
    """Add --format and --output. more: formats of this command alone."""
    parser.add_argument("--format", choices=(*FORMATS, *more), default="text", help="default: text")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to FILE instead of standard output")


def add_full(parser: argparse.ArgumentParser) -> None:
    """Add --full, for a command that writes `on_one_screen` without it."""
    parser.add_argument(
        "--full",
        action="store_true",
        help="text with everything; without it, text fits one screen of 40 lines",
    )


def write(
    parsed: argparse.Namespace,
    document: Callable[[], Document],
    data: Callable[[], Mapping[str, object]],
    content: Callable[[], Mapping[str, object] | None] = lambda: None,
    more: Mapping[str, Callable[[], str]] = MappingProxyType({}),
    *,
    on_one_screen: bool = False,
) -> None:
    """Write in the format and to the place that the options name. `data` is what JSON shows.

    content: what an HTML file needs to be interactive, as for html.document_html.
    more: writes each format of this command alone.
    on_one_screen: text is what fits one screen.
    Raises Unreadable: the file cannot be written.
    """
    if parsed.format == "text" and parsed.output is None and sys.stdout.isatty():
        _print(document(), on_one_screen=on_one_screen)
        return
    if parsed.format in more:
        text = more[parsed.format]()
    elif parsed.format == "json":
        from tb_gpudiag.report.wire import dump

        text = dump(data()) + "\n"
    elif parsed.format == "html":
        from tb_gpudiag.report.views.html import document_html

        text = document_html(document(), content())
    else:
        text = _rendered(document(), parsed.format, on_one_screen=on_one_screen)
    if parsed.output is None and parsed.format == "text":
        sys.stdout.write(text)
    elif parsed.output is None:  # other programs expect UTF-8, whatever a terminal shows
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8"))
    else:
        write_file(Path(parsed.output), text.encode("utf-8"))


def _rendered(document: Document, kind: str, *, on_one_screen: bool) -> str:
    if kind == "markdown":
        from tb_gpudiag.report.views.markdown import document_markdown

        return document_markdown(document)
    from tb_gpudiag.report.views.screen import PLAIN_WIDTH

    columns = os.environ.get("COLUMNS", "")[:4]  # no screen is wider
    width = int(columns) if columns.isdecimal() and int(columns) else PLAIN_WIDTH
    if on_one_screen:
        from tb_gpudiag.report.views.screen import screen_text

        return screen_text(document, width)
    from tb_gpudiag.report.views.text import document_text

    return document_text(document, width)


def _print(document: Document, *, on_one_screen: bool) -> None:
    from rich.console import Console

    from tb_gpudiag.report.views.screen import print_screen
    from tb_gpudiag.report.views.text import print_document

    (print_screen if on_one_screen else print_document)(document, Console(emoji=False))


def has_interactive_html() -> bool:
    from tb_gpudiag.report.views.html import interactive_script

    return interactive_script() is not None


def write_file(path: Path, content: bytes) -> None:
    """Write the whole file or nothing: nobody reads half a report, and after an error the old file stays.

    Raises UsageError: it would replace a recording. `-o *.json` names one.
    """
    if is_recording(str(path)):
        raise UsageError(
            "it is a recording, which is never overwritten",
            where=str(path),
            remedy="name another file",
        )
    with whole_file(path) as file:
        file.write(content)
