"""A recording as a file: the document around the events, timestamps exact to the nanosecond."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.builder.forms import BASE_NS, EPOCH_NS, Form, Generation, Timed
from tests.builder.recording import Recording

Document = dict[str, Any]

# json.dumps makes an encoder for each call, and looks for cycles.
_encode = json.JSONEncoder(check_circular=False).encode


@dataclass(frozen=True)
class TopLevel:
    """Top-level keys next to the events."""

    simulated: bool = False
    rank: int | None = None
    world_size: int | None = None
    distributed: dict[str, Any] = field(default_factory=dict)  # more of `distributedInfo`
    memory_as_spans: bool = False
    extra: dict[str, Any] = field(default_factory=dict)


def document(recording: Recording, generation: Generation, top: TopLevel) -> Document:
    """Return the document as Python values. Timestamps are numbers, which float64 rounds in generation B+."""
    before, after = _keys(recording, generation, top)
    events = [_with_numbers(timed, generation) for timed in _events(recording, generation, top)]
    return {**before, "traceEvents": events, **after}


def to_bytes(recording: Recording, generation: Generation, top: TopLevel, *, gzipped: bool = False) -> bytes:
    """Return the file's bytes, the same for the same recording."""
    before, after = _keys(recording, generation, top)
    timed = _events(recording, generation, top)
    events = ",\n".join(map(_text, _encoded(timed), (_timestamps(one, generation) for one in timed)))
    parts = [_inner(before), f'"traceEvents": [\n{events}\n]', _inner(after)]
    content = ("{" + ",\n".join(part for part in parts if part) + "}\n").encode()
    # The least effort: better compression costs more than all the rest of writing.
    return gzip.compress(content, compresslevel=1, mtime=0) if gzipped else content


def write_file(
    recording: Recording,
    generation: Generation,
    top: TopLevel,
    folder: Path,
    *,
    worker: str,
    time: int | None,
    gzipped: bool,
) -> Path:
    """Write the file under the name that `tensorboard_trace_handler` gives it: with the time in ms in old
    torch, else in ns."""
    if time is None:
        end_ns = EPOCH_NS + recording.last_ns()
        time = end_ns // 1_000_000 if generation == "A" else end_ns
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{worker}.{time}.pt.trace.json{'.gz' if gzipped else ''}"
    path.write_bytes(to_bytes(recording, generation, top, gzipped=gzipped))
    return path


def _events(recording: Recording, generation: Generation, top: TopLevel) -> list[Timed]:
    return list(Form(recording, generation, memory_as_spans=top.memory_as_spans).events())


def _keys(recording: Recording, generation: Generation, top: TopLevel) -> tuple[Document, Document]:
    """Return the keys before the events, and those after them."""
    before: Document = {"schemaVersion": 1, "deviceProperties": _device_properties(recording)}
    if generation != "A":
        before.update(_recorded(recording))
    if top.rank is not None:
        ranks = {"rank": top.rank, "world_size": top.world_size or 1}
        before["distributedInfo"] = {"backend": "nccl", **ranks, **top.distributed}
    if top.simulated:
        before["simulated"] = True
    after: Document = {"traceName": "trace.json"}
    base = {"displayTimeUnit": "ms", "baseTimeNanoseconds": BASE_NS}
    if generation == "C1":
        after.update(base)
    if generation == "C2":
        before.update(base)
    after.update(top.extra)
    return before, after


def _device_properties(recording: Recording) -> list[Document]:
    return [
        {
            "id": number,
            "name": device.name,
            "totalGlobalMem": device.total_bytes,
            "computeMajor": device.compute_major,
            "computeMinor": device.compute_minor,
            "warpSize": 32,
            "numSms": device.multiprocessors,
            "maxThreadsPerMultiprocessor": 2048,
            "regsPerMultiprocessor": 65536,
            "sharedMemPerMultiprocessor": 167936,
        }
        for number, device in enumerate(recording.devices)
    ]


def _recorded(recording: Recording) -> Document:
    """Return the keys that say what was recorded."""
    said = {
        "record_shapes": any("Input Dims" in span.args for span in recording.host),
        "with_stack": any(span.kind == "frame" for span in recording.host),
        "profile_memory": bool(recording.memory),
    }
    return {key: 1 for key, is_so in said.items() if is_so}


def _timestamps(timed: Timed, generation: Generation) -> str:
    """Return `ts` and `dur` in decimal µs, as entries. Generations A and B cut both ends to whole µs."""
    if timed.start_ns is None:
        return ""
    begin = EPOCH_NS - BASE_NS if generation in ("C1", "C2") else EPOCH_NS
    start = begin + timed.start_ns
    whole = generation in ("A", "B")
    begins = f'"ts": {start // 1000 if whole else _decimal_us(start)}'
    if timed.end_ns is None:
        return begins
    end = begin + timed.end_ns
    return f'{begins}, "dur": {end // 1000 - start // 1000 if whole else _decimal_us(end - start)}'


def _decimal_us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}" if ns >= 0 else f"-{_decimal_us(-ns)}"


def _with_numbers(timed: Timed, generation: Generation) -> dict[str, Any]:
    return {**timed.event, **json.loads(f"{{{_timestamps(timed, generation)}}}")}


def _encoded(timed: list[Timed]) -> list[str]:
    """Return the JSON of each event. All are encoded at once: a call for each takes 1.5 times as long."""
    mark = "\0 between events"
    marked = [item for one in timed for item in (one.event, mark)]
    return _encode(marked[:-1])[1:-1].split(f", {_encode(mark)}, ")


def _text(event: str, times: str) -> str:
    return f"{{{times}, {event[1:]}" if times else event


def _inner(keys: Document) -> str:
    return json.dumps(keys)[1:-1]
