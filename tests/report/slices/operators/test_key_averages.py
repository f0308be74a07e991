"""The table of operators and torch's own key_averages() say the same of a model recorded on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report.slices.operators.operator_table import slice_operators
from tb_gpudiag.report.slices.operators.prepare_calls import prepare_calls
from tb_gpudiag.report.slices.timeline import prepare_timeline
from tb_gpudiag.trace.read import read_trace

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.slow


def test_operators_are_those_of_key_averages(tmp_path: Path) -> None:
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
    path = tmp_path / "host_1.1.pt.trace.json"
    profiler.export_chrome_trace(str(path))
    facts = Facts(read_trace(str(path)))
    arrays = prepare_timeline(facts) | prepare_calls(facts)
    for group, by_shapes in (("operator", False), ("shapes", True)):
        ours: dict[tuple[str, str], tuple[float, float, float]] = {}
        for kind in ("operator", "range"):
            table = slice_operators(arrays, group, kind, "calls", "", 2000, None, None)
            for row in table.rows:
                key = (row.name, row.shapes.replace(" ", ""))
                ours[key] = (row.calls, row.host_self_us, row.host_total_us)
        theirs: dict[tuple[str, str], tuple[float, float, float]] = {}
        for average in profiler.key_averages(group_by_input_shape=by_shapes):
            # They name dimensions of tensors only, as we do; [] for what is none.
            shapes = str(average.input_shapes).replace(" ", "") if by_shapes else ""
            key = (average.key, "" if shapes == "[]" else shapes)
            theirs[key] = (average.count, average.self_cpu_time_total, average.cpu_time_total)
        operators = {key for key in theirs if not key[0].startswith("[")}
        missing = {key for key in operators if key not in ours}
        assert len(missing) <= len(operators) // 20, missing
        for key in operators - missing:
            assert ours[key][0] == theirs[key][0], key
            assert ours[key][1] == pytest.approx(theirs[key][1], rel=0.01, abs=1), key
            assert ours[key][2] == pytest.approx(theirs[key][2], rel=0.01, abs=1), key
