"""Time and record jobs on this machine's GPU: `python -m tests.truth.gpu OUT [--within SECONDS] [NAME…]`.

Without names: the pairs that were timed before, other pairs, failures for want of memory, and healthy jobs,
in this order and as far as the time reaches. OUT gets a few tar files as jobs are done, and summary.json with
what was not done. Needs torch only. Without a GPU, small stand-ins run instead of the jobs: a dry run.

Then, also on another machine, `python -m tests.truth.gpu.keep OUT FOLDER` unpacks them below FOLDER and keeps
what is worth it as digests. `python -m tests.truth --gpu FOLDER`, `python -m tests.truth.failures --gpu
FOLDER` and `python -m tests.truth.promised --fit FOLDER` judge them.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from tests.truth.gpu.run import Run, forkserver, in_order

PROMISED = Path(__file__).parents[1] / "promised.json"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--within", type=float, default=600, help="seconds after which nothing runs any more")
    arguments = parser.parse_intermixed_args()
    timed_before = [one["name"] for one in json.loads(PROMISED.read_text()) if one["source"] == "H200"]
    until_s = time.monotonic() + arguments.within
    work = arguments.out.parent / f"{arguments.out.name}.work"
    run = Run(arguments.out, work, until_s, forkserver())
    for line in run.all_of(arguments.names or in_order(timed_before)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
