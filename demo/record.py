"""Record the demo scripts on a GPU, before and after their fixes: `python demo/record.py [NAME …]`.

The traces go to demo/recorded/NAME/before and demo/recorded/NAME/after, and replace older ones.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import torch

DEMO = Path(__file__).resolve().parent
FAULTS = (
    "input_pipeline",
    "host_bound",
    "allocator_in_step",
    "compilation_in_step",
    "launch_bound",
    "host_sync",
    "pageable_copies",
    "memory_leak",
    "no_steps",
    "warmup_recorded",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all: {', '.join(FAULTS)}")
    names = parser.parse_args().names or FAULTS
    if unknown := set(names) - set(FAULTS):
        parser.error(f"no such demo: {', '.join(sorted(unknown))}")
    if not torch.cuda.is_available():
        raise SystemExit("record.py: torch finds no GPU on this machine")
    failed = []
    for name in names:
        for run in ("before", "after"):
            folder = DEMO / "recorded" / name / run
            shutil.rmtree(folder, ignore_errors=True)
            command = [sys.executable, str(DEMO / f"{name}.py"), "--logdir", str(folder)]
            print(f"{name}, {run} …", flush=True)
            if subprocess.run(command + (["--fixed"] if run == "after" else []), check=False).returncode:
                failed.append(f"{name} {run}")
    if failed:
        raise SystemExit(f"record.py: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
