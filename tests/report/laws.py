"""Laws of every Report, whatever the trace contains."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from google.protobuf.message import Message

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import refuse_not_finite

# Ends of a line that fits the floors.
_SIGNED = {"tb_gpudiag.FloorTrend.start_bytes", "tb_gpudiag.FloorTrend.end_bytes"}


def assert_report_laws(report: pb.Report) -> None:
    """Check that all adds up, that no time, size or share is impossible, and that no fix saves more time than
    there is."""
    _assert_it_adds_up(report)
    _assert_mfu_adds_up(report)
    refuse_not_finite(report)
    _assert_possible(report)
    window_us = max([device.window_us for device in report.devices[:1]], default=float("inf"))
    for finding in report.findings:
        saving = finding.saving
        assert saving.low_us <= saving.high_us <= window_us * (1 + 1e-12) + 1e-6, finding.rule
        assert finding.cost_us <= window_us * (1 + 1e-12) + 1e-6, finding.rule
    whole_us = left_us = report.step_time.unprofiled_us if report.plan.per_step else report.plan.whole_us
    for fix in report.plan.fixes:
        assert fix.least_us <= left_us * (1 + 1e-12) + 1e-6, fix.rule
        left_us = fix.least_us
    assert sum(fix.saving_us for fix in report.plan.fixes) <= whole_us * (1 + 1e-12) + 1e-6
    assert "n/a" not in report.verdict.sentence
    assert not [answer.reason for answer in report.unchecked if answer.defect]


def _assert_possible(message: Message) -> None:
    for field, value in message.ListFields():
        for item in value if isinstance(value, Iterable) and not isinstance(value, str | bytes) else [value]:
            if isinstance(item, Message):
                _assert_possible(item)
            elif isinstance(item, float) and field.name.endswith(("_us", "_share", "_bytes")):
                assert item >= 0 or field.full_name in _SIGNED, field.full_name
                assert item <= 1 + 1e-9 or not field.name.endswith("_share"), (field.full_name, item)


def _assert_mfu_adds_up(report: pb.Report) -> None:
    found = report.mfu
    if found.parts:
        # Each part is rounded to a nanosecond.
        window_us, most = report.devices[0].window_us, 1e-3 * len(found.parts)
        assert sum(part.us for part in found.parts) == pytest.approx(window_us, abs=most)
        assert 0 <= found.mfu <= found.hfu <= 1 + 1e-9


def _assert_it_adds_up(report: pb.Report) -> None:
    """Check that causes add up to the idle time, and all parts to the step window and to each step."""
    for device in report.devices:
        assert device.busy_us + device.idle_us == pytest.approx(device.span_us, rel=1e-12, abs=1e-6)
        assert _us(device.idle_by_cause) == pytest.approx(device.idle_us, rel=1e-12, abs=1e-6)
        assert _us(device.idle_by_trigger) == pytest.approx(device.idle_us, rel=1e-12, abs=1e-6)
        assert _us(device.window_idle_by_cause) == pytest.approx(device.window_idle_us, rel=1e-12, abs=1e-6)
        worked = device.window_computing_us + device.window_copying_us + device.window_communicating_us
        assert worked + device.window_idle_us == pytest.approx(device.window_us, rel=1e-12, abs=1e-6)
        for step in device.step_accounts:
            worked = step.computing_us + step.copying_us + step.communicating_us
            assert worked + _us(step.idle_by_cause) == pytest.approx(step.duration_us, rel=1e-12, abs=1e-6)
        if device.step_accounts:
            slices = sum(step.duration_us for step in device.step_accounts)
            assert slices == pytest.approx(device.window_us, rel=1e-12, abs=1e-6)
        # No two findings claim the same time: costs of kernel findings (GD5xx) fit into the computing time,
        # all other costs into the rest.
        if len(report.devices) == 1:
            kernels = sum(f.cost_us for f in report.findings if f.rule.startswith("GD5"))
            others = sum(f.cost_us for f in report.findings) - kernels
            assert kernels <= device.window_computing_us + 1e-6
            assert others <= device.window_us - device.window_computing_us + 1e-6


def _us(parts: Iterable[pb.CauseTime] | Iterable[pb.TriggerTime]) -> float:
    return sum(part.us for part in parts)
