"""Tables of operators and kernels, and the call tree: figures of tiny traces, and sums on any."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.operators.call_details import slice_call_details, slice_call_tree
from tb_gpudiag.report.slices.operators.operator_table import slice_kernels, slice_operators
from tb_gpudiag.report.slices.operators.prepare_calls import prepare_calls, slice_roofline
from tb_gpudiag.report.slices.prepared import Prepared
from tb_gpudiag.report.slices.slice_table import WantedRows
from tb_gpudiag.report.slices.timeline import prepare_timeline
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.real_traces import first_in


def prepared(trace: TraceBuilder, folder: Path) -> Prepared:
    return arrays_of(Facts(read_trace(str(trace.write(folder)))))


def arrays_of(facts: Facts) -> Prepared:
    return prepare_timeline(facts) | prepare_calls(facts)


def operators(
    arrays: Prepared,
    group: str = "operator",
    kind: str = "operator",
    sort: str = "host_self",
    text: str = "",
    limit: int = 100,
    span: tuple[float, float] | tuple[None, None] = (None, None),
) -> pb.OperatorTable:
    return slice_operators(arrays, kind, group, WantedRows(sort, text, limit), *span)


def model() -> TraceBuilder:
    """Two calls of a layer, in modules of their own, with a Python frame inside of the operator."""
    trace = TraceBuilder()
    main = trace.thread()
    for at, module in ((0, "Linear_0"), (100, "Linear_1")):
        main.frame(f"nn.Module: {module}", at=at, us=80).frame("model.py(3): forward", at=at + 1, us=70)
        main.op("aten::linear", at=at + 10, us=50, shapes=[[2, 8], [8, 8]])
        main.frame("model.py(9): inner", at=at + 15, us=40)
        main.op("aten::mm", at=at + 20, us=30, shapes=[[2, 8], [8, 8]])
        main.launch("gemm", at=at + 30, us=5, runs_at=at + 40, runs_us=20)
        main.launch("gemm", at=at + 40, us=5, runs_at=at + 60, runs_us=10)
    return trace


def test_self_time_is_without_other_operators_and_calls(tmp_path: Path) -> None:
    table = operators(prepared(model(), tmp_path))
    found = {row.name: row for row in table.rows}
    linear, product = found["aten::linear"], found["aten::mm"]
    assert (linear.calls, linear.host_total_us, linear.host_self_us) == (2, 100, 40)
    assert (product.calls, product.host_total_us, product.host_self_us) == (2, 60, 40)
    assert (linear.gpu_self_us, linear.gpu_total_us) == (0, 60)
    assert (product.gpu_self_us, product.gpu_total_us) == (60, 60)
    assert (table.all.host_self_us, table.all.gpu_self_us) == (80, 60)
    assert (table.has_shapes, table.has_stacks, table.has_modules, table.has_gpu) == (True,) * 4


def test_other_kinds_have_tables_too(tmp_path: Path) -> None:
    arrays = prepared(model(), tmp_path)
    (call,) = operators(arrays, kind="call").rows
    assert (call.name, call.calls, call.host_self_us, call.gpu_self_us) == ("cudaLaunchKernel", 4, 20, 60)
    python = {row.name: row for row in operators(arrays, kind="python").rows}
    inner = python["model.py(9): inner"]
    assert (inner.calls, inner.host_total_us, inner.host_self_us, inner.gpu_self_us) == (2, 80, 20, 60)


def test_a_function_that_calls_itself_counts_once_in_totals(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("a.py(1): walk", at=0, us=90).frame("a.py(5): other", at=5, us=80)
    main.frame("a.py(1): walk", at=10, us=60).op("aten::mm", at=20, us=30)
    main.launch("gemm", at=25, us=5, runs_at=40, runs_us=20)
    main.frame("a.py(1): walk", at=100, us=10)
    rows = {row.name: row for row in operators(prepared(trace, tmp_path), kind="python").rows}
    walk = rows["a.py(1): walk"]
    assert (walk.calls, walk.host_total_us, walk.gpu_total_us, walk.gpu_self_us) == (3, 100, 20, 20)
    assert rows["a.py(5): other"].host_total_us == 80


def test_groups(tmp_path: Path) -> None:
    arrays = prepared(model(), tmp_path)
    shapes = {(row.name, row.shapes) for row in operators(arrays, "shapes").rows}
    assert shapes == {("aten::linear", "[[2,8],[8,8]]"), ("aten::mm", "[[2,8],[8,8]]")}
    stacks = {row.name: list(row.stack) for row in operators(arrays, "stack").rows}
    assert stacks["aten::linear"] == ["forward (model.py, defined at line 3)"]
    assert stacks["aten::mm"][0] == "inner (model.py, defined at line 9)"
    modules = {row.name: row for row in operators(arrays, "module").rows}
    assert set(modules) == {"Linear_0", "Linear_1"}
    one = modules["Linear_0"]
    assert (one.calls, one.host_self_us, one.host_total_us, one.gpu_total_us) == (1, 40, 40, 30)


def test_a_range_counts_what_runs_in_it(tmp_path: Path) -> None:
    arrays = prepared(model(), tmp_path)
    found = {row.name: row for row in operators(arrays, span=(100, 130)).rows}
    assert (found["aten::linear"].calls, found["aten::linear"].host_total_us) == (1, 20)
    assert (found["aten::mm"].host_total_us, found["aten::mm"].gpu_self_us) == (10, 0)
    kernels = slice_kernels(arrays, "kernel", WantedRows("total"), 50, 65)
    assert [(row.count, row.total_us, row.min_us, row.max_us) for row in kernels.rows] == [(2, 15, 5, 10)]


def test_rows_beyond_the_limit_are_added_up(tmp_path: Path) -> None:
    arrays = prepared(model(), tmp_path)
    table = operators(arrays, limit=1)
    assert (len(table.rows), table.total_rows) == (1, 2)
    assert table.rest.host_self_us + table.rows[0].host_self_us == table.all.host_self_us
    assert [row.name for row in operators(arrays, text="LINEAR").rows] == ["aten::linear"]
    assert operators(arrays, text="nothing").total_rows == 0


def test_kernels(tmp_path: Path) -> None:
    arrays = prepared(model(), tmp_path)
    (row,) = slice_kernels(arrays, "kernel", WantedRows("total"), None, None).rows
    assert (row.name, row.count, row.total_us, row.mean_us, row.min_us, row.max_us) == (
        "gemm",
        4,
        60,
        15,
        10,
        20,
    )
    assert (row.family, list(row.operators), row.share) == (pb.KernelRow.gemm, ["aten::mm"], 1)
    details = slice_call_details(arrays, "kernel", "kernel", row.key, None, None)
    assert [part.name for part in details.kernels] == ["aten::mm"]
    assert [(span.start_us, span.end_us) for span in details.longest][:2] == [(40, 60), (140, 160)]


def test_details_have_stacks_kernels_shapes_and_the_longest_calls(tmp_path: Path) -> None:
    arrays = prepared(model(), tmp_path)
    row = next(row for row in operators(arrays).rows if row.name == "aten::mm")
    details = slice_call_details(arrays, "operator", "operator", row.key, None, None)
    assert [(stack.module, stack.share, stack.calls) for stack in details.stacks] == [
        ("Linear_0", 0.5, 1),
        ("Linear_1", 0.5, 1),
    ]
    assert [frame.name for frame in details.stacks[0].frames] == [
        "model.py(9): inner",
        "aten::linear",
        "model.py(3): forward",
        "nn.Module: Linear_0",
    ]
    assert [(part.name, part.count, part.us) for part in details.kernels] == [("gemm", 4, 60)]
    assert [(part.name, part.count) for part in details.shapes] == [("[[2,8],[8,8]]", 2)]
    assert [(span.start_us, span.end_us) for span in details.longest] == [(20, 50), (120, 150)]


def test_details_have_direct_callers_and_callees_by_name(tmp_path: Path) -> None:
    arrays = prepared(model(), tmp_path)
    rows = {row.name: row for row in operators(arrays).rows}
    linear = slice_call_details(arrays, "operator", "operator", rows["aten::linear"].key, None, None)
    assert [(part.name, part.count, part.us) for part in linear.callers] == [("model.py(3): forward", 2, 100)]
    assert [(part.name, part.count, part.us) for part in linear.callees] == [("model.py(9): inner", 2, 80)]
    product = slice_call_details(arrays, "operator", "operator", rows["aten::mm"].key, 0, 90)
    assert [(part.name, part.count) for part in product.callers] == [("model.py(9): inner", 1)]
    assert [(part.name, part.count, part.us) for part in product.callees] == [("cudaLaunchKernel", 2, 10)]


@pytest.mark.parametrize(("weight", "total"), [("host", 160), ("gpu", 60)])
def test_the_call_tree_adds_up(tmp_path: Path, weight: str, total: float) -> None:
    arrays = prepared(model(), tmp_path)
    tree = slice_call_tree(arrays, weight, None, None, None)
    assert tree.total_us == total == sum(tree.self_us) + sum(tree.left_out_us)
    below = slice_call_tree(arrays, weight, tree.node[2], None, None)
    assert below.total_us == tree.node_us[2]
    assert [step.name for step in below.path] == [tree.names[tree.name[at]] for at in (0, 1, 2)]


def test_small_nodes_are_left_out_and_counted(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.op("aten::large", at=0, us=100_000)
    for number in range(5):
        main.op(f"aten::small_{number}", at=10 + 10 * number, us=5)
    tree = slice_call_tree(prepared(trace, tmp_path), "host", None, None, None)
    assert list(tree.left_out) == [0, 5]
    assert list(tree.left_out_us) == [0, 25]
    assert sum(tree.self_us) + sum(tree.left_out_us) == tree.total_us


def test_a_trace_without_calls_has_empty_tables(tmp_path: Path) -> None:
    arrays = prepared(TraceBuilder().kernel("stray", at=0, us=10), tmp_path)
    assert operators(arrays).total_rows == 0
    assert slice_kernels(arrays, "kernel", WantedRows("total"), None, None).rows[0].total_us == 10
    assert slice_call_tree(arrays, "host", None, None, None).total_us == 0
    assert not slice_roofline(arrays).points


@pytest.mark.parametrize("folder", ["h100_owlv2", "v100_resnet50_workers0", "a100_recsys_queued"])
def test_real_traces_add_up(shared_traces: Path, folder: str) -> None:
    facts = first_in(folder)
    arrays = arrays_of(facts)
    work = facts.events.duration_ns[facts.work.event].sum() / 1e3
    kernels = slice_kernels(arrays, "kernel", WantedRows("total", "", 20), None, None)
    assert sum(row.total_us for row in [*kernels.rows, kernels.rest]) == pytest.approx(work)
    sums = [operators(arrays, group, limit=2000).all for group in ("operator", "shapes", "stack", "module")]
    assert len({row.calls for row in sums[:3]}) == 1  # a module's calls are its own
    assert (
        len({round(row.host_self_us, 3) for row in sums})
        == len({round(row.gpu_self_us) for row in sums})
        == 1
    )
    for weight in ("host", "gpu"):
        tree = slice_call_tree(arrays, weight, None, None, None)
        assert sum(tree.self_us) + sum(tree.left_out_us) == pytest.approx(tree.total_us)
    middle = (facts.recording.start_ns + facts.recording.end_ns) / 2e3
    halves = [operators(arrays, span=span).all for span in ((0.0, middle), (middle, 1e12))]
    assert sum(half.host_self_us for half in halves) == pytest.approx(sums[0].host_self_us, rel=1e-6)


def test_operators_with_shapes_have_a_rate_and_a_share_of_the_roofline(tmp_path: Path) -> None:
    """By hand: 2 * 4096^3 operations at 989 TFLOP/s take 139 of 200 us."""
    trace = TraceBuilder(devices=("NVIDIA H100 80GB HBM3",))
    main = trace.thread()
    sizes, types = [[4096, 4096], [4096, 4096]], ["c10::BFloat16", "c10::BFloat16"]
    main.op("aten::mm", at=1, us=20, shapes=sizes, types=types)
    main.launch("gemm_bf16", at=5, us=5, runs_at=30, runs_us=200)
    (row,) = operators(prepared(trace, tmp_path), group="shapes").rows
    assert row.teraflops == pytest.approx(2 * 4096**3 / 200e6)
    assert row.reached == pytest.approx(2 * 4096**3 / 989e6 / 200)
