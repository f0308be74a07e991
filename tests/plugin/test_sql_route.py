"""The page's SQL: rows as text, errors as sentences, and TensorBoard's process runs no query."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.plugin.conftest import write_log
from tests.plugin.server import Server
from tests.service.helpers import eventually

pytestmark = pytest.mark.slow
pytest.importorskip("duckdb")


def asked(server: Server, query: str) -> Any:
    """The answer to a query, once it is there."""
    route = f"sql?id={server.only_id()}&query={quote(query)}"

    def ask() -> Any:
        found = server.json(route)
        return found if found["state"] in ("ready", "failed") else None

    return eventually(ask)


def test_a_query_is_answered_with_text(tmp_path: Path, serve: Callable[..., Server]) -> None:
    write_log(tmp_path / "log")
    server = serve()
    before = set(sys.modules)
    found = asked(server, "SELECT step, duration_ns, NULL AS nothing FROM steps ORDER BY step")
    assert [column["name"] for column in found["columns"]] == ["step", "duration_ns", "nothing"]
    step, duration, nothing = (column["cells"] for column in found["columns"])
    assert step == [str(number) for number in range(found["rows"])]
    assert all(int(cell) > 0 for cell in duration)
    assert set(nothing) == {""}
    assert found["columns"][0]["number"]
    assert asked(server, "SELECT * FROM range(1000)")["rows"] == 500
    assert "first 500 rows" in asked(server, "SELECT * FROM range(1000)")["note"]
    assert "duckdb" not in set(sys.modules) - before


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "COPY idle TO '/tmp/gpudiag-out'",
        "SELECT 1; SELECT 2",
        "SELECT nothing FROM idle",
    ],
)
def test_a_bad_query_gets_a_sentence(query: str, tmp_path: Path, serve: Callable[..., Server]) -> None:
    write_log(tmp_path / "log")
    server = serve()
    for _ in range(2):  # it is tried again
        found = asked(server, query)
        assert found["state"] == "failed"
        assert "root:" not in json.dumps(found)
        assert found["error"]["what"]


def test_parameters_are_checked(tmp_path: Path, serve: Callable[..., Server]) -> None:
    write_log(tmp_path / "log")
    server = serve()
    id_ = server.only_id()
    assert server.get(f"sql?id={id_}").status_code == 400
    assert server.get("sql?id=unknown&query=SELECT+1").status_code == 404
