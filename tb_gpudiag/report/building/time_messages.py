"""Steps, launches, and where time went: on each device by cause and step; and its tables, on the host, by
kernel family and module, in synchronizations and collectives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Numbers, UInt8, marked, summed
from tb_gpudiag.facts.core.causes import Cause, CauseSpans
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window, longest, numbered
from tb_gpudiag.facts.core.ledger import TimeAccount
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.kernels.exposure import CollectiveExposure
from tb_gpudiag.facts.kernels.kernels import by_module
from tb_gpudiag.facts.launching.launch_costs import Hotspot
from tb_gpudiag.facts.stepping.inferred import InferredSteps
from tb_gpudiag.facts.waiting.sync_sites import SyncSite
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import message_of, place, table_message, time_ranges, us
from tb_gpudiag.report.essentials import full_place
from tb_gpudiag.rules.answer import place_at
from tb_gpudiag.rules.shared.lost_time import places
from tb_gpudiag.step_time import StepTime, step_time
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category
from tb_gpudiag.wording.format import in_quotes, one_line
from tb_gpudiag.wording.vocabulary import EXPOSURE_REASONS, FAMILIES, HOST_KINDS, SYNC_KINDS, unit_text

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
    found: StepTime, steps: int, *, marked: bool, unprofiled_shares: tuple[float, float, float]
) -> pb.StepTime | None:
    """How long a step takes; None without steps. unprofiled_shares: how much of it without the profiler at
    least, most likely, and at most."""
    if not steps:
        return None
    least_us, likely_us, most_us = (us(found.mean * share) for share in unprofiled_shares)
    return pb.StepTime(
        median_us=us(found.median),
        low_us=us(found.low),
        high_us=us(found.high),
        steps=steps,
        inferred=not marked,
        mean_us=us(found.mean),
        unprofiled_us=likely_us,
        unprofiled_least_us=least_us,
        unprofiled_most_us=most_us,
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
    per_step_us = us(spot.idle_ns / steps) if steps > 1 else 0.0
    ranges = time_ranges(spot.ranges)
    return message_of(pb.LaunchHotspot, spot, idle_per_step_us=per_step_us, ranges=ranges)


HOST_LIMIT = 20

KINDS = ("input", "operator", "call", "python", "backward")
_INPUT, _OPERATOR, _CALL, _PYTHON, _BACKWARD = range(len(KINDS))
_UNNAMED = {_INPUT: "data loading", _BACKWARD: "backward pass, between operators"}


def host_table(host: Host, spans: CauseSpans, window: Window) -> pb.Table:
    """The main thread's time by operator, call and Python frame, most time first. All of data loading is one
    activity, and so is what autograd takes between operators. spans: that time, in the step window."""
    if not len(spans.start_ns):
        return table_message("host", [], first=0)
    length_ns = spans.end_ns - spans.start_ns
    kind, name = _kinds_and_names(host, spans.cause == Cause.INPUT, spans.event)
    # Both numbers in one, so that grouping sorts plain integers.
    groups, member = numbered((name + 1) * len(KINDS) + kind)
    total = summed(member, length_ns, len(groups))
    rows, ranges = [], []
    for i in np.argsort(-total, kind="stable")[:HOST_LIMIT]:
        own = np.flatnonzero(member == i)
        group_name, group_kind = divmod(int(groups[i]), len(KINDS))
        mostly_in = next(iter(places(host, spans.event[own], length_ns[own])), None)
        # A Python frame is its own place.
        named = mostly_in is not None and mostly_in.file and group_kind != _PYTHON
        where = full_place(place(mostly_in)) if mostly_in is not None and named else ""
        label, share = _label(host, group_kind, group_name - 1), total[i] / window.duration_ns
        rows.append((label, HOST_KINDS[KINDS[group_kind]], total[i], share, where))
        ranges.append(longest(spans.start_ns[own], spans.end_ns[own]))
    return table_message("host", rows, first=5, ranges=ranges)


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
    kind[marked(host.engine_wait, event)] = _BACKWARD
    kind[is_input] = _INPUT
    # Python is listed under the nearest frame of the user's own, not under the built-in that ran. Numbers of
    # frames come after those of names.
    name = np.where(known, events.name[safe], NONE)
    frame = np.where(known & (kind == _PYTHON), host.place[safe], NONE)
    name = np.where(frame == NONE, name, frame + len(events.names))
    name[np.isin(kind, np.array(list(_UNNAMED)))] = NONE
    return kind, name


def _label(host: Host, kind: int, name: int) -> str:
    if name == NONE:
        return _UNNAMED.get(kind, "(nothing recorded)")
    names = host.events.names
    return names[name] if name < len(names) else str(host.frame(name - len(names)))


def _hidden(devices: Sequence[DeviceFacts]) -> list[str]:
    return [] if len(devices) > 1 else ["gpu"]


def family_table(devices: Sequence[DeviceFacts], window: Window) -> pb.Table:
    """Kernel families over the step window, by device. The text has those of the busiest one."""
    found = [(device.id, family) for device in devices for family in device.kernels.by_family()]
    rows = [
        (
            f"GPU {id}",
            FAMILIES[family.family.label],
            family.kernels,
            family.time_ns,
            family.covered_ns / window.duration_ns,
            family.tensor_core_ns / max(family.time_ns, 1) or None,
        )
        for id, family in found
    ]
    first = sum(id == devices[0].id for id, _ in found)
    ranges = [family.ranges for _, family in found]
    return table_message("kernel_families", rows, first=first, ranges=ranges, hidden=_hidden(devices))


MODULES_LIMIT = 50
"""Rows of modules of each device."""


def module_table(devices: Sequence[DeviceFacts]) -> pb.Table:
    """GPU time by module over the step window, by device. Empty where no work has a module."""
    rows, first = [], 0
    for device in devices:
        host, kernels = device.naming
        found = by_module(kernels, host)
        total_ns = max(1, sum(row.time_ns for row in found))
        for row in found[:MODULES_LIMIT]:
            name, modules = (row.module, row.modules) if row.module else ("(no module)", None)
            rows.append((f"GPU {device.id}", name, modules, row.kernels, row.time_ns, row.time_ns / total_ns))
        first = first or min(10, len(rows))
    return table_message("modules", rows, first=first, hidden=_hidden(devices))


SITES_LIMIT = 20


def sync_table(sites: Sequence[SyncSite], host: Host) -> pb.Table:
    """Call sites that block the host in the step window, in this order. Those after which the GPU was not
    idle cost nothing: the text has none of them."""
    sites = sites[:SITES_LIMIT]
    rows = [
        (
            SYNC_KINDS[site.kind.label],
            site.count,
            site.held_ns,
            site.refill_ns,
            full_place(place(place_at(host.frame(site.place), operator=site.operator))),
        )
        for site in sites
    ]
    costly = sum(site.refill_ns > 0 for site in sites)
    ranges = [site.ranges for site in sites]
    return table_message("synchronizations", rows, first=min(5, costly), ranges=ranges)


EXPOSED_LIMIT = 200
"""Rows. A model of a hundred layers has some hundred, and the page sorts them."""


def collective_table(exposure: CollectiveExposure, host: Host, device: DeviceFacts | None) -> pb.Table:
    """Collectives of the busiest device by kind, unit and reason, the most exposed first. Without a GPU, they
    are of the CPU's back ends."""
    calls, gpu, rows, ranges = exposure.calls, NONE if device is None else device.id, [], []
    found = exposure.by_unit[:EXPOSED_LIMIT]
    for one in found:
        why = EXPOSURE_REASONS[one.why.name.lower()]
        if one.late_in != NONE:
            frame = host.frame(int(host.place[one.late_in]))
            late_in = str(frame) if frame is not None else host.name(one.late_in)
            why = replace(why, word=f"{why.word}: {in_quotes(late_in)}")
        unit = unit_text(one.parallelism, one.unit, one.number, one.of)
        bytes = one.bytes if one.bytes > 0 else None
        kind, sort = one.kind.replace("_", "-"), one.parallelism
        rows.append((kind, unit, sort, one.calls, bytes, one.time_ns, one.exposed_ns, why))
        at = calls.event == one.event
        ranges.append(longest(calls.start_ns[at], calls.end_ns[at], gpu))
    exposed = sum(one.exposed_ns > 0 for one in found)
    return table_message("collectives", rows, first=min(10, exposed), ranges=ranges)
