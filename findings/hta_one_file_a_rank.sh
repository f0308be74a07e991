#!/bin/bash
# HTA 0.6.1 (package traceinsight; pandas 2.3.3, Python 3.11): of a folder with several recordings of one rank,
# one is analysed, and of traces without `distributedInfo`, one is, too. The log says so, not the result.
#
# A reader would guess: all cycles that tensorboard_trace_handler wrote into a folder count, or are refused; files
# without a rank get a rank each.
#
# Seen: two files of rank 0, with 10 and 20 kernels of 10 us: one row, of 100 us or of 200 us, by the
# order in which the folder lists them. Without distributedInfo, as in jobs without torch.distributed, the same.
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


few, many = ([(100.0 + 20 * number, 10.0, 0) for number in range(count)] for count in (10, 20))
for folder, also in (("ranked", {"distributedInfo": {"rank": 0, "world_size": 1}}), ("plain", {})):
    write(f"{folder}/cycle1.json", few, **also)
    write(f"{folder}/cycle2.json", many, **also)
    rows = breakdown(folder)
    print(folder, "computing, idle:", rows)
    assert rows in ([(100, 90)], [(200, 190)])
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
