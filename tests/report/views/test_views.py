"""What the formats show of a Report."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tb_gpudiag.jobs.report.job_view import Diagnosed, directory_document
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import Column, Document, Kind, ReportView, Table, table
from tb_gpudiag.report.views.finding_sections import findings
from tb_gpudiag.report.views.html import document_html
from tb_gpudiag.report.views.markdown import document_markdown
from tb_gpudiag.report.views.text import document_text
from tb_gpudiag.service.index.run_rows import row_with
from tb_gpudiag.wording.format import share
from tests.builder import TraceBuilder
from tests.report.reports import report_of, usual_report
from tests.report.views.formats import FORMATS, one_space, to_text, words_in
from tests.rules.memory_stage import job


@pytest.fixture
def report() -> pb.Report:
    return usual_report()


@pytest.mark.parametrize("format", FORMATS)
def test_a_format_shows_verdict_account_findings_and_places(format: str, report: pb.Report) -> None:
    shown = words_in(format, report)
    for words in (
        report.verdict.sentence,
        "GPU 0, “Test GPU”: 2 steps",
        "idle: data loading",
        "1.20 ms",
        share(0.6),
        "GD101 input_pipeline",
        "train (train.py, defined at line 12)",
        "about",
        "per step",
        "80% range",
        "num_workers",
    ):
        assert one_space(words) in shown, words


@pytest.mark.parametrize("format", FORMATS)
def test_one_line_says_how_to_explain_a_rule(format: str, report: pb.Report) -> None:
    shown = words_in(format, report, report)
    assert shown.count("gpudiag explain") == shown.count("gpudiag explain GD101") == 1
    assert "gpudiag explain" not in words_in(format, pb.Report())


def test_a_finding_about_memory_has_its_cost_in_bytes(tmp_path: Path) -> None:
    leaking = report_of(job([2**20] * 6), tmp_path)
    (finding,) = (f for f in leaking.findings if f.rule == "GD401")
    assert (finding.cost_bytes_per_step, finding.cost_bytes, finding.memory_device) == (2**20, 4 * 2**20, 0)
    assert finding.places[0].bytes == 5 * 2**20
    for format in FORMATS:
        shown = words_in(format, leaking)
        assert re.search(r"; GPU 0 memory grows by 1(\.00)? MiB per step, in keep \(train\.py", shown)
        assert re.search(r"4(\.00)? MiB still live at the end", shown)
        assert re.search(r"keep \(train\.py, defined at line 7\).*5(\.00)? MiB", shown)


@pytest.mark.parametrize("format", FORMATS)
def test_hints_about_the_recording_stand_together_with_one_recipe(format: str, report: pb.Report) -> None:
    report.findings.add(rule="GD903", name="no_stacks", title="No stacks here", severity=pb.Finding.INFO)
    report.unchecked.add(rule="GD402", name="memory_peak", reason="a bug", defect=True)
    report.better_recording.sentence = "Not recorded: Python stacks."
    report.better_recording.code = "with profile(with_stack=True):\n"
    shown = words_in(format, report)
    assert "No stacks here" not in shown
    assert re.search(r"GD402 memory_peak:? a bug", shown)
    assert re.search(r"A better recording\W+Not recorded: Python stacks\.\W.*with_stack=True", shown)


@pytest.mark.parametrize("format", FORMATS)
def test_a_simulated_trace_is_labelled(format: str, report: pb.Report) -> None:
    assert "(simulated)" not in words_in(format, report)
    report.trace.simulated = True
    assert "(simulated)" in words_in(format, report)


def test_the_account_adds_up_as_printed(report: pb.Report) -> None:
    account = to_text([report]).split("GPU 0, “Test GPU”: 2 steps\n")[1].split("\n\n")[0]
    times = [float(t.replace(",", "")) for t in re.findall(r"([\d,.]+) (?:ms|µs|s)\b", account)]
    assert sum(times[:-1]) == pytest.approx(times[-1], abs=1e-9)


@pytest.mark.parametrize("to_view", [document_text, document_markdown, document_html])
def test_a_table_above_several_reports_says_what_limits_each_worst_first(
    to_view: Callable[[Document], str], report: pb.Report
) -> None:
    healthy = pb.Report(trace=pb.TraceInfo(run="fine", path="log/fine.json", kind="trace"))
    healthy.verdict.limiter = pb.Verdict.copy
    bad = Diagnosed(row_with(report.findings, run="bad"), report)
    document = directory_document([Diagnosed(row_with([], run="fine"), healthy), bad])
    shown = to_view(document)
    overview = one_space(shown[: shown.index(report.trace.path)])
    for words in ("2 recordings", "First finding", "Data loading keeps", "fine", "Copies", "none"):
        assert words in overview, words
    assert document.overview
    assert [row[0] for row in document.overview.rows] == [bad.name, "fine/fine.json"]
    assert "First finding" not in to_view(directory_document([bad]))


def test_text_does_not_break_a_line_between_a_number_and_its_unit(report: pb.Report) -> None:
    report.verdict.sentence = "12.3\u00a0ms " * 60
    shown = to_text([report])
    assert shown.count("12.3 ms") == 60
    assert "\u00a0" not in shown


def test_code_of_an_earlier_finding_is_not_repeated(report: pb.Report) -> None:
    report.findings.append(report.findings[0])
    report.findings[-1].fix.code += "\n\nloader.pin()"
    shown = to_text([report])
    assert shown.count("loader = DataLoader(") == 1
    assert re.search(r"# Code above, and:\s+loader.pin\(\)", shown)


def test_code_that_is_all_above_and_no_code_at_all(report: pb.Report) -> None:
    del report.findings[1:]
    report.findings.extend([report.findings[0]] * 3)
    for finding in report.findings[2:]:
        finding.fix.code = ""
    shown = to_text([report])
    assert shown.count("Code above") == 1
    assert "Code above, and" not in shown


@pytest.mark.slow
def test_inferred_steps_are_marked_as_such(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for at in (100.0 * i for i in range(4)):
        main.copy("HtoD", at=at, us=5, runs_at=at + 6, runs_us=8, bytes=4096, pinned=True)
        for kernel in range(5):
            main.launch(
                f"k{kernel}", at=at + 10 * kernel + 10, us=5, runs_at=at + 10 * kernel + 16, runs_us=8
            )
    report = report_of(trace, tmp_path)
    assert report.inferred_steps.are_steps
    for format in FORMATS:
        report.inferred_steps.are_steps = True
        shown = words_in(format, report)
        assert "Inferred steps" in shown
        assert "a sequence of 6 launches repeats 4 times" in shown
        report.inferred_steps.are_steps = False
        shown = words_in(format, report)
        assert "Inferred steps" not in shown
        assert "Repetition" in shown


@pytest.mark.parametrize("format", FORMATS)
def test_no_problem_is_said_with_how_many_rules_could_check(format: str, report: pb.Report) -> None:
    del report.findings[:]
    report.ClearField("plan")
    assert "No problem found." in words_in(format, report)
    del report.clear[3:]
    for _ in range(5):
        report.unchecked.add(rule="GD401", name="memory_leak", reason="no memory events")
    shown = words_in(format, report)
    assert "3 rules could check this trace, and found no problem." in shown
    assert "No problem found." not in shown


@pytest.mark.parametrize("width", [110, 80])
def test_a_row_with_a_long_name_is_one_line(width: int) -> None:
    kernels = [f"kernel<{'int, ' * 30}Add{i}>" for i in range(3)]
    columns = (Column("Name", Kind.NAME), Column("Time", Kind.NUMBER), Column("Inside", Kind.NAME))
    rows = [(name, "1.25 ms", "aten::mm") for name in kernels]
    view = ReportView("trace", "path", "verdict", (table("kernels", "Kernels", columns, rows),))
    shown = document_text(Document("title", (view,)), width).splitlines()
    rows_shown = [line for line in shown if line.startswith("kernel<int")]
    assert re.findall(r"Add(\d)>  1.25 ms  aten::mm$", "\n".join(rows_shown), re.MULTILINE) == ["0", "1", "2"]


KERNELS = ["sm90_xmma_wgrad_indexed_5x_cudnn", "sm90_xmma_fprop_implicit_5x_cudnn", "aten::mm"]


@pytest.mark.parametrize("width", [80, 120])
def test_a_row_has_one_line_and_names_that_are_cut_stay_different(width: int) -> None:
    numbers = [Column(f"Figure {i}", Kind.NUMBER) for i in range(5)]
    columns = (Column("Name", Kind.NAME), *numbers, Column("Kind"), Column("At", Kind.CODE))
    rows = tuple(
        (name, *("1,234.5 ms",) * len(numbers), "Before recording", "forward (train.py:12)")
        for name in KERNELS
    )
    view = ReportView("heading", "path", "verdict", (Table("t", "Kernels", columns, rows),))
    shown = document_text(Document("title", (view,)), width).splitlines()
    assert all(len(line) <= width for line in shown)
    *_, title, header, first, second, third = shown
    assert len({line.split()[0] for line in (first, second, third)}) == len(KERNELS)
    left_out = [column.title for column in columns if column.title not in header]
    assert bool(left_out) == (width == 80)
    assert title == "Kernels" + f" (in a wider terminal: {', '.join(left_out)})" * bool(left_out)


def test_what_an_earlier_finding_says_in_the_same_words_is_said_once() -> None:
    told, own = pb.Evidence(label="CUDA graph", value="not as it is"), pb.Evidence(label="Calls", value="3")
    both = [
        pb.Finding(rule="GD201", title="a", severity="ERROR", evidence=[told]),
        pb.Finding(rule="GD102", title="b", severity="ERROR", evidence=[told, own]),
    ]
    first, second = findings(pb.Report(findings=both)).cards
    assert [fact.label for fact in first.facts] == ["CUDA graph"]
    assert [fact.label for fact in second.facts] == ["Calls"]


def test_a_range_that_places_share_is_said_once() -> None:
    places = [pb.Place(operator=name, range="epoch", us=9) for name in ("aten::mm", "aten::add")]
    (card,) = findings(pb.Report(findings=[pb.Finding(rule="GD201", places=places)])).cards
    assert [place.short for place in card.places] == ["in aten::mm, range epoch", "in aten::add"]
