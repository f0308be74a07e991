"""Aligned rows: nothing is lost or counted twice, and renamed or fused work meets its ancestor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.jobs.compare.alignment import Pair, WorkRow, align, changes, common_path, rest
from tests.with_each import with_each

NAMES = st.sampled_from(["a", "b", "c", "d"])
ROWS = st.lists(
    st.builds(
        WorkRow,
        name=NAMES,
        family=st.sampled_from(["gemm", "elementwise", "copy"]),
        path=st.lists(NAMES, max_size=3).map(tuple),
        shapes=st.sampled_from(["", "[[1]]", "[[2]]"]),
        count=st.integers(0, 9).map(float),
        time_ns=st.integers(0, 1000).map(float),
    ),
    max_size=12,
)


def row(
    name: str, path: str = "", family: str = "elementwise", time_ns: float = 10, shapes: str = ""
) -> WorkRow:
    return WorkRow(name, family, tuple(path.split("/")) if path else (), shapes, 1, time_ns)


def names(pairs: list[Pair]) -> set[tuple[str, str]]:
    return {("+".join(r.name for r in pair.base), "+".join(r.name for r in pair.candidate)) for pair in pairs}


@given(base=ROWS, candidate=ROWS)
def test_every_row_is_in_exactly_one_pair(base: list[WorkRow], candidate: list[WorkRow]) -> None:
    pairs = align(base, candidate)
    assert Counter(r for pair in pairs for r in pair.base) == Counter(base)
    assert Counter(r for pair in pairs for r in pair.candidate) == Counter(candidate)
    assert all(pair.base or pair.candidate for pair in pairs)
    found = changes(pairs)
    for among in (found, [*found[:2], rest(found[2:])]):
        assert total(among, "base_ns") == total(base, "time_ns")
        assert total(among, "candidate_ns") == total(candidate, "time_ns")
        assert total(among, "base_count") == total(base, "count")
        assert total(among, "candidate_count") == total(candidate, "count")


def total(rows: Iterable[object], column: str) -> float:
    return sum(float(getattr(row, column)) for row in rows)


@given(rows=ROWS)
def test_a_table_aligns_with_itself(rows: list[WorkRow]) -> None:
    for change in changes(align(rows, rows)):
        assert change.base == change.candidate
        assert change.base_ns == change.candidate_ns


@given(base=ROWS, candidate=ROWS)
def test_the_sides_are_treated_alike(base: list[WorkRow], candidate: list[WorkRow]) -> None:
    forward = {(frozenset(p.base), frozenset(p.candidate)) for p in align(base, candidate)}
    assert forward == {(frozenset(p.candidate), frozenset(p.base)) for p in align(candidate, base)}


def test_a_renamed_kernel_meets_its_ancestor() -> None:
    base = [row("volta_gemm", "Linear/aten::mm", "gemm"), row("add", "Linear/aten::add")]
    candidate = [row("ampere_gemm", "Linear/aten::mm", "gemm"), row("add", "Linear/aten::add")]
    assert names(align(base, candidate)) == {("volta_gemm", "ampere_gemm"), ("add", "add")}


def test_a_fused_pair_meets_its_ancestor() -> None:
    base = [
        row("add", "Model/Block_0/aten::add"),
        row("layer_norm", "Model/Block_0/aten::native_layer_norm", "normalization"),
        row("gemm", "Model/Block_1/aten::mm", "gemm"),
    ]
    candidate = [
        row("triton_fused_add_norm", "Model/Block_0/CompiledFunction"),
        row("gemm", "Model/Block_1/aten::mm", "gemm"),
    ]
    pairs = align(base, candidate)
    assert names(pairs) == {("add+layer_norm", "triton_fused_add_norm"), ("gemm", "gemm")}
    fused = next(pair for pair in pairs if len(pair.base) == 2)
    assert fused.path == ("Model", "Block_0")


def test_kernels_that_moved_into_a_graph_keep_their_names() -> None:
    base = [row("gemm", "Model/Linear_0/aten::mm", "gemm"), row("relu", "Model/ReLU_0/aten::relu")]
    candidate = [row("gemm", "Model/Graphed", "gemm"), row("relu", "Model/Graphed")]
    assert names(align(base, candidate)) == {("gemm", "gemm"), ("relu", "relu")}


def test_the_same_kernel_in_two_modules_stays_apart() -> None:
    base = [row("add", "A/x", time_ns=1), row("add", "B/x", time_ns=2)]
    candidate = [row("add", "A/y", time_ns=4), row("add", "B/y", time_ns=8)]
    pairs = [(pair.base[0].time_ns, pair.candidate[0].time_ns) for pair in align(base, candidate)]
    assert sorted(pairs) == [(1, 4), (2, 8)]


def test_shapes_are_matched_first() -> None:
    base = [row("mm", "x", shapes="[[1]]", time_ns=1), row("mm", "x", shapes="[[2]]", time_ns=2)]
    candidate = [row("mm", "x", shapes="[[2]]", time_ns=8), row("mm", "x", shapes="[[3]]", time_ns=4)]
    pairs = [(pair.base[0].time_ns, pair.candidate[0].time_ns) for pair in align(base, candidate)]
    assert sorted(pairs) == [(1, 4), (2, 8)]


def test_unrelated_work_was_removed_or_added() -> None:
    base = [row("copy", "A/aten::copy_", "copy")]
    candidate = [row("gemm", "B/aten::mm", "gemm")]
    assert names(align(base, candidate)) == {("copy", ""), ("", "gemm")}


def test_a_copy_is_no_part_of_a_fusion() -> None:
    base = [row("add", "Model/aten::add"), row("Memcpy HtoD", "Model/aten::to", "copy")]
    candidate = [row("triton_fused", "Model/CompiledFunction", "other")]
    assert names(align(base, candidate)) == {("add", "triton_fused"), ("Memcpy HtoD", "")}


def test_a_large_group_is_paired_by_family() -> None:
    base = [row(f"add{i}", f"Model/aten::add{i}") for i in range(9)]
    base.append(row("norm", "Model/aten::norm", "normalization"))
    candidate = [row("fused", "Model/CompiledFunction")]
    paired = names(align(base, candidate))
    assert ("+".join(f"add{i}" for i in range(9)), "fused") in paired
    assert ("norm", "") in paired


def test_work_of_one_name_is_one_row() -> None:
    base = [row("copy", "A", "copy", 3), row("copy", "B", "copy", 4)]
    candidate = [row("copy", "B", "copy", 5)]
    (change,) = changes(align(base, candidate))
    assert (change.base_ns, change.candidate_ns) == (7, 5)


@with_each(
    ("paths", "common"),
    [
        ([], ()),
        ([("a", "b")], ("a", "b")),
        ([("a", "b"), ("a", "c")], ("a",)),
        ([("a",), ("a", "b")], ("a",)),
    ],
)
def test_common_path(paths: list[tuple[str, ...]], common: tuple[str, ...]) -> None:
    assert common_path(paths) == common
