"""A bucket next to the local log directory, behind a network that stalls, refuses and drops connections."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.s3.proxy import Mode
from tests.s3.server import Store, is_installed, running_server, store_at

MOST_FILES = 4
NOTHING = 0.7
MODES: tuple[Mode, ...] = ("pass", "pass", "pass", "503", "stall", "drop")


class BucketDisturber:
    """Changes one file, or the network."""

    def __init__(self, store: Store, contents: Sequence[bytes], seed: int) -> None:
        self._store, self._contents = store, contents
        self._draw = random.Random(seed)
        self._written = 0
        self.done: dict[str, int] = {}

    def step(self) -> None:
        """Make one change, or none: files stay long enough to be analyzed."""
        if self._draw.random() < NOTHING:
            return
        change = self._draw.choice((self._put, self._put, self._remove, *3 * [self._change_network]))
        self._count(change())

    def settle(self) -> None:
        """Repair the network, and write all files anew: an analysis may have reached its time limit."""
        self._store.proxy.set("pass")
        for name in self._store.names():
            self._write(name)

    def _put(self) -> str:
        self._write(f"log/run_{self._draw.randrange(MOST_FILES)}/host_2.1.pt.trace.json")
        return "put"

    def _remove(self) -> str:
        for name in self._store.names()[:1]:
            self._store.remove(name)
        return "remove_object"

    def _change_network(self) -> str:
        mode = self._draw.choice(MODES)
        self._store.proxy.set(mode)
        return f"network_{mode}"

    def _write(self, name: str) -> None:
        self._written += 1
        self._store.put(name, self._draw.choice(self._contents) + b" " * self._written)

    def _count(self, change: str) -> None:
        self.done[change] = self.done.get(change, 0) + 1


@contextmanager
def bucket() -> Iterator[Store | None]:
    """Return a bucket that this process and its children find; None if no S3 server is installed."""
    if not is_installed():
        yield None
        return
    with running_server() as port, store_at(port, "soak") as store, pytest.MonkeyPatch.context() as patch:
        for name, value in store.environment.items():
            patch.setenv(name, value)
        yield store
