"""Calls to a store: how often one is repeated, whatever time the machine takes for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tb_gpudiag.trace.files import remote
from tests.service.helpers import eventually
from tests.with_each import with_each


class Asked:
    """Counts calls. Each does `act`."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.times, self._act = 0, act

    def __call__(self) -> Any:
        self.times += 1
        return self._act()


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PAUSE_S", 0.0)


def test_a_call_without_an_answer_is_repeated_a_bounded_number_of_times() -> None:
    never = threading.Event()
    asked = Asked(never.wait)
    with pytest.raises(TimeoutError, match=r"no answer in 0\.01 s"):
        remote.call(None, asked, limit_s=0.01)
    eventually(lambda: asked.times == remote.ATTEMPTS)
    never.set()


def test_a_call_that_fails_is_repeated_until_it_works() -> None:
    answers: Iterator[OSError | str] = iter([OSError("503"), OSError("503"), "content"])

    def answer() -> str:
        found = next(answers)
        if isinstance(found, OSError):
            raise found
        return found

    asked = Asked(answer)
    assert remote.call(None, asked) == "content"
    assert asked.times == 3


@with_each(
    ("error", "times"), [(OSError("503"), remote.ATTEMPTS), (FileNotFoundError(), 1), (PermissionError(), 1)]
)
def test_a_failure_that_lasts_is_raised(error: OSError, times: int) -> None:
    def fail() -> None:
        raise error

    asked = Asked(fail)
    with pytest.raises(type(error)):
        remote.call(None, asked)
    assert asked.times == times
