"""Build the Digest of a trace, or of a trace file. The only module here that takes facts out of Facts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Int64, summed
from tb_gpudiag.digest.digest import COLLECTIVES, STEPS, Digest
from tb_gpudiag.digest.digest_files import MOST_RANKS
from tb_gpudiag.digest.record_digest import report_digest
from tb_gpudiag.digest.work_tables import (
    costly_operators,
    cpu_kernel_table,
    kernel_table,
    module_table,
    operator_table,
    part_columns,
    table,
)
from tb_gpudiag.facts.core.causes import CauseSpans
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, Window, expand, overlapping
from tb_gpudiag.facts.core.places import Paths
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.exposure_reasons import ExposureReason
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.diagnosis import Progress, read_facts
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.vocabulary.frames import Frame
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.vocabulary.marks import STEP
from tb_gpudiag.wording.format import one_line

# Steps of large jobs have some hundred collectives each, and recordings have some tens of steps.
MOST: Final = 20_000
_LONGEST_OF_COLLECTIVE: Final = 120
# Odd, so that no two sizes become equal.
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)

Hashes = npt.NDArray[np.uint64]


def collective_table(facts: Facts, step_starts: Int64, left_out: list[str]) -> pa.Table:
    """Return COLLECTIVES of the busiest device; without one, of the CPU's back ends.

    step_starts: when each row of STEPS begins, in order. left_out: gets a line if there are too many.
    """
    host, window, device, exposure = facts.host, facts.window, facts.device, facts.exposure
    if len(exposure) > MOST:
        left_out.append(f"{len(exposure) - MOST:,} of {len(exposure):,} collectives")
        exposure = exposure.first(MOST)
    events, calls = host.events, exposure.calls
    start, end = calls.start_ns, calls.end_ns
    since = np.r_[np.int64(window.start_ns), start[:-1]][: len(start)]
    launch = facts.work.launch[np.searchsorted(facts.work.event, calls.event)] if device else calls.event
    main_thread = facts.main_thread_spans
    called = np.where(calls.call == NONE, launch, calls.call)
    step = np.searchsorted(step_starts, start, side="right") - 1
    place, place_ns = _places(host, device, main_thread, since, start)
    return table(
        COLLECTIVES,
        {
            "kind": calls.kind,
            "name": [one_line(events.names[i], _LONGEST_OF_COLLECTIVE) for i in events.name[calls.event]],
            "group": [one_line(said.group, _LONGEST_OF_COLLECTIVE) for said in calls.message],
            "sequence": [said.sequence for said in calls.message],
            "source": [said.source for said in calls.message],
            "destination": [said.destination for said in calls.message],
            "bytes": calls.bytes,
            "host_start_ns": np.where(called == NONE, NONE, events.start_ns[called]),
            "start_ns": start,
            "end_ns": end,
            "stream": events.stream[calls.event].astype(np.int64),
            "exposed_ns": exposure.exposed_ns,
            "annotation": [one_line(name, _LONGEST_OF_COLLECTIVE) for name in exposure.annotation],
            "caller": exposure.caller,
            "called_at": _functions(host, called),
            "unit": [one_line(name, _LONGEST_OF_COLLECTIVE) for name in exposure.unit],
            "number": exposure.number,
            "why": [ExposureReason(why).name.lower() for why in exposure.why.tolist()],
            "step": step.astype(np.int64),
            "since_ns": since,
            **part_columns(device, main_thread, since, start),
            **_work(facts, since, start),
            "place": place,
            "place_ns": place_ns,
        },
    )


def _places(
    host: Host, device: DeviceFacts | None, main_thread: CauseSpans, since: Int64, until: Int64
) -> tuple[list[str], Int64]:
    """Return where the host spent most of the idle time of each stretch, and how long."""
    spans = device.ledger if device is not None else main_thread
    known = spans.event != NONE
    event, start, end = spans.event[known], spans.start_ns[known], spans.end_ns[known]
    label, labels = _labels(host, event)
    left, right = overlapping(Intervals(start, end), since, until)
    owner, index = expand(left, right)
    inside = np.minimum(end[index], until[owner]) - np.maximum(start[index], since[owner])
    base = len(labels) + 1
    keys, member = np.unique(owner * base + label[index], return_inverse=True)
    total = summed(member, inside, len(keys))
    best = np.lexsort((total, keys // base))  # the last of each stretch has most time
    last = best[np.r_[np.diff(keys[best] // base) > 0, True][: len(best)]]
    place, place_ns = [""] * len(since), np.zeros(len(since), np.int64)
    for key, ns in zip(keys[last].tolist(), total[last].tolist(), strict=True):
        place[key // base] = labels[key % base]
        place_ns[key // base] = ns
    return place, place_ns


def _functions(host: Host, event: Int64) -> list[str]:
    """Return the user's function of each event, which may be NONE; "" where none is known."""
    codes, member = np.unique(np.where(event == NONE, NONE, host.place[event]), return_inverse=True)
    texts = [_label(host.frame(code), "") for code in codes.tolist()]
    return [texts[i] for i in member.tolist()]


def _label(frame: Frame | None, other: str) -> str:
    text = other if frame is None else f"{frame.function} ({frame.file})"
    return "" if STEP.fullmatch(text) else one_line(text, _LONGEST_OF_COLLECTIVE)


def _labels(host: Host, event: Int64) -> tuple[Int64, list[str]]:
    """Return the function of each event, else its operator, else the event itself: as numbers, and their
    texts."""
    frame = host.place[event]
    operator = np.where(host.operator[event] == NONE, event, host.operator[event])
    name = host.events.name[operator].astype(np.int64)
    codes, member = np.unique(np.where(frame == NONE, -2 - name, frame), return_inverse=True)
    named = [(code, host.events.names[-2 - code] if code < NONE else "") for code in codes.tolist()]
    return member, [_label(host.frame(max(NONE, code)), name) for code, name in named]


def _work(facts: Facts, since: Int64, until: Int64) -> dict[str, Int64]:
    """Count the kernels that start in each stretch and compute, and hash which they are. In a job on the CPU,
    the operators whose costs follow from their inputs stand for kernels."""
    host, device = facts.host, facts.device
    if device is None:
        chosen = costly_operators(host, facts.main_thread)
        starts, names, sizes = host.events.start_ns[chosen], _name_hashes(host, chosen), _shapes(host, chosen)
    else:
        kernels = device.kernels
        of_them = np.flatnonzero(kernels.is_kernel & (kernels.family != Family.COLLECTIVE))
        starts, names = kernels.start_ns[of_them], _name_hashes(host, kernels.event[of_them])
        blocks = np.where(np.isnan(kernels.blocks), kernels.blocks_per_sm, kernels.blocks)[of_them]
        sizes = np.nan_to_num(blocks).view(np.uint32).astype(np.uint64) * _SPREAD
    left, right = np.searchsorted(starts, since), np.searchsorted(starts, until)
    return {
        "kernels": (right - left if device is not None else np.zeros_like(left)).astype(np.int64),
        "work": _ordered_hash(names, left, right),
        "work_sizes": _ordered_hash(names ^ sizes, left, right),
    }


def _shapes(host: Host, operator: Int64) -> Hashes:
    """Hash the sizes of the inputs of operators."""
    events = host.events
    number, member = np.unique(events.shapes[operator], return_inverse=True)
    hashes = np.array([_text_hash(events.input_shapes[i]) for i in number], np.uint64)
    return hashes[member] if len(hashes) else hashes


def _name_hashes(host: Host, kernel: Int64) -> Hashes:
    events = host.events
    number, member = np.unique(events.name[kernel], return_inverse=True)
    hashes = np.array([_text_hash(events.names[i]) for i in number], np.uint64)
    return hashes[member] if len(hashes) else hashes


def _text_hash(text: str) -> int:
    """Return 64 bits that are the same in every process."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def _ordered_hash(values: Hashes, left: Int64, right: Int64) -> Int64:
    """Hash the values of each range left:right, in order. Shape of `left`."""
    owner, index = expand(left, right)
    place = (index - left[owner]).astype(np.uint64)
    total = np.zeros(len(left), np.uint64)
    np.add.at(total, owner, values[index] * (np.uint64(2) * place + np.uint64(1)))
    return total.view(np.int64)


# Recordings have some tens of steps.
MOST_STEPS: Final = 5_000
# A job of ten thousand ranks with as many groups as ranks.
_MOST_GROUPS: Final = 20_000
_LONGEST_NAME: Final = 200


def build_digest(facts: Facts, report: pb.Report, file: TraceFile) -> Digest:
    left_out: list[str] = []
    steps, basis = _steps(facts, left_out)
    collectives = collective_table(facts, steps.column("start_ns").to_numpy(), left_out)
    paths = Paths(facts.host)
    window = facts.window
    kernels = (
        kernel_table(facts.device.kernels, facts.host, paths, _steps_begin_ns(steps))
        if facts.device is not None
        else cpu_kernel_table(facts.host, window, paths)
    )
    return report_digest(
        report,
        _about(facts, report, file, basis, left_out),
        steps=steps,
        collectives=collectives,
        kernels=kernels,
        modules=module_table(facts.device),
        operators=operator_table(facts.host, facts.work, facts.host_window, paths),
    )


def _steps(facts: Facts, left_out: list[str]) -> tuple[pa.Table, str]:
    found, window = facts.step_times, facts.window
    if not len(found):
        start, end = np.array([window.start_ns]), np.array([window.end_ns])
        names, steady, basis = [""], np.ones(1, np.bool_), "none"
    else:
        names, start, end = found.times.names, found.times.start_ns, found.times.end_ns
        place = np.arange(len(found)) - facts.steady.first
        steady = (place >= 0) & (place < len(facts.steps))
        basis = "recorded" if len(facts.recorded_steps) else "inferred"
    if len(start) > MOST_STEPS:
        left_out.append(f"{len(start) - MOST_STEPS:,} of {len(start):,} steps")
        names, start, end = names[:MOST_STEPS], start[:MOST_STEPS], end[:MOST_STEPS]
    # The window, extended to the steps before it.
    main_thread = facts.main_thread_over(
        Window(
            min(window.start_ns, int(start.min(initial=window.start_ns))),
            max(window.end_ns, int(end.max(initial=window.end_ns))),
        )
    )
    columns = {
        "name": [one_line(name, _LONGEST_NAME) for name in names],
        "start_ns": start,
        "end_ns": end,
        "steady": steady[:MOST_STEPS],
        **part_columns(facts.device, main_thread, start, end),
    }
    return table(STEPS, columns), basis


def _steps_begin_ns(steps: pa.Table) -> int:
    """Return when the GPU begins the first steady step. What it runs before belongs to earlier steps."""
    starts = steps.filter(steps.column("steady")).column("start_ns")
    return int(starts[0].as_py()) if len(starts) else 0


def _about(
    facts: Facts, report: pb.Report, file: TraceFile, basis: str, left_out: list[str]
) -> dict[str, Any]:
    """Return the fields of About that do not come from the Report."""
    trace, device = facts.trace, facts.device
    properties = device.properties if device is not None else None
    capability = properties.compute_capability if properties is not None else None
    # The ranks of each process group: from the metadata, else from messages.
    found: dict[str, Sequence[int]] = {}
    room = MOST_RANKS
    configured = facts.trace.metadata.distributed.get("pg_config")
    listed: list[tuple[Any, Any]] = [
        (entry.get("pg_name"), entry.get("ranks"))
        for entry in (configured if isinstance(configured, list) else [])
        if isinstance(entry, dict)
    ]
    listed += [(said.group, list(said.ranks)) for said in facts.events.messages]
    for name, ranks in listed:
        if not isinstance(name, str) or not isinstance(ranks, list) or len(found) >= _MOST_GROUPS:
            continue
        numbers = tuple(sorted({rank for rank in ranks if type(rank) is int and 0 <= rank < 2**31}))
        known = found.get(one_line(name, _LONGEST_NAME), ())
        if len(known) < len(numbers) <= room:
            found[one_line(name, _LONGEST_NAME)] = numbers
            room -= len(numbers)
    return {
        "id": file.identity,
        "kind": trace.kind,
        "host": one_line(trace.metadata.host_name, _LONGEST_NAME) or report.trace.host,
        "groups": found,
        "origin_ns": trace.origin_ns,
        "recording_ns": facts.recording.duration_ns,
        "window_start_ns": facts.window.start_ns,
        "window_end_ns": facts.window.end_ns,
        "steps_basis": basis,
        "device_name": one_line(device.name, _LONGEST_NAME) if device is not None else "",
        "compute_capability": ".".join(map(str, capability))
        if capability
        else (properties.architecture if properties is not None else ""),
        "devices": len(facts.devices),
        "unprofiled_share": facts.unprofiled_share,
        "stacks": facts.recorded.stacks,
        "left_out": left_out,
        "recorder": trace.metadata.recorder,
        "server": facts.job.server.value if facts.job.server is not None else "",
    }


def digest_file(file: TraceFile, progress: Progress | None = None) -> tuple[pb.Report, Digest]:
    """Read and diagnose one trace file; return its Report and its Digest. Raises TraceError: the file
    cannot be read."""
    facts = read_facts(file, progress)
    report = build_report(facts, file)
    return report, build_digest(facts, report, file)
