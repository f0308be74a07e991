#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): `key_averages().total_average()` counts nested time once for each level, so its
# total is more than the time that passed.
#
# A reader would guess: cpu_time_total of all is the time of the operators that are in no other, as each operator's own
# cpu_time_total is that of its call with all inside.
#
# Seen, three ranges in each other around 100 ms: cpu_time_total 300 ms, self_cpu_time_total 100 ms. So an operator's
# share of the first is too low, by the depth of the model: divide by self_cpu_time_total.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import time

from torch.profiler import ProfilerActivity, profile, record_function

with profile(activities=[ProfilerActivity.CPU]) as profiler:
    with record_function("model"), record_function("layer"), record_function("attention"):
        time.sleep(0.1)
total = profiler.key_averages().total_average()
rows = {row.key: round(row.cpu_time_total / 1e5) for row in profiler.key_averages()}
print("calls", total.count, "total us", total.cpu_time_total, "self us", total.self_cpu_time_total, "rows in 100 ms", rows)
assert rows == {"model": 1, "layer": 1, "attention": 1} and total.count == 3
assert round(total.cpu_time_total / total.self_cpu_time_total, 1) == 3.0
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
