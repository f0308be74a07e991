#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): `export_stacks` leaves out each single call of less than 1 us, however many there
# are, and cuts all others to whole us.
#
# A reader would guess: the file has a line for each stack with the time of all its calls, and its sum is that of
# self_cpu_time_total.
#
# Seen: each line is one call. Of 5,000 calls of `view`, 2.5 ms together, 10 are in the file, with 0.1 ms. So a flame graph
# of many small operators, as launch-bound jobs have, shows the few slow calls. key_averages(group_by_stack_n=5) has all.
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

values = torch.ones(8)
verbose = _ExperimentalConfig(verbose=True)  # else there are no stacks at all
with profile(activities=[ProfilerActivity.CPU], with_stack=True, experimental_config=verbose) as profiler:
    for _ in range(5000):
        values.view(-1)
profiler.export_stacks("stacks.txt", "self_cpu_time_total")
lines = pathlib.Path("stacks.txt").read_text().splitlines()
exported = [int(line.rsplit(" ", 1)[1]) for line in lines if "built-in_method_view" in line]
times = [event.self_cpu_time_total for event in profiler.events() if event.name == "aten::view"]
rows = [row for row in profiler.key_averages(group_by_stack_n=5) if row.key == "aten::view"]
print(len(times), "calls,", sum(times), "us; exported:", len(exported), "calls,", sum(exported), "us")
assert sum(row.count for row in rows) == len(times) == 5000
assert sorted(exported) == sorted(int(time) for time in times if time >= 1)
assert 0 < len(exported) < 2500 and sum(exported) < sum(times)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
