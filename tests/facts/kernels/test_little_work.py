"""Operators that compute little, by their inputs."""

from __future__ import annotations

from pathlib import Path

from tests.builder import TraceBuilder
from tests.rules.stage import facts_of


def test_small_inputs_are_little_work_however_long_they_take(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    shapes = {"small": [[4, 32], [32, 128]], "large": [[512, 512], [512, 512]]}
    for at, size in ((0, "small"), (1_000, "large")):
        main.op("aten::linear", at=at, us=900)
        main.op("aten::mm", at=at + 100, us=500, shapes=shapes[size], types=["float", "float"])
    main.op("aten::mm", at=2_000, us=500)  # its inputs are not known
    facts = facts_of(trace, tmp_path)
    host, little = facts.host, facts.host_work.computes_little
    found = [(host.name(event), bool(little[event])) for event in range(len(host.events))]
    assert [one for one in found if one[0].startswith("aten::")] == [
        ("aten::linear", True),
        ("aten::mm", True),
        ("aten::linear", True),
        ("aten::mm", False),
        ("aten::mm", False),
    ]
