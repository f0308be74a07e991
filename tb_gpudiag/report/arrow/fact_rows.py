"""The rows of each table, from the same facts as the report and the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import NONE, Int64, mask_of, summed
from tb_gpudiag.facts.core.causes import Cause, Trigger
from tb_gpudiag.facts.core.intervals import Intervals, distinct, expand, overlapping
from tb_gpudiag.facts.core.ledger import Ledger
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.exposure_reasons import ExposureReason
from tb_gpudiag.facts.memory.memory_kinds import Allocations
from tb_gpudiag.facts.memory.peak import at_peak
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.report.arrow.arrow_columns import Names, coded, labels, numbers, texts, written
from tb_gpudiag.vocabulary.frames import innermost_place
from tb_gpudiag.vocabulary.kernel_families import Arithmetic, Family
from tb_gpudiag.vocabulary.recorded import Category

Columns = Mapping[str, pa.Array]


def _events(facts: Facts, names: Names) -> list[Columns]:
    events, tree = facts.events, facts.host.tree
    every = np.arange(len(events), dtype=np.int64)
    host = np.where(tree.depth >= 0, every, NONE)
    return [
        {
            "event": pa.array(every),
            "category": coded(events.category, labels(Category)),
            "name": names.of_events(every),
            "thread": names.threads(every),
            "start_ns": pa.array(events.start_ns),
            "duration_ns": pa.array(events.duration_ns),
            "device": numbers(events.device),
            "stream": numbers(events.stream),
            "correlation": numbers(events.correlation),
            "bytes": numbers(events.bytes),
            "parent": numbers(tree.parent),
            "depth": numbers(tree.depth),
            **names.places(host),
            "shapes": coded(events.shapes, texts(events.input_shapes)),
        }
    ]


def _steps(facts: Facts, names: Names) -> list[Columns]:
    steps, borders = facts.steps, facts.steady.borders_ns
    if not len(steps):
        return []
    common = {
        "step": pa.array(np.arange(len(steps), dtype=np.int32)),
        "name": written(steps.names),
        "host_start_ns": pa.array(steps.start_ns),
        "host_duration_ns": pa.array(steps.end_ns - steps.start_ns),
    }
    found: list[Columns] = []
    for device in facts.devices:
        account = device.account
        found.append(
            {
                **common,
                "device": _same(device.id, len(steps)),
                "start_ns": pa.array(account.start_ns),
                "duration_ns": pa.array(account.end_ns - account.start_ns),
                "computing_ns": pa.array(account.computing_ns),
                "copying_ns": pa.array(account.copying_ns),
                "communicating_ns": pa.array(account.communicating_ns),
                "idle_ns": pa.array(account.idle_ns.sum(axis=1)),
            }
        )
    lone = {**common, "start_ns": pa.array(borders[:-1]), "duration_ns": pa.array(np.diff(borders))}
    return found or [lone]


def _engine_steps(facts: Facts, names: Names) -> list[Columns]:
    found = facts.serving
    if found is None:
        return []
    marks, account, count = found.marks, found.account, len(found.marks)
    said = {
        column: numbers(np.array([getattr(mark, column) for mark in marks], np.int32))
        for column in ("requests", "prefill_requests", "decode_requests", "tokens")
    }
    return [
        {
            **said,
            "step": pa.array(np.arange(count, dtype=np.int32)),
            "name": written(account.names),
            "kind": written([mark.kind.label for mark in marks]),
            "device": _same(facts.gpu.id, count),
            "start_ns": pa.array(account.start_ns),
            "duration_ns": pa.array(found.length_ns),
            "busy_ns": pa.array(found.busy_ns),
            "waiting_ns": pa.array(found.waiting_ns),
            "gap_ns": numbers(found.gap_ns),
            "event": pa.array(found.event),
        }
    ]


def _launches(facts: Facts, names: Names) -> list[Columns]:
    costs, events, steps = facts.launches.costs, facts.events, facts.steps
    call = costs.event
    at = events.start_ns[call]
    step = np.searchsorted(steps.start_ns, at, side="right") - 1
    if len(steps):
        step[at >= steps.end_ns[-1]] = NONE
    return [
        {
            "event": pa.array(call),
            "name": names.of_events(call),
            "thread": names.threads(call),
            "device": numbers(costs.device),
            "start_ns": pa.array(at),
            "duration_ns": pa.array(costs.host_ns),
            "step": numbers(step.astype(np.int32)),
            **names.places(call),
            "work": pa.array(costs.work),
            "work_name": names.of_events(costs.work),
            "work_start_ns": pa.array(events.start_ns[costs.work]),
            "kernel_ns": pa.array(costs.kernel_ns),
            "empty_queue": pa.array(costs.empty_queue),
            "dispatch_ns": pa.array(costs.dispatch_ns),
            "python_ns": pa.array(costs.python_ns),
            "full_queue_ns": pa.array(costs.full_queue_ns),
            "idle_ns": pa.array(costs.idle_ns),
        }
    ]


def _gaps(facts: Facts, names: Names) -> list[Columns]:
    found: list[Columns] = []
    for device in facts.devices:
        ledger = device.ledger
        gaps, count = ledger.gaps, len(ledger.gaps)
        length = ledger.end_ns - ledger.start_ns
        # Summed by gap and cause; of equally long causes, the first counts.
        by_cause = summed(ledger.gap * len(Cause) + ledger.cause, length, count * len(Cause))
        by_cause = by_cause.reshape(count, len(Cause))
        found.append(
            {
                "gap": pa.array(np.arange(count, dtype=np.int64)),
                "device": _same(device.id, count),
                "start_ns": pa.array(gaps.start_ns),
                "duration_ns": pa.array(gaps.end_ns - gaps.start_ns),
                "window_ns": pa.array(summed(ledger.gap, ledger.inside(facts.window), count)),
                "trigger": coded(gaps.trigger, labels(Trigger)),
                "cause": coded(by_cause.argmax(axis=1), labels(Cause)),
                "causes": pa.array((by_cause > 0).sum(axis=1).astype(np.int32)),
                "ended_by": numbers(gaps.ended_by),
                "ended_by_name": names.of_events(gaps.ended_by),
                "launch": numbers(gaps.launch),
                "blocked_in": numbers(gaps.blocked_in),
                "blocked_ns": pa.array(gaps.blocked_ns),
            }
        )
    return found


def _idle(facts: Facts, names: Names) -> list[Columns]:
    found: list[Columns] = []
    for device in facts.devices:
        ledger = device.ledger
        owner, start, end = _cut(facts, ledger)
        found.append(
            {
                "gap": pa.array(ledger.gap[owner]),
                "device": _same(device.id, len(owner)),
                "start_ns": pa.array(start),
                "duration_ns": pa.array(end - start),
                "cause": coded(ledger.cause[owner], labels(Cause)),
                "in_window": pa.array(facts.window.contains(start)),
                "step": _step(facts, start),
                "event": numbers(ledger.event[owner]),
                "name": names.of_events(ledger.event[owner]),
                **names.places(ledger.event[owner]),
            }
        )
    return found


def _cut(facts: Facts, ledger: Ledger) -> tuple[Int64, Int64, Int64]:
    """Cut the segments at the borders of the step window and of its steps: (segment, start, end)."""
    window, far = facts.window, np.iinfo(np.int64)
    edges = distinct(np.r_[window.start_ns, facts.steady.borders_ns, window.end_ns])
    between = Intervals(np.r_[far.min, edges], np.r_[edges, far.max])
    owner, inner = expand(*overlapping(between, ledger.start_ns, ledger.end_ns))
    start = np.maximum(ledger.start_ns[owner], between.start[inner])
    return owner, start, np.minimum(ledger.end_ns[owner], between.end[inner])


def _kernels(facts: Facts, names: Names) -> list[Columns]:
    found: list[Columns] = []
    for device in facts.devices:
        kernels, events = device.kernels, facts.events
        host, naming = device.naming
        named = names if host is facts.host else Names(host)
        count, warps, registers = len(kernels.event), kernels.warps_per_block, kernels.registers
        found.append(
            {
                "event": pa.array(kernels.event),
                "category": coded(events.category[kernels.event], labels(Category)),
                "device": _same(device.id, count),
                "stream": numbers(kernels.stream),
                "name": names.of_events(kernels.event),
                "family": coded(kernels.family, labels(Family)),
                "arithmetic": coded(kernels.arithmetic, labels(Arithmetic)),
                "start_ns": pa.array(kernels.start_ns),
                "duration_ns": pa.array(kernels.duration_ns),
                "step": _step(facts, kernels.start_ns),
                "launch": numbers(kernels.origin),
                **named.places(naming.origin),
                "module": named.work_modules(kernels.event, naming.origin),
                "shapes": named.shapes(naming.origin),
                "blocks_per_sm": numbers(kernels.blocks_per_sm, np.isnan(kernels.blocks_per_sm)),
                "warps_per_block": numbers(warps.astype(np.int32), warps == 0),
                "registers": numbers(registers.astype(np.int32), registers == 0),
                "shared_bytes": numbers(kernels.shared_bytes.astype(np.int64)),
            }
        )
    return found


def _copies(facts: Facts, names: Names) -> list[Columns]:
    copies, events = facts.transfers, facts.events
    direction = np.where(copies.to_device, 0, np.where(copies.to_host, 1, 2))
    return [
        {
            "event": pa.array(copies.event),
            "direction": coded(direction, texts(("to_device", "to_host", "other"))),
            "name": names.of_events(copies.event),
            "pageable": pa.array(copies.pageable),
            "device": numbers(copies.device),
            "stream": numbers(events.stream[copies.event]),
            "start_ns": pa.array(copies.start_ns),
            "duration_ns": pa.array(copies.end_ns - copies.start_ns),
            "bytes": numbers(copies.bytes),
            "in_window": pa.array(facts.window.contains(copies.start_ns)),
            "step": _step(facts, copies.start_ns),
            "call": numbers(copies.launch),
            "call_ns": numbers(copies.in_call_ns, copies.launch == NONE),
            **names.places(copies.launch),
        }
    ]


def _calls(facts: Facts, device: DeviceFacts | None) -> Columns:
    exposure = facts.exposure_on(device)
    calls, said = exposure.calls, exposure.calls.message
    found = {
        "event": pa.array(calls.event),
        "call": numbers(calls.call),
        "kind": written(calls.kind),
        "start_ns": pa.array(calls.start_ns),
        "duration_ns": pa.array(calls.end_ns - calls.start_ns),
        "exposed_ns": pa.array(exposure.exposed_ns),
        "why_exposed": coded(exposure.why, labels(ExposureReason)),
        "parallelism": written(exposure.parallelism),
        "unit": written(exposure.unit),
        "number": pa.array(exposure.number.astype(np.int32)),
        "bytes": numbers(calls.bytes),
        "process_group": written([message.group for message in said]),
        "group_size": numbers(np.array([message.group_size for message in said], np.int32)),
        "sequence": numbers(np.array([message.sequence for message in said], np.int64)),
        "step": _step(facts, calls.start_ns),
    }
    return found if device is None else {**found, "device": _same(device.id, len(calls))}


def _memory(facts: Facts, names: Names) -> list[Columns]:
    found: list[Columns] = []
    for device in facts.memory:
        made, curve = device.allocations, device.curve
        count = len(made)
        found.append(
            {
                "device": _same(device.device, count),
                "start_ns": pa.array(made.time_ns),
                "end_ns": numbers(made.freed_ns),
                "bytes": pa.array(made.bytes),
                "operator": names.of_events(made.operator),
                "module": names.module_names(made.module),
                "line": _allocating_lines(names, made),
                "phase": coded(made.phase, labels(Phase)),
                "before_recording": pa.array(made.found),
                "at_peak": pa.array(mask_of(at_peak(made), count)),
                "allocated_bytes": pa.array(curve.allocated[made.position]),
                "reserved_bytes": numbers(curve.reserved[made.position]),
            }
        )
    return found


def _allocating_lines(names: Names, made: Allocations) -> pa.DictionaryArray:
    """The user's line of each allocation: of a snapshot's stack where there is one, else as of any event."""
    stack = made.context.calling_stack[made.event]
    if not (stack != NONE).any():
        return names.frames(made.place)
    known, member = np.unique(stack, return_inverse=True)
    stacks = made.memory.stacks
    words = [str(innermost_place(stacks[i]) or "") if i != NONE else "" for i in known.tolist()]
    lone = names.frames(np.where(stack == NONE, made.place, NONE))
    index = np.where(stack == NONE, NONE, member)
    return pc.coalesce(lone, coded(index, texts(words))).dictionary_encode()


def _step(facts: Facts, at_ns: Int64) -> pa.Array:
    """The step of the window in which the GPU was at these times."""
    borders = facts.steady.borders_ns
    step = np.searchsorted(borders, at_ns, side="right") - 1
    step[step >= len(facts.steps)] = NONE
    return numbers(step.astype(np.int32))


def _same(number: int, count: int) -> pa.Array:
    return numbers(np.full(count, number, np.int32))


ROWS: Final[dict[str, Callable[[Facts, Names], list[Columns]]]] = {
    "events": _events,
    "steps": _steps,
    "engine_steps": _engine_steps,
    "launches": _launches,
    "gaps": _gaps,
    "idle": _idle,
    "kernels": _kernels,
    "copies": _copies,
    "collectives": lambda facts, _: [_calls(facts, d) for d in facts.devices] or [_calls(facts, None)],
    "memory": _memory,
}
"""Makes the rows of each table that comes from facts alone, in parts, such as one for each GPU. A column that
a part does not have is null."""
