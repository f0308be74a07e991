"""The table of collectives: who arrived when, and what the rank did before."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Int64, summed
from tb_gpudiag.digest.building.work_tables import costly_operators, part_columns, table
from tb_gpudiag.digest.digest import COLLECTIVES
from tb_gpudiag.facts.core.causes import CauseSpans
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, expand, overlapping
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.exposure_reasons import ExposureReason
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.vocabulary.marks import STEP
from tb_gpudiag.wording.format import one_line

# Steps of large jobs have some hundred collectives each, and recordings have some tens of steps.
MOST: Final = 20_000
_LONGEST_NAME: Final = 120
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
            "name": [one_line(events.names[i], _LONGEST_NAME) for i in events.name[calls.event]],
            "group": [one_line(said.group, _LONGEST_NAME) for said in calls.message],
            "sequence": [said.sequence for said in calls.message],
            "source": [said.source for said in calls.message],
            "destination": [said.destination for said in calls.message],
            "bytes": calls.bytes,
            "host_start_ns": np.where(called == NONE, NONE, events.start_ns[called]),
            "start_ns": start,
            "end_ns": end,
            "stream": events.stream[calls.event].astype(np.int64),
            "exposed_ns": exposure.exposed_ns,
            "annotation": [one_line(name, _LONGEST_NAME) for name in exposure.annotation],
            "caller": exposure.caller,
            "unit": [one_line(name, _LONGEST_NAME) for name in exposure.unit],
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


def _labels(host: Host, event: Int64) -> tuple[Int64, list[str]]:
    """Return the function of each event, else its operator, else the event itself: as numbers, and their
    texts."""
    frame = host.place[event]
    operator = np.where(host.operator[event] == NONE, event, host.operator[event])
    name = host.events.name[operator].astype(np.int64)
    codes, member = np.unique(np.where(frame == NONE, -2 - name, frame), return_inverse=True)
    texts = []
    for code in codes.tolist():
        found = host.frame(code) if code >= 0 else None
        text = f"{found.function} ({found.file})" if found is not None else host.events.names[-2 - code]
        texts.append("" if STEP.fullmatch(text) else one_line(text, _LONGEST_NAME))
    return member, texts


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
