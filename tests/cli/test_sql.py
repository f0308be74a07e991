"""`gpudiag sql`: formats, exit statuses, limits."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest

from tb_gpudiag.cli.main import main
from tests.report.reports import HOSTILE, slow_loader

pytest.importorskip("duckdb")

STEPS = "SELECT step, duration_ns, NULL AS nothing FROM steps ORDER BY step"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return str(slow_loader(steps=3).write(tmp_path / "log"))


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_every_format_has_the_rows(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", trace, STEPS, "--format", "json", "--rows", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["columns"] == ["step", "duration_ns", "nothing"]
    assert [row[0] for row in found["rows"]] == [0, 1]
    assert "first 2 rows" in found["note"]
    rows = found["rows"]

    assert main(["sql", trace, STEPS, "--format", "csv", "--rows", "2"]) == 0
    captured = capsys.readouterr()
    assert list(csv.reader(io.StringIO(captured.out)))[1:] == [[str(row[0]), str(row[1]), ""] for row in rows]
    assert "first 2 rows" in captured.err

    out = tmp_path / "rows.arrow"
    assert main(["sql", trace, STEPS, "--format", "arrow", "-o", str(out), "--rows", "2"]) == 0
    assert pa.ipc.open_file(out).read_all()["duration_ns"].to_pylist() == [row[1] for row in rows]

    for format in ("text", "markdown", "html"):
        assert main(["sql", trace, STEPS, "--format", format]) == 0
        assert "duration_ns" in capsys.readouterr().out


@pytest.mark.slow
def test_a_query_ends_at_the_time_limit(
    trace: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUDIAG_TIME_LIMIT_S", "0.001")
    assert main(["sql", trace, STEPS]) == 2
    assert "stopped at its time limit of 0.001 s" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_a_folder_of_runs_is_one_table(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = Path(trace).parent
    slow_loader().write(log / "other")
    (log / "bad.pt.trace.json").write_text("{")
    query = "SELECT run, count(*) FROM steps GROUP BY run ORDER BY run"
    assert main(["sql", str(log), query, "--format", "json"]) == 2
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["rows"] == [[".", 3], ["other", 2]]
    assert "bad.pt.trace.json" in found["errors"][0]["where"]
    assert "bad.pt.trace.json" in captured.err


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_hostile_names_are_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = slow_loader(f"=cmd|' {HOSTILE}.py(3): {HOSTILE}").write(tmp_path)
    query = "SELECT line FROM idle WHERE line IS NOT NULL LIMIT 1"
    assert main(["sql", str(trace), query]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert main(["sql", str(trace), query, "--format", "html"]) == 0
    assert "<img" not in capsys.readouterr().out
    assert main(["sql", str(trace), "SELECT '=1+1' AS \"=2\"", "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines() == ["'=2", "'=1+1"]


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    "query", ["SELECT * FROM read_text('/etc/passwd')", "COPY idle TO 'out'", "SELECT nothing FROM idle"]
)
def test_a_bad_query_exits_with_2(query: str, trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", trace, query]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("format", ["csv", "json"])
def test_dates_that_python_does_not_have(format: str, trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    dates = "date '290000-01-01'", "timestamp '290000-01-01'", "'infinity'::date", "[date '290000-01-01']"
    assert main(["sql", trace, f"SELECT 7 AS seven, {', '.join(dates)}", "--format", format]) == 0
    said = capsys.readouterr().out
    assert "7" in said
    assert said.count("out of range") == 4


@pytest.mark.slow
def test_a_function_that_takes_all_memory_ends_its_process_only(
    trace: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUDIAG_MEMORY_LIMIT_MB", "600")
    assert main(["sql", trace, "SELECT length(repeat('x', 4000000000))"]) == 2
    assert "memory" in capsys.readouterr().err


def test_without_a_query_it_prints_useful_ones(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", trace]) == 0
    assert capsys.readouterr().out.count("SELECT") >= 10
    assert main(["sql", trace, "SELECT 1", "--rows", "0"]) == 2
