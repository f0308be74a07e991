"""SQL reads tables and nothing else, and ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import tb_gpudiag
from tb_gpudiag.errors import LimitReached, UsageError
from tb_gpudiag.report.arrow.sql_query import LONGEST_QUERY, checked, run_sql
from tb_gpudiag.report.arrow.trace_tables import Tables
from tests.report.reports import slow_loader
from tests.some_values import slow

pytestmark = pytest.mark.slow

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    folder = tmp_path_factory.mktemp("tables")
    slow_loader().write(folder)
    return tb_gpudiag.tables(folder)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('{file}')",
        *slow(
            "SELECT * FROM read_csv('{file}')",
            "SELECT * FROM read_blob('{file}')",
            "SELECT * FROM read_json('{file}')",
            "SELECT * FROM read_parquet('{file}')",
            "SELECT * FROM sniff_csv('{file}')",
            "SELECT * FROM glob('{file}')",
            "SELECT * FROM query('SELECT * FROM read_text(''{file}'')')",
        ),
        "SELECT * FROM '{file}'",
        "SELECT getenv('HOME')",
        "SELECT * FROM some_table",
        "EXPLAIN ANALYZE SELECT * FROM read_text('{file}')",
        "EXPLAIN ANALYZE COPY idle TO '{file}.new'",
    ],
)
def test_it_reads_no_file_and_no_variable(query: str, tables: Tables, tmp_path: Path) -> None:
    some_table = tables.idle  # DuckDB looks for variables of this name elsewhere
    assert some_table.num_rows
    file = tmp_path / "secret.csv"
    file.write_text("password\n")
    with pytest.raises(UsageError) as found:
        tables.sql(query.format(file=file))
    assert "password" not in str(found.value)
    assert not (tmp_path / "secret.csv.new").exists()


@pytest.mark.parametrize(
    "query",
    [
        "",
        "-- nothing",
        "SELECT 1; SELECT 2",
        "COPY idle TO '{file}'",
        "EXPORT DATABASE '{file}'",
        "ATTACH '{file}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET memory_limit = '100GB'",
        "RESET memory_limit",
        "PRAGMA threads = 64",
        "CALL pragma_version()",
        "CREATE TABLE x AS SELECT 1",
        "CREATE MACRO f() AS 1",
        "DROP VIEW idle",
        "INSERT INTO idle VALUES (1)",
        "UPDATE idle SET gap = 1",
        "DELETE FROM idle",
        "PREPARE x AS SELECT 1",
        "BEGIN",
        "CHECKPOINT",
        "SELEC 1",
        "SELECT 1" + " " * LONGEST_QUERY,
    ],
)
def test_it_takes_one_query_that_reads(query: str, tables: Tables, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        tables.sql(query.format(file=tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x) SELECT max(i) FROM x",
        "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b",
    ],
)
def test_a_query_without_end_is_stopped(query: str, tables: Tables) -> None:
    with pytest.raises(LimitReached):
        run_sql(checked(query), tables.made, 10, most_s=0.05)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT list(range) FROM range(10000000000)",
        "SELECT string_agg(repeat('y', 100000), ',') FROM range(1000000)",
    ],
)
def test_a_query_that_needs_too_much_memory_is_refused(query: str, tables: Tables, tmp_path: Path) -> None:
    with pytest.raises((LimitReached, UsageError)):
        run_sql(checked(query), tables.made, 10, most_s=20)
    assert not (tmp_path / ".tmp").exists()


def test_no_more_rows_than_asked_for_are_made(tables: Tables) -> None:
    answer = run_sql(checked("SELECT * FROM range(1000000000000)"), tables.made, 5)
    assert (answer.table.num_rows, answer.cut) == (5, True)
    assert "first 5 rows" in answer.note
    answer = run_sql(checked("SELECT * FROM range(5)"), tables.made, 5)
    assert (answer.cut, answer.note) == (False, "")
    with pytest.warns(UserWarning, match="first 3 rows"):
        tables.sql("FROM events", most_rows=3)


def test_tables_can_be_looked_up(tables: Tables) -> None:
    assert "gaps" in tables.sql("SHOW TABLES")["name"].to_pylist()
    assert "duration_ns" in tables.sql("DESCRIBE gaps")["column_name"].to_pylist()
    assert tables.sql("SELECT * FROM query_table('ev' || 'ents')").num_rows == tables.events.num_rows
    assert tables.sql("EXPLAIN SELECT * FROM events").num_rows


def test_order_survives_the_limit(tables: Tables) -> None:
    lengths = tables.sql("SELECT duration_ns FROM events ORDER BY duration_ns DESC")[
        "duration_ns"
    ].to_pylist()
    assert lengths == sorted(lengths, reverse=True)


def test_without_duckdb_it_says_how_to_install_it(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(UsageError, match=r"tb-gpudiag\[sql\]"):
        tables.sql("SELECT 1")
    assert tables.gaps is not None
