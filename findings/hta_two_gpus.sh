#!/bin/bash
# HTA 0.6.1 (package traceinsight; pandas 2.3.3, Python 3.11): the GPUs of one process are one GPU: where two
# work in turn, none is idle.
#
# A reader would guess: a row for each GPU, or the mean of both; the trace says of each kernel on which device it
# ran.
#
# Seen: device 0 and device 1 each compute for 10 us of every 20 us, by turns, as pipelined stages of one process
# do. get_temporal_breakdown has one row: computing 200 us, idle 0 us. With the kernels of device 0 alone:
# computing 100 us, idle 90 us.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q traceinsight==0.6.1 pandas==2.3.3 numpy==2.4.6
cat >"$work/see.py" <<'END'
import json
import logging
import pathlib

from hta.trace_analysis import TraceAnalysis

logging.disable(logging.CRITICAL)


def write(file, kernels, **also):
    """Write a trace of kernels (start_us, dur_us, device), as torch 2.4 and later do."""
    host = {"ph": "X", "pid": 9, "tid": 9}
    events = [host | {"cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0.5, "dur": 999.0}]
    for correlation, (at, dur, device) in enumerate(kernels, 1):
        ids = {"correlation": correlation, "External id": correlation}
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at - 8.5, "dur": 5.5}
        operator = {"cat": "cpu_op", "name": "aten::mul", "ts": at - 10.5, "dur": 9.5}
        kernel = {"cat": "kernel", "name": "gemm", "ts": at, "dur": dur}
        events.append(host | operator | {"args": {"External id": correlation}})
        events.append(host | launch | {"args": ids})
        events.append({"ph": "X", "pid": device, "tid": 7} | kernel | {"args": ids | {"stream": 7, "device": device}})
    pathlib.Path(file).parent.mkdir(exist_ok=True)
    pathlib.Path(file).write_text(json.dumps({"schemaVersion": 1, "traceEvents": events} | also))


def breakdown(folder):
    rows = TraceAnalysis(trace_dir=folder).get_temporal_breakdown(visualize=False)
    return [(int(row["compute_time(us)"]), int(row["idle_time(us)"])) for _, row in rows.iterrows()]


first = [(100.0 + 20 * number, 10.0, 0) for number in range(10)]
second = [(110.0 + 20 * number, 10.0, 1) for number in range(10)]
write("both/rank0.json", first + second, distributedInfo={"rank": 0, "world_size": 1})
write("first/rank0.json", first, distributedInfo={"rank": 0, "world_size": 1})
both, alone = breakdown("both"), breakdown("first")
print("computing, idle of both:", both, "of device 0:", alone)
assert both == [(200, 0)] and alone == [(100, 90)]
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
