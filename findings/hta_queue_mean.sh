#!/bin/bash
# HTA, in traceinsight 0.6.1 (pandas 2.3.3, Python 3.11): the mean and the percentiles of get_queue_length_summary are of
# changes of the queue, not of time.
#
# A reader would guess: a mean queue length of 9.5 says that the host is far ahead of the GPU.
#
# Seen, one kernel alone for 10 ms and then a burst of 20 kernels that ends within 0.5 ms: mean 9.5, median 9.5, where
# over time the mean is 1.6 and the median 1. Each launch and each start of a kernel is one number, as long as it lasts.
# get_queue_length_time_series has the times with which to weight them.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-deps traceinsight==0.6.1  # it needs no JupyterLab for this
"$work/venv/bin/pip" install -q pandas==2.3.3 numpy==2.4.6 networkx==3.6.1 plotly==7.1.0 pydot==4.0.1 psutil==7.2.2 pyyaml==6.0.4
cat >"$work/see.py" <<'END'
import json
import logging
import pathlib

from hta.trace_analysis import TraceAnalysis

logging.disable(logging.CRITICAL)
host, gpu = {"ph": "X", "pid": 9, "tid": 9}, {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm"}
events = [host | {"cat": "user_annotation", "name": "ProfilerStep#0", "ts": 0.0, "dur": 20000.0}]
kernels = [(100.0, 10100.0)] + [(10100.0 + 5 * number, 10400.0 + 10 * number) for number in range(20)]  # launch, start
for number, (launch, start) in enumerate(kernels, 1):
    ids = {"correlation": number, "External id": number}
    operator = {"cat": "cpu_op", "name": "aten::mul", "ts": launch - 1, "dur": 5.0}
    events.append(host | operator | {"args": {"External id": number}})
    events.append(host | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": launch, "dur": 3.0, "args": ids})
    events.append(gpu | {"ts": start, "dur": 9.0, "args": ids | {"stream": 7, "device": 0}})
pathlib.Path("traces").mkdir()
trace = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": events}
pathlib.Path("traces/rank0.json").write_text(json.dumps(trace))
analysis = TraceAnalysis(trace_dir="traces")
summary = analysis.get_queue_length_summary()["queue_length"].iloc[0]
series = analysis.get_queue_length_time_series()[0]
lengths, times = list(series["queue_length"])[:-1], list(series["ts"])
lasts = [end - start for start, end in zip(times, times[1:])]
over_time = sum(length * last for length, last in zip(lengths, lasts)) / sum(lasts)
alone = sum(last for length, last in zip(lengths, lasts) if length == 1) / sum(lasts)
print("mean", summary["mean"], "median", summary["50%"], "numbers", summary["count"])
print("over time: mean", over_time, "share of time with one", alone)
assert round(summary["mean"], 1) == 9.5 and summary["50%"] == 9.5 and summary["count"] == 42
assert round(over_time, 1) == 1.6 and alone > 0.9
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
