"""What changed since the recording before, in the table of runs."""

from __future__ import annotations

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.service.index.runs import change_between


def _row(step_us: float, spread_us: float = 1, memory: float = 0) -> pb.RunRow:
    return pb.RunRow(
        step_us=step_us,
        low_step_us=step_us - spread_us,
        high_step_us=step_us + spread_us,
        memory_share=memory,
    )


def test_a_step_changed_if_the_spreads_do_not_overlap() -> None:
    assert change_between(_row(100), _row(112)) == "step 12.0% slower"
    assert change_between(_row(100), _row(80)) == "step 20.0% faster"
    assert change_between(_row(100, 10), _row(112, 10)) == ""
    assert change_between(_row(100, 0), _row(101, 0)) == ""
    assert change_between(_row(0, 0), _row(100)) == ""


def test_memory_changed() -> None:
    assert change_between(_row(100, memory=0.5), _row(100, memory=0.75)) == "memory from 50.0% to 75.0%"
    assert change_between(_row(100), _row(100, memory=0.75)) == ""
