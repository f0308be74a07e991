"""Memory at the peak of two sides: what differs, whose it is, and which side failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tb_gpudiag.digest.digest import Digest, MemoryPeaks
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.jobs.compare.comparison_view import comparison_document
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.text import document_text
from tests.digest.made import digest
from tests.report.views.formats import one_space

GIB = 2**30


def held(kind: str, gib: int, place: str = "", device: str = "GPU 0") -> dict[str, Any]:
    return {"device": device, "kind": kind, "place": place, "bytes": gib * GIB, "count": 1}


def snapshot(id: str, *rows: dict[str, Any], failed_gib: int = 0) -> Digest:
    """Make the digest of a snapshot with one device, whose peak the rows add up to."""
    size = sum(row["bytes"] for row in rows)
    failures = int(failed_gib > 0)
    peaks = MemoryPeaks(rows[0]["device"], size, size + GIB, 80 * GIB, failed_gib * GIB, failures)
    made = digest(id=id, path=f"{id}.pickle", kind="snapshot", steps_basis="none", held=rows)
    return replace(made, about=replace(made.about, memory=[peaks]))


BASE = snapshot("a", held("parameter", 8), held("activation", 10, "forward (my/model.py)"))
CANDIDATE = snapshot(
    "b", held("parameter", 8), held("activation", 30, "forward (my/model.py)"), held("temporary", 2, "loss")
)


def test_two_snapshots_are_compared_by_what_holds_their_peaks() -> None:
    found = compare([BASE], [CANDIDATE])
    assert found.sentence == (
        "The candidate allocates 22\u00a0GiB more at its peak: 40\u00a0GiB instead of 18\u00a0GiB. "
        "It has 20\u00a0GiB more of activations."
    )
    rows = [(row.kind, row.place, row.base_bytes / GIB, row.candidate_bytes / GIB) for row in found.held]
    kinds = pb.MemoryKind
    assert rows == [(kinds.activation, "forward (my/model.py)", 10, 30), (kinds.temporary, "loss", 0, 2)]
    assert sum(row.candidate_bytes - row.base_bytes for row in found.held) == 22 * GIB


def test_a_snapshot_has_no_time_to_compare() -> None:
    found = compare([BASE], [CANDIDATE])
    assert not found.causes
    assert not found.notes
    assert "per step" not in document_text(comparison_document(found))


def test_a_side_without_history_is_named() -> None:
    bare = snapshot("c", held("before", 20))
    partly = snapshot("d", held("before", 20), held("activation", 1))
    found = compare([BASE], [bare])
    assert found.notes == [
        "The candidate has no history: nothing shows what held its memory. "
        "Call torch.cuda.memory._record_memory_history() before the job allocates."
    ]
    assert found.notes[0] in one_space(document_text(comparison_document(found)))
    assert [note[:9] for note in compare([bare], [BASE]).notes] == ["The base "]
    assert not compare([BASE], [partly]).notes


def test_less_memory_is_less() -> None:
    assert compare([CANDIDATE], [BASE]).sentence == (
        "The candidate allocates 22\u00a0GiB less at its peak: 18\u00a0GiB instead of 40\u00a0GiB. "
        "It has 20\u00a0GiB less of activations."
    )


def test_equal_peaks_are_equal() -> None:
    other = snapshot("c", held("parameter", 8), held("activation", 10, "forward (my/model.py)"))
    found = compare([BASE], [other])
    assert found.sentence == "The peaks are the same within 1.0%: 18\u00a0GiB and 18\u00a0GiB."
    assert not found.held


def test_one_device_of_each_side_is_compared_whatever_its_number() -> None:
    other = snapshot("c", held("parameter", 9, device="GPU 3"))
    (row,) = compare([snapshot("d", held("parameter", 8))], [other]).held
    assert (row.device, row.base_bytes, row.candidate_bytes) == ("GPU 0", 8 * GIB, 9 * GIB)


def test_the_side_that_failed_is_named() -> None:
    failed = snapshot("c", held("parameter", 20), failed_gib=2)
    assert compare([BASE], [failed]).sentence.endswith(
        " 1 allocation failed in the candidate, the last one of 2\u00a0GiB, and none in the base."
    )
    other = snapshot("d", held("parameter", 9), failed_gib=1)
    assert compare([failed], [other]).sentence.endswith(" Allocations failed on both sides.")


def test_traces_say_whose_memory_changed_too() -> None:
    one, other = (
        digest(id=id, path=f"{id}.json", held=[held("activation", gib, "forward")])
        for id, gib in (("a", 1), ("b", 3))
    )
    (row,) = compare([one], [other]).held
    assert (row.base_bytes, row.candidate_bytes) == (GIB, 3 * GIB)


def test_kinds_of_a_digest_of_somebody_else_are_unknown() -> None:
    (row,) = compare([snapshot("c", held("<b>", 8))], [snapshot("d", held("<b>", 9))]).held
    assert (row.kind, row.base_bytes, row.candidate_bytes) == (pb.MemoryKind.unknown, 8 * GIB, 9 * GIB)


def test_kinds_are_those_of_the_device_with_the_peak() -> None:
    one = snapshot("c", held("parameter", 8))
    rows = [held("activation", 1), held("parameter", 8), held("temporary", 5, device="GPU 1")]
    peaks = MemoryPeaks("GPU 0", 9 * GIB, 9 * GIB, 80 * GIB)
    other = snapshot("d", *rows)
    other = replace(other, about=replace(other.about, memory=[peaks]))
    assert "temporaries" not in compare([one], [other]).sentence
