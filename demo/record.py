"""Record the demo scripts on a GPU, before and after their fixes: `python demo/record.py [NAME …]`.

The traces go to demo/recorded/NAME/before and demo/recorded/NAME/after, and replace older ones. With all of
them, demo/recorded/README.md says what was recorded where, and what the fixes gave.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
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
    "memory_peak",
    "no_steps",
    "warmup_recorded",
)
RUNS = {"before": [], "after": ["--fixed"]}

PAGE = """\
# Recorded traces

Recorded by `python demo/record.py` on {gpu}, with torch {torch} and CUDA {cuda}. The times
of a step are without the profiler. Each run is `python demo/NAME.py --logdir FOLDER`, with `--fixed`
for the one after the fix.

| name | what is wrong, and the fix | before (ms) | after (ms) |
| --- | --- | --- | --- |
{rows}
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all: {', '.join(FAULTS)}")
    names = parser.parse_args().names or FAULTS
    if unknown := set(names) - set(FAULTS):
        parser.error(f"no such demo: {', '.join(sorted(unknown))}")
    if not torch.cuda.is_available():
        raise SystemExit("record.py: torch finds no GPU on this machine")
    context = multiprocessing.get_context("forkserver")  # imports torch once, and forks each run
    context.set_forkserver_preload(["torch", "common"])
    failed = []
    for name in names:
        for run, arguments in RUNS.items():
            folder = DEMO / "recorded" / name / run
            shutil.rmtree(folder, ignore_errors=True)
            print(f"{name}, {run} …", flush=True)
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                if error := pool.submit(_recorded, name, ["--logdir", str(folder), *arguments]).exception():
                    failed.append(f"{name} {run}: {error}")
    if tuple(names) == FAULTS:
        (DEMO / "recorded" / "README.md").write_text(_page())
    if failed:
        raise SystemExit("\n".join(["record.py: failed:", *failed]))


def _recorded(name: str, arguments: list[str]) -> None:
    """Run a script in this process."""
    sys.argv = [f"{name}.py", *arguments]
    importlib.import_module(name).main()


def _page() -> str:
    gpu = torch.cuda.get_device_name()
    rows = "\n".join(_row(name) for name in FAULTS)
    return PAGE.format(gpu=gpu, torch=torch.__version__, cuda=torch.version.cuda, rows=rows)


def _row(name: str) -> str:
    about = " ".join((importlib.import_module(name).__doc__ or "").split())
    times = [DEMO / "recorded" / name / run / "step_ms.json" for run in RUNS]
    shown = [f"{json.loads(path.read_text()):.2f}" if path.exists() else "" for path in times]
    return f"| `{name}` | {about} | {' | '.join(shown)} |"


if __name__ == "__main__":
    main()
