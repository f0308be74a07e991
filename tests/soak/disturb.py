"""What happens to a shared log directory, a cache directory and processes: at random, again and again."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

MOST_FILES = 8
OUR_PROCESSES = ("tb_gpudiag.service.processes",)
DAY_S = 86_400.0


class Disturber:
    """Changes one thing at a time. contents: files to record; root: TensorBoard's process; most: files."""

    def __init__(
        self, log: Path, cache: Path, contents: Sequence[bytes], root: int, seed: int, most: int = MOST_FILES
    ) -> None:
        self._log, self._cache, self._contents, self._root, self._most = log, cache, contents, root, most
        self._draw = random.Random(seed)
        self._recorded = 0
        self.done: dict[str, int] = {}

    def step(self) -> None:
        """Make one change."""
        change = self._draw.choice(self.changes())
        change()
        self.done[change.__name__] = self.done.get(change.__name__, 0) + 1

    def changes(self) -> list[Callable[[], None]]:
        """Return what may happen, as often as it is as likely as others."""
        return [
            *(self.record, self.record, self.begin, self.finish, self.replace, self.truncate, self.remove),
            *(self.change_clock, self.damage_cache, self.kill_process, self.stop_process),
        ]

    def record(self) -> None:
        """A recording appears whole."""
        if len(self._files()) < self._most:
            self._write(self._new_path(), self._content())

    def begin(self) -> None:
        """A recording appears that is still being written."""
        if len(self._files()) < self._most:
            content = self._content()
            self._write(self._new_path(), content[: self._draw.randrange(len(content))])

    def finish(self) -> None:
        """A file grows until it is whole."""
        self._on_file(lambda path: self._write(path, self._content()))

    def replace(self) -> None:
        """Another file takes its place at once, as by rsync."""

        def change(path: Path) -> None:
            draft = path.with_name("draft")
            self._write(draft, self._content())
            draft.replace(path)

        self._on_file(change)

    def truncate(self) -> None:
        self._on_file(lambda path: os.truncate(path, self._draw.randrange(path.stat().st_size + 1)))

    def remove(self) -> None:
        self._on_file(lambda path: path.unlink())

    def change_clock(self) -> None:
        """A file's time jumps, as when machines with other clocks write."""
        at_s = time.time() + self._draw.uniform(-30 * DAY_S, 2 * DAY_S)
        self._on_file(lambda path: os.utime(path, (at_s, at_s)))

    def damage_cache(self) -> None:
        """A file of the cache loses its end, or has a bit flipped."""
        files = [path for path in self._cache.rglob("*") if path.is_file() and path.stat().st_size]
        if not files:
            return
        path = self._draw.choice(files)
        if self._draw.random() < 0.5:
            os.truncate(path, self._draw.randrange(path.stat().st_size))
            return
        with open(path, "r+b") as file:
            file.seek(self._draw.randrange(path.stat().st_size))
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 0x10]))

    def kill_process(self) -> None:
        self._signal(signal.SIGKILL)

    def stop_process(self) -> None:
        """A process hangs, until the next change of this kind lets it go on or its time limit ends it."""
        self._signal(signal.SIGCONT if self._draw.random() < 0.5 else signal.SIGSTOP)

    def settle(self) -> None:
        """Let all processes go on, and make all files whole."""
        for pid in children(self._root):
            os.kill(pid, signal.SIGCONT)
        for path in self._files():
            self._write(path, self._content())

    def _signal(self, number: signal.Signals) -> None:
        found = [pid for pid in children(self._root) if any(name in _command(pid) for name in OUR_PROCESSES)]
        if found:
            os.kill(self._draw.choice(found), number)

    def _on_file(self, change: Callable[[Path], None]) -> None:
        files = self._files()
        if files:
            change(self._draw.choice(files))

    def _files(self) -> list[Path]:
        return sorted(self._log.rglob("*.pt.trace.json"))

    def _new_path(self) -> Path:
        self._recorded += 1
        return self._log / f"run_{self._recorded % 4}" / f"host_1.{self._recorded}.pt.trace.json"

    def _content(self) -> bytes:
        return self._draw.choice(self._contents)

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def children(pid: int) -> list[int]:
    """Processes started by a process, and by those."""
    found: list[int] = []
    with suppress(OSError):  # the process, or a thread of it, has ended meanwhile
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return [*found, *(below for child in found for below in children(child))]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
