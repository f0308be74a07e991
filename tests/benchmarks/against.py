"""Compare the speed of a diagnosis with another checkout's: `python -m tests.benchmarks.against FOLDER`.

The two are measured in turn, because machines differ from moment to moment, and the least CPU time and memory
of each count. A change that takes more is measured again before that is said. If it still does, one of its
commits has to say why: a line of its body begins with `Slower:` or `Larger:`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.reading import DIAGNOSIS
from tests.benchmarks.traces import Measured, large_trace, measured
from tests.conftest import REPOSITORY

SIZE_BYTES = 100 << 20
ROUNDS = 7

# Growth without a reason. Least times of one commit differ by less, after some rounds.
MOST_GROWTH = 1.03
MOST_ROUNDS = 21


def main(base: Path) -> None:
    sides = {"base": base, "change": REPOSITORY}
    runs: dict[str, list[Measured]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        path = large_trace(Path(folder), SIZE_BYTES)
        while len(runs["base"]) < ROUNDS or (
            len(runs["base"]) < MOST_ROUNDS and max(_growth(runs)) > MOST_GROWTH
        ):
            for name, checkout in sides.items():
                program = f"import sys\nsys.path.insert(0, {str(checkout.resolve())!r})\n{DIAGNOSIS}"
                runs[name].append(measured(program, path))
    times, memory = _growth(runs)
    base_least, least = _least(runs["base"]), _least(runs["change"])
    print(f"| diagnosis of {SIZE_BYTES >> 20} MB, least of {len(runs['base'])} | base | change | ratio |")
    print("| --- | --- | --- | --- |")
    print(f"| CPU time | {base_least[0]:.2f} s | {least[0]:.2f} s | {times:.3f} |")
    print(f"| peak memory | {base_least[1] / 1e6:.0f} MB | {least[1] / 1e6:.0f} MB | {memory:.3f} |")
    grown = [word for word, ratio in (("Slower", times), ("Larger", memory)) if ratio > MOST_GROWTH]
    missing = [word for word in grown if not _reason(base, word)]
    if missing:
        sys.exit(f"by more than {MOST_GROWTH - 1:.0%}, and no commit says why: `{missing[0]}: REASON`")


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
