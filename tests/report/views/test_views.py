"""The views show what the Report holds, and a hostile name stays a name."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.html import to_html
from tb_gpudiag.report.views.markdown import code, text, to_markdown
from tb_gpudiag.report.views.text import to_text
from tests.builder import TraceBuilder
from tests.report.reports import HOSTILE, hostile, report_of, slow_loader
from tests.rules.memory_stage import job


@pytest.fixture
def report(tmp_path: Path) -> pb.Report:
    return report_of(slow_loader(), tmp_path)


@pytest.fixture
def bad(tmp_path: Path) -> pb.Report:
    return hostile(tmp_path / "hostile")


def _views(report: pb.Report) -> dict[str, str]:
    return {"text": to_text([report]), "markdown": to_markdown([report]), "html": to_html([report])}


@pytest.mark.parametrize("view", ["text", "markdown", "html"])
def test_a_view_shows_verdict_account_findings_and_places(view: str, report: pb.Report) -> None:
    shown = _views(report)[view]
    plain = re.sub(r"\s+", " ", shown.replace("\\", ""))
    for words in (
        report.verdict.sentence,
        "GPU 0, Test GPU: 2 steps",
        "idle: data loading",
        "1.20 ms",
        "60.0 %",
        "GD101",
        "train.py:12 in train",
        "a fix gives back 1.2",
        "num_workers",
        "Looked at, nothing wrong",
    ):
        assert words in plain, words


@pytest.mark.parametrize("view", ["text", "markdown", "html"])
def test_a_finding_about_memory_has_its_cost_in_bytes(view: str, tmp_path: Path) -> None:
    leaking = report_of(job([2**20] * 6), tmp_path)
    (finding,) = (f for f in leaking.findings if f.rule == "GD401")
    assert (finding.cost_bytes_per_step, finding.cost_bytes, finding.memory_device) == (2**20, 4 * 2**20, 0)
    assert finding.places[0].bytes == 5 * 2**20
    shown = _views(leaking)[view]
    assert "1 MiB more in each step" in shown
    assert re.search(r"train\.py:7 in keep .*5 MiB", shown)


@pytest.mark.parametrize("view", ["text", "markdown", "html"])
def test_rules_that_lack_the_same_are_told_once(view: str, report: pb.Report) -> None:
    del report.unchecked[:]
    for rule, reason in (("GD901", "no stacks"), ("GD902", "no GPU"), ("GD903", "no stacks")):
        report.unchecked.add(rule=rule, name="name", reason=reason, how_to_record="Record more.")
    shown = re.sub(r"<[^>]*>", " ", _views(report)[view])
    plain = re.sub(r"\s+", " ", shown.replace("\\", ""))
    assert re.search(r"2 rules ?:? no stacks\. Record more\. Left out: GD901 name, GD903 name", plain)
    assert re.search(r"GD902 name ?:? no GPU\. Record more\.", plain)
    assert plain.count("no stacks") == 1


def test_text_begins_with_the_titles_of_several_findings(report: pb.Report) -> None:
    del report.findings[1:]
    assert to_text([report]).count(report.findings[0].title) == 1
    report.findings.add().title = "Something else"
    beginning = to_text([report]).split("GPU 0, Test GPU")[0]
    assert report.findings[0].title in beginning
    assert "Something else" in beginning


@pytest.mark.parametrize("view", ["text", "markdown", "html"])
def test_a_simulated_trace_is_labelled(view: str, tmp_path: Path) -> None:
    trace = TraceBuilder(simulated=True)
    trace.recording = slow_loader().recording
    assert "(simulated)" in _views(report_of(trace, tmp_path))[view]


def test_the_account_adds_up_as_printed(report: pb.Report) -> None:
    account = to_text([report]).split("GPU 0, Test GPU: 2 steps\n")[1].split("\n\n")[0]
    times = [float(t.replace(",", "")) for t in re.findall(r"([\d,.]+) (?:ms|µs|s)\b", account)]
    assert sum(times[:-1]) == pytest.approx(times[-1], abs=1e-9)


@pytest.mark.parametrize("to_view", [to_text, to_markdown, to_html])
def test_before_several_reports_stands_what_is_the_matter_with_each(
    to_view: Callable[[list[pb.Report]], str], report: pb.Report
) -> None:
    healthy = pb.Report(trace=pb.TraceInfo(run="fine", path="log/fine.json", kind="trace"))
    healthy.verdict.limiter = "copy"
    report.findings.add().rule = "GD405"
    shown = to_view([report, healthy])
    overview = re.sub(r"\s+", " ", shown[: shown.index(report.trace.path)])
    for words in ("2 traces", "first finding", "Input", "GD101", "GD405", "fine", "Copies", "none"):
        assert words in overview, words
    assert shown.count(report.trace.path) == shown.count("log/fine.json") == 1
    assert "first finding" not in to_view([report])


def test_text_is_plain(report: pb.Report, bad: pb.Report) -> None:
    for shown in (to_text([report]), to_text([bad])):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e]", shown)
        assert not any(line.endswith(" ") for line in shown.splitlines())


def test_text_shows_square_brackets_of_a_name(tmp_path: Path) -> None:
    report = report_of(slow_loader("train.py(12): f[bold red]"), tmp_path)
    assert "f[bold red]" in to_text([report])


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.words += data


def _parsed(page: str) -> _Tags:
    parser = _Tags()
    parser.feed(page)
    parser.close()
    return parser


def test_html_is_one_file_without_scripts_that_fetches_nothing(report: pb.Report) -> None:
    page = _parsed(to_html([report]))
    assert not page.tags & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    assert not {name for name in page.attributes if name.startswith("on")}
    assert all(link.startswith("https://") for link in page.links)
    assert "prefers-color-scheme: dark" in to_html([report])
    assert "default-src 'none'" in to_html([report])


def test_html_keeps_a_hostile_name_a_name(report: pb.Report, bad: pb.Report) -> None:
    good, page = _parsed(to_html([report])), _parsed(to_html([bad]))
    assert page.tags <= good.tags
    assert page.attributes <= good.attributes
    assert "<img src=x onerror=alert(1)>" in page.words


def test_html_links_to_https_only(report: pb.Report) -> None:
    report.findings[0].fix.url = "javascript:alert(1)"
    assert "javascript:" not in to_html([report])


def test_markdown_keeps_a_hostile_name_a_name(bad: pb.Report) -> None:
    shown = to_markdown([bad])
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(shown)
    page = _parsed(rendered)
    assert "img" not in page.tags
    assert not [link for link in page.links if link.startswith("javascript")]
    # Outside code, a mention is broken up.
    assert "@everyone" not in re.sub(r"<code.*?</code>", "", rendered, flags=re.DOTALL)


@pytest.mark.parametrize(
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
    ],
)
def test_markdown_text_renders_as_itself(words: str) -> None:
    page = _parsed(MarkdownIt("commonmark", {"html": True}).enable("strikethrough").render(text(words)))
    assert page.words.strip() == " ".join(words.split())
    assert page.tags == {"p"}


@pytest.mark.parametrize("words", ["a", "`", "``a`", "a``", "<b>", HOSTILE.replace("\u202e", ""), " x "])
def test_markdown_code_renders_as_itself(words: str) -> None:
    page = _parsed(MarkdownIt("commonmark").render(code(words)))
    assert page.words.strip() == " ".join(words.split())
    assert page.tags == {"p", "code"}


def test_code_that_stands_there_already_is_not_repeated(report: pb.Report) -> None:
    report.findings.append(report.findings[0])
    assert to_text([report]).count("num_workers=8") == 1
    assert "# as for finding 1" in to_text([report])


@pytest.mark.parametrize("view", ["text", "markdown", "html"])
def test_inferred_steps_are_marked_as_such(view: str, tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for at in (100.0 * i for i in range(4)):
        main.copy("HtoD", at=at, us=5, runs_at=at + 6, runs_us=8, bytes=4096, pinned=True)
        for kernel in range(5):
            main.launch(
                f"k{kernel}", at=at + 10 * kernel + 10, us=5, runs_at=at + 10 * kernel + 16, runs_us=8
            )
    report = report_of(trace, tmp_path)
    shown = re.sub(r"\s+", " ", _views(report)[view])
    assert "Inferred steps" in shown
    assert "a sequence of 6 launches comes 4 times" in shown
    report.inferred_steps.sign, report.inferred_steps.are_steps = "one_call", False
    report.inferred_steps.inside = HOSTILE
    shown = _views(report)[view]
    assert "Inferred steps" not in shown
    assert "<img" not in shown or view == "text"
