"""The what-if analysis of operation tables: against a simulation, and against published results."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpudiag.errors import TraceError, UsageError
from tb_gpudiag.jobs import what_if_graph
from tb_gpudiag.jobs.what_if import WhatIf, what_if
from tb_gpudiag.jobs.what_if_table import OperationTable, Parallelism
from tests.conftest import REPOSITORY
from tests.jobs.pipeline import Duration, Step, table

PUBLISHED = REPOSITORY.parent / "shared" / "jobs"
"""Operation tables and results that the paper's authors published. They are not part of the project."""


COMPUTING = ("forward-compute", "backward-compute", "optimizer")


def analyzed(rows: pa.Table, job: Parallelism) -> WhatIf:
    return what_if(OperationTable.from_arrow(rows), job)


def even(optype: str, *_: int) -> float:
    """Two seconds forward, four back, and a tenth of a second for all else."""
    return {"forward-compute": 2.0, "backward-compute": 4.0}.get(optype, 0.1)


def uneven(seed: int) -> Duration:
    draw = random.Random(seed)
    taken: dict[tuple[object, ...], float] = {}

    def duration(*key: object) -> float:
        return taken.setdefault(key, draw.uniform(0.05, 0.4) * (20 if str(key[0]).endswith("compute") else 1))

    return duration


def changed(rows: pa.Table, drop: Callable[[dict[str, Any]], bool]) -> pa.Table:
    return pa.Table.from_pylist([row for row in rows.to_pylist() if not drop(row)], rows.schema)


JOBS = st.builds(Parallelism, dp=st.integers(1, 3), pp=st.integers(1, 4), vpp=st.integers(1, 3))


@settings(max_examples=12)
@given(JOBS, st.integers(1, 3), st.integers(0, 1000))
def test_a_replay_without_delays_is_what_the_simulation_recorded(
    job: Parallelism, turns: int, seed: int
) -> None:
    steps = [Step(job, turns * job.pp, uneven(seed + number)).run() for number in range(2)]
    result = analyzed(table(steps), job)
    assert result.recorded_s == pytest.approx([step.seconds for step in steps])
    assert result.without_delays_s == pytest.approx(result.recorded_s)
    assert result.delay_slowdown == pytest.approx(1)


@settings(max_examples=10)
@given(JOBS, st.integers(0, 1000))
def test_without_straggling_is_a_simulation_of_means_and_medians(job: Parallelism, seed: int) -> None:
    step = Step(job, 2 * job.pp, uneven(seed)).run()
    rows = table([step])
    result = analyzed(rows, job)

    took: dict[str, list[float]] = {}
    for key, start in step.starts.items():
        if key[0] in COMPUTING:
            took.setdefault(key[0], []).append(step.ends[key] - start)
        else:
            took.setdefault(key[0], []).append(step.duration(key[0], key[1], key[2], key[4]))
    ideal = {name: np.mean(some) if name in COMPUTING else np.median(some) for name, some in took.items()}
    even_step = Step(job, 2 * job.pp, lambda optype, *_: float(ideal[optype])).run()
    assert result.ideal_s == pytest.approx([even_step.seconds])


def test_an_even_job_does_not_straggle() -> None:
    job = Parallelism(dp=2, pp=2)
    result = analyzed(table([Step(job, 4, even).run()] * 2), job)
    assert result.slowdown == pytest.approx(1)
    for parts in (result.by_dp_rank, result.by_stage, result.by_kind):
        assert parts.slowdown == pytest.approx(1)
        assert parts.step_slowdown == pytest.approx(1)
    assert result.by_dp_rank.parts == (0, 1)
    assert result.left_out == {}


def test_a_slow_worker_explains_the_straggling() -> None:
    """One of 32 workers takes three times as long for the backward."""
    job = Parallelism(dp=8, pp=4)

    def slow(optype: str, dp_rank: int, stage: int, _: int) -> float:
        return even(optype) * (3 if (optype, dp_rank, stage) == ("backward-compute", 5, 2) else 1)

    result = analyzed(table([Step(job, 8, slow).run(), Step(job, 8, slow).run()]), job)
    assert result.slowdown > 1.5
    assert result.slowest_workers.workers == ((5, 2),)
    assert result.slowest_workers.share == pytest.approx(1, abs=0.1)
    assert result.slowest_workers.only_share == pytest.approx(1, abs=0.1)
    assert result.last_stage.share == pytest.approx(0, abs=0.1)
    assert result.last_stage.workers == tuple((rank, 3) for rank in range(8))
    assert result.by_dp_rank.parts[result.by_dp_rank.slowdown.argmax()] == 5
    assert result.by_stage.parts[result.by_stage.slowdown.argmax()] == 2
    assert result.by_kind.parts[result.by_kind.slowdown.argmax()] == "backward-compute"


def test_one_slow_step_counts_for_its_step_only() -> None:
    job = Parallelism(dp=2, pp=2)
    slow = [Step(job, 4, lambda optype, *_: 3 * even(optype)).run()]
    result = analyzed(table([Step(job, 4, even).run()] * 3 + slow), job)
    assert result.steps.tolist() == [0, 1, 2, 3]
    assert result.step_slowdown[3] == pytest.approx(3 * result.step_slowdown[0])


def test_the_order_of_rows_does_not_matter() -> None:
    job = Parallelism(dp=2, pp=4, vpp=2)
    rows = table([Step(job, 8, uneven(1)).run(), Step(job, 8, uneven(2)).run()])
    mixed = rows.take(random.Random(3).sample(range(rows.num_rows), rows.num_rows))
    assert analyzed(mixed, job).slowdown == pytest.approx(analyzed(rows, job).slowdown)


@pytest.mark.parametrize("job", [Parallelism(2, 2), Parallelism(3, 4), Parallelism(5, 2, 2)])
def test_two_ranks_replay_the_straggling_of_one_of_many(
    job: Parallelism, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = table([Step(job, 2 * job.pp, uneven(seed)).run() for seed in range(2)])
    short = analyzed(rows, job).by_dp_rank.step_s
    monkeypatch.setattr(what_if_graph, "one_of_many", lambda *_: None)
    assert short == pytest.approx(analyzed(rows, job).by_dp_rank.step_s)


def test_data_parallel_ranks_may_have_different_operations() -> None:
    job = Parallelism(dp=3, pp=2)
    rows = table([Step(job, 4, even).run()]).to_pylist()
    collection = next(row for row in rows if row["optype"] == "optimizer" and row["dp_rank"] == 1) | {
        "optype": "gc",
        "duration": 0.0,
    }
    result = analyzed(pa.Table.from_pylist([*rows, collection]), job)
    assert result.by_dp_rank.slowdown == pytest.approx(1)


def test_delays_are_removed() -> None:
    """The optimizer of one worker starts 5 s late in one step of two."""
    job = Parallelism(dp=2, pp=2)
    rows = table([Step(job, 4, even).run()] * 2).to_pylist()
    for row in rows:
        late = (row["step"], row["optype"], row["rank"]) == (0, "optimizer", 1)
        row["start_ts"] += 5.0 * late
    result = analyzed(pa.Table.from_pylist(rows), job)
    assert result.recorded_s[0] == pytest.approx(result.recorded_s[1] + 5)
    assert result.without_delays_s[0] == pytest.approx(result.without_delays_s[1])
    assert result.delay_slowdown > 1


@pytest.mark.parametrize("job", [Parallelism(2, 4), Parallelism(1, 3, 2)])
def test_a_receive_posted_early_does_not_wait_for_computing(job: Parallelism) -> None:
    early = Step(job, 12, uneven(4), posts_early=True).run()
    assert early.seconds < Step(job, 12, uneven(4)).run().seconds
    assert analyzed(table([early]), job).without_delays_s == pytest.approx([early.seconds])


def test_a_step_that_lacks_operations_is_left_out() -> None:
    job = Parallelism(dp=2, pp=2)
    rows = table([Step(job, 4, even).run()] * 3)
    lost = next(row for row in rows.to_pylist() if row["optype"] == "forward-recv")
    result = analyzed(changed(rows, lambda row: row == lost), job)
    assert result.steps.tolist() == [1, 2]
    assert result.left_out == {
        0: "stage 1 of dp_rank 0 has 3 operations forward-recv, its micro-batches need 4"
    }


@pytest.mark.parametrize(
    ("rank", "optype", "reason"),
    [
        (3, "grads-reduce-scatter", "grads-reduce-scatter has 1 ranks instead of 2"),
        (3, "optimizer-clip-main-grad", "optimizer-clip-main-grad has 3 ranks instead of 4"),
        (2, "backward-send", "stage 1 of dp_rank 0 has 0 operations backward-send, its micro-batches need 4"),
        (2, "", "stage 1 of dp_rank 0 has no operations"),
    ],
)
def test_it_says_what_no_step_has(rank: int, optype: str, reason: str) -> None:
    job = Parallelism(dp=2, pp=2)
    rows = table([Step(job, 4, even).run()])
    rest = changed(rows, lambda row: row["rank"] == rank and optype in ("", row["optype"]))
    with pytest.raises(TraceError, match=reason):
        analyzed(rest, job)


def replaced(rows: pa.Table, column: str, values: list[Any]) -> pa.Table:
    return rows.set_column(rows.column_names.index(column), column, pa.array(values))


def test_it_says_what_is_wrong_with_a_table() -> None:
    job = Parallelism(dp=2, pp=2)
    rows = table([Step(job, 4, even).run()])
    with pytest.raises(TraceError, match="no column stage, duration"):
        OperationTable.from_arrow(rows.drop_columns(["stage", "duration"]))
    with pytest.raises(TraceError, match="has no rows"):
        OperationTable.from_arrow(rows.slice(0, 0))
    names = ["checkpoint-save" if name == "optimizer" else name for name in rows["optype"].to_pylist()]
    with pytest.raises(TraceError, match="does not know: checkpoint-save"):
        OperationTable.from_arrow(replaced(rows, "optype", names))
    with pytest.raises(TraceError, match="dp_rank 0 to 1, outside 0 to 0"):
        analyzed(rows, Parallelism(dp=1, pp=2))
    with pytest.raises(TraceError, match="not finite"):
        OperationTable.from_arrow(replaced(rows, "duration", [float("inf")] * rows.num_rows))


def test_parallelism_is_read_from_meta() -> None:
    assert Parallelism.from_meta({"dp_size": 4, "pp_size": 2, "tp_size": 8}) == Parallelism(4, 2, 1)
    for meta in ({"dp_size": 4}, {"dp_size": 0, "pp_size": 1}, {"dp_size": 1, "pp_size": "two"}):
        with pytest.raises(UsageError):
            Parallelism.from_meta(meta)


def published_table(name: str) -> tuple[OperationTable, Parallelism]:
    lines = [line.split(": ") for line in (PUBLISHED / f"meta-{name}.yaml").read_text().splitlines()]
    meta = {key: int(value) for key, value in lines if value.isdigit()}
    rows = pq.read_table(PUBLISHED / f"trace-{name}.parquet")
    return OperationTable.from_arrow(rows), Parallelism.from_meta(meta)


def published(name: str) -> tuple[WhatIf, dict[str, Any]]:
    if not PUBLISHED.is_dir():
        pytest.skip(f"no published tables at {PUBLISHED}")
    return what_if(*published_table(name)), _json(PUBLISHED / f"result-{name}.json")


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


PRECISION = 1e-5
"""Their tables have times in single precision: about 4 µs of 46 s."""


@pytest.mark.parametrize("name", ["AR", "SE"])
def test_published_results_are_reproduced(name: str) -> None:
    found, truth = published(name)
    assert found.slowdown == pytest.approx(truth["blocking_slowdown"], rel=PRECISION)
    assert found.delay_slowdown == pytest.approx(truth["launch_slowdown"], rel=PRECISION)
    steps = [str(step) for step in found.steps]
    for times, key in (
        (found.recorded_s, "step_t_base"),
        (found.without_delays_s, "step_t_nodelay"),
        (found.ideal_s, "step_t_noblk"),
        (found.step_slowdown, "blocking_step_slowdown"),
    ):
        assert dict(zip(steps, times, strict=True)) == pytest.approx(truth[key], rel=PRECISION)
    for parts, part in ((found.by_dp_rank, "dp_rank"), (found.by_stage, "stage"), (found.by_kind, "optype")):
        names = [str(name) for name in parts.parts]
        wanted = truth[f"blocking_decompose_by_{part}"]
        assert dict(zip(names, parts.slowdown, strict=True)) == pytest.approx(wanted, rel=PRECISION)
        for index, step in enumerate(steps):
            own = dict(zip(names, parts.step_slowdown[:, index], strict=True))
            assert own == pytest.approx(truth[f"blocking_decompose_by_{part}_per_step"][step], rel=PRECISION)


@pytest.mark.parametrize("name", ["AR", "SE"])
def test_published_shares_of_workers_are_reproduced(name: str) -> None:
    found, _ = published(name)
    for share, file in ((found.slowest_workers, "mw"), (found.last_stage, "ms")):
        truth = _json(PUBLISHED / f"{file}-{name}.json")
        assert share.without_s == pytest.approx(truth["trem"], rel=PRECISION)
        assert share.only_s == pytest.approx(truth["tadd"], rel=PRECISION)
        assert (share.share, share.only_share) == pytest.approx((truth["rem"], truth["add"]), rel=1e-3)
