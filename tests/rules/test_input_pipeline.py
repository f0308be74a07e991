from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.input_pipeline import RULE
from tb_gpudiag.rules.rule import Severity
from tests.builder import HostThread, TraceBuilder
from tests.rules.stage import cannot_tell, facts_of, finding, healthy, is_clear, one_gap, without_gpu


def _load(main: HostThread, at: float, us: float) -> None:
    main.frame("data.py(7): decode", at=at, us=us)
    main.loader(at=at, us=us)
    main.op("aten::div", at=at + 1, us=us - 2)


def test_fires_on_idle_under_the_loader_whatever_the_innermost_operator(tmp_path: Path) -> None:
    facts = facts_of(one_gap(_load, 60), tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == 60_000
    assert found.saving is not None
    assert found.saving.high_ns == 60_000
    assert (found.places[0].file, found.places[0].line) == ("data.py", 7)
    assert found.ranges[0].end_ns - found.ranges[0].start_ns == 60_000
    assert "num_workers" in found.fix.code


def test_is_an_error_from_a_fifth_of_the_window_on(tmp_path: Path) -> None:
    for idle_us, severity in ((190, Severity.WARNING), (210, Severity.ERROR)):
        facts = facts_of(one_gap(_load, idle_us), tmp_path / str(idle_us))
        assert RULE.severity_of(finding(RULE.check(facts)), facts.window.duration_ns) == severity


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(one_gap(_load, 49), tmp_path)))


def test_loading_beside_a_busy_gpu_costs_nothing(tmp_path: Path) -> None:
    trace = healthy()
    HostThread(trace, trace.recording.host[0].thread).loader(at=400, us=500)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_names_the_workers_where_there_are_some(tmp_path: Path) -> None:
    def wait(main: HostThread, at: float, us: float) -> None:
        main.loader(at=at, us=us, workers=4)

    found = finding(RULE.check(facts_of(one_gap(wait, 200), tmp_path)))
    assert "worker processes" in found.summary


def test_without_a_gpu_it_is_the_hosts_time(tmp_path: Path) -> None:
    trace = without_gpu()
    HostThread(trace, trace.recording.host[0].thread).loader(at=1000, us=90)
    assert finding(RULE.check(facts_of(trace, tmp_path))).cost_ns == 90_000


def test_cannot_tell_from_a_trace_without_activity(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=()).raw({"ph": "i", "name": "mark", "ts": 1.0, "pid": 0, "tid": 0})
    assert cannot_tell(RULE.check(facts_of(trace, tmp_path)))
