"""Records in event files are what anybody has written there: one that is none costs no other one."""

from __future__ import annotations

import gzip
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tb_gpudiag.digest.record_digest import record_digest
from tb_gpudiag.jobs.history.run_history import histories
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import from_json
from tb_gpudiag.service.index import records
from tb_gpudiag.service.index.records import Record, RecordReader
from tests.with_each import with_each

WALL_S = 1_700_000_000.0


def report(**times: float) -> pb.Report:
    """A record with two steps, a GPU, and memory. times: of the second step, or a size of the memory."""
    found = pb.Report(verdict=pb.Verdict(limiter="input"))
    found.trace.worker, found.trace.duration_us = "rank0", 5_000.0
    found.steps.add(name="first", start_us=0.0, duration_us=1_000.0)
    step = {name: us for name, us in times.items() if name.endswith("_us")}
    found.steps.add(name="second", **{"start_us": 1_000.0, "duration_us": 1_000.0, **step})
    found.devices.add(name="GPU", window_us=2_000.0, window_computing_us=1_000.0)
    memory = found.memory.add(peak_allocated_bytes=times.get("bytes", 1.0))
    memory.floors.add(name="second", us=1.0, bytes=times.get("bytes", 1.0))
    memory.steps_until_full = 1e30  # not a time: memory that hardly grows
    return found


class Provider:
    """A data provider with these records of one run, by their wall times in s.

    listed: wall times of the runs that it lists; only "run" has records.
    """

    def __init__(self, *records: tuple[float, pb.Report], listed: dict[str, float] | None = None) -> None:
        self._records = records
        self._listed = listed or {"run": WALL_S}
        self.reads = 0

    def list_tensors(self, *_: Any, **__: Any) -> Any:
        return {
            run: {"tag": SimpleNamespace(max_step=9, max_wall_time=wall_s)}
            for run, wall_s in self._listed.items()
        }

    def read_tensors(self, *_: Any, **__: Any) -> Any:
        self.reads += 1
        return {
            "run": {
                "tag": [
                    SimpleNamespace(
                        step=step, wall_time=wall_s, numpy=np.array(one.SerializeToString(), object)
                    )
                    for step, (wall_s, one) in enumerate(self._records)
                ]
            }
        }


def read(*records: tuple[float, pb.Report]) -> tuple[list[Record], str]:
    reader = RecordReader(Provider(*records), "gpudiag", "tag")
    reader.read()
    return list(reader.without_trace([])), " ".join(str(problem) for problem in reader.problems())


@with_each("wall_s", [float("inf"), float("nan"), 1e290, -1e30])
def test_a_record_of_an_impossible_time_is_damaged(wall_s: float) -> None:
    found, problems = read((WALL_S, report()), (wall_s, report()))
    assert [one.time_ns for one in found] == [int(WALL_S * 1e9)]
    assert "damaged" in problems


def test_a_run_whose_last_time_is_not_a_number_hides_no_other_and_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "MOST_RUNS", 1)
    odd = {f"odd{number}": float("nan") for number in range(3)}
    provider = Provider((WALL_S, report()), listed={**odd, "old": 1.0, "run": WALL_S, **odd})
    reader = RecordReader(provider, "gpudiag", "tag")
    assert reader.read()
    assert [one.file.run for one in reader.without_trace([])] == ["run"]
    monkeypatch.setattr(records, "MOST_RUNS", 10)
    reader.read()
    reads = provider.reads
    assert not reader.read()
    assert provider.reads == reads


@with_each("name", ["start_us", "duration_us", "bytes"])
@with_each("number", [1e300, -1e300, 1e19, float("inf")])
def test_a_record_with_an_impossible_number_is_damaged(name: str, number: float) -> None:
    found, problems = read((WALL_S, report()), (WALL_S + 1, report(**{name: number})))
    assert len(found) == 1
    assert "damaged" in problems


def test_the_largest_numbers_are_points_of_the_history() -> None:
    found, problems = read(
        (WALL_S, report()), (WALL_S + 1, report(start_us=1e14, duration_us=1e14, bytes=1e14))
    )
    assert problems == ""
    states = [from_json(gzip.decompress(one.answer).decode(), pb.ReportState) for one in found]
    digests = [
        record_digest(state.report, one.id, one.time_ns) for state, one in zip(states, found, strict=True)
    ]
    assert [len(history.points) for history in histories(digests)] == [2]
