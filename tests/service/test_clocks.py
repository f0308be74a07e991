"""Step clocks in a log directory: one entry for each run, with its report and slices."""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_gpudiag.errors import UsageError
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.clock_slice import prepare_clock, slice_clock
from tb_gpudiag.report.slices.slice_table import SLICES
from tb_gpudiag.service.analyses.task import Pending
from tb_gpudiag.service.service import Service
from tb_gpudiag.trace.files.file_names import MADE
from tb_gpudiag.trace.step_clocks.clock_state import ClockRecording, read_lines
from tb_gpudiag.training.clocking import RankClock
from tb_gpudiag.vocabulary.written import FULL_LINES, PHASES
from tests.service.helpers import eventually
from tests.service.test_hangs import HOSTILE, _failed, listed, report_of, serve
from tests.training.test_step_drift import COLUMNS, INPUT, slowed, steps
from tests.with_each import with_each

__all__ = ["serve"]

NOW_S = 1_800_000_000.0
AT, STEPS = 3_000, 6_000


def job(run: Path, ranks: int = 2, at: int = AT) -> None:
    """Each step of the last rank takes 30 ms longer to load from step `at` on."""
    rows = [steps(STEPS, seed=rank) for rank in range(ranks)]
    rows[-1][at:] = slowed(rows[-1][at:], 30.0, INPUT)
    made = [RankClock(str(run), rank, 10.0) for rank in range(ranks)]
    for start in range(0, STEPS, 100):
        for rank, clock in enumerate(made):
            part = rows[rank][start : start + 100, : COLUMNS - 1]
            found = clock.add(part, ranks, NOW_S + start / 10)
            if found["why"]:
                name = f"w{rank}.17{rank}.pt.trace.json"
                clock.keep([ClockRecording(name, found["why"], found["at"], NOW_S + start / 10)])


@pytest.mark.slow
def test_the_clocks_of_a_run_are_one_entry(serve: Callable[[], Service], tmp_path: Path) -> None:
    job(tmp_path / "log" / "run")
    service = serve()
    (entry,) = listed(service, 1)
    assert (entry.kind, entry.run, entry.worker) == (pb.TraceInfo.clock, "run/gpudiag/clock", "step clock")
    report = report_of(service, entry)
    clock = report["clock"]
    assert clock["drifts"]
    assert re.match(r"(Steps on rank|Rank) 1 of 2 .* since about step (29|30)\d\d", clock["sentence"])
    assert "waiting for the next batch (input)" in clock["ranks"][1]["drift"]
    assert not clock["ranks"][0]["drift"]
    assert {made["rank"] for made in clock["recordings"]} == {0, 1}
    assert {(made["worker"], made["span"]) for made in clock["recordings"]} == {("w0", "170"), ("w1", "171")}
    (row,) = service.runs().rows
    assert (row.first_title, row.sentence) == ("Steps take longer", clock["sentence"])

    def cut() -> dict[str, Any] | None:
        answer = service.slice("clock", entry.id, {"rank": "1"})
        return None if isinstance(answer, Pending) else json.loads(gzip.decompress(answer))

    assert eventually(cut)["rank"] == 1
    required = {"gap": {"device": "0", "gap": "0"}, "calls": {"key": "0"}}
    refused = [service.slice(kind, entry.id, required.get(kind, {})) for kind in SLICES if kind != "clock"]
    refused += [service.job(entry.id), service.compare(entry.id, entry.id)]
    for answer in refused:
        assert isinstance(answer, Pending)
        assert isinstance(answer.error, UsageError)


@pytest.mark.slow
def test_a_clock_can_be_shared(serve: Callable[[], Service], tmp_path: Path) -> None:
    job(tmp_path / "log" / "run")
    service = serve()
    (entry,) = listed(service, 1)
    sentence = report_of(service, entry)["clock"]["sentence"]

    def content(format_: str) -> bytes:
        def ask() -> bytes | None:
            made = service.export(entry.id, format_)
            if isinstance(made, Pending):
                return None
            with closing(made):
                return b"".join(made)

        return eventually(ask)

    assert sentence[:40] in content("markdown").decode()
    assert b"gd-data" in content("html") or sentence[:40].encode() in content("html")
    assert json.loads(content("json"))["reports"][0]["clock"]["sentence"] == sentence
    with zipfile.ZipFile(BytesIO(content("tables"))) as archive:
        assert "clock_ranks.csv" in archive.namelist()


@pytest.mark.slow
def test_a_healthy_run_has_no_finding(serve: Callable[[], Service], tmp_path: Path) -> None:
    job(tmp_path / "log" / "run", at=STEPS)
    service = serve()
    (entry,) = listed(service, 1)
    report = report_of(service, entry)
    assert report["verdict"]["headline"] == "No drift"
    assert not report["clock"]["drifts"]
    assert not report["clock"]["recordings"]
    assert not service.runs().rows[0].first_title


@pytest.mark.slow
def test_a_short_run_cannot_tell(serve: Callable[[], Service], tmp_path: Path) -> None:
    RankClock(str(tmp_path / "log" / "run"), 0, 10.0).add(steps(500)[:, : COLUMNS - 1], 1, NOW_S)
    service = serve()
    (entry,) = listed(service, 1)
    assert "too early" in report_of(service, entry)["clock"]["sentence"]


@pytest.mark.slow
def test_what_an_earlier_job_left_is_not_of_this_one(serve: Callable[[], Service], tmp_path: Path) -> None:
    run = tmp_path / "log" / "run"
    job(run)
    for path in (run / "gpudiag" / "clock").glob("rank-*/*.tfevents.*"):
        path.unlink()
    clock = RankClock(str(run), 0, 10.0)
    clock.add(steps(500)[:, : COLUMNS - 1], 1, NOW_S + 1e6)
    service = serve()
    (entry,) = listed(service, 1)
    found = report_of(service, entry)["clock"]
    assert [rank["rank"] for rank in found["ranks"]] == [0]
    assert not found["recordings"]
    assert "is late" not in found["sentence"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [HOSTILE, "x" * 100_000, "\x00\x1b[31m"])
def test_names_are_short_texts(name: str, serve: Callable[[], Service], tmp_path: Path) -> None:
    job(tmp_path / "log" / "run", ranks=1)
    rank = tmp_path / "log" / "run" / "gpudiag" / "clock" / "rank-0"
    made = ClockRecording(name, name, 3, NOW_S)
    (rank / MADE).write_text(json.dumps({"recordings": [asdict(made), 3, {"file": name}]})[: 1 << 16])
    service = serve()
    (entry,) = listed(service, 1)
    found = report_of(service, entry)["clock"]
    said = [text for one in found["recordings"] for text in (one["why"], one["worker"])]
    assert all(len(text) < 5_000 and text.isprintable() for text in [found["sentence"], *said])


@pytest.mark.slow
def test_a_damaged_clock_is_said(serve: Callable[[], Service], tmp_path: Path) -> None:
    RankClock(str(tmp_path / "log" / "run"), 0, 10.0).add(steps(50)[:, : COLUMNS - 1], 1, NOW_S)
    for path in (tmp_path / "log").rglob("*.tfevents.*"):
        path.write_bytes(b"\xff" * 400)
    service = serve()
    (entry,) = listed(service, 1)
    assert "no event file of a step clock" in eventually(lambda: _failed(service, entry.id))


def written(folder: Path, count: int, timed_every: int = 1) -> dict[str, Any]:
    rows = steps(count)[:, : COLUMNS - 1]
    rows[:, 2] = rows[:, 1] - np.delete(rows[:, 2:], 0, axis=1).sum(axis=1)  # phases are the step
    rows[np.arange(count) % timed_every > 0, 2:] = np.nan
    RankClock(str(folder), 0, 10.0).add(rows, 1, NOW_S)
    return dict(prepare_clock(read_lines(str(folder / "gpudiag" / "clock"))[0]))


@pytest.fixture(
    scope="module", params=[1, 37, 2_500, pytest.param(FULL_LINES + 3_001, marks=pytest.mark.slow)]
)
def whole_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return written(tmp_path_factory.mktemp("run"), request.param)


@pytest.mark.parametrize("width", [1, 7, 1_000])
def test_bins_are_the_whole_run(whole_run: dict[str, Any], width: int) -> None:
    prepared = whole_run
    found = slice_clock(prepared, None, None, None, width)
    assert len(found.step) <= width + 1
    weights = np.array(found.steps)
    assert weights.sum() == prepared["clock_steps"].sum()
    whole_us = (prepared["clock_values"][:, 0] * prepared["clock_steps"]).sum() * 1e3
    assert (weights * found.mean_us).sum() == pytest.approx(whole_us)
    names = [curve.name for curve in found.phases]
    assert names == [*PHASES, "core"]
    parts = np.sum([curve.us for curve in found.phases[:-1]], axis=0)
    assert parts == pytest.approx(np.array(found.mean_us), rel=1e-5)
    low, median, high = (
        np.array(values)[weights > 0] for values in (found.low_us, found.median_us, found.high_us)
    )
    assert (low <= median).all()
    assert (median <= high).all()
    assert high.max() == prepared["clock_values"][:, 0].max() * 1e3


def test_a_range_is_the_same_steps(tmp_path: Path) -> None:
    prepared = written(tmp_path, 250)
    found = slice_clock(prepared, 0, 120, 125, 1_000)
    assert list(found.step) == list(range(120, 125))
    assert found.mean_us == found.low_us == found.high_us == found.median_us
    assert found.mean_us == pytest.approx(prepared["clock_values"][120:125, 0] * 1e3)
    assert (found.first_step, found.last_step, found.end_step) == (0, 249, 125)


def test_phases_are_those_of_timed_steps(tmp_path: Path) -> None:
    prepared = written(tmp_path, 900, timed_every=3)
    found = slice_clock(prepared, 0, None, None, 90)
    values = prepared["clock_values"]
    assert (np.array(found.steps) * found.mean_us).sum() == pytest.approx(values[:, 0].sum() * 1e3)
    for at in (0, 40, 89):
        part = values[10 * at : 10 * at + 10, 1]
        assert found.phases[0].us[at] == pytest.approx(np.nanmean(part) * 1e3)
    one = slice_clock(prepared, 0, 0, 3, 10)
    assert list(one.phases[0].us) == [values[0, 1] * 1e3, 0, 0]


@with_each(
    ("rank", "start", "end"), [(7, None, None), (0, 50, 50), (0, 60, 50), (0, 1e300, None), (0, None, -5.0)]
)
def test_what_is_not_there_is_refused(
    rank: int, start: float | None, end: float | None, tmp_path: Path
) -> None:
    with pytest.raises(UsageError):
        slice_clock(written(tmp_path, 100), rank, start, end, 10)


def test_another_file_has_no_clock() -> None:
    with pytest.raises(UsageError, match="no step clock"):
        slice_clock({}, None, None, None, 10)
