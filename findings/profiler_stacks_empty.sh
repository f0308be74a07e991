#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): `with_stack=True` alone gives key_averages and export_stacks no
# stacks: export_stacks writes an empty file, without a warning.
#
# A reader would guess: with_stack=True is what export_stacks and group_by_stack_n need, as their
# documentation says.
#
# Seen: 0 bytes, and no stack in any row. With experimental_config=_ExperimentalConfig(verbose=True) as well,
# both have stacks. The frames are in the exported trace either way.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import pathlib

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile


def stacks(**how):
    with profile(activities=[ProfilerActivity.CPU], with_stack=True, **how) as profiler:
        torch.ones(300).exp()
    profiler.export_stacks("stacks.txt", "self_cpu_time_total")
    rows = profiler.key_averages(group_by_stack_n=5)
    return pathlib.Path("stacks.txt").stat().st_size, max(len(row.stack) for row in rows)


alone, verbose = stacks(), stacks(experimental_config=_ExperimentalConfig(verbose=True))
print("bytes of stacks, frames of the longest stack:", alone, verbose)
assert alone == (0, 0) and verbose[0] > 0 and verbose[1] > 0
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
