"""A team on one shared cache: two TensorBoards and ten commands, over storage that is slow and often changes.

Nothing may be lost, and each answer has to be that of a command without any cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tb_gpudiag.report.diagnosis import diagnose_file
from tb_gpudiag.report.wire import to_dict
from tb_gpudiag.trace.files.find import find_traces
from tests.slow_storage import slow_python_path
from tests.soak.disturb import DAY_S, MOST_FILES, Disturber
from tests.soak.soak import SMALL_FILES, Soaked, check_reports, contents, disturb, visit
from tests.test_plugin_process import REPOSITORY, TensorBoard, environment_with_plugin

PAGES_EACH = 3
COMMANDS = 10
CALL_S = 0.02
LIMITS = {"GPUDIAG_TIME_LIMIT_S": "60", "GPUDIAG_CACHE_MB": "4", "GPUDIAG_SHARED_CACHE_MB": "6"}
SHARED_BYTES = 6 << 20

# What a report says of the file's place, and not of its content.
_OF_THE_PLACE = ("run", "worker", "span", "path", "host")

# Others write while one deletes: each process may add an entry to what another one has just counted.
_PROCESSES = COMMANDS + 2
_ENTRY_BYTES = 2 << 20


class TeamDisturber(Disturber):
    """Changes files as a whole, as torch does, so that each report has to be that of one of the contents."""

    def __init__(self, log: Path, shared: Path, recorded: Sequence[bytes], seed: int, most: int) -> None:
        super().__init__(log, shared, recorded, os.getpid(), seed, most)
        self._shared = shared
        self.largest_bytes = 0

    def changes(self) -> list[Callable[[], None]]:
        return [
            *(self.record, self.record, self.replace, self.remove, self.change_clock),
            *(self.damage_cache, self.damage_cache, self.leave_something, self.vanish),
        ]

    def step(self) -> None:
        super().step()
        sizes = []
        for path in self._shared.glob("*.gpudiag"):
            try:
                sizes.append(path.stat().st_size)
            except OSError:  # gone meanwhile
                continue
        self.largest_bytes = max(self.largest_bytes, sum(sizes))

    def leave_something(self) -> None:
        """Somebody leaves other things in the directory: an entry under another key, a draft, a pipe."""
        entries = sorted(self._shared.glob("*.gpudiag"))
        if entries:
            chosen = self._draw.choice(entries)
            other = self._shared / f"{self._draw.getrandbits(128):032x}.gpudiag"
            other.write_bytes(chosen.read_bytes())
            self._draw.choice(entries).write_bytes(chosen.read_bytes())

    def vanish(self) -> None:
        """The shared storage is gone for a moment."""
        away = self._shared.with_name("away")
        self._shared.rename(away)
        time.sleep(0.2)
        if self._shared.exists():  # a process made it anew
            for path in self._shared.iterdir():
                path.unlink()
            self._shared.rmdir()
        away.rename(self._shared)

    def settle(self) -> None:
        for path in self._files():
            self._write(path, self._content())

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.draft")
        draft.write_bytes(content)
        draft.replace(path)


class Commands:
    """Runs `gpudiag diagnose` again and again, several at once, and checks what they say."""

    def __init__(self, log: Path, environment: Mapping[str, str], expected: Sequence[Any]) -> None:
        self._log = log
        self._environment = dict(environment)
        self._expected = expected
        self.runs = 0
        self.shared = 0
        self.reports = 0
        self.problems: list[str] = []
        self._lock = threading.Lock()

    def run_until(self, stop: threading.Event, most: int | None) -> None:
        """Run until then, at most so often."""
        runs = 0
        while not stop.is_set() and runs != most:
            runs += 1
            document, told = diagnosed(self._log, self._environment)
            with self._lock:
                self.runs += 1
                self.shared += told.count("(shared cache)")
                self.reports += len(document.get("reports", ()))
                for report in document.get("reports", ()):
                    if without_place(report) not in self._expected:
                        self.problems.append(f"{report['trace']['path']}: a report of no content")
                if "bug" in told or "Traceback" in told:
                    self.problems.append(told[:500])


def soak_team(
    folder: Path, seconds: float, seed: int = 0, commands: int = COMMANDS, small: bool = False
) -> Soaked:
    """Soak a team for so long. small: one TensorBoard with one page, and commands run once, on few files."""
    storage, found, stop = folder / "storage", Soaked(), threading.Event()
    log, shared = storage / "log", storage / "team"
    for made in (log, shared):
        made.mkdir(parents=True)
    recorded = contents(small=small)
    expected = expected_reports(folder / "alone", recorded)
    environment = environment_with_plugin(folder)
    environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], str(REPOSITORY)])
    slow = slow_python_path(folder / "slow", storage, CALL_S, environment["PYTHONPATH"])
    team = {**LIMITS, "GPUDIAG_SHARED_CACHE_DIR": str(shared), "PYTHONPATH": slow}
    running = [_tensorboard(folder / user, log, team) for user in ("ana", "ben")[: 1 if small else None]]
    disturber = TeamDisturber(log, shared, recorded, seed, SMALL_FILES if small else MOST_FILES)
    for _ in range(SMALL_FILES if small else 4):
        disturber.record()
    ran = Commands(log, {**environment, **team}, expected)
    threads = [
        *(
            threading.Thread(target=visit, args=(tensorboard, found, stop, number))
            for tensorboard in running
            for number in range(1 if small else PAGES_EACH)
        ),
        *(threading.Thread(target=ran.run_until, args=(stop, 1 if small else None)) for _ in range(commands)),
    ]
    try:
        for thread in threads:
            thread.start()
        disturb([disturber], found, running[0].process.pid, time.monotonic() + seconds)
        disturber.settle()
        stop.set()
        for thread in threads:
            thread.join()
        for tensorboard in running:
            check_reports(tensorboard, {"": str(log)}, found)
        found.problems += ran.problems
        _check_commands(log, {**environment, **team}, found)
        found.changes = {**disturber.done, "commands": ran.runs, "shared results": ran.shared}
        if disturber.largest_bytes > SHARED_BYTES + _PROCESSES * _ENTRY_BYTES:
            found.problems.append(f"the shared cache had {disturber.largest_bytes:,} bytes")
    finally:
        stop.set()
        for tensorboard in running:
            tensorboard.process.kill()
            tensorboard.process.wait()
    return found


def _tensorboard(folder: Path, log: Path, team: Mapping[str, str]) -> TensorBoard:
    folder.mkdir()
    return TensorBoard(folder, f"--logdir={log}", **team)


def expected_reports(folder: Path, recorded: Sequence[bytes]) -> list[Any]:
    """Return what a diagnosis without a cache says of each content."""
    for number, content in enumerate(recorded):
        path = folder / f"host_1.{number}.pt.trace.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (time.time() - DAY_S,) * 2)
    reports = (to_dict(diagnose_file(file)) for file in find_traces(str(folder)).files)
    found = [without_place(json.loads(json.dumps(report))) for report in reports]
    assert len(found) == len(recorded)
    return found


def _check_commands(log: Path, environment: Mapping[str, str], found: Soaked) -> None:
    """Compare commands with and without the shared cache."""
    alone = {name: value for name, value in environment.items() if name != "GPUDIAG_SHARED_CACHE_DIR"}
    own, _ = diagnosed(log, alone)
    shared, _ = diagnosed(log, environment)
    if shared != own:
        found.problems.append("a command says other things with the shared cache than without")


def diagnosed(log: Path, environment: Mapping[str, str]) -> tuple[Any, str]:
    """Return the document of `gpudiag diagnose`, and what it tells."""
    command = [sys.executable, "-m", "tb_gpudiag", "diagnose", str(log), "--format", "json"]
    done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
    return json.loads(done.stdout), done.stderr


def without_place(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report without what is said of the file's place."""
    trace = {name: value for name, value in report["trace"].items() if name not in _OF_THE_PLACE}
    return {**report, "trace": trace}
