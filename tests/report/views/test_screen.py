"""What `gpudiag diagnose` prints without --full: one screen, at any width."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.jobs.report.job_view import Diagnosed, directory_document
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.compose import compose
from tb_gpudiag.report.views.document import Account
from tb_gpudiag.report.views.screen import LINES, screen
from tb_gpudiag.service.index.run_rows import row_with
from tests.report.reports import hostile, report_at
from tests.simulator import simulate

WIDTHS = (40, 80, 120, 250)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> pb.Report:
    """Six findings with long texts, on a GPU with every cause of idle time, and eight fixes."""
    folder = tmp_path_factory.mktemp("screen")
    found = report_at(simulate("host_bound", seed=0).write(folder / "run"), folder)
    device = found.devices[0]
    del device.window_idle_by_cause[:]
    for number, (cause, _) in enumerate(pb.CauseTime.Cause.items(), 1):
        device.window_idle_by_cause.add(cause=cause, us=number)
    worked = device.window_computing_us + device.window_copying_us + device.window_communicating_us
    device.window_us = worked + sum(part.us for part in device.window_idle_by_cause)
    first = found.findings[0]
    for number in range(6):
        more = found.findings.add()
        more.CopyFrom(first)
        more.rule, more.name, more.title = f"GD3{number:02}", f"rule_{number}", f"title {number} " * 12
        more.fix.text = "Do this. " * 60
        place = more.places.add(file="a/" * 60 + "train.py", line=3, function="f" * 90)
        place.candidates.add(line=5, text="x = y " * 40)
        found.plan.fixes.add(finding=number, rule=more.rule, name=more.name, saving_us=5, least_us=9)
    return found


def lines_of(report: pb.Report, width: int) -> list[str]:
    return [line.plain for line in screen(compose([report]), width)]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_longest_report_fits_one_screen(report: pb.Report, width: int) -> None:
    shown = lines_of(report, width)
    assert len(shown) <= LINES
    assert max(map(len, shown)) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_it_has_the_verdict_the_account_and_three_findings(report: pb.Report, width: int) -> None:
    shown = "\n".join(lines_of(report, width))
    assert report.verdict.sentence.replace("\u00a0", " ")[:30] in " ".join(shown.split())
    assert "computing" in shown
    assert "step window" in shown
    for number, finding in enumerate(report.findings[:3], 1):
        severity = pb.Finding.Severity.Name(finding.severity)
        assert f"{number}. {severity} {finding.rule} {finding.title[:20]}" in shown
    assert f"{len(report.findings) - 3} more: " in shown
    assert "`--full`" in shown


def test_the_short_account_adds_up_to_the_step_window(report: pb.Report) -> None:
    (account,) = (each for each in compose([report]).reports[0].sections if isinstance(each, Account))
    rows = account.largest(3)
    assert len(rows) == 3
    assert rows[-1].label == "other"
    printed = sum(float(row.time.split("\u00a0")[0].replace(",", "")) for row in rows)
    assert printed == pytest.approx(float(account.total.split("\u00a0")[0].replace(",", "")))


@pytest.mark.parametrize("width", WIDTHS)
def test_many_runs_fit_one_screen_worst_first(report: pb.Report, width: int) -> None:
    good = pb.Report(trace=pb.TraceInfo(run="good", path="log/good/a.json", kind="trace"))
    found = [Diagnosed(row_with([], run=f"good{number}"), good) for number in range(60)]
    found.append(Diagnosed(row_with(report.findings, run="bad"), report))
    shown = [line.plain for line in screen(directory_document(found), width)]
    assert len(shown) <= LINES
    assert max(map(len, shown)) <= width
    assert shown[0].startswith("Worst of 61 recordings:")
    assert next(line for line in shown[2:] if "/" in line[:8]).startswith("run/sim")
    assert any("more" in line for line in shown)


def test_the_worst_of_a_few_runs_is_shown_below_their_table(report: pb.Report) -> None:
    good = pb.Report(trace=pb.TraceInfo(run="good", path="log/good/a.json", kind="trace"))
    rows = [
        Diagnosed(row_with([], run="good"), good),
        Diagnosed(row_with(report.findings, run="run"), report),
    ]
    shown = "\n".join(line.plain for line in screen(directory_document(rows), 100))
    verdict = shown.index(report.verdict.sentence[:20])
    assert shown.index("Worst of 2 recordings: run/") < shown.index("good/a") < verdict
    assert verdict < shown.index("\n   fix "), "whatever has no room"


def test_a_table_leaves_out_when_runs_were_recorded_unless_they_differ_in_that(report: pb.Report) -> None:
    paths = ("a/w.1795675810932498958.pt.trace.json.gz", "b/w.1795675810932498958.pt.trace.json.gz")
    again = "b/w.1795675819603191259.pt.trace.json.gz"
    found = [
        Diagnosed(row_with([], run=path), pb.Report(trace=pb.TraceInfo(run=path[0], path=path, kind="trace")))
        for path in (*paths, again, "c/1.json", "c/2.json")
    ]
    names = [line.plain.split()[0] for line in screen(directory_document(found), 110)[2:7]]
    assert names == ["a/w", "b/w.…8958", "b/w.…1259", "c/1", "c/2"]


def test_names_of_the_trace_are_text(tmp_path: Path) -> None:
    shown = "\n".join(lines_of(hostile(tmp_path), 200))
    assert "\x1b" not in shown
    assert "<img src=x" in shown


def test_the_users_own_line_comes_before_what_is_cut_off(report: pb.Report) -> None:
    place = report.findings[0].places[0]
    place.Clear()
    place.file, place.line, place.function = "site-packages/library/models/layers.py", 3, "forward" * 9
    place.caller.file, place.caller.line, place.caller.function = "work/train.py", 12, "train_step"
    place.caller.line_kind = pb.Place.LineKind.RUNNING
    shown = next(line for line in lines_of(report, 80) if "train_step" in line)
    assert shown.strip().startswith("at work/train.py:12 in train_step, through …/models/layers.py:3")
