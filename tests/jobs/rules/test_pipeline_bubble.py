"""GD610: what the busiest stage of a pipeline waits is the bubble."""

from __future__ import annotations

from typing import Any

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.rules.pipeline_bubble import check
from tb_gpudiag.rules.rule import Clear, Finding
from tests.jobs.ranks.stage import MS, facts_of, job
from tests.wording.plain import plain

STEP_MS = 90
# Two stages, two microbatches, 10 ms forward and 20 ms backward each: kind, arrival and end in a step.
FIRST = (("send", 10, 10), ("send", 20, 20), ("recv", 20, 50), ("recv", 70, 70))
SECOND = (("recv", -20, 10), ("recv", 20, 20), ("send", 50, 50), ("send", 70, 70))


def pipeline(shortened_ms: int = 0) -> list[Digest]:
    """Five such steps. shortened_ms: by how much less the first stage waits for its first gradient, and the
    second one for its first activations."""

    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        step, place = divmod(number, 4)
        kind, arrival, end = (FIRST, SECOND)[rank][place]
        waited = end - arrival - (shortened_ms if end > arrival else 0)
        at = step * STEP_MS + end
        forward = place < 2
        row.update(
            kind=kind,
            name=f"gloo:{kind}",
            source=0 if forward else 1,
            destination=1 if forward else 0,
            start_ns=max(0, at - waited) * MS,
            host_start_ns=max(0, at - waited) * MS,
            since_ns=max(0, at - waited) * MS,
            end_ns=at * MS,
            exposed_ns=waited * MS,
            computing_ns=10 * MS,
        )

    times = {"own_ms": lambda rank, step: STEP_MS, "collectives": 4, "later_ms": lambda rank, step: 0.0}
    return job(2, 5, change=change, transfer_ms=0.0, **times)  # type: ignore[arg-type]


def test_two_microbatches_leave_a_bubble() -> None:
    answer = check(facts_of(pipeline()))
    assert isinstance(answer, Finding)
    # The second stage waits 30 ms in each step but the first, where the recording begins with its wait.
    assert answer.cost_ns == (4 * 30 + 10) * MS
    assert plain(answer.title) == "Every stage of the pipeline waits at least 28.9% of the time"
    said = {one.label: plain(one.text) for one in answer.evidence}
    assert said["Microbatches per step"] == "2"
    assert said["Stage 0: rank 0 waits"] == "150 ms, 33.3% of the step window"
    assert said["Even stages would wait"] == "150 ms, 33.3%"  # (2 - 1) / (2 + 2 - 1) of five steps of 90 ms
    assert answer.saving is not None
    assert (answer.saving.low_ns, answer.saving.basis) == (0, "at most")


def test_a_small_bubble_is_clear() -> None:
    assert isinstance(check(facts_of(pipeline(shortened_ms=15))), Clear)


def test_ranks_that_reduce_are_no_stages() -> None:
    answer = check(facts_of(job(2, 5, own_ms=lambda rank, step: 30.0 if rank else 10.0)))
    assert answer == Clear("the ranks are no stages of a pipeline")
