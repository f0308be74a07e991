"""The call tree: calls with the same path are one node; backward has the forward operator's path."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.operators.call_tree import CallTree
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.facts.any_traces import any_traces


def facts_of(trace: TraceBuilder, folder: Path) -> Facts:
    return Facts(read_trace(str(trace.write(folder))))


def paths(facts: Facts, tree: CallTree) -> list[str]:
    """Names of each node and those around it, outermost first."""
    found: list[str] = []
    for node, event in enumerate(tree.event.tolist()):
        name = "thread" if event == NONE else facts.events.names[facts.events.name[event]]
        above = int(tree.tree.parent[node])
        found.append(name if above == NONE else f"{found[above]} > {name}")
    return found


def test_calls_with_the_same_path_are_one_node(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for step, at in enumerate((0, 100)):
        main.step(step, at=at, us=90)
        main.op("aten::linear", at=at + 10, us=30).op("aten::mm", at=at + 12, us=20)
        main.launch("gemm", at=at + 15, us=5, runs_at=at + 25, runs_us=10)
    main.op("aten::mm", at=150, us=20)
    facts = facts_of(trace, tmp_path)
    tree = facts.call_tree
    around = "thread > ProfilerStep#0"
    assert paths(facts, tree) == [
        "thread",
        around,
        f"{around} > aten::linear",
        f"{around} > aten::linear > aten::mm",
        f"{around} > aten::linear > aten::mm > cudaLaunchKernel",
        f"{around} > aten::mm",
    ]
    assert np.bincount(tree.node).tolist() == [0, 2, 2, 2, 2, 1]
    assert tree.work_node.tolist() == [4, 4]


def test_other_shapes_are_other_nodes_until_shapes_are_merged(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for at, size in ((0, 2), (20, 4), (40, 2)):
        main.op("aten::relu", at=at, us=10, shapes=[[size, 8]])
    facts = facts_of(trace, tmp_path)
    tree = facts.call_tree
    assert paths(facts, tree)[1:] == ["thread > aten::relu"] * 2
    merged, place = tree.merged_shapes()
    assert (len(merged), place.tolist()) == (2, [0, 1, 1])


def test_backward_has_frames_and_module_of_its_forward_operator(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main, autograd = trace.thread(), trace.thread("pt_autograd_0")
    for at, module, sequence in ((0, "Linear_0", 5), (50, "Linear_1", 6)):
        main.frame(f"nn.Module: {module}", at=at, us=40).frame("model.py(7): forward", at=at + 2, us=30)
        main.op("aten::addmm", at=at + 5, us=10, sequence=sequence)
    for begin, sequence in ((200, 6), (250, 5)):
        name = "autograd::engine::evaluate_function: AddmmBackward0"
        autograd.op(name, at=begin, us=30, sequence=sequence, forward_thread=1)
        autograd.op("aten::mm", at=begin + 5, us=10)
    facts = facts_of(trace, tmp_path)
    tree = facts.call_tree
    names = paths(facts, tree)
    products = [node for node, name in enumerate(names) if name.endswith("aten::mm")]
    assert len(products) == 2
    modules, frames = tree.modules(), tree.frames()
    assert [names[modules[node]] for node in products] == [
        "thread > nn.Module: Linear_1",
        "thread > nn.Module: Linear_0",
    ]
    assert [names[frames[node]].split(" > ")[-1] for node in products] == ["model.py(7): forward"] * 2
    codes = tree.code_stacks()
    assert codes[products[0]] == codes[products[1]] > 0  # the same line of code, in other modules


def test_calls_of_no_duration_count_where_they_happened(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.op("aten::linear", at=0, us=40).op("aten::t", at=10, us=0)
    facts = facts_of(trace, tmp_path)
    assert paths(facts, facts.call_tree)[-1] == "thread > aten::linear > aten::t"


def test_an_operator_that_only_calls_itself_is_one_call(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.op("aten::sum", at=0, us=40).op("aten::sum", at=5, us=30)
    main.launch("reduce", at=10, us=5, runs_at=20, runs_us=9)
    main.op("aten::sum", at=50, us=40).op("aten::sum", at=55, us=10).op("aten::to", at=70, us=5)
    facts = facts_of(trace, tmp_path)
    tree = facts.call_tree
    product = "thread > aten::sum"
    others = [f"{product} > {name}" for name in ("cudaLaunchKernel", "aten::sum", "aten::to")]
    assert paths(facts, tree)[1:] == [product, *others]
    assert tree.work_node.tolist() == [2]


@pytest.mark.slow
@given(any_traces())
@settings(max_examples=50, deadline=None)
def test_any_trace_has_a_tree_of_all_its_calls(
    tmp_path_factory: pytest.TempPathFactory, trace: TraceBuilder
) -> None:
    facts = facts_of(trace, tmp_path_factory.mktemp("any"))
    tree, calls = facts.call_tree, facts.call_tree.calls
    assert (calls.end_ns >= calls.start_ns).all()
    inside = calls.parent != NONE
    around = calls.parent[inside]
    assert (calls.start_ns[inside] >= calls.start_ns[around]).all()
    assert (calls.end_ns[inside] <= calls.end_ns[around]).all()
    assert (tree.tree.parent[tree.node[inside]] == tree.node[around]).all()
    assert len(tree.work_node) == len(facts.work)
