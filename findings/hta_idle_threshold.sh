#!/bin/bash
# HTA, in traceinsight 0.6.1 (pandas 2.3.3, Python 3.11): the threshold of get_idle_time_breakdown that is documented as 30
# ns is 30 us.
#
# A reader would guess: consecutive_kernel_delay=30, "Default = 30 nanoseconds", calls gaps up to 30 ns the usual delay
# between two kernels, and longer ones "other", as kernels that wait for an event of another stream.
#
# Seen, two kernels launched before the first ran, with a gap of 1, 29 and 30 us: "kernel_wait" for 1 and 29, "other" for
# 30. Most waits for other streams are shorter than that, and so seem to be overhead of launching, which fusing kernels or
# a CUDA graph would mend. Times are us everywhere: for 1 us give consecutive_kernel_delay=1.
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


def idle(gap_us, **how):
    """Return the idle time by category of two kernels with this gap, both launched before the first runs."""
    host, gpu = {"ph": "X", "pid": 9, "tid": 9}, {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm"}
    events = [host | {"cat": "user_annotation", "name": "ProfilerStep#0", "ts": 0.0, "dur": 900.0}]
    for number, start in ((1, 200.0), (2, 300.0 + gap_us)):
        ids = {"correlation": number, "External id": number}
        call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 50.0 * number, "dur": 9.0, "args": ids}
        operator = {"cat": "cpu_op", "name": "aten::mul", "ts": 50.0 * number - 1, "dur": 12.0}
        events += [host | operator | {"args": {"External id": number}}, host | call]
        events.append(gpu | {"ts": start, "dur": 100.0, "args": ids | {"stream": 7, "device": 0}})
    folder = pathlib.Path(f"gap {gap_us} {how}")
    folder.mkdir()
    trace = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": events}
    folder.joinpath("rank0.json").write_text(json.dumps(trace))
    table = TraceAnalysis(trace_dir=str(folder)).get_idle_time_breakdown(visualize=False, **how)[0]
    return {row.idle_category: row.idle_time for row in table.itertuples() if row.idle_time}


short, below, at, given = idle(1), idle(29), idle(30), idle(29, consecutive_kernel_delay=1)
print("1 us:", short, "29 us:", below, "30 us:", at, "29 us with a delay of 1:", given)
assert short == {"kernel_wait": 1} and below == {"kernel_wait": 29}
assert at == {"other": 30} and given == {"other": 29}
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
