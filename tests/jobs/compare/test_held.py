"""Memory at the peak of two sides: what differs, whose it is, and which side failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.digest.digest import Digest, MemoryPeaks
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.jobs.compare.comparison_view import comparison_document
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import code_place
from tb_gpudiag.report.views.text import document_text
from tb_gpudiag.trace.files.find import find_traces
from tests.builder import SnapshotBuilder
from tests.digest.made import digest
from tests.report.views.formats import one_space

GIB = 2**30


def held(kind: str, gib: int, place: str = "", device: str = "GPU 0") -> dict[str, Any]:
    """place: `file.py:3 in function`, of a line that ran."""
    spot, _, function = place.partition(" in ")
    file, _, line = spot.partition(":")
    at = {"function": function, "file": file, "line": int(line or 0), "ran": True}
    return {"device": device, "kind": kind, "bytes": gib * GIB, "count": 1, **at}


def snapshot(id: str, *rows: dict[str, Any], failed_gib: int = 0) -> Digest:
    """Make the digest of a snapshot with one device, whose peak the rows add up to."""
    size = sum(row["bytes"] for row in rows)
    failures = int(failed_gib > 0)
    peaks = MemoryPeaks(rows[0]["device"], size, size + GIB, 80 * GIB, failed_gib * GIB, failures)
    made = digest(id=id, path=f"{id}.pickle", kind="snapshot", steps_basis="none", held=rows)
    return replace(made, about=replace(made.about, memory=[peaks]))


BASE = snapshot("a", held("parameter", 8), held("activation", 10, "my/model.py:38 in forward"))
CANDIDATE = snapshot(
    "b",
    held("parameter", 8),
    held("activation", 30, "my/model.py:41 in forward"),
    held("temporary", 2, "train.py:7 in loss"),
)


def changes(found: pb.Comparison) -> list[str]:
    return [
        f"{code_place(row.place, row.base_place)}: "
        f"{row.base_bytes / GIB:.0f} to {row.candidate_bytes / GIB:.0f}"
        for row in found.held
    ]


def changes_of(base: dict[str, int], candidate: dict[str, int]) -> list[str]:
    """What changed between these GiB of activations at these places."""
    one, other = (
        snapshot(id, *(held("activation", gib, place) for place, gib in side.items()))
        for id, side in (("a", base), ("b", candidate))
    )
    return changes(compare([one], [other]))


def test_two_snapshots_are_compared_by_what_holds_their_peaks() -> None:
    found = compare([BASE], [CANDIDATE])
    assert found.sentence == (
        "The candidate allocates 22\u00a0GiB more at its peak: 40\u00a0GiB instead of 18\u00a0GiB. "
        "It has 20\u00a0GiB more of activations. "
        "The largest part is 20\u00a0GiB more at my/model.py:41 in forward (was line 38)."
    )
    assert changes(found) == [
        "my/model.py:41 in forward (was line 38): 10 to 30",
        "train.py:7 in loss: 0 to 2",
    ]
    assert [row.kind for row in found.held] == [pb.MemoryKind.activation, pb.MemoryKind.temporary]
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
    failed = snapshot("e", held("activation", 20), failed_gib=2)
    assert compare([failed], [bare]).sentence.endswith(" failed in the base, the last one of 2\u00a0GiB.")
    assert not found.held  # what the base holds is not gone: it is not known
    assert (
        found.sentence
        == "The candidate allocates 2\u00a0GiB more at its peak: 20\u00a0GiB instead of 18\u00a0GiB."
    )
    assert not compare([BASE], [partly]).notes


def test_less_memory_is_less() -> None:
    assert compare([CANDIDATE], [BASE]).sentence == (
        "The candidate allocates 22\u00a0GiB less at its peak: 18\u00a0GiB instead of 40\u00a0GiB. "
        "It has 20\u00a0GiB less of activations. "
        "The largest part is 20\u00a0GiB less at my/model.py:38 in forward (was line 41)."
    )


def test_equal_peaks_are_equal() -> None:
    other = snapshot("c", held("parameter", 8), held("activation", 10, "my/model.py:38 in forward"))
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
        digest(id=id, path=f"{id}.json", held=[held("activation", gib, "model.py:3 in forward")])
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


def test_a_line_that_an_edit_above_it_moved_is_one_place() -> None:
    base = {"m.py:38 in forward": 10, "m.py:41 in forward": 5, "m.py:90 in loss": 4}
    moved = {"m.py:41 in forward": 10, "m.py:44 in forward": 5, "m.py:93 in loss": 4}
    assert not changes_of(base, moved)
    assert changes_of(base, moved | {"m.py:41 in forward": 12}) == [
        "m.py:41 in forward (was line 38): 10 to 12"
    ]


def test_a_line_that_was_added_is_new_and_moves_those_below_it() -> None:
    base = {"m.py:38 in forward": 10, "m.py:41 in forward": 5, "m.py:50 in forward": 7}
    edited = {
        "m.py:38 in forward": 10,
        "m.py:39 in forward": 3,
        "m.py:42 in forward": 5,
        "m.py:51 in forward": 7,
    }
    assert changes_of(base, edited) == ["m.py:39 in forward: 0 to 3"]
    assert changes_of(edited, base) == ["m.py:39 in forward: 3 to 0"]


def test_lines_of_a_file_that_nobody_edited_are_other_places() -> None:
    base = {"m.py:38 in forward": 10, "m.py:41 in forward": 5}
    more = base | {"m.py:44 in forward": 5}
    assert changes_of(base, more) == ["m.py:44 in forward: 0 to 5"]
    assert changes_of(base, {"m.py:44 in loss": 10, "m.py:41 in forward": 5}) == [
        "m.py:38 in forward: 10 to 0",
        "m.py:44 in loss: 0 to 10",
    ]


def test_a_function_that_was_moved_to_another_place_of_its_file_is_the_same() -> None:
    base = {"m.py:10 in first": 10, "m.py:30 in second": 5, "m.py:32 in second": 2}
    assert not changes_of(base, {"m.py:10 in second": 5, "m.py:12 in second": 2, "m.py:30 in first": 10})


def test_a_line_of_another_kind_is_another_place() -> None:
    one = snapshot("a", held("activation", 10, "m.py:38 in forward"))
    other = snapshot("b", held("temporary", 3, "m.py:60 in forward"))
    assert changes(compare([one], [other])) == ["m.py:38 in forward: 10 to 0", "m.py:60 in forward: 0 to 3"]


def test_a_file_in_a_folder_of_another_name_is_the_same() -> None:
    base = {"v1/m.py:38 in forward": 10, "torchtitan/m.py:7 in loss": 4}
    assert not changes_of(base, {"v2/m.py:39 in forward": 10, "torchtitan/m.py:7 in loss": 4})
    # Where two files may be meant, neither is.
    assert len(changes_of(base, {"v2/m.py:38 in forward": 10, "v3/m.py:7 in loss": 4})) == 4


def test_a_side_with_several_devices_has_the_lines_of_each() -> None:
    one, other = (
        snapshot(id, *(held("activation", gib, f"m.py:{line} in f", device) for device, gib in sizes.items()))
        for id, line, sizes in (("a", 3, {"GPU 0": 8, "GPU 1": 2}), ("b", 9, {"GPU 0": 8, "GPU 1": 5}))
    )
    (row,) = compare([one], [other]).held
    assert (row.device, row.place.line, row.base_place.line) == ("GPU 1", 9, 3)


def test_the_text_says_where_a_line_was() -> None:
    text = one_space(document_text(comparison_document(compare([BASE], [CANDIDATE]))))
    assert "my/model.py:41 in forward (was line 38)" in text


def test_the_lines_are_those_of_the_pickles(tmp_path: Path) -> None:
    """On Windows, too; and of a path only the end counts."""
    for name, line, size in (("a", 38, 10), ("b", 41, 12)):
        made = SnapshotBuilder()
        made.segment(40 * GIB)
        made.allocate(
            size * GIB, at=1, stack=[f"D:\\{name}\\my\\train.py({line}): step", "torch/nn/f.py(9): relu"]
        )
        made.write(tmp_path, f"{name}.pickle")
    sides = [[digest_file(file)[1]] for file in find_traces(str(tmp_path)).files]
    assert changes(compare(*sides)) == ["my/train.py:41 in step (was line 38): 10 to 12"]
