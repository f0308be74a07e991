"""The shape of a request that is too large by itself: recorded, guessed, or not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.memory.memory_peak import RULE
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.recorded import allocated_bytes
from tests.builder import SnapshotBuilder, TraceBuilder
from tests.rules.memory_stage import MIB, only
from tests.trace.support import read_bytes
from tests.with_each import with_each
from tests.wording.plain import plain

ROWS = 1 << 17


def said(facts: Facts) -> str:
    return plain(only(RULE.check(facts)).summary)


def snapshot_of(requested: int, *alive: int) -> SnapshotBuilder:
    snapshot = SnapshotBuilder()
    snapshot.segment(40 * MIB, at=0)
    for at, size in enumerate(alive):
        snapshot.allocate(size, at=1 + at, stack=["train.py(3): main"])
    snapshot.out_of_memory(requested, at=10, device_free=15 << 30)
    return snapshot


def facts_at(snapshot: SnapshotBuilder, folder: Path) -> Facts:
    return Facts(read_trace(str(snapshot.write(folder))))


def test_a_matrix_of_the_rows_of_what_was_alive_is_a_guess(tmp_path: Path) -> None:
    snapshot = snapshot_of(4 * ROWS * ROWS, 4 * ROWS, 4 * ROWS, 20 * MIB)
    text = said(facts_at(snapshot, tmp_path))
    assert "The recording has no shapes" in text
    assert (
        "A guess: it is a float32 matrix of 131,072 × 131,072, because it is exactly as large, and " in text
    )
    assert "2 allocations of 131,072 such numbers were alive." in text


def test_a_request_is_recorded_as_the_allocator_rounds_it_up(tmp_path: Path) -> None:
    rows = ROWS + 1
    snapshot = snapshot_of(allocated_bytes(4 * rows * rows), 4 * rows)
    assert "A guess: it is a float32 matrix of 131,073 × 131,073, because" in said(
        facts_at(snapshot, tmp_path)
    )


def test_what_was_alive_decides_the_format(tmp_path: Path) -> None:
    """A float32 matrix of as many bytes exists as well."""
    snapshot = snapshot_of(4 * ROWS * ROWS, 2 * ROWS)
    assert "int8 or bool matrix of 262,144 × 262,144, because" in said(facts_at(snapshot, tmp_path))


def test_a_size_alone_is_compared_with_a_matrix(tmp_path: Path) -> None:
    snapshot = snapshot_of(4 * ROWS * ROWS, 20 * MIB)
    text = said(facts_at(snapshot, tmp_path))
    assert "It is as large as a float32 matrix of 131,072 × 131,072, which is a guess." in text
    assert "were alive" not in text


def test_other_sizes_say_how_to_see_the_shape(tmp_path: Path) -> None:
    snapshot = snapshot_of(4 * ROWS * (ROWS + 1), 4 * ROWS)
    text = said(facts_at(snapshot, tmp_path))
    assert "The recording has no shapes: torch.profiler records them with record_shapes=True." in text
    assert "matrix" not in text


@with_each(
    ("shapes", "expected"),
    [
        ([[ROWS, 1], [ROWS], []], "[131072, 1] and [131072], which broadcast to [131072, 131072]."),
        ([[ROWS, 1], [1, 3 * ROWS]], "[131072, 1] and [1, 393216]."),
        ([[ROWS, 3], [ROWS]], "[131072, 3] and [131072]."),
        ([[7], [8], [9], [10], [11]], "[7], [8], [9], [10] and 1 more tensor."),
        (None, "The recording has no shapes"),
    ],
)
def test_recorded_shapes_are_those_of_the_operator(shapes: list[list[int]] | None, expected: str) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.alloc(20 * MIB, at=5)
    main.op("aten::sub", at=10, us=50, shapes=shapes)
    main.alloc(4 * ROWS * ROWS, at=30)
    document = trace.document()
    last = max((e for e in document["traceEvents"] if e["name"] == "[memory]"), key=lambda e: float(e["ts"]))
    last["name"] = "[OutOfMemory]"
    assert expected in said(Facts(read_bytes(json.dumps(document).encode())))


def test_a_real_request_names_its_inputs_in_a_trace(tmp_path: Path, torch: Any) -> None:
    from torch.profiler import ProfilerActivity, profile

    def pairwise(found: Any, wanted: Any) -> Any:
        return (found - wanted).square().mean()

    rows = 1 << 23  # 256 TiB: no process has so many addresses
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_stack=True
    ) as profiler:
        found = torch.rand(rows, 1)
        with pytest.raises(RuntimeError):
            pairwise(found, torch.rand(rows))
    path = tmp_path / "real.pt.trace.json"
    profiler.export_chrome_trace(str(path))
    # What a GPU's allocator reports differs in this number only.
    recorded = json.loads(path.read_text())
    for event in recorded["traceEvents"]:
        if event["name"] in {"[memory]", "[OutOfMemory]"}:
            event["args"] |= {"Device Type": 1, "Device Id": 0}
    path.write_text(json.dumps(recorded))
    facts = Facts(read_trace(str(path)))
    finding = only(RULE.check(facts))
    assert f"“aten::sub” was given [{rows}, 1] and [{rows}], which broadcast to [{rows}, {rows}]." in plain(
        finding.summary
    )
    assert (finding.places[0].function, finding.places[0].operator) == ("pairwise", "aten::sub")


def test_a_real_request_is_guessed_in_a_snapshot(tmp_path: Path, torch: Any) -> None:
    from tests.truth.gpu_snapshot import Gpu, record, write_snapshot

    rows = 4096

    def pairwise() -> None:
        found, wanted = torch.rand(rows, 1), torch.rand(rows)
        (found - wanted).square().mean()

    trace, snapshot = tmp_path / "real.pt.trace.json", tmp_path / "real.pickle"
    record(pairwise, trace)
    assert write_snapshot(trace, Gpu(48 * MIB), snapshot)
    facts = Facts(read_trace(str(snapshot)))
    assert f"2 allocations of {rows:,} such numbers were alive" in said(facts)
    assert only(RULE.check(facts)).places[0].function == "pairwise"
