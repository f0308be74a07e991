"""Time and record jobs on this machine's GPU: `python -m tests.truth.gpu OUT [--within SECONDS] [NAME…]`.

OUT gets a folder for each job, as `make truth` makes them, so that `python -m tests.truth OUT NAME…` scores
them, also on another machine. Needs torch only.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import ForkServerContext
from pathlib import Path

from tests.truth.gpu import child
from tests.truth.gpu.machine import write_machine
from tests.truth.job import JOBS

TOGETHER = 4
"""Variants that are started, or write their traces, while one is measured."""

TIME_LIMIT_S = 100

VARIANTS = {
    False: {"before_first/plain": False, "before_first/stacks": True, "before_second/plain": False},
    True: {"after_first/plain": False, "after_first/stacks": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--within", type=float, default=3_600, help="start no job later than after this time")
    arguments = parser.parse_args()
    names = arguments.names or [name for name, job in JOBS.items() if job.gpu]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.truth.gpu.child"])
    arguments.out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + arguments.within

    def run(name: str) -> str:
        return f"{name}: {_record(name, arguments.out / name, context, until)}"

    with ThreadPoolExecutor(TOGETHER) as pool:
        for line in pool.map(run, names):
            print(line, flush=True)
    write_machine(arguments.out)


def _record(name: str, out: Path, context: ForkServerContext, until: float) -> str:
    if time.monotonic() > until:
        return "no time left"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    halves: dict[str, list[float]] = {}
    for fixed, kinds in VARIANTS.items():
        if fixed and JOBS[name].healthy:  # the same code
            halves["after"] = halves["before"]
            continue
        variant = "after" if fixed else "before"
        process = context.Process(target=child.main, args=(name, fixed, out, kinds, out.parent / "lock"))
        process.start()
        process.join(TIME_LIMIT_S)
        if process.exitcode != 0:
            process.kill()
            said = (out / f"output_{variant}.txt").read_text().split("\n")
            return f"failed: {process.exitcode} {' '.join(said[-4:])[-300:]}"
        times = json.loads((out / f"times_{variant}.json").read_text())
        halves[variant] = [statistics.median(times[::2]), statistics.median(times[1::2])]
    (out / "times.json").write_text(json.dumps(halves))
    before, after = (1e3 * min(each) for each in halves.values())
    return f"{before:.2f} -> {after:.2f} ms"


if __name__ == "__main__":
    main()
