"""Operation tables of simulated pipeline-parallel steps: one forward, one backward, interleaved if vpp > 1.

The simulation knows nothing of graphs: each worker follows its program, and what it waits for is written out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from tb_gpudiag.jobs.what_if_table import Parallelism

Duration = Callable[[str, int, int, int], float]
"""Seconds of (optype, dp_rank, stage, micro-batch): a transfer's from the last start on."""

Key = tuple[str, int, int, int, int]
"""(optype, dp_rank, stage, chunk, micro-batch)"""


def program(job: Parallelism, stage: int, micro_batches: int) -> list[tuple[str, int, int]]:
    """(way, chunk, micro-batch) in the order in which a stage computes them, as Megatron-LM does."""
    if job.vpp > 1:
        assert micro_batches % job.pp == 0
    total = micro_batches * job.vpp
    warm = job.pp - stage - 1 if job.vpp == 1 else (job.pp - stage - 1) * 2 + (job.vpp - 1) * job.pp
    warm = min(warm, total)

    def nth(k: int) -> tuple[int, int]:
        if job.vpp == 1:
            return 0, k
        turn = job.pp * job.vpp
        return k % turn // job.pp, k // turn * job.pp + k % job.pp

    forward = [("forward", *nth(k)) for k in range(total)]
    backward = [("backward", job.vpp - 1 - nth(k)[0], nth(k)[1]) for k in range(total)]
    steady = [one for pair in zip(forward[warm:], backward, strict=False) for one in pair]
    return forward[:warm] + steady + backward[total - warm :]


@dataclass
class Step:
    """One step: `starts` and `ends` of all operations once it ran.

    posts_early: receives wait for earlier receives only, not for computing.
    """

    job: Parallelism
    micro_batches: int
    duration: Duration
    posts_early: bool = False
    starts: dict[Key, float] = field(default_factory=dict)
    ends: dict[Key, float] = field(default_factory=dict)

    def run(self) -> Step:
        """Let each worker go as far as it can until all are done."""
        programs = {
            (dp_rank, stage): program(self.job, stage, self.micro_batches)
            for dp_rank in range(self.job.dp)
            for stage in range(self.job.pp)
        }
        for stage in range(self.job.pp):
            for chunk in range(self.job.vpp):
                self._together("params-all-gather", stage, chunk, self._after_gathers(stage, chunk))
        done = dict.fromkeys(programs, 0)
        while any(done[worker] < len(programs[worker]) for worker in programs):
            before = dict(done)
            for worker, steps in programs.items():
                while done[worker] < len(steps) and self._compute(worker, steps, done[worker]):
                    done[worker] += 1
            assert done != before, "the pipeline hangs"
        self._finish(programs)
        return self

    def _after_gathers(self, stage: int, chunk: int) -> dict[int, float]:
        before = [
            self.ends.get(("params-all-gather", r, stage, chunk - 1, 0), 0.0) for r in range(self.job.dp)
        ]
        return dict(enumerate(before))

    def _together(self, optype: str, stage: int, chunk: int, ready: dict[int, float]) -> None:
        """A collective of a stage's data-parallel ranks."""
        for dp_rank, at in ready.items():
            key = (optype, dp_rank, stage, chunk, 0)
            self.starts[key] = at
            self.ends[key] = max(ready.values()) + self.duration(optype, dp_rank, stage, 0)

    def _compute(self, worker: tuple[int, int], steps: list[tuple[str, int, int]], nth: int) -> bool:
        """Compute one micro-batch and try to send it on; False if it is not here yet."""
        way, chunk, micro_batch = steps[nth]
        dp_rank, stage = worker
        received = self._received(worker, steps, nth)
        if received is None:
            return False
        ready = [received, self.ends["params-all-gather", dp_rank, stage, chunk, 0]]
        if nth:
            before = steps[nth - 1]
            ready.append(self.ends[f"{before[0]}-compute", dp_rank, stage, before[1], before[2]])
        key = (f"{way}-compute", dp_rank, stage, chunk, micro_batch)
        self.starts[key] = max(ready)
        self.ends[key] = max(ready) + self.duration(key[0], dp_rank, stage, micro_batch)
        return True

    def _received(self, worker: tuple[int, int], steps: list[tuple[str, int, int]], nth: int) -> float | None:
        """When the micro-batch is here: 0 if it needs no transfer, None if it was not computed yet."""
        way, chunk, micro_batch = steps[nth]
        dp_rank, stage = worker
        ahead = 1 if way == "forward" else -1
        origin = chunk * self.job.pp + stage - ahead
        if self.job.pp == 1 or not 0 <= origin < self.job.pp * self.job.vpp:
            return 0.0
        sender = (dp_rank, origin % self.job.pp, origin // self.job.pp, micro_batch)
        computed = self.ends.get((f"{way}-compute", *sender))
        if computed is None:
            return None
        send = (f"{way}-send", *sender)
        receive = (f"{way}-recv", dp_rank, stage, chunk, micro_batch)
        same_way = [step for step in steps[:nth] if step[0] == way and not self.posts_early]
        posted = self._computed((dp_rank, stage), same_way[-1]) if same_way else 0.0
        sent_before = self._last_of(send[0], *sender[:2])
        got_before = self._last_of(receive[0], dp_rank, stage)
        self.starts[send] = max(computed, sent_before)
        self.starts[receive] = max(posted, got_before)
        start = max(self.starts[send], self.starts[receive])
        self.ends[send] = start + self.duration(send[0], dp_rank, sender[1], micro_batch)
        self.ends[receive] = start + self.duration(receive[0], dp_rank, stage, micro_batch)
        return self.ends[receive]

    def _computed(self, worker: tuple[int, int], done: tuple[str, int, int]) -> float:
        """When a worker had computed something of its program."""
        way, chunk, micro_batch = done
        dp_rank, stage = worker
        return self.ends[f"{way}-compute", dp_rank, stage, chunk, micro_batch]

    def _last_of(self, optype: str, dp_rank: int, stage: int) -> float:
        """When the worker's last such transfer ended."""
        return max(
            (end for key, end in self.ends.items() if key[:3] == (optype, dp_rank, stage)), default=0.0
        )

    def _finish(self, programs: dict[tuple[int, int], list[tuple[str, int, int]]]) -> None:
        """Reduce gradients, clip and update."""
        computed = {worker: self._computed(worker, steps[-1]) for worker, steps in programs.items()}
        ready = dict(computed)
        for stage in range(self.job.pp):
            for chunk in range(self.job.vpp):
                own = {rank: ready[rank, stage] for rank in range(self.job.dp)}
                self._together("grads-reduce-scatter", stage, chunk, own)
                for rank in range(self.job.dp):
                    ready[rank, stage] = self.ends["grads-reduce-scatter", rank, stage, chunk, 0]
        last = max(ready.values())
        for (dp_rank, stage), at in ready.items():
            clip = ("optimizer-clip-main-grad", dp_rank, stage, -1, 0)
            self.starts[clip] = at
            self.ends[clip] = last + self.duration(clip[0], dp_rank, stage, 0)
            update = ("optimizer", dp_rank, stage, -1, 0)
            self.starts[update] = self.ends[clip]
            self.ends[update] = self.ends[clip] + self.duration(update[0], dp_rank, stage, 0)

    @property
    def seconds(self) -> float:
        return max(self.ends.values())


def table(steps: list[Step]) -> pa.Table:
    """The steps as a published table. Transfers do not say which chunk or micro-batch they are of."""
    rows = []
    for number, step in enumerate(steps):
        for key, start in step.starts.items():
            optype, dp_rank, stage, chunk, _ = key
            paired = optype.endswith(("-send", "-recv"))
            rows.append(
                {
                    "dp_rank": dp_rank,
                    "stage": stage,
                    "rank": stage * step.job.dp + dp_rank,
                    "step": number,
                    "optype": optype,
                    "start_ts": 100.0 * number + start,
                    "duration": step.ends[key] - start,
                    "seq_id": 0,
                    "mc": -1 if paired else chunk,
                }
            )
    return pa.Table.from_pylist(rows)
