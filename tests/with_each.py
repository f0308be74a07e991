"""Cases of one test that take microseconds, where tests of their own would take milliseconds each."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from _pytest._io.saferepr import saferepr

Test = Callable[..., None]

ONE_TESTS_OWN = {"monkeypatch", "caplog", "capsys"}


def with_each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test with each case, as `pytest.mark.parametrize` does, but as one test.

    It ends at the first case that fails, and names it. Each case has a `tmp_path` of its own. The other
    fixtures are shared: those of a single test are refused.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    found = [dict(zip(keys, [case] if len(keys) == 1 else case, strict=True)) for case in cases]
    assert found, "there are no cases"

    def of_all(test: Test) -> Test:
        fixtures = [one for name, one in inspect.signature(test).parameters.items() if name not in keys]
        own = ONE_TESTS_OWN & {one.name for one in fixtures}
        assert not own, own

        @functools.wraps(test)
        def run(**given: Any) -> None:
            for number, case in enumerate(found):
                _run(test, {**case, **_own(given, number)})

        run.__signature__ = inspect.Signature(fixtures)  # type: ignore[attr-defined]
        return run

    return of_all


def _own(given: dict[str, Any], number: int) -> dict[str, Any]:
    """Give a case a folder of its own."""
    if "tmp_path" not in given:
        return given
    folder = given["tmp_path"] / str(number)
    folder.mkdir()
    return {**given, "tmp_path": folder}


def _run(test: Test, given: dict[str, Any]) -> None:
    try:
        test(**given)
    except Exception as error:
        raise AssertionError(f"with {saferepr(given)}: {error}") from error
