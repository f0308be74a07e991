from __future__ import annotations

import os
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.recording.partial_file import RULE
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.wording.quantity import number
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, figures, finding, healthy, is_clear


def _cut(folder: Path, *, age_s: int) -> Facts:
    path = healthy().write(folder)
    path.write_bytes(path.read_bytes()[:-700])
    written = path.stat().st_mtime - age_s
    os.utime(path, (written, written))
    return Facts(read_trace(str(path)))


def _with_bad_events(bad: int, good: int) -> TraceBuilder:
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(good):
        main.op("aten::add", at=10 * i, us=5)
    for _ in range(bad):
        trace.raw({"ph": "X", "name": "aten::add", "cat": "cpu_op", "ts": "yesterday", "dur": 1})
    return trace


def test_a_truncated_file_is_a_warning(tmp_path: Path) -> None:
    facts = _cut(tmp_path, age_s=3600)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING


def test_a_file_still_being_written_is_a_hint(tmp_path: Path) -> None:
    facts = _cut(tmp_path, age_s=0)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO
    assert "still being written" in found.title


@pytest.mark.parametrize(("bad", "severity"), [(1, Severity.INFO), (30, Severity.WARNING)])
def test_malformed_events_are_counted(bad: int, severity: Severity, tmp_path: Path) -> None:
    facts = facts_of(_with_bad_events(bad, good=500), tmp_path)
    found = finding(RULE.check(facts))
    assert figures(found)["Malformed events"] == (number(bad),)
    assert RULE.severity_of(found, facts.window.duration_ns) is severity


def test_a_complete_file_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(healthy(), tmp_path)))
