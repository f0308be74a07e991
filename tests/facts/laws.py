"""The laws that hold on every trace, whatever is in it."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.causes import Cause
from tb_gpudiag.facts.facts import DeviceFacts, Facts


def assert_laws(facts: Facts) -> None:
    """The ledger covers the idle time exactly, and the accounts cover the step window exactly."""
    for device in facts.devices:
        _assert_ledger(facts, device)
        _assert_accounts(facts, device)
    pieces = facts.host_pieces
    if len(pieces.start_ns):
        assert int((pieces.end_ns - pieces.start_ns).sum()) == facts.window.duration_ns
        assert (pieces.start_ns[1:] == pieces.end_ns[:-1]).all()


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
    steps = facts.account(device)
    for account in (steps, device.whole):
        parts = account.computing_ns + account.communicating_ns + account.copying_ns
        assert (parts + account.idle_ns.sum(axis=1) == account.end_ns - account.start_ns).all()
    if len(steps.names):
        assert (steps.start_ns[1:] == steps.end_ns[:-1]).all()
        assert int(steps.start_ns[0]) == device.window.start_ns
        assert int(steps.end_ns[-1]) == device.window.end_ns
        assert (steps.idle_ns.sum(axis=0) == device.whole.idle_ns[0]).all()


def busy_inside(facts: Facts, device: DeviceFacts, low: int, high: int) -> int:
    """How long the device worked in [low, high): a walk over its events, one by one, in order of start."""
    events, total, reached = facts.events, 0, low
    for i in facts.work.event[events.device[facts.work.event] == device.id].tolist():
        start, end = max(int(events.start_ns[i]), reached), min(int(events.end_ns[i]), high)
        if end > start:
            total += end - start
            reached = end
    return total
