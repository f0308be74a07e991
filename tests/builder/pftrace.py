"""Write Kineto's JSON as torch's CUPTI backend writes a `.pftrace`: with Perfetto's own classes.

As `torch/profiler/_cuspy/cuspy_trace.py` and `cuspy_pftrace.cpp` do: a group of slices per kind of host
event, all of which begin before the first ends; GPU work as stages; its arguments as texts.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import pytest

from tests.builder.forms import EPOCH_NS

perfetto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

_STAGES: Final = {"kernel": 1, "gpu_memcpy": 2, "gpu_memset": 3, "gpu_user_annotation": 4}
_STAGE_NAMES: Final = ["Kernel", "Memcpy", "Memset", "Annotation"]
_LATER: Final = ("cuda_runtime", "cuda_driver", "cuda_sync")
_LANES_FROM: Final = 100
_EXTRA: Final = {"device": "device id", "context": "context id", "stream": "stream id"}
_AS_LAUNCH: Final = {"registers per thread": 1, "shared memory": 2}
_LAUNCH_NAMES: Final = ["registers_per_thread", "shared_mem_dynamic"]
# What the backend writes into JSON but not into the stages.
_NOT_WRITTEN: Final = ("grid", "block", "blocks per SM", "warps per SM", "est. achieved occupancy %")


def encoded(text: bytes) -> bytes:
    """Return the `.pftrace` file, unpacked, that says the same as Kineto's JSON, to the nanosecond."""
    document = json.loads(text, parse_float=Decimal)
    return Encoder(int(document.get("baseTimeNanoseconds") or EPOCH_NS)).encode(document["traceEvents"])


class Encoder:
    """Collects packets."""

    def __init__(self, base_ns: int = EPOCH_NS) -> None:
        self.trace = perfetto.Trace()
        self._base_ns = base_ns
        self._names: dict[str, int] = {}
        self._categories: dict[str, int] = {}
        self._lanes: dict[tuple[int, int], int] = {}
        self._tracks: dict[tuple[Any, Any], int] = {}
        self._body: list[Any] = []

    def encode(self, events: Iterable[dict[str, Any]]) -> bytes:
        """Return the file, unpacked."""
        events = list(events)
        spans = [event for event in events if event.get("ph") == "X" and event.get("cat") != "Trace"]
        named = [event for event in events if event.get("ph") == "M" and event["name"] == "thread_name"]
        of: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for span in spans:
            category = span.get("cat", "")
            of[category if category in (*_STAGES, *_LATER) else "host"].append(span)
        for category in ("host", *_LATER):
            self._slices(of[category])
        for category, stage in _STAGES.items():
            for span in of[category]:
                self._stage(span, stage)
        self._head({(event["pid"], event["tid"]): event["args"]["name"] for event in named})
        self.trace.packet.extend(self._body)
        return self.trace.SerializeToString()

    def counter(self, time_us: Decimal, gpu: int, value: float) -> None:
        """Add a sample of the counter `SM Clock (MHz)`."""
        packet = self._packet(time_us)
        packet.gpu_counter_event.counter_descriptor_iid = 1 + gpu
        packet.gpu_counter_event.counters.add(counter_id=0, double_value=value)

    def _time_ns(self, time_us: Decimal) -> int:
        return self._base_ns + round(time_us * 1000)

    def _packet(self, time_us: Decimal) -> Any:
        packet = perfetto.TracePacket(timestamp=self._time_ns(time_us), trusted_packet_sequence_id=1)
        packet.sequence_flags = 2
        self._body.append(packet)
        return packet

    def _iid(self, table: dict[Any, int], name: Any) -> int:
        return table.setdefault(name, len(table) + 1)

    def _track(self, event: dict[str, Any]) -> int:
        return self._iid(self._tracks, (event["pid"], event["tid"]))

    def _slices(self, group: list[dict[str, Any]]) -> None:
        for event in group:
            said = self._packet(event["ts"]).track_event
            said.type, said.track_uuid = said.TYPE_SLICE_BEGIN, self._track(event)
            said.name_iid = self._iid(self._names, event["name"])
            if event["cat"] not in ("cuda_sync", "overhead"):
                said.category_iids.append(self._iid(self._categories, event["cat"]))
            for key, value in event.get("args", {}).items():
                annotation = said.debug_annotations.add(name=key)
                _fill(annotation, value)
        for event in group:
            said = self._packet(event["ts"] + event["dur"]).track_event
            said.type, said.track_uuid = said.TYPE_SLICE_END, self._track(event)

    def _stage(self, event: dict[str, Any], stage: int) -> None:
        arguments = event.get("args", {})
        said = self._packet(event["ts"]).gpu_render_stage_event
        said.event_id, said.duration = len(self._body), round(event["dur"] * 1000)
        said.gpu_id, said.stage_iid, said.context = int(event["pid"]), stage, 1
        lane = (int(event["pid"]), int(re.sub(r"\D", "", str(event["tid"]))))
        said.hw_queue_iid = _LANES_FROM + self._iid(self._lanes, lane)
        if stage in (1, 4):
            said.name_iid = self._iid(self._names, event["name"])
        if "grid" in arguments:
            _launch(said.launch, arguments)
        for key, value in arguments.items():
            if key not in _AS_LAUNCH and key not in _NOT_WRITTEN and value not in (None, 0):
                text = value if isinstance(value, str) else json.dumps(value, default=str)
                said.extra_data.add(name=_EXTRA.get(key, key), value=text)
        said.extra_data.add(name="process_name", value="python")

    def _head(self, named: dict[tuple[Any, Any], str]) -> None:
        clock = self.trace.packet.add(timestamp=self._base_ns, trusted_packet_sequence_id=1)
        clock.clock_snapshot.clocks.add(clock_id=6, timestamp=self._base_ns)
        for (pid, tid), uuid in self._tracks.items():
            track = self.trace.packet.add().track_descriptor
            track.uuid = uuid
            track.thread.pid, track.thread.tid = _number(pid), _number(tid)
            track.thread.thread_name = "Overhead" if pid == -1 else named.get((pid, tid), "")
        packet = self.trace.packet.add(trusted_packet_sequence_id=1, sequence_flags=1)
        data = packet.interned_data
        for gpu in sorted({gpu for gpu, _ in self._lanes}):
            described = data.gpu_counter_descriptors.add(iid=1 + gpu, gpu_id=gpu)
            described.counter_descriptor.specs.add(counter_id=0, name="SM Clock (MHz)")
        for table, into in ((self._names, data.event_names), (self._categories, data.event_categories)):
            for name, iid in table.items():
                into.add(iid=iid, name=name)
        for number, name in enumerate(_STAGE_NAMES, 1):
            data.gpu_specifications.add(iid=number, name=name)
        for (_, stream), iid in self._lanes.items():
            data.gpu_specifications.add(iid=_LANES_FROM + iid, name=f"[{stream:02d}] stream {stream}")
        names = [perfetto.InternedComputeArgName(iid=i, name=n) for i, n in enumerate(_LAUNCH_NAMES, 1)]
        # Perfetto's own classes have this table in an extension.
        more = b"".join(_field(1001, name.SerializeToString()) for name in names)
        data.MergeFromString(more)


def _launch(launch: Any, arguments: dict[str, Any]) -> None:
    for size, key in ((launch.grid_size, "grid"), (launch.workgroup_size, "block")):
        size.x, size.y, size.z = arguments[key]
    for key, number in _AS_LAUNCH.items():
        if arguments.get(key):
            launch.args.add(name_iid=number, uint_value=arguments[key])


def _fill(annotation: Any, value: Any) -> None:
    if isinstance(value, dict):
        for key, each in value.items():
            _fill(annotation.dict_entries.add(name=key), each)
    elif isinstance(value, list):
        for each in value:
            _fill(annotation.array_values.add(), each)
    elif isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, (float, Decimal)):
        annotation.double_value = float(value)
    elif isinstance(value, int):
        annotation.int_value = value
    else:
        annotation.string_value = "null" if value is None else value


def _number(identifier: Any) -> int:
    return int(identifier) & 0x7FFFFFFF


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
