"""The tab's history shows the ledger that a setting names, and what others add to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tb_gpudiag.jobs.ledger.ledger_file import append
from tests.jobs.ledger.test_ledger_file import ENTRY
from tests.plugin.conftest import write_log
from tests.plugin.server import Server

pytestmark = pytest.mark.slow


def test_a_history_has_the_ledger(
    tmp_path: Path, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fixes.jsonl"
    monkeypatch.setenv("GPUDIAG_LEDGER", str(path))
    write_log(tmp_path / "log")
    server = serve()
    assert server.only_id()
    (note,) = server.ready("history?run=run")["ledger"]["notes"]
    assert note.startswith("The ledger was not read: ")
    append(str(path), [ENTRY])
    (row,) = server.ready("history?run=run")["ledger"]["rules"]
    assert (row["rule"], row["inside"]) == ("GD101", 1)


def test_a_history_without_a_ledger(tmp_path: Path, serve: Callable[..., Server]) -> None:
    write_log(tmp_path / "log")
    server = serve()
    assert server.only_id()
    assert "ledger" not in server.ready("history?run=run")
