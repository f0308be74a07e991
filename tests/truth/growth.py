"""Labelled growth, for the fit of what is a leak: `python -m tests.truth.growth OUT [NAME…]`.

Computes the figures of rules/shared/growth.py for the loops whose recordings are below OUT (`make leaks`),
and writes them into growth.tsv: a line for each loop and way to record it. `make fit` needs that table only.
"""

from __future__ import annotations

import csv
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.shared.growth import FEATURES, Growth, growth_of
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.training.noting_tensors import KEY

if TYPE_CHECKING:
    from tests.truth.loops.loop import LeakLoop

TABLE: Final = Path(__file__).with_name("growth.tsv")

KNOWN: Final = ("loop", "writer", "field", "mechanism", "way", "shows", "leak")
"""Columns before those of FEATURES. writer: a round of loops that one writer wrote. way: how it was
recorded."""

FEW_STEPS: Final = 6
"""Users often record so many. The recordings are cut after them."""


def row(growth: Growth, **known: Any) -> dict[str, str]:
    """Return a line of the table."""
    figures = {name: f"{value:.3g}" for name, value in growth.features.items()}
    return {**{name: str(value) for name, value in known.items()}, "shows": growth.shows, **figures}


def growth_in(file: Path) -> Growth | None:
    """Return what grows on the first device of a recording; None if that cannot be told, or nothing does."""
    memories = Facts(read_trace(str(file))).memory
    found = growth_of(memories[0]) if memories else None
    return found if found is not None and found.rate >= found.least else None


def read() -> list[dict[str, str]]:
    """Return the table's lines."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def main(out: str, *names: str) -> None:
    from tests.truth.leaks import LOOPS

    rows, writers = list[dict[str, str]](), {one["loop"]: one["writer"] for one in read()}
    from tests.truth.growth_shapes import shapes

    for loop in [LOOPS[name] for name in names] if names else LOOPS.values():
        known = {
            "loop": loop.name,
            "writer": writers.get(loop.name, "unknown"),
            "field": loop.loop.__module__.rpartition(".")[2],
            "mechanism": _mechanism(loop),
            "leak": int(bool(loop.keeps)),
        }
        for way, file in _recordings(loop.name, Path(out)):
            if (found := growth_in(file)) is not None:
                rows.append(row(found, way=way, **known))
        print(loop.name, flush=True)
    rows += shapes()
    with TABLE.open("w", encoding="utf-8", newline="") as table:
        writer = csv.DictWriter(table, [*KNOWN, *FEATURES], delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


_LOOKS_LIKE_A_LEAK = (
    "deque",
    "ring",
    "clear|empt|drop|half",
    "cache|key|lru",
    "queue|heap",
    "last|best",
    "optimi|step",
    "cycle|collect",
)


def _mechanism(loop: LeakLoop) -> str:
    """The usual cause of a leak, or the word by which another loop looks like one."""
    if loop.keeps:
        return " or ".join(sorted(loop.cause - {""})) or "no usual cause"
    text = f"{loop.name} {loop.about}".lower()
    return next((words for words in _LOOKS_LIKE_A_LEAK if re.search(words, text)), "other")


def _recordings(name: str, out: Path) -> Iterator[tuple[str, Path]]:
    """Yield each way and its recording, which is there until the next one is asked for."""
    from tests.truth.gpu_snapshot import Gpu, write_snapshot
    from tests.truth.leaks import IN_THREADS

    late, start = out / f"{name}.pt.trace.json", out / f"{name}.from_start.pt.trace.json"
    early = out / f"{name}.early.pt.trace.json"
    if not late.exists() or not start.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        plain, cut, snapshot = (Path(folder) / f"{one}.pt.trace.json" for one in ("plain", "cut", "gpu"))
        snapshot = snapshot.with_suffix(".pickle")
        yield "with NotingTensors", late
        plain.write_text(late.read_text().replace(f'"{KEY}"', '"unknown"', 1))
        yield "plainly", plain
        yield from (("plainly, few steps", one) for one in _cut(plain, cut))
        if early.exists():
            yield "from the fourth step", early
        yield "from the job's start", start
        yield from (("from the job's start, few steps", one) for one in _cut(start, cut))
        for way, step in () if name in IN_THREADS else _HISTORIES:
            write_snapshot(start, Gpu(80 << 30), snapshot, from_step=step if step else None)
            yield way, snapshot


_HISTORIES = (("a GPU's snapshot", 0), ("a GPU's snapshot, from the middle", 12), ("the same, few steps", 26))


def _cut(trace: Path, to: Path) -> Iterator[Path]:
    """Write the trace without what came after its first steps; nothing if it is no JSON, as torch writes it
    where a frame's name has a quotation mark in it."""
    try:
        document = json.loads(trace.read_text(), strict=False)
    except ValueError:
        return
    events = document["traceEvents"]
    marks = [one for one in events if str(one.get("name", "")).startswith("ProfilerStep#") and "dur" in one]
    end = sorted(one["ts"] + one["dur"] for one in marks)[:FEW_STEPS][-1]
    document["traceEvents"] = [one for one in events if one.get("ts", 0) <= end]
    to.write_text(json.dumps(document))
    yield to


if __name__ == "__main__":
    main(*sys.argv[1:])
