"""A training whose handler records again and again while its helper is killed, its files are taken away, and
pages watch.

The loop may not end, each report has to be that of what was recorded, and no file may be left over.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.service.helpers import eventually
from tests.soak.disturb import Disturber, children
from tests.soak.soak import LIMITS, SMALL_FILES, Soaked, check_reports, contents, disturb, visit
from tests.soak.team import expected_reports
from tests.test_plugin_process import REPOSITORY, TensorBoard, environment_with_plugin

# On a busy machine an analysis takes long. No file is written anew here, after which one that reached its
# limit is tried again.
PATIENT = {**LIMITS, "GPUDIAG_TIME_LIMIT_S": "600"}
RECORDINGS = 1_000
PAGES = 3
KEEP = 5
# Recordings are not more frequent than that, however short the soak.
LEAST_EVERY_S = 0.2
ENDS_WITHIN_S = 180.0
# A helper needs a second to start, and more for a diagnosis: let most of them go on.
DISTURBED = 0.1


class TrainingDisturber(Disturber):
    """Disturbs a training: its helper process, its recordings, its folder."""

    def step(self) -> None:
        if self._draw.random() < DISTURBED:
            super().step()

    def changes(self) -> list[Callable[[], None]]:
        return [self.remove, self.remove_folder, self.change_clock, self.kill_process, self.stop_process]

    def remove_folder(self) -> None:
        """Somebody deletes the run."""
        shutil.rmtree(self._log, ignore_errors=True)

    def settle(self) -> None:
        """Let all processes go on."""
        for pid in children(self._root):
            os.kill(pid, signal.SIGCONT)


def soak_training(
    folder: Path, seconds: float, seed: int = 0, recordings: int = RECORDINGS, small: bool = False
) -> Soaked:
    """Train for so long, with so many recordings. The samples are of the training's process.

    small: few different recordings, of which few are kept, and nobody watches.
    """
    log, found, stop = folder / "log", Soaked(), threading.Event()
    recorded = contents(small=small)
    expected = expected_reports(folder / "alone", recorded)
    (log / "run").mkdir(parents=True)
    watching = [] if small else [TensorBoard(folder, f"--logdir={log}", **PATIENT)]
    environment = environment_with_plugin(folder)
    every_s = max(LEAST_EVERY_S, seconds / recordings)
    keep = SMALL_FILES if small else KEEP
    arguments = [str(log / "run"), str(folder / "alone"), str(every_s), str(keep)]
    training = subprocess.Popen(
        [sys.executable, "-m", "tests.soak.training_loop", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # each verdict, and each helper that was killed
        env=environment,
        cwd=REPOSITORY,
    )
    disturber = TrainingDisturber(log / "run", folder / "cache", recorded, training.pid, seed)
    pages = [
        threading.Thread(target=visit, args=(tensorboard, found, stop, n))
        for tensorboard in watching
        for n in range(PAGES)
    ]
    try:
        for page in pages:
            page.start()
        eventually(lambda: list((log / "run").iterdir()), "the training records")
        disturb([disturber], found, training.pid, time.monotonic() + seconds)
        disturber.settle()
        stop.set()
        for page in pages:
            page.join()
        said, _ = training.communicate(timeout=ENDS_WITHIN_S)
        for tensorboard in watching:
            check_reports(tensorboard, {"": str(log)}, found)
    finally:
        stop.set()
        for process in (training, *(tensorboard.process for tensorboard in watching)):
            process.kill()
            process.wait()
    if training.returncode:
        found.problems.append(f"the training ended with {training.returncode}")
        return found
    outcome = json.loads(said)
    found.changes = {**disturber.done, **outcome["counts"]}
    if any(report not in expected for report in outcome["reports"]):
        found.problems.append("on_diagnosis got a report of no content")
    left = [path.name for path in (log / "run").iterdir()]
    undiagnosed = outcome["counts"]["recordings"] - outcome["counts"].get("reports", 0)
    if len(left) > keep + undiagnosed or not all(name.endswith(".pt.trace.json") for name in left):
        found.problems.append(f"the handler left {left}")
    return found
