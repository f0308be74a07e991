#!/bin/bash
# torch-tb-profiler 0.4.3 with traces of torch 2.13.0 (CPU build, Python 3.11): the time of a DataLoader is 0 us
# in each step, however long the job waits for it.
#
# A reader would guess: the overview's "DataLoader" is the time of the ranges enumerate(DataLoader)#..., which
# torch still records under the same name.
#
# Seen, with a dataset that takes 100 ms of each step: "DataLoader" 0 us in each of three steps. The same file,
# with the category of these ranges changed from user_annotation to cpu_op, has over 100 ms: the plugin looks for
# them among the operators.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 torch-tb-profiler==0.4.3 pandas==2.3.3
cat >"$work/see.py" <<'END'
import json
import pathlib
import time

import torch
import torch_tb_profiler.plugin  # noqa: F401  # its parts cannot be imported first
from torch.profiler import ProfilerActivity, profile, schedule
from torch_tb_profiler.profiler.data import RunProfileData
from torch_tb_profiler.profiler.run_generator import RunGenerator


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        time.sleep(0.1)
        return torch.ones(2)


def save(profiler):
    profiler.export_chrome_trace("worker.pt.trace.json")


def loader_times(trace):
    """Return the milliseconds of "DataLoader" in each step of the plugin's overview."""
    pathlib.Path("read.pt.trace.json").write_text(json.dumps(trace))
    read = RunProfileData.parse("worker", None, "read.pt.trace.json", ".")
    steps = RunGenerator("worker", None, read).generate_run_profile().overview["steps"]
    loader = [column.get("name") for column in steps["columns"]].index("DataLoader")
    return [round(row[loader] / 1000) for row in steps["rows"]]


cycle = schedule(wait=0, warmup=1, active=3, repeat=1)
with profile(activities=[ProfilerActivity.CPU], schedule=cycle, on_trace_ready=save) as profiler:
    for sample in torch.utils.data.DataLoader(Slow(), batch_size=1):
        sample.exp()
        profiler.step()
trace = json.loads(pathlib.Path("worker.pt.trace.json").read_text())
ranges = [e for e in trace["traceEvents"] if e.get("name", "").startswith("enumerate(DataLoader)")]
categories, as_written = {event["cat"] for event in ranges}, loader_times(trace)
for event in ranges:
    event["cat"] = "cpu_op"
changed = loader_times(trace)
print(categories, "as written:", as_written, "ms; as operators:", changed, "ms")
assert categories == {"user_annotation"} and as_written == [0, 0, 0]
assert sorted(changed)[1] >= 100
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
