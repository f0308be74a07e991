"""Join the parts of a trace, in file order, into one Events and one MemoryEvents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64
from tb_gpudiag.trace.credentials.removing import CredentialFilter
from tb_gpudiag.trace.events import Counter, Events, MemoryEvents, Message, Metadata, Status, Thread, Trace
from tb_gpudiag.trace.times import MOST_DEVICES, in_order, of_read_devices, on_host_clock, reach, within
from tb_gpudiag.trace.trace_parts import (
    FIGURES,
    MESSAGE_SEPARATOR,
    NUMBERS,
    TEXTS,
    CounterCollector,
    TracePart,
    devices_by_pid,
)
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.vocabulary.recorded import GPU_WORK_CATEGORIES, HOST_CATEGORIES, MemoryAction

REPAIRED_NOTE: Final = (
    "text that is not JSON (bare backslashes, control characters, N/A, broken UTF-8) was repaired"
)
# Numbers in texts, short enough for 64 bits.
_NUMBER: Final = lazy_re(r"[0-9]{1,18}")
_RANK: Final = lazy_re(r"[0-9]{1,9}")


class Assembly:
    """Collects the parts of a trace."""

    def __init__(self) -> None:
        self.events_read = 0
        self.malformed = 0
        self.repaired = False
        self.notes: list[str] = []
        self._parts: list[TracePart] = []
        self._counters = CounterCollector()
        self._thread_index: dict[tuple[str, str], int] = {}
        self._thread_names: dict[tuple[str, str], str] = {}
        self._threads_of_part: list[Int32] = []
        self._untimed = 0
        self._stray = 0
        self._unread_devices = 0

    def add(self, part: TracePart) -> None:
        """Add the next part in file order."""
        self.events_read += part.read
        self.malformed += part.malformed
        index = self._thread_index
        self._threads_of_part.append(
            np.array([index.setdefault(t, len(index)) for t in part.threads], np.int32)
        )
        self._thread_names.update(part.thread_names)
        if part.counters is not None:
            self._counters.add(part.counters)
        self._parts.append(part)

    def trace(
        self,
        metadata: Metadata,
        searched: CredentialFilter,
        notes: Sequence[str] = (),
        status: Status = "COMPLETE",
    ) -> Trace:
        """Return the trace; the assembly is empty afterwards. notes: what its reader has to say."""
        events, memory, counters, start_ns = self._joined_parts()
        events, cut = in_order(events)
        events, offsets_ns = on_host_clock(events)
        return Trace(
            events=events,
            memory=memory,
            metadata=metadata,
            status=status,
            events_read=self.events_read - self._untimed,
            malformed_events=self.malformed + self._untimed,
            start_ns=start_ns,
            notes=[*notes, *self.notes],
            credentials=searched.found,
            unsearched_bytes=searched.unsearched_bytes,
            counters=counters,
            clock_offsets_ns=offsets_ns,
            cut_work=cut,
        )

    def _joined_parts(self) -> tuple[Events, MemoryEvents, list[Counter], int]:
        """Return events, memory events, counters and the earliest timestamp in ns."""
        parts, threads_of_part = self._parts, self._threads_of_part
        self._parts, self._threads_of_part = [], []
        start_ns = _joined([p.spans.start_ns for p in parts], np.int64)
        time_ns = _joined([p.memory.time_ns for p in parts], np.int64)
        bounds = reach(start_ns, time_ns)
        spans_near, memory_near = within(start_ns, *bounds), within(time_ns, *bounds)
        self._count_stray(int((~spans_near).sum() + (~memory_near).sum()))
        self._untimed = int((_joined([p.untimed for p in parts], np.bool_) & spans_near).sum())
        near = [times[mask] for times, mask in ((start_ns, spans_near), (time_ns, memory_near))]
        first_ns = min((int(times.min()) for times in near if len(times)), default=0)
        threads = [
            Thread(pid, tid, self._thread_names.get((pid, tid), "")) for pid, tid in self._thread_index
        ]
        spans_kept = spans_near & self._on_read_devices([p.spans.device for p in parts])
        memory_kept = memory_near & self._on_read_devices([p.memory.device for p in parts])
        memory = self._memory(parts, threads_of_part, time_ns - first_ns, memory_kept)
        events = self._events(parts, threads_of_part, threads, start_ns - first_ns, spans_kept)
        counters, notes = self._counters.finish(first_ns, bounds, lambda: _devices(events))
        self.notes += notes
        self._write_notes()
        return events, memory, counters, first_ns

    def _on_read_devices(self, devices: list[Int32]) -> Bool:
        mask, left_out = of_read_devices(_joined(devices, np.int32))
        self._unread_devices = max(self._unread_devices, left_out)
        return mask

    def _count_stray(self, stray: int) -> None:
        """Count events whose timestamp is not a time of this recording as malformed."""
        self._stray = stray
        self.events_read -= stray
        self.malformed += stray

    def _write_notes(self) -> None:
        if self.malformed:
            self.notes.append(f"{_count(self.malformed, 'malformed event')} skipped")
        if self._stray:
            self.notes.append(f"{_count(self._stray, 'event')} of these with a timestamp far from all others")
        if self._unread_devices:
            self.notes.append(
                f"events of {_count(self._unread_devices, 'device')} skipped: the {MOST_DEVICES} with most "
                "events are read, because no process has more"
            )
        if self.repaired:
            self.notes.append(REPAIRED_NOTE)
        if self._untimed:
            self.notes.append(f"{_count(self._untimed, 'span')} without a usable duration read as 0 ns long")

    def _memory(
        self, parts: list[TracePart], threads_of_part: list[Int32], time_ns: Int64, kept: Bool
    ) -> MemoryEvents:
        order = np.argsort(time_ns, kind="stable")
        order = order[kept[order]]
        columns = [p.memory for p in parts]
        # NONE, which is -1, stays NONE.
        thread = [np.r_[own, NONE][m.thread] for own, m in zip(threads_of_part, columns, strict=True)]
        change = _joined([m.bytes for m in columns], np.int64)[order]
        return MemoryEvents(
            time_ns=time_ns[order],
            action=np.where(
                _joined([m.failed for m in columns], np.bool_)[order],
                MemoryAction.OUT_OF_MEMORY,
                np.where(change < 0, MemoryAction.FREE, MemoryAction.ALLOCATE),
            ).astype(np.uint8),
            bytes=change,
            address=_joined([m.address for m in columns], np.uint64)[order],
            device_type=_joined([m.device_type for m in columns], np.int32)[order],
            device=_joined([m.device for m in columns], np.int32)[order],
            allocated=_joined([m.allocated for m in columns], np.int64)[order],
            reserved=_joined([m.reserved for m in columns], np.int64)[order],
            thread=_joined(thread, np.int32)[order],
            stack=np.full(len(order), NONE, np.int32),
            stacks=[],
        )

    def _events(
        self,
        parts: list[TracePart],
        threads_of_part: list[Int32],
        threads: list[Thread],
        start_ns: Int64,
        kept: Bool,
    ) -> Events:
        spans = [p.spans for p in parts]
        thread = _joined([own[s.thread] for own, s in zip(threads_of_part, spans, strict=True)], np.int32)
        duration_ns = _joined([s.duration_ns for s in spans], np.int64)
        begin = kept & _joined([s.phase_begin for s in spans], np.bool_)
        end = kept & _joined([s.phase_end for s in spans], np.bool_)
        keep = kept
        if begin.any() or end.any():
            keep = kept & self._pair(begin, end, thread, start_ns, duration_ns)
        order = np.argsort(start_ns, kind="stable")
        order = order[keep[order]]
        name, names = _texts([s.name for s in spans])
        codes: dict[str, npt.NDArray[Any]] = {}
        texts: dict[str, list[str]] = {}
        for column in TEXTS:
            code, known = _texts([getattr(s, column) for s in spans])
            codes[column], texts[column] = _without_empty(code[order], known)
        figures = {
            **{column: ([getattr(s, column) for s in spans], kind) for column, (kind, _) in FIGURES.items()},
            **{column: ([s.numbers[column] for s in spans], np.int64) for column in NUMBERS},
        }
        return Events(
            **{column: _joined(arrays, kind)[order] for column, (arrays, kind) in figures.items()},
            category=_joined([s.category for s in spans], np.uint8)[order],
            name=name[order],
            start_ns=start_ns[order],
            duration_ns=duration_ns[order],
            thread=thread[order],
            message=codes.pop("messages"),
            **codes,
            names=names,
            threads=threads,
            call_stacks=texts["call_stack"],
            calling_lines=texts["called_from"],
            input_shapes=texts["shapes"],
            input_types=texts["types"],
            input_settings=texts["settings"],
            input_strides=texts["strides"],
            launched_kernels=texts["launched"],
            annotations=texts["annotation"],
            messages=[_message(text) for text in texts["messages"]],
        )

    def _pair(self, begin: Bool, end: Bool, thread: Int32, start_ns: Int64, duration_ns: Int64) -> Bool:
        """Set the duration of each `B` that has an `E`. Return a mask of the rows to keep.

        Pairs are nested within a thread, as the format requires.
        """
        rows = np.flatnonzero(begin | end)
        rows = rows[np.lexsort((rows, start_ns[rows], thread[rows]))]
        opens = begin[rows]
        # The level of a B is the depth after it, that of an E the depth before it. A B and the next E on the
        # same level of the same thread belong together. Unmatched events shift all later levels of a thread
        # by the same amount.
        depth = np.cumsum(np.where(opens, 1, -1))
        level = np.where(opens, depth, depth + 1)
        by_level = np.lexsort((np.arange(len(rows)), level, thread[rows]))
        first, second = by_level[:-1], by_level[1:]
        same = (level[first] == level[second]) & (thread[rows[first]] == thread[rows[second]])
        matched = same & opens[first] & ~opens[second]
        starts, ends = rows[first[matched]], rows[second[matched]]
        duration_ns[starts] = start_ns[ends] - start_ns[starts]
        keep = ~(begin | end)
        keep[starts] = True
        lone = len(rows) - 2 * len(starts)
        if lone:
            self.notes.append(f"{_count(lone, 'begin or end event')} without a counterpart skipped")
        return keep


def _devices(events: Events) -> dict[str, int]:
    """Return the GPU that each pid is, if it is one."""
    work, host = events.where(*GPU_WORK_CATEGORIES), events.among(*HOST_CATEGORIES)
    pairs = np.unique(np.stack([events.thread[work], events.device[work]], axis=1), axis=0).tolist()
    return devices_by_pid(
        ((events.threads[thread].pid, device) for thread, device in pairs),
        (events.threads[thread].pid for thread in np.unique(events.thread[host]).tolist()),
    )


def _joined(arrays: list[npt.NDArray[Any]], kind: Any) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, kind)


def _texts(parts: list[pa.DictionaryArray]) -> tuple[Int32, list[str]]:
    """Join dictionaries. Return codes of shape (n,) and the texts, in order of first appearance."""
    if not parts:
        return np.zeros(0, np.int32), []
    whole = pa.chunked_array(parts).unify_dictionaries()
    codes = _joined([chunk.indices.to_numpy() for chunk in whole.chunks], np.int32).astype(
        np.int32, copy=False
    )
    return codes, whole.chunk(0).dictionary.to_pylist()


def _without_empty(codes: Int32, texts: list[str]) -> tuple[Int32, list[str]]:
    """Drop the empty text: its code becomes NONE."""
    if "" not in texts:
        return codes, texts
    empty = texts.index("")
    new = np.arange(len(texts), dtype=np.int32)
    new[empty + 1 :] -= 1
    new[empty] = NONE
    return new[codes] if len(codes) else codes, texts[:empty] + texts[empty + 1 :]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("s" if number != 1 else "")


def _message(text: str) -> Message:
    """Return the message whose fields are joined in this text."""
    fields = text.split(MESSAGE_SEPARATOR)
    if len(fields) != len(Message._fields):  # a name with a separator in it
        fields = [""] * len(Message._fields)
    collective, group, ranks, size, sequence, inputs, outputs, kind, source, destination = fields
    return Message(
        collective=collective,
        group=group,
        ranks=tuple(int(rank) for rank in _RANK.findall(ranks)),
        group_size=_number(size),
        sequence=_number(sequence),
        elements_in=_number(inputs),
        elements_out=_number(outputs),
        element_type=kind,
        source=_number(source),
        destination=_number(destination),
    )


def _number(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else NONE
