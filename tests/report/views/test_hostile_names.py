"""A hostile name stays a name: it is never markup, a link, a mention or an escape sequence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.markdown import code, text
from tests.builder import TraceBuilder
from tests.report.reports import HOSTILE, hostile, report_of, slow_loader, usual_report
from tests.report.views.formats import Page, rendered, to_html, to_markdown, to_text
from tests.with_each import with_each

MB = 1 << 20


@pytest.fixture
def good() -> pb.Report:
    return usual_report()


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> pb.Report:
    return hostile(tmp_path_factory.mktemp("hostile"))


def test_text_is_plain(good: pb.Report, bad: pb.Report) -> None:
    for shown in (to_text([good]), to_text([bad])):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e]", shown)
        assert not any(line.endswith(" ") for line in shown.splitlines())


def test_text_shows_square_brackets_of_a_name(tmp_path: Path) -> None:
    report = report_of(slow_loader("train.py(12): f[bold red]"), tmp_path)
    assert "f[bold red]" in to_text([report])


def test_html_is_one_file_without_scripts_that_fetches_nothing(good: pb.Report) -> None:
    shown = to_html([good])
    page = Page(shown)
    assert not page.tags & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    assert not {name for name in page.attributes if name.startswith("on")}
    assert all(link.startswith("https://") for link in page.links)
    assert "prefers-color-scheme: dark" in shown
    assert "default-src 'none'" in shown
    assert "url(" not in shown


def test_html_keeps_a_hostile_name_a_name(good: pb.Report, bad: pb.Report) -> None:
    good_page, page = Page(to_html([good])), Page(to_html([bad]))
    assert page.tags <= good_page.tags
    assert page.attributes <= good_page.attributes
    assert "<img src=x onerror=alert(1)>" in page.words


def test_html_links_to_https_only(good: pb.Report) -> None:
    good.findings[0].fix.url = "javascript:alert(1)"
    for shown in (to_html([good]), rendered(to_markdown([good]))):
        assert "javascript:" not in shown


def test_markdown_keeps_a_hostile_name_a_name(bad: pb.Report) -> None:
    page_source = rendered(to_markdown([bad]))
    page = Page(page_source)
    assert "img" not in page.tags
    assert not [link for link in page.links if link.startswith("javascript")]
    # Outside code, a mention is broken up.
    assert "@everyone" not in re.sub(r"<code.*?</code>", "", page_source, flags=re.DOTALL)


def test_names_of_memory_stay_names(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(6):
        at = step * 100.0
        main.step(step, at=at, us=100)
        main.frame(f"{HOSTILE}.py(3): {HOSTILE}", at=at, us=90).frame(f"nn.Module: {HOSTILE}_0", at=at, us=80)
        main.op(HOSTILE, at=at + 5, us=20)
        main.alloc(MB, at=at + 10)
    report = report_of(trace, tmp_path)
    assert report.memory[0].sites
    assert "<img" not in to_html([report])
    assert "<img" not in rendered(to_markdown([report]))
    assert "\x1b" not in to_text([report])


def test_names_of_a_repetition_stay_names(good: pb.Report) -> None:
    good.inferred_steps.repetitions = 2
    good.inferred_steps.accounts.add(name=HOSTILE)
    good.inferred_steps.sign, good.inferred_steps.inside = pb.InferredSteps.one_call, HOSTILE
    assert "Repetition" in to_text([good])
    for page in (rendered(to_markdown([good])), to_html([good])):
        assert "Repetition" in page
        assert "<img" not in page


@with_each(
    "words",
    [
        "a|b",
        "*a*",
        "_a_",
        "[a](b)",
        "`a`",
        "~~a~~",
        "<b>",
        "- a",
        "1. a",
        "+ a",
        "# a",
        "a  \nb",
        "&lt;",
        "\\",
        "12.3\u00a0ms",
    ],
)
def test_markdown_text_renders_as_itself(words: str) -> None:
    page = Page(MarkdownIt("commonmark", {"html": True}).enable("strikethrough").render(text(words)))
    assert page.words.strip() == re.sub("[ \n]+", " ", words)
    assert page.tags == {"p"}


@with_each("words", ["a", "`", "``a`", "a``", "<b>", HOSTILE.replace("\u202e", ""), " x "])
def test_markdown_code_renders_as_itself(words: str) -> None:
    page = Page(MarkdownIt("commonmark").render(code(words)))
    assert page.words.strip() == " ".join(words.split())
    assert page.tags == {"p", "code"}


@with_each("name", ["a|b", "a\\|b", "a\\", "|", "`|`", "a`b"])
def test_a_name_does_not_end_a_cell_of_a_markdown_table(name: str) -> None:
    columns = [
        pb.TableColumn(title="Activity", kind="name", texts=[name]),
        pb.TableColumn(title="Kind", texts=["Runtime call"]),
        pb.TableColumn(title="Time", kind="number", unit="ns", numbers=[1_000]),
    ]
    host = pb.Table(id="host", title="Where host time went", columns=columns, rows=[pb.TableRow()], first=1)
    report = pb.Report(tables=[host])
    page = rendered(to_markdown([report]))
    assert page.count("<td") == 3
    assert Page(page).words.split("Where host time went")[1].split() == [
        *("Activity", "Kind", "Time"),
        *(name, "Runtime", "call", "1", "µs"),
    ]
