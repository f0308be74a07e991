"""Kernels of replayed graphs, joined to what was captured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tb_gpudiag.errors import NothingToRead
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.diagnosis import only_trace, read_facts
from tests.builder import HostThread, TraceBuilder
from tests.report.reports import rows_of

Node = tuple[str, str, list[list[int]]]
"""A kernel, its operator, and the shapes of that operator's inputs."""

MM: Node = ("gemm", "aten::mm", [[32, 64], [64, 64]])
NORM: Node = ("norm", "aten::layer_norm", [[32, 64]])
HEAD: Node = ("gemm", "aten::mm", [[32, 64], [64, 5000]])


def _capture(*graphs: list[Node], named: bool = True) -> TraceBuilder:
    trace = TraceBuilder()
    main = trace.thread()
    for number, nodes in enumerate(graphs):
        at = 1_000.0 * number
        main.call("hipStreamBeginCapture", at=at, us=5)
        main.frame(f"nn.Module: Layer_{number}", at=at + 6, us=480)
        for place, (kernel, operator, shapes) in enumerate(nodes):
            inner = at + 10 + 50 * place
            main.op(operator, at=inner, us=40, shapes=shapes, types=["c10::BFloat16"] * len(shapes))
            main.captured(kernel if named else None, at=inner + 10, us=5)
        main.call("hipStreamEndCapture", at=at + 490, us=5)
    return trace


def _replay(*graphs: list[str]) -> TraceBuilder:
    trace = TraceBuilder()
    main = trace.thread()
    for number, names in enumerate(graphs):
        at = 1_000.0 * number
        nodes = [(name, at + 30 + 20 * place, 15.0) for place, name in enumerate(names)]
        main.graph_launch(nodes, at=at, us=20, call="hipGraphLaunch")
    return trace


def _facts(
    replay: TraceBuilder, folder: Path, *captures: TraceBuilder, beside: str = "capture_traces"
) -> Facts:
    file = only_trace(str(replay.write(folder)))
    for number, capture in enumerate(captures):
        capture.write(folder / "capture_traces", worker=f"bs_{number}_rank0")
    return read_facts(file)


def _named(facts: Facts) -> list[tuple[str, str, str]]:
    """Operator, shapes and module of each of the device's kernels, in order of start."""
    host, kernels = facts.gpu.naming
    events, operator = host.events, kernels.operators(host)
    shapes = [events.input_shapes[i] if i >= 0 else "" for i in events.shapes[operator].tolist()]
    modules = [host.name(int(i)) for i in host.module[kernels.origin]]
    return list(zip(map(host.name, operator.tolist()), shapes, modules, strict=True))


def test_nodes_get_the_operators_that_were_captured(tmp_path: Path) -> None:
    """Of kernels of one name, the first one captured is the first that runs."""
    facts = _facts(_replay(["gemm", "norm", "gemm"]), tmp_path, _capture([MM, NORM, HEAD]))
    assert facts.captured is not None
    assert (facts.captured.nodes, facts.captured.matched) == (3, 3)
    assert _named(facts) == [
        ("aten::mm", "[[32,64],[64,64]]", "nn.Module: Layer_0"),
        ("aten::layer_norm", "[[32,64]]", "nn.Module: Layer_0"),
        ("aten::mm", "[[32,64],[64,5000]]", "nn.Module: Layer_0"),
    ]


def test_their_shapes_say_how_much_they_compute(tmp_path: Path) -> None:
    """2 x 32 x 64 x 64 and 2 x 32 x 64 x 5,000 operations, which the replay alone does not show."""
    replay = _replay(["gemm", "norm", "gemm"])
    alone = _facts(replay, tmp_path / "alone")
    assert not alone.gpu.roofline.operators
    facts = _facts(replay, tmp_path / "both", _capture([MM, NORM, HEAD]))
    found = {one.shapes: one.operations for one in facts.gpu.roofline.operators if one.operations}
    assert found == {"[[32,64],[64,64]]": 2 * 32 * 64 * 64, "[[32,64],[64,5000]]": 2 * 32 * 64 * 5000}
    # Nothing else changes: what was captured did not run in this recording.
    assert len(facts.events) == len(alone.events)
    assert facts.gpu.ledger.by_cause(facts.window) == alone.gpu.ledger.by_cause(alone.window)


def test_nodes_of_several_streams_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    replay = TraceBuilder()
    # The second node runs first.
    nodes = [("gemm", 100.0, 15.0), ("gemm", 40.0, 15.0)]
    replay.thread().graph_launch(nodes, at=0, us=20, call="hipGraphLaunch")
    facts = _facts(replay, tmp_path, _capture([MM, HEAD]))
    assert [shapes for _, shapes, _ in _named(facts)] == ["[[32,64],[64,5000]]", "[[32,64],[64,64]]"]


@pytest.mark.parametrize(("launches", "modules"), [(4, [0, 1, 0, 1]), (3, [0, 0, 0])])
def test_layers_are_replayed_in_the_order_in_which_they_were_captured(
    launches: int, modules: list[int], tmp_path: Path
) -> None:
    facts = _facts(_replay(*[["gemm", "norm"]] * launches), tmp_path, _capture([MM, NORM], [MM, NORM]))
    assert [module for _, _, module in _named(facts)[::2]] == [f"nn.Module: Layer_{i}" for i in modules]


@pytest.mark.parametrize(
    ("capture", "said"),
    [
        (_capture([MM, NORM, NORM]), "it captured other kernels"),
        (_capture([MM, HEAD]), "it captured other kernels"),
        (_capture([MM, NORM], named=False), "it does not name the kernels"),
    ],
)
def test_nothing_is_claimed_about_other_graphs(capture: TraceBuilder, said: str, tmp_path: Path) -> None:
    facts = _facts(_replay(["gemm", "norm"]), tmp_path, capture)
    assert facts.captured is not None
    assert facts.captured.matched == 0
    assert _named(facts) == [("", "", "")] * 2
    report = build_report(facts, only_trace(str(next(tmp_path.glob("*.json")))))
    message = report.captured_graphs
    assert (message.kernels, message.matched) == (2, 0)
    assert said in message.sentence
    assert not rows_of(report, "graph_kernels")


def test_a_server_replays_the_smallest_graph_that_its_batch_fits_into(tmp_path: Path) -> None:
    """Captures for several batch sizes can have the same kernels. Without the size of the batch, nothing is
    claimed: shapes would be another batch's."""
    captures = []
    for size in (16, 32, 64):
        capture = _capture([("gemm", "aten::mm", [[size, 64], [64, 64]]), NORM])
        HostThread(capture, capture.recording.pid).annotation(f"capture_{size}_DECODE", at=-1, us=600)
        captures.append(capture)
    found = _facts(_replay(["gemm", "norm"]), tmp_path / "unknown", *captures).captured
    assert found is not None
    assert (found.matched, found.ambiguous) == (0, 2)
    replay = _replay(["gemm", "norm"])
    HostThread(replay, replay.recording.pid).annotation("step[DECODE bs=20]", at=-5, us=100)
    facts = _facts(replay, tmp_path / "known", *captures)
    assert facts.job.server is not None
    assert _named(facts)[0][1] == "[[32,64],[64,64]]"


def test_a_capture_can_be_named(tmp_path: Path) -> None:
    path = _capture([MM, NORM]).write(tmp_path / "elsewhere")
    file = only_trace(str(_replay(["gemm", "norm"]).write(tmp_path / "run")))
    assert read_facts(file).captured is None
    for named in (path, path.parent):
        found = read_facts(replace(file, capture=str(named))).captured
        assert found is not None
        assert found.matched == 2
    with pytest.raises(NothingToRead):
        read_facts(replace(file, capture=file.path))


def test_a_job_without_graphs_reads_no_capture(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().launch("gemm", at=0, us=5, runs_at=10, runs_us=50)
    assert _facts(trace, tmp_path, _capture([MM])).trace.captures == []
