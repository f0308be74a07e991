"""Loader: a DataLoader with or without worker processes, as the training thread sees it."""

from __future__ import annotations

from tests.simulator.faults import HELPER_NS, Faults
from tests.simulator.job import Job
from tests.simulator.machine import Machine
from tests.simulator.script import place

PREFETCH = 2  # batches that each worker may be ahead, torch's default
SAMPLES = 8  # calls of __getitem__ in a batch that the training thread loads itself


class Loader(Faults):
    """The job's loader."""

    def __init__(self, job: Job, machine: Machine) -> None:
        super().__init__(job, machine)
        self._batch_ns = job.batch_us * 1_000
        # When each worker is free, and when each requested batch will be ready. The first ones are ready,
        # because the recording begins in the middle of a job.
        self._free_ns = [0] * job.workers
        self._ready_ns = [0] * (job.workers * PREFETCH)
        self._taken = 0

    def next_batch(self) -> None:
        """`next(loader)`: the training thread loads, or waits for a worker. All of its time is input."""
        machine, workers = self.machine, self.job.workers
        kind = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
        with self._frames("torch/utils/data/dataloader.py(720): __next__"), machine.all_for("input"):
            with machine.span("annotation", f"enumerate(DataLoader)#{kind}.__next__"):
                with self._frames("torch/utils/data/dataloader.py(783): _next_data"):
                    if workers:
                        self._take_from_worker()
                    else:
                        self._load()
                        self._collate()
        self._taken += 1

    def _load(self) -> None:
        with self._frames("torch/utils/data/_utils/fetch.py(49): fetch"):
            for _ in range(SAMPLES):
                with self._frames(place("Images.__getitem__")):
                    self.machine.spend(self._batch_ns / SAMPLES * 0.4, "input")
                    with self._frames(place("augment")):
                        self.machine.spend(self._batch_ns / SAMPLES * 0.6, "input")
                        for _ in range(self.job.item_calls):
                            with self._frames(place("brighten")):
                                self.machine.spend(HELPER_NS, "input")

    def _collate(self) -> None:
        with self._frames("torch/utils/data/_utils/collate.py(340): default_collate"):
            with self.machine.span("op", "aten::stack"):
                self.machine.spend(40_000, "input")

    def _take_from_worker(self) -> None:
        machine = self.machine
        with self._frames("torch/utils/data/dataloader.py(1275): _try_get_data"):
            machine.wait_until(self._ready_ns[self._taken], "input")
            machine.spend(self.job.hand_over_us * 1_000, "input")
        worker = self._taken % self.job.workers
        begin = max(self._free_ns[worker], machine.now_ns)
        self._free_ns[worker] = begin + machine.about(self._batch_ns)
        self._ready_ns.append(self._free_ns[worker])
