"""GPU time by module: of graphs by their annotations, of other work by the modules around its launches."""

from __future__ import annotations

from pathlib import Path

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.kernels import by_module
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of
from tests.with_each import with_each


def times(facts: Facts) -> list[tuple[str, int, int, int]]:
    assert facts.device is not None
    host, kernels = facts.device.naming
    return [(row.module, row.modules, row.kernels, row.time_ns) for row in by_module(kernels, host)]


@with_each("key", ["module_fqn", "name"])
def test_annotated_kernels_of_a_graph(key: str, tmp_path: Path) -> None:
    trace = TraceBuilder()
    names = ["layers.0.w1", "layers.0.w2", "layers.1.w1", "layers.1.w2", "norm"]
    kernels = [("gemm", 20.0 + 30 * i, 10.0 + i) for i in range(len(names))]
    notes = [{key: name} if name != "norm" else {} for name in names]
    trace.thread().graph_launch(kernels, at=0, us=10, annotations=notes)
    assert times(facts_of(trace, tmp_path)) == [
        ("layers.*.w2", 2, 2, 24_000),
        ("layers.*.w1", 2, 2, 22_000),
        ("", 1, 1, 14_000),
    ]


def test_the_module_counts_where_there_is_a_name_as_well(tmp_path: Path) -> None:
    trace = TraceBuilder()
    notes = [{"name": "first", "module_fqn": "layers.0"}, {"name": "second", "module_fqn": "head"}]
    trace.thread().graph_launch([("gemm", 20, 10), ("gemm", 40, 5)], at=0, us=10, annotations=notes)
    assert [name for name, *_ in times(facts_of(trace, tmp_path))] == ["layers.*", "head"]


def test_work_of_calls_has_the_innermost_module_around(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("nn.Module: Encoder_0", at=0, us=400)
    for i in range(2):
        main.frame(f"nn.Module: Linear_{i}", at=10 + 100 * i, us=80)
        main.launch("gemm", at=20 + 100 * i, us=5, runs_at=40 + 100 * i, runs_us=30)
    main.launch("add", at=300, us=5, runs_at=320, runs_us=20)
    main.launch("copy", at=500, us=5, runs_at=520, runs_us=10)
    assert times(facts_of(trace, tmp_path)) == [
        ("Linear_*", 2, 2, 60_000),
        ("Encoder_*", 1, 1, 20_000),
        ("", 1, 1, 10_000),
    ]


def test_without_modules_there_is_no_row(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().launch("gemm", at=20, us=5, runs_at=40, runs_us=30)
    assert times(facts_of(trace, tmp_path)) == []
