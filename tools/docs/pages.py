"""The generated pages of the documentation, as Markdown."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import tb_gpudiag
from tb_gpudiag import errors
from tb_gpudiag.cli.main import COMMANDS
from tb_gpudiag.cli.main import main as gpudiag
from tb_gpudiag.jobs.rules.every_rule import EVERY_RULE

PROTO = Path(tb_gpudiag.__file__).parent / "report" / "report.proto"
FIELD = re.compile(r"(repeated )?([\w.]+|map<.*>) (\w+) = \d+;\s*(?://\s*(.*))?$")
VALUE = re.compile(r"(\w+) = \d+;\s*(?://\s*(.*))?$")

API_EXAMPLE = """
import tb_gpudiag

report = tb_gpudiag.diagnose("log/my_run")
print(report.verdict.sentence)
if report.verdict.limiter == report.verdict.input:
    print("It waits for data.")
for finding in report.findings:
    print(finding.rule, finding.title)

print(tb_gpudiag.to_dict(report.verdict)["limiter"])  # the word: "input"

comparison = tb_gpudiag.compare("log/before", "log/after")
print(comparison.sentence)
for row in comparison.verified:  # the findings before
    print(row.sentence)

print(tb_gpudiag.job("log/my_job").verdict.sentence)

for history in tb_gpudiag.history("log"):
    print(history.run, len(history.points), "recordings")

tables = tb_gpudiag.tables("log/my_run")
print(tables.launches.num_rows)

with tb_gpudiag.open("log") as page:
    print(page.url)
"""
"""A test runs it."""

_JSON_INTRODUCTION = """
`gpudiag diagnose --format json` prints `{"reports": [Report, …]}`, and `"errors"` if files could not be read.
`gpudiag compare` prints `{"comparison": Comparison}`, `gpudiag hang` `{"hang": HangReport}`, and
`gpudiag history` `{"histories": [History, …]}`.
`gpudiag schema COMMAND` prints the JSON Schema of each.
The [HTTP routes](http.md) answer with the other messages. Names of fields do not change.
"""


def rule_pages() -> dict[str, str]:
    """The list of rules, and a page for each, by path."""
    rules = sorted(EVERY_RULE, key=lambda rule: rule.id)
    rows = [f"| {rule.id} | [{rule.name}]({rule.name}.md) | {rule.title} |" for rule in rules]
    index = "\n".join(["# Rules", "", "| id | name | title |", "| --- | --- | --- |", *rows, ""])
    return {"rules/index.md": index, **{f"rules/{rule.name}.md": rule.page for rule in rules}}


def cli_page() -> str:
    """The help texts of `gpudiag` and its commands."""
    parts = ["# Command line", *_help("gpudiag")]
    for command in COMMANDS:
        parts += _help(f"gpudiag {command}")
    return "\n\n".join(parts) + "\n"


def _help(command: str) -> list[str]:
    return [f"## `{command}`", _fenced(run_gpudiag(*command.split()[1:], "--help"))]


def api_page() -> str:
    """The public Python API: the docstrings of `tb_gpudiag` and its errors."""
    functions: list[Callable[..., object]] = [
        tb_gpudiag.diagnose,
        tb_gpudiag.compare,
        tb_gpudiag.job,
        tb_gpudiag.hang,
        tb_gpudiag.history,
        tb_gpudiag.open,
        tb_gpudiag.tables,
        tb_gpudiag.to_dict,
    ]
    return (
        "\n\n".join(
            [
                "# Python API",
                _doc(tb_gpudiag),
                f"```python\n{API_EXAMPLE.strip()}\n```",
                *(part for function in functions for part in _function(function)),
                *_class(tb_gpudiag.DiagnosisHandler, "See [Diagnose while you train](training.md)."),
                *_class(tb_gpudiag.NotingTensors, "See [Record a good trace](recording.md)."),
                "[JSON](json.md) describes the fields of `Report`, `Comparison`, "
                "`JobReport`, `HangReport` and `History`.",
                "## `tb_gpudiag.errors`",
                _fenced(_doc(errors)),
            ]
        )
        + "\n"
    )


def _function(function: Callable[..., object]) -> list[str]:
    signature = f"{function.__name__}{inspect.signature(function)}".replace("'", "")
    return [f"## `{signature}`", _doc(function)]


def _class(one: type, see: str) -> list[str]:
    """A class, whose arguments are those of its constructor."""
    signature = str(inspect.signature(one)).replace("'", "")
    return [f"## `{one.__name__}{signature}`", _doc(one), see]


def json_page() -> str:
    """The messages of report.proto, with their comments."""
    parts = ["# JSON", _JSON_INTRODUCTION.strip()]
    for name, message in read_proto(PROTO.read_text(encoding="utf-8")).items():
        parts += [f"## {name}", " ".join(message.comment), "\n".join(message.rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


@dataclass
class Message:
    """A message or an enum of report.proto: its comment, and a table of its fields or values."""

    comment: list[str]
    rows: list[str]


def read_proto(text: str) -> dict[str, Message]:
    """Messages and enums by name, in the order of the file. Names of nested ones contain a dot."""
    messages: dict[str, Message] = {}
    scope: list[str] = []
    comment: list[str] = []
    for line in (line.strip() for line in text.splitlines()):
        if line.startswith("//"):
            comment.append(line.removeprefix("//").strip())
            continue
        if opened := re.match(r"(message|enum) (\w+) \{", line):
            scope.append(opened[2])
            header = ["| name | type | meaning |", "| --- | --- | --- |"]
            if opened[1] == "enum":
                header = ["| value | meaning |", "| --- | --- |"]
            messages[".".join(scope)] = Message(comment, header)
        elif line == "}":
            scope.pop()
        elif field := FIELD.match(line):
            kind = f"list of {field[2]}" if field[1] else field[2]
            said = " ".join(filter(None, [*comment, field[4]])).replace("|", "\\|")
            messages[".".join(scope)].rows.append(f"| `{field[3]}` | {kind} | {said} |")
        elif value := VALUE.match(line):
            messages[".".join(scope)].rows.append(f"| `{value[1]}` | {value[2] or ''} |")
        comment = []
    return messages


def run_gpudiag(*arguments: str) -> str:
    """What the command prints, 100 columns wide and without colors."""
    printed = io.StringIO()
    with (
        patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        gpudiag(arguments)
    return printed.getvalue()


def _doc(thing: object) -> str:
    return inspect.getdoc(thing) or ""


def _fenced(text: str) -> str:
    return f"```\n{text.rstrip()}\n```"
