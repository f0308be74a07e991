from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.compilation_in_step import RULE
from tests.builder import HostThread, TraceBuilder
from tests.rules.stage import cannot_tell, facts_of, finding, healthy, is_clear, one_gap


def _load_module(main: HostThread, at: float, us: float) -> None:
    main.call("cuModuleLoadData", at=at, us=us)


def _dynamo(main: HostThread, at: float, us: float) -> None:
    main.frame("torch/_dynamo/convert_frame.py(1053): __call__", at=at, us=us)


def _triton(main: HostThread, at: float, us: float) -> None:
    main.frame("triton/compiler/compiler.py(226): compile", at=at, us=us)


@pytest.mark.parametrize("act", [_load_module, _dynamo, _triton])
def test_fires_on_idle_under_every_kind_of_compilation(act: object, tmp_path: Path) -> None:
    assert callable(act)
    found = finding(RULE.check(facts_of(one_gap(act, 40), tmp_path)))
    assert found.cost_ns == 40_000


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(one_gap(_load_module, 19), tmp_path)))


def test_a_healthy_step_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(healthy(), tmp_path)))


def test_cannot_tell_from_a_trace_without_activity(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=()).raw({"ph": "i", "name": "mark", "ts": 1.0, "pid": 0, "tid": 0})
    assert cannot_tell(RULE.check(facts_of(trace, tmp_path)))
