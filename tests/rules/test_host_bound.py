from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.host_bound import RULE
from tests.builder import HostThread, TraceBuilder
from tests.rules.stage import cannot_tell, facts_of, finding, healthy, is_clear, one_gap, without_gpu


def _python(main: HostThread, at: float, us: float) -> None:
    main.frame("augment.py(40): crop", at=at, us=us)


def test_fires_on_python_between_operators_and_names_the_line(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(one_gap(_python, 300), tmp_path)))
    assert found.cost_ns == 300_000
    assert (found.places[0].file, found.places[0].line, found.places[0].function) == (
        "augment.py",
        40,
        "crop",
    )


def test_fires_on_one_long_operator(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("before", at=50, us=5, runs_at=60, runs_us=240)
    main.step(0, at=100, us=3000)
    main.op("aten::unique", at=200, us=1620)
    main.launch("after", at=1800, us=5, runs_at=1806, runs_us=1294)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.cost_ns == 1_505_000  # up to the launch's return
    assert "operators" in found.title


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(one_gap(_python, 48), tmp_path)))


def test_a_host_that_is_ahead_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(healthy(), tmp_path)))


def test_cannot_tell_without_a_gpu(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(without_gpu(), tmp_path)))
