"""Where time went: on each device by cause and step, on the host, by kernel family, in launches, in
synchronizations and in collectives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Numbers, UInt8, summed
from tb_gpudiag.facts.core.causes import Cause, CauseSpans
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window, longest, numbered
from tb_gpudiag.facts.core.ledger import TimeAccount
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.kernels.exposure import CollectiveExposure, UnitExposure
from tb_gpudiag.facts.kernels.kernels import by_module
from tb_gpudiag.facts.launching.launch_costs import Hotspot
from tb_gpudiag.facts.stepping.inferred import InferredSteps
from tb_gpudiag.facts.waiting.sync_sites import SyncSite
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import UINT32_MAX, message_of, place, time_ranges, us
from tb_gpudiag.rules.answer import place_at
from tb_gpudiag.rules.shared.lost_time import places
from tb_gpudiag.step_time import StepTime, step_time
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category
from tb_gpudiag.wording.format import one_line
from tb_gpudiag.wording.vocabulary import unit_text

STEPS_LIMIT = 5_000

HOST_LIMIT = 20

KINDS = ("input", "operator", "call", "python")
_INPUT, _OPERATOR, _CALL, _PYTHON = range(len(KINDS))


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


def host_messages(host: Host, spans: CauseSpans) -> list[pb.HostActivity]:
    """Group the main thread's time by operator, call and Python frame, most time first.

    All of data loading is one activity. spans: the main thread's time in the step window.
    """
    if not len(spans.start_ns):
        return []
    length_ns = spans.end_ns - spans.start_ns
    kind, name = _kinds_and_names(host, spans.cause == Cause.INPUT, spans.event)
    # Both numbers in one, so that grouping sorts plain integers.
    groups, member = numbered((name + 1) * len(KINDS) + kind)
    total = summed(member, length_ns, len(groups))
    activities = []
    for i in np.argsort(-total, kind="stable")[:HOST_LIMIT]:
        own = np.flatnonzero(member == i)
        group_name, group_kind = divmod(int(groups[i]), len(KINDS))
        mostly_in = places(host, spans.event[own], length_ns[own])[:1]
        activities.append(
            pb.HostActivity(
                kind=KINDS[group_kind],
                name=one_line(_label(host, group_kind, group_name - 1)),
                us=us(total[i]),
                ranges=time_ranges(longest(spans.start_ns[own], spans.end_ns[own])),
                place=place(mostly_in[0]) if mostly_in else None,
            )
        )
    return activities


def _kinds_and_names(host: Host, is_input: Bool, event: Numbers) -> tuple[UInt8, Int32]:
    """Kind of each span, and the number of the name under which it is listed; NONE where nothing was
    recorded. Shape (s,) each."""
    events = host.events
    known = event != NONE
    safe = np.maximum(event, 0)
    category = np.where(known, events.category[safe], Category.OTHER)
    kind = np.full(len(event), _PYTHON, np.uint8)
    kind[category == Category.CPU_OP] = _OPERATOR
    kind[np.isin(category, CALL_CATEGORIES)] = _CALL
    kind[is_input] = _INPUT
    # Python is listed under the nearest frame of the user's own, not under the built-in that ran. Numbers of
    # frames come after those of names.
    name = np.where(known, events.name[safe], NONE)
    frame = np.where(known & (kind == _PYTHON), host.place[safe], NONE)
    name = np.where(frame == NONE, name, frame + len(events.names))
    name[is_input] = NONE
    return kind, name


def _label(host: Host, kind: int, name: int) -> str:
    if kind == _INPUT:
        return "data loading"
    if name == NONE:
        return "(nothing recorded)"
    names = host.events.names
    return names[name] if name < len(names) else str(host.frame(name - len(names)))


def family_messages(devices: Iterable[DeviceFacts], window: Window) -> list[pb.KernelFamily]:
    """Kernel families of each device over the step window, most time first."""
    return [
        pb.KernelFamily(
            device=device.id,
            family=family.family.label,
            us=us(family.time_ns),
            share=family.covered_ns / window.duration_ns,
            kernels=family.kernels,
            tensor_core_us=us(family.tensor_core_ns),
            ranges=time_ranges(family.ranges),
        )
        for device in devices
        for family in device.kernels.by_family()
    ]


MODULES_LIMIT = 50
"""Rows of modules of each device."""


def module_messages(devices: Iterable[DeviceFacts]) -> list[pb.ModuleTime]:
    """GPU time of each device by module over the step window, most time first."""
    found = []
    for device in devices:
        host, kernels = device.naming
        rows = by_module(kernels, host)
        total_ns = max(1, sum(row.time_ns for row in rows))
        found += [
            pb.ModuleTime(
                device=device.id,
                module=one_line(row.module),
                modules=row.modules,
                kernels=row.kernels,
                us=us(row.time_ns),
                share=row.time_ns / total_ns,
            )
            for row in rows[:MODULES_LIMIT]
        ]
    return found


HOTSPOTS_LIMIT = 100
"""Hotspots of each kind. The page sorts and searches them."""


def hotspot_messages(by_kind: Iterable[list[Hotspot]], steps: int) -> list[pb.LaunchHotspot]:
    """Hotspots of each kind, most idle time first. `steps` is the number of recorded steps."""
    return [_hotspot(spot, steps) for spots in by_kind for spot in spots[:HOTSPOTS_LIMIT]]


def _hotspot(spot: Hotspot, steps: int) -> pb.LaunchHotspot:
    per_step_us = us(spot.idle_ns / steps) if steps else 0.0
    ranges = time_ranges(spot.ranges)
    return message_of(pb.LaunchHotspot, spot, idle_per_step_us=per_step_us, ranges=ranges)


SITES_LIMIT = 20


def sync_site_messages(sites: Sequence[SyncSite], host: Host) -> list[pb.SyncSite]:
    """Call sites that block the host in the step window, in this order."""
    return [_site(site, host) for site in sites[:SITES_LIMIT]]


def _site(site: SyncSite, host: Host) -> pb.SyncSite:
    where = place_at(host.frame(site.place), operator=site.operator, time_ns=site.refill_ns)
    ranges = time_ranges(site.ranges)
    return message_of(pb.SyncSite, site, kind=site.kind.label, place=place(where), ranges=ranges)


EXPOSED_LIMIT = 200
"""Rows. A model of a hundred layers has some hundred, and the page sorts them."""


def exposure_messages(
    exposure: CollectiveExposure, host: Host, device: DeviceFacts | None
) -> list[pb.ExposedCollectives]:
    """Collectives by kind, unit and reason, the most exposed first."""
    return [_message(one, exposure, host, device) for one in exposure.by_unit[:EXPOSED_LIMIT]]


def _message(
    one: UnitExposure, exposure: CollectiveExposure, host: Host, device: DeviceFacts | None
) -> pb.ExposedCollectives:
    at = exposure.calls.event == one.event
    ranges = longest(
        exposure.calls.start_ns[at], exposure.calls.end_ns[at], NONE if device is None else device.id
    )
    place = host.frame(int(host.place[one.late_in])) if one.late_in != NONE else None
    return pb.ExposedCollectives(
        kind=one.kind,
        parallelism=one.parallelism,
        unit=one_line(unit_text(one.parallelism, one.unit, one.number, one.of)),
        why=one.why.name.lower(),
        calls=min(one.calls, UINT32_MAX),
        bytes=max(0, one.bytes),
        us=us(one.time_ns),
        exposed_us=us(one.exposed_ns),
        late_in=one_line(str(place) if place is not None else host.name(one.late_in)),
        ranges=time_ranges(ranges),
    )
