"""A second way to follow memory: raw JSON, event by event, with a dictionary of live allocations."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

CPU = -1


@dataclass
class Replayed:
    """One device's bytes after each event."""

    totals: list[int] = field(default_factory=list)  # the trace's own totals
    counted: list[int] = field(default_factory=list)  # the sum of the events' bytes, from 0
    alive: list[int] = field(default_factory=list)  # by address: allocated, not yet freed
    early_frees: list[int] = field(default_factory=list)  # bytes


def replay(path: Path) -> dict[int, Replayed]:
    """Follow every device of a trace file: device -> bytes."""
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    loaded: Any = json.loads(text, parse_float=Decimal, strict=False)
    events = loaded if isinstance(loaded, list) else loaded["traceEvents"]
    found: dict[int, Replayed] = {}
    alive: dict[tuple[int, int], int] = {}
    memory = [event for event in events if event.get("name") == "[memory]"]
    for event in sorted(memory, key=lambda event: Decimal(str(event["ts"]))):
        args = event["args"]
        device = CPU if int(args["Device Type"]) == 0 else int(args["Device Id"])
        size, address = int(args["Bytes"]), int(args.get("Addr", 0))
        one = found.setdefault(device, Replayed())
        one.totals.append(int(args.get("Total Allocated", -1)))
        one.counted.append((one.counted or [0])[-1] + size)
        before = (one.alive or [0])[-1]
        if size >= 0:
            alive[device, address] = size
        elif alive.pop((device, address), None) is None:
            one.early_frees.append(-size)
            size = 0
        one.alive.append(before + size)
    return found
