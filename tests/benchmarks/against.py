"""Compare the speed of a diagnosis with another checkout's: `python -m tests.benchmarks.against FOLDER`.

The two are measured in turn, because machines differ from moment to moment. Fails if the median CPU time or
the peak memory has grown by more than the noise between runs of one commit.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.benchmarks.reading import DIAGNOSIS
from tests.benchmarks.traces import Measured, large_trace, measured
from tests.conftest import REPOSITORY

SIZE_BYTES = 100 << 20
ROUNDS = 7

# On a machine that others use, medians of seven runs of one commit differ by up to a tenth.
MOST_GROWTH = 1.15


def main(base: Path) -> None:
    sides = {"base": base, "change": REPOSITORY}
    runs: dict[str, list[Measured]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        path = large_trace(Path(folder), SIZE_BYTES)
        for _ in range(ROUNDS):
            for name, checkout in sides.items():
                program = f"import sys\nsys.path.insert(0, {str(checkout.resolve())!r})\n{DIAGNOSIS}"
                runs[name].append(measured(program, path))
    cpu_s = {name: median(run.cpu_seconds for run in found) for name, found in runs.items()}
    peak = {name: median(run.peak_bytes for run in found) for name, found in runs.items()}
    print(f"| diagnosis of {SIZE_BYTES >> 20} MB, median of {ROUNDS} | base | change | ratio |")
    print("| --- | --- | --- | --- |")
    times = cpu_s["change"] / cpu_s["base"]
    memory = peak["change"] / peak["base"]
    print(f"| CPU time | {cpu_s['base']:.2f} s | {cpu_s['change']:.2f} s | {times:.2f} |")
    print(f"| peak memory | {peak['base'] / 1e6:.0f} MB | {peak['change'] / 1e6:.0f} MB | {memory:.2f} |")
    if max(times, memory) > MOST_GROWTH:
        sys.exit(f"slower or larger by more than {MOST_GROWTH - 1:.0%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
