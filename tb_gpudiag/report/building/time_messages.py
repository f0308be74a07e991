"""Steps, launches, and where time went on each device by cause and step."""

from __future__ import annotations

from collections.abc import Iterable

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.ledger import TimeAccount
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.launching.launch_costs import Hotspot
from tb_gpudiag.facts.stepping.inferred import InferredSteps
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import message_of, time_ranges, us
from tb_gpudiag.step_time import StepTime, step_time
from tb_gpudiag.wording.format import one_line

STEPS_LIMIT = 5_000


def step_messages(steps: Steps) -> list[pb.Step]:
    """Steps in time order, bounded."""
    return [
        pb.Step(name=one_line(name), start_us=us(start), duration_us=us(end - start))
        for name, start, end in zip(steps.names[:STEPS_LIMIT], steps.start_ns, steps.end_ns, strict=False)
    ]


def device_message(device: DeviceFacts) -> pb.Device:
    ledger, span, window, whole = device.ledger, device.span, device.window, device.window_account
    busy_ns = device.busy.all.total
    return pb.Device(
        id=device.id,
        name=one_line(device.name),
        span_us=us(span.duration_ns),
        busy_us=us(busy_ns),
        idle_us=us(span.duration_ns - busy_ns),
        gaps=ledger.gaps_in(span),
        idle_by_cause=[
            pb.CauseTime(cause=cause.label, us=us(ns)) for cause, ns in ledger.by_cause(span).items()
        ],
        idle_by_trigger=[
            pb.TriggerTime(trigger=trigger.label, us=us(ns))
            for trigger, ns in ledger.by_trigger(span).items()
        ],
        window_start_us=us(window.start_ns),
        window_us=us(window.duration_ns),
        window_idle_us=us(ledger.idle_ns(window)),
        window_idle_by_cause=_idle(whole, 0),
        window_computing_us=us(whole.computing_ns[0]),
        window_copying_us=us(whole.copying_ns[0]),
        window_communicating_us=us(whole.communicating_ns[0]),
        step_accounts=_step_accounts(device.account),
    )


def step_time_message(
    found: StepTime, steps: int, *, marked: bool, unprofiled_share: float
) -> pb.StepTime | None:
    """How long a step takes; None without steps. unprofiled_share: how much of it without the profiler."""
    if not steps:
        return None
    return pb.StepTime(
        median_us=us(found.median),
        low_us=us(found.low),
        high_us=us(found.high),
        steps=steps,
        inferred=not marked,
        unprofiled_us=us(found.median * unprofiled_share),
    )


def inferred_message(inferred: InferredSteps, account: TimeAccount, recording: Window) -> pb.InferredSteps:
    """The repetition of a device's launches, for a trace without recorded steps."""
    return pb.InferredSteps(
        sign=inferred.evidence.value,
        are_steps=inferred.are_steps,
        inside=one_line(inferred.inside),
        device=inferred.device,
        repetitions=len(inferred),
        period_launches=inferred.period_launches,
        setup_us=us(account.start_ns[0] - recording.start_ns),
        tail_us=us(max(0, recording.end_ns - account.end_ns[-1])),
        median_us=us(step_time(account.end_ns - account.start_ns).median),
        accounts=_step_accounts(account),
    )


def _step_accounts(account: TimeAccount) -> list[pb.StepAccount]:
    return [
        pb.StepAccount(
            name=one_line(name),
            start_us=us(account.start_ns[i]),
            duration_us=us(account.end_ns[i] - account.start_ns[i]),
            computing_us=us(account.computing_ns[i]),
            copying_us=us(account.copying_ns[i]),
            communicating_us=us(account.communicating_ns[i]),
            idle_by_cause=_idle(account, i),
        )
        for i, name in enumerate(account.names[:STEPS_LIMIT])
    ]


def _idle(account: TimeAccount, i: int) -> list[pb.CauseTime]:
    """Idle time of the account's i-th slice by cause, without causes that have none."""
    return [
        pb.CauseTime(cause=cause.label, us=us(account.idle_ns[i, cause]))
        for cause in Cause
        if account.idle_ns[i, cause]
    ]


HOTSPOTS_LIMIT = 100
"""Hotspots of each kind. The page sorts and searches them."""


def hotspot_messages(by_kind: Iterable[list[Hotspot]], steps: int) -> list[pb.LaunchHotspot]:
    """Hotspots of each kind, most idle time first. `steps` is the number of recorded steps."""
    return [_hotspot(spot, steps) for spots in by_kind for spot in spots[:HOTSPOTS_LIMIT]]


def _hotspot(spot: Hotspot, steps: int) -> pb.LaunchHotspot:
    per_step_us = us(spot.idle_ns / steps) if steps else 0.0
    ranges = time_ranges(spot.ranges)
    return message_of(pb.LaunchHotspot, spot, idle_per_step_us=per_step_us, ranges=ranges)
