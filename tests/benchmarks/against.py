"""Compare the speed of diagnoses with another checkout's: `python -m tests.benchmarks.against FOLDER`.

Both diagnose a trace of 100 MB; and with the start of the program, a trace of 1 MB and a memory snapshot. It
takes a minute or two. They are measured in turn, because machines differ from moment to moment, and the least
CPU time and memory of each count. A change that takes more is measured again before that is said. If it still
does, one of its commits has to say why: a line of its body begins with `Slower:` or `Larger:`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.reading import DIAGNOSIS
from tests.benchmarks.snapshots import large_snapshot
from tests.benchmarks.traces import Measured, large_trace, measured, small_trace
from tests.conftest import REPOSITORY

SIZE_BYTES = 100 << 20
SNAPSHOT_ENTRIES = 30_000
ROUNDS = 7

# Growth without a reason. Least times of one commit differ by less, after some rounds.
MOST_GROWTH = 1.03
MOST_ROUNDS = 21

STARTED = "# measured\n" + DIAGNOSIS.replace("# measured\n", "")
"""The whole program counts, with its imports."""


def main(base: Path) -> None:
    grown = dict[str, None]()
    print("| least of some turns | base | change | ratio |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for work, program, path in (
            ("a trace of 100 MB", DIAGNOSIS, large_trace(folder, SIZE_BYTES)),
            ("a trace of 1 MB, with imports", STARTED, small_trace(folder)),
            ("a snapshot, with imports", STARTED, large_snapshot(folder, SNAPSHOT_ENTRIES)),
        ):
            runs = _by_turns(base, program, path)
            times, memory = _growth(runs)
            before, after = _least(runs["base"]), _least(runs["change"])
            print(f"| CPU time of {work} | {before[0]:.2f} s | {after[0]:.2f} s | {times:.3f} |")
            print(
                f"| its peak memory | {before[1] / 1e6:.0f} MB | {after[1] / 1e6:.0f} MB | {memory:.3f} |",
                flush=True,
            )
            found = (("Slower", times), ("Larger", memory))
            grown |= dict.fromkeys(word for word, ratio in found if ratio > MOST_GROWTH)
    missing = [word for word in grown if not _reason(base, word)]
    if missing:
        sys.exit(f"by more than {MOST_GROWTH - 1:.0%}, and no commit says why: `{missing[0]}: REASON`")


def _by_turns(base: Path, program: str, path: Path) -> dict[str, list[Measured]]:
    runs: dict[str, list[Measured]] = {"base": [], "change": []}
    while len(runs["base"]) < ROUNDS or (
        len(runs["base"]) < MOST_ROUNDS and max(_growth(runs)) > MOST_GROWTH
    ):
        for found, checkout in zip(runs.values(), (base, REPOSITORY), strict=True):
            begin = f"import sys\nsys.path.insert(0, {str(checkout.resolve())!r})\n"
            found.append(measured(begin + program, path))
    return runs


def _least(found: list[Measured]) -> tuple[float, int]:
    """Return the least CPU time in seconds, and the least peak in bytes."""
    return min(run.cpu_seconds for run in found), min(run.peak_bytes for run in found)


def _growth(runs: dict[str, list[Measured]]) -> tuple[float, float]:
    """Return how many times as much the change takes: time and memory."""
    base, change = _least(runs["base"]), _least(runs["change"])
    return change[0] / base[0], change[1] / base[1]


def _reason(base: Path, word: str) -> str:
    """Return the commits since the base whose body has a line with this word."""
    commit = _git(base, "rev-parse", "HEAD").strip()
    return _git(REPOSITORY, "log", "--format=%h", f"--grep=^{word}: ", f"{commit}..HEAD")


def _git(folder: Path, *command: str) -> str:
    return subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
