"""Loader: a DataLoader with or without worker processes, as the training thread sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.simulator.machine import Machine
from tests.simulator.script import place

PREFETCH = 2  # batches that each worker may be ahead, torch's default
SAMPLES = 8  # calls of __getitem__ in a batch that the training thread loads itself


class Loader:
    """One loader. batch_ns: time to load one batch, in a worker or in the training thread."""

    def __init__(self, machine: Machine, *, workers: int, batch_ns: float, stacks: bool) -> None:
        self._machine = machine
        self._workers = workers
        self._batch_ns = batch_ns
        self._stacks = stacks
        # When each worker is free, and when each requested batch will be ready. The first ones are ready,
        # because the recording begins in the middle of a job.
        self._free_ns = [0] * workers
        self._ready_ns = [0] * (workers * PREFETCH)
        self._taken = 0

    def next_batch(self) -> None:
        """`next(loader)`: the training thread loads, or waits for a worker. All of its time is input."""
        machine = self._machine
        kind = "_MultiProcessingDataLoaderIter" if self._workers else "_SingleProcessDataLoaderIter"
        with self._frames("torch/utils/data/dataloader.py(720): __next__"), machine.all_for("input"):
            with machine.span("annotation", f"enumerate(DataLoader)#{kind}.__next__"):
                with self._frames("torch/utils/data/dataloader.py(783): _next_data"):
                    if self._workers:
                        self._take_from_worker()
                    else:
                        self._load()
                        self._collate()
        self._taken += 1

    def _load(self) -> None:
        with self._frames("torch/utils/data/_utils/fetch.py(49): fetch"):
            for _ in range(SAMPLES):
                with self._frames(place("Images.__getitem__")):
                    self._machine.spend(self._batch_ns / SAMPLES * 0.4, "input")
                    with self._frames(place("augment")):
                        self._machine.spend(self._batch_ns / SAMPLES * 0.6, "input")

    def _collate(self) -> None:
        with self._frames("torch/utils/data/_utils/collate.py(340): default_collate"):
            with self._machine.span("op", "aten::stack"):
                self._machine.spend(40_000, "input")

    def _take_from_worker(self) -> None:
        machine = self._machine
        with self._frames("torch/utils/data/dataloader.py(1275): _try_get_data"):
            machine.wait_until(self._ready_ns[self._taken], "input")
            machine.spend(30_000, "input")
        worker = self._taken % self._workers
        begin = max(self._free_ns[worker], machine.now_ns)
        self._free_ns[worker] = begin + machine.about(self._batch_ns)
        self._ready_ns.append(self._free_ns[worker])

    @contextmanager
    def _frames(self, *names: str) -> Iterator[None]:
        with ExitStack() as stack:
            if self._stacks:
                for name in names:
                    stack.enter_context(self._machine.span("frame", name))
            yield
