#!/bin/bash
# HolisticTraceAnalysis 0.5.0 (pandas 2.3.3, Python 3.11): all analyses leave out the last recorded step,
# unless there is only one.
#
# A reader would guess: what is in the file is analysed; a recording of two steps has twice the kernel time of
# one.
#
# Seen, with 100 us of kernels in each step: one step 100 us, two steps 100 us, three steps 200 us of
# computing. So a slow step that was recorded last is not in any figure.
# TraceAnalysis(include_last_profiler_step=True) counts it.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q HolisticTraceAnalysis==0.5.0 pandas==2.3.3 numpy==2.4.6
cat >"$work/see.py" <<'END'
import json
import logging
import pathlib

from hta.trace_analysis import TraceAnalysis

logging.disable(logging.CRITICAL)


def analysis(folder, kernels_of_step, **how):
    """Write a trace of kernels (start_us, dur_us), as torch 2.4 and later do, and read it with HTA."""
    events, correlation = [], 0
    for step, kernels in enumerate(kernels_of_step):
        start, host = step * 1000.0, {"ph": "X", "pid": 9, "tid": 9}
        events.append(host | {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": start + 0.5, "dur": 999.0})
        for at, dur in kernels:
            correlation += 1
            launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + at - 8.5, "dur": 5.5}
            operator = {"cat": "cpu_op", "name": "aten::mul", "ts": start + at - 10.5, "dur": 9.5}
            kernel = {"cat": "kernel", "name": "gemm", "ts": start + at, "dur": dur}
            ids = {"correlation": correlation, "External id": correlation}
            events.append(host | operator | {"args": {"External id": correlation}})
            events.append(host | launch | {"args": ids})
            events.append({"ph": "X", "pid": 0, "tid": 7} | kernel | {"args": ids | {"stream": 7, "device": 0}})
    pathlib.Path(folder).mkdir()
    trace = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": events}
    pathlib.Path(folder, "rank0.json").write_text(json.dumps(trace))
    return TraceAnalysis(trace_dir=folder, **how)


def breakdown(*of, **how):
    row = analysis(*of, **how).get_temporal_breakdown(visualize=False).iloc[0]
    return int(row["compute_time(us)"]), int(row["idle_time(us)"])


step = [(100.0 + 20 * number, 10.0) for number in range(10)]
computing = [breakdown(f"{steps} steps", [step] * steps)[0] for steps in (1, 2, 3)]
everything = breakdown("all", [step] * 3, include_last_profiler_step=True)[0]
print("1, 2, 3 steps:", computing, "3 steps with the last:", everything)
assert computing == [100, 100, 200] and everything == 300
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
