"""Invariants of facts on every trace, whatever it contains."""

from __future__ import annotations

import numpy as np
import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.exposure_reasons import ExposureReason
from tb_gpudiag.facts.kernels.mfu import Mfu, Missing, PeakPart
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.floor_table import floor_table


def assert_invariants(facts: Facts) -> None:
    """Check that the step window is in the recording, that the ledger covers the idle time exactly, that the
    accounts, the main thread's spans and the parts of the MFU cover the step window, and that kinds and
    owners add up to the peak of each device's memory."""
    recorded = facts.recorded_window
    assert recorded.start_ns <= facts.window.start_ns <= facts.window.end_ns <= recorded.end_ns
    assert facts.window.duration_ns > 0 or not facts.devices
    for device in facts.devices:
        _assert_ledger(facts, device)
        _assert_accounts(facts, device)
    for device in facts.devices:
        _assert_exposure(facts, device)
    if not facts.devices:
        _assert_exposure(facts, None)
    if facts.device is not None:
        _assert_mfu(facts.device.mfu)
    for memory in facts.memory:
        _assert_memory(facts, memory)
    spans = facts.main_thread_spans
    if len(spans.start_ns):
        assert int((spans.end_ns - spans.start_ns).sum()) == facts.host_window.duration_ns
        assert (spans.start_ns[1:] == spans.end_ns[:-1]).all()


def _assert_ledger(facts: Facts, device: DeviceFacts) -> None:
    ledger, span, window = device.ledger, device.span, device.window
    assert (ledger.end_ns > ledger.start_ns).all()
    assert (ledger.start_ns[1:] >= ledger.end_ns[:-1]).all()
    assert (ledger.cause < len(Cause)).all()
    assert ((ledger.drained_ns >= 0) & (ledger.drained_ns <= ledger.end_ns - ledger.start_ns)).all()
    gaps = ledger.gaps
    length = np.zeros(len(gaps), np.int64)
    np.add.at(length, ledger.gap, ledger.end_ns - ledger.start_ns)
    assert (length == gaps.end_ns - gaps.start_ns).all()
    for stretch in (span, window):
        idle = stretch.duration_ns - busy_inside(facts, device, stretch.start_ns, stretch.end_ns)
        assert ledger.idle_ns(stretch) == idle
        assert sum(ledger.by_cause(stretch).values()) == idle
        assert sum(ledger.by_trigger(stretch).values()) == idle


def _assert_accounts(facts: Facts, device: DeviceFacts) -> None:
    steps = device.account
    for account in (steps, device.window_account):
        parts = account.computing_ns + account.communicating_ns + account.copying_ns
        assert (parts + account.idle_ns.sum(axis=1) == account.end_ns - account.start_ns).all()
    if len(steps.names):
        assert (steps.start_ns[1:] == steps.end_ns[:-1]).all()
        assert int(steps.start_ns[0]) == device.window.start_ns
        assert int(steps.end_ns[-1]) == device.window.end_ns
        assert (steps.idle_ns.sum(axis=0) == device.window_account.idle_ns[0]).all()


def _assert_exposure(facts: Facts, device: DeviceFacts | None) -> None:
    found = facts.exposure_on(device)
    calls = found.calls
    assert ((found.exposed_ns >= 0) & (found.exposed_ns <= calls.end_ns - calls.start_ns)).all()
    assert ((found.why == ExposureReason.HIDDEN) == (found.exposed_ns == 0)).all()
    assert ((found.number >= 1) & (found.number <= found.of)).all()
    assert sum(unit.exposed_ns for unit in found.by_unit) == int(found.exposed_ns.sum())
    assert sum(unit.calls for unit in found.by_unit) == len(found)
    if device is not None:
        assert int(found.exposed_ns.sum()) >= int(device.window_account.communicating_ns[0])


def _assert_mfu(found: Mfu) -> None:
    assert bool(found.parts_ns) == (found.missing == Missing.NOTHING)
    if found.parts_ns:
        assert sum(found.parts_ns.values()) == pytest.approx(found.window_ns, rel=1e-9)
        assert min(found.parts_ns.values()) > -1e-3
        assert 0 <= found.share(PeakPart.MODEL, PeakPart.RECOMPUTED) <= 1 + 1e-9
        assert all(0 <= of <= 1 for of in found.by_step)


def _assert_memory(facts: Facts, memory: DeviceMemory) -> None:
    curve, peak, floors = memory.curve, memory.peak, memory.floors
    assert (curve.time_ns[1:] >= curve.time_ns[:-1]).all()
    assert (curve.allocated >= 0).all()
    assert peak.allocated_bytes == max(curve.start_bytes, int(curve.allocated.max()))
    assert sum(peak.kinds.values()) == peak.allocated_bytes
    assert sum(owner.bytes for owner in peak.owners) == peak.allocated_bytes
    assert all(size > 0 for size in peak.kinds.values())
    assert (floors.bytes <= peak.allocated_bytes).all()
    assert (memory.allocations.freed[memory.allocations.freed != NONE] < len(curve)).all()
    if memory.allocations.paired and (~floors.excused).any():
        table = floor_table(memory.allocations, floors)
        last = int(floors.position[table.column[-1]])
        alive = np.intersect1d(memory.allocations.alive(last), table.alive)
        assert memory.allocations.bytes[alive].sum() == table.bytes[:, -1].sum()


def busy_inside(facts: Facts, device: DeviceFacts, low: int, high: int) -> int:
    """Compute how long the device was busy in [low, high) by walking over its events in order of start."""
    events, total, reached = facts.events, 0, low
    for i in facts.work.event[events.device[facts.work.event] == device.id].tolist():
        start, end = max(int(events.start_ns[i]), reached), min(int(events.end_ns[i]), high)
        if end > start:
            total += end - start
            reached = end
    return total
