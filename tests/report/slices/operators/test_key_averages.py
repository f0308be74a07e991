"""The table of operators and torch's own key_averages() say the same of a model recorded on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report.slices.operators.operator_table import slice_operators
from tb_gpudiag.report.slices.operators.prepare_calls import prepare_calls
from tb_gpudiag.report.slices.slice_table import WantedRows
from tb_gpudiag.report.slices.timeline import prepare_timeline
from tb_gpudiag.trace.read import read_trace

pytestmark = pytest.mark.slow


Times = dict[tuple[str, str], tuple[float, float, float]]
"""(name, shapes) -> calls, self µs, total µs."""


@pytest.fixture(scope="module")
def recorded(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Facts]:
    """torch's profiler, and the facts of what it recorded."""
    profiler = _profiled(torch)
    path = tmp_path_factory.mktemp("recorded") / "host_1.1.pt.trace.json"
    profiler.export_chrome_trace(str(path))
    return profiler, Facts(read_trace(str(path)))


@pytest.mark.parametrize("by_shapes", [False, True])
def test_operators_are_those_of_key_averages(by_shapes: bool, recorded: tuple[Any, Facts]) -> None:
    profiler, facts = recorded
    ours = _ours(facts, "shapes" if by_shapes else "operator")
    theirs = _theirs(profiler, by_shapes)
    missing = theirs.keys() - ours.keys()
    assert len(missing) <= len(theirs) // 20, missing
    for key in theirs.keys() - missing:
        assert ours[key][0] == theirs[key][0], key
        assert ours[key][1:] == pytest.approx(theirs[key][1:], rel=0.01, abs=1), key


def _profiled(torch: Any) -> Any:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 30 * 30, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.profiler.profile(record_shapes=True) as profiler:
        for _ in range(3):
            with torch.profiler.record_function("my range"):
                model(torch.randn(4, 3, 32, 32)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    return profiler


def _ours(facts: Facts, group: str) -> Times:
    arrays = prepare_timeline(facts) | prepare_calls(facts)
    found = {}
    for kind in ("operator", "range"):
        for row in slice_operators(arrays, kind, group, WantedRows("calls", "", 2000), None, None).rows:
            found[row.name, row.shapes.replace(" ", "")] = (row.calls, row.host_self_us, row.host_total_us)
    return found


def _theirs(profiler: Any, by_shapes: bool) -> Times:
    """They name dimensions of tensors only, as we do; [] for what is none."""
    found = {}
    for one in profiler.key_averages(group_by_input_shape=by_shapes):
        shapes = str(one.input_shapes).replace(" ", "") if by_shapes else ""
        if not one.key.startswith("["):
            times = (one.count, one.self_cpu_time_total, one.cpu_time_total)
            found[one.key, "" if shapes == "[]" else shapes] = times
    return found
