"""Errors can be shown in pages, logs and JSON, whatever the name of the file."""

from __future__ import annotations

import time

import pytest

from tb_gpudiag.errors import EmptyFile, NotATrace, TraceError, url_secrets, without_url_secrets
from tb_gpudiag.service.analyses.task import problem


def test_an_error_says_what_where_and_what_to_do() -> None:
    error = EmptyFile("it is empty", where="log/a.pt.trace.json", remedy="wait until it is written")
    assert str(error) == "log/a.pt.trace.json: it is empty (wait until it is written)"
    assert isinstance(error, TraceError)


def test_a_name_that_is_not_text_can_be_shown_and_sent() -> None:
    error = NotATrace("it is not JSON", where="log/b\udcfe.pt.trace.json")
    assert str(error).encode("utf-8")
    assert problem(error).where == r"log/b\udcfe.pt.trace.json"


def test_a_url_is_shown_without_secrets() -> None:
    azure = "abfss://container@account.dfs.core.windows.net/log"
    assert without_url_secrets(f"{azure}?sig=x") == azure
    assert url_secrets(f"{azure}?sig=x") == ["sig=x"]
    assert (
        without_url_secrets("az://user:secret@host/x, https://token@host/x") == "az://host/x, https://host/x"
    )
    assert url_secrets("az://user:secret@host/x") == ["user:secret"]


@pytest.mark.slow  # shorter texts take less than a few ticks of the clock of processes
@pytest.mark.parametrize("text", ["://", "://a@", "az://a:", "://a?b '", "?://"])
def test_a_long_text_takes_a_time_in_proportion(text: str) -> None:
    """Four times the text takes four times as long, and not sixteen."""

    def took_s(times: int) -> float:
        long = text * times
        begin = time.process_time()
        without_url_secrets(long)
        url_secrets(long)
        return time.process_time() - begin

    assert min(took_s(160_000) for _ in range(3)) < 10 * min(took_s(40_000) for _ in range(3))
