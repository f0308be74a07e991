"""What a training that sets up no logging sees of a verdict: one line on standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tb_gpudiag.training.helper import HelperAnswer, log_answer

HEALTHY = HelperAnswer(True, "No rule found a problem.")
FOUND = HelperAnswer(True, "GD101 is one.", found=True)
FAILED = HelperAnswer(False, "x was not diagnosed")
OWN = logging.getLogger("tb_gpudiag")


@contextmanager
def untouched_logging() -> Iterator[None]:
    """Inside of a test: pytest adds its handler as a test begins."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        OWN.setLevel(logging.NOTSET)
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("answer", [HEALTHY, FOUND, FAILED])
@untouched_logging()
def test_without_logging_a_verdict_is_one_line_on_standard_error(
    answer: HelperAnswer, capsys: pytest.CaptureFixture[str]
) -> None:
    log_answer(answer)
    assert capsys.readouterr() == ("", f"gpudiag: {answer.text}\n")


@pytest.mark.parametrize("level", ["INFO", "WARNING"])
@untouched_logging()
def test_with_logging_it_is_said_once(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    logging.basicConfig(level=level, format="logged %(message)s")
    log_answer(FOUND)
    log_answer(HEALTHY)
    healthy = "logged gpudiag: " if level == "INFO" else "gpudiag: "
    assert capsys.readouterr().err.splitlines() == [
        f"logged gpudiag: {FOUND.text}",
        f"{healthy}{HEALTHY.text}",
    ]


@untouched_logging()
def test_other_ranks_print_failures_only(capsys: pytest.CaptureFixture[str]) -> None:
    for answer in (HEALTHY, FOUND, FAILED):
        log_answer(answer, of_first_rank=False)
    assert capsys.readouterr().err == f"gpudiag: {FAILED.text}\n"


@untouched_logging()
def test_a_level_of_its_own_decides(capsys: pytest.CaptureFixture[str]) -> None:
    OWN.setLevel(logging.WARNING)
    log_answer(HEALTHY)
    log_answer(FOUND)
    assert capsys.readouterr().err == f"gpudiag: {FOUND.text}\n"
    OWN.setLevel(logging.NOTSET)
    logging.disable(logging.CRITICAL)
    log_answer(FOUND)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("closed", [True, False])
@untouched_logging()
def test_without_standard_error_nothing_is_raised(closed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, text: str) -> None:
            raise BrokenPipeError(text)

    monkeypatch.setattr(sys, "stderr", Closed() if closed else None)
    log_answer(HEALTHY)
