#!/bin/bash
# HTA, in traceinsight 0.6.1 (pandas 2.3.3, Python 3.11): the statistics of launches leave out each kernel that
# cuLaunchKernel launched, as Triton and torch.compile do.
#
# A reader would guess: each kernel that has a launch in the trace counts, as "For each event launched on the GPU there is
# a corresponding scheduling event" says.
#
# Seen, six kernels, each launched with another call: get_cuda_kernel_launch_stats has two, those of cudaLaunchKernel and
# cudaLaunchKernelExC; cuLaunchKernel, cuLaunchKernelEx, hipLaunchKernel and cooperative launches are not in it. The queue
# length goes up to 5: the cooperative one is missing. Of a CUDA graph of five kernels neither has any. The kernel times
# count all. So the launches of a compiled model seem few and short.
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


def analysis(folder, launches):
    """Write a trace of launches (name, category, kernels), in which all are launched before the first runs."""
    host, gpu = {"ph": "X", "pid": 9, "tid": 9}, {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm"}
    events = [host | {"cat": "user_annotation", "name": "ProfilerStep#0", "ts": 0.0, "dur": 9000.0}]
    for number, (name, category, kernels) in enumerate(launches):
        at, ids = 100.0 + 20 * number, {"correlation": number + 1, "External id": number + 1}
        operator = {"cat": "cpu_op", "name": "aten::mul", "ts": at - 2, "dur": 14.0}
        events.append(host | operator | {"args": {"External id": number + 1}})
        events.append(host | {"cat": category, "name": name, "ts": at, "dur": 10.0, "args": ids})
        for kernel in range(kernels):
            start = 1000.0 + 500 * number + 60 * kernel
            events.append(gpu | {"ts": start, "dur": 50.0, "args": ids | {"stream": 7, "device": 0}})
    pathlib.Path(folder).mkdir()
    trace = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": events}
    pathlib.Path(folder, "rank0.json").write_text(json.dumps(trace))
    return TraceAnalysis(trace_dir=folder)


def counted(of):
    """Return the launches with statistics, the longest queue, and the kernel time in us."""
    statistics, queues = of.get_cuda_kernel_launch_stats(visualize=False)[0], of.get_queue_length_time_series()
    kernel_time = of.get_gpu_kernel_breakdown(visualize=False)[0]["sum"].sum()
    return list(statistics["correlation"]), int(queues[0]["queue_length"].max()), int(kernel_time)


runtime = ["cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "hipLaunchKernel"]
calls = [(name, "cuda_runtime", 1) for name in runtime]
calls += [(name, "cuda_driver", 1) for name in ("cuLaunchKernel", "cuLaunchKernelEx")]
each = counted(analysis("each", calls))
graph = counted(analysis("graph", [("cudaLaunchKernel", "cuda_runtime", 1), ("cudaGraphLaunch", "cuda_runtime", 5)]))
print("launches with statistics, longest queue, kernel us; six calls:", each, "a kernel and a graph:", graph)
assert each == ([1, 2], 5, 300)
assert graph == ([1], 1, 300)
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
