#!/bin/bash
# HolisticTraceAnalysis 0.5.0 (pandas 2.3.3, Python 3.11): kernels of a few microseconds count as shorter than
# they are, or as nothing, or as negative time.
#
# A reader would guess: time is kept as the trace has it (nanoseconds, since torch 2.4), or rounded to the
# nearest microsecond, so that errors cancel.
#
# Seen: starts are rounded up and ends down. 20 kernels of 1.5 us at x.3 us compute for 0 us, "idle 380 of 380
# us". 20 kernels of 0.6 us have -1 us each in get_gpu_kernel_breakdown, and get_temporal_breakdown raises
# AssertionError. 20 kernels of 10.9 us at x.3 count as 10 us. HTA logs that it rounds.
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


def at(dur):
    return [[(100.3 + 20 * number, dur) for number in range(20)]]


print("20 x 1.5 us: computing, idle =", breakdown("a", at(1.5)))
print("20 x 10.9 us: computing, idle =", breakdown("b", at(10.9)))
assert breakdown("c", at(1.5)) == (0, 380)
assert breakdown("d", at(10.9))[0] == 200
_, kernels = analysis("e", at(0.6)).get_gpu_kernel_breakdown(visualize=False)
print("20 x 0.6 us: sum =", kernels["sum (us)"].iloc[0])
assert kernels["sum (us)"].iloc[0] == -20
try:
    breakdown("f", at(0.6))
except AssertionError as raised:
    print(repr(raised))
else:
    raise SystemExit("no error")
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
