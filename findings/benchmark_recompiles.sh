#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): torch.utils.benchmark.Timer compiles again what was compiled and warmed up
# before, as it sets the number of threads to 1.
#
# A reader would guess: a warmed-up compiled function is only called.
#
# Seen, with 2 threads: after two calls the backend was asked once; Timer(...).timeit asks it a second time. Later
# calls and timers do not. With Timer(num_threads=2) it stays at one.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.utils.benchmark import Timer

torch.set_num_threads(2)


def compilations(**how):
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    function, x = torch.compile(lambda x: x.sin() + 1, backend=backend), torch.ones(3)
    counts = []
    for _ in range(2):
        function(x)
    counts.append(len(graphs))
    for _ in range(2):
        Timer("function(x)", globals={"function": function, "x": x}, **how).timeit(10)
        counts.append(len(graphs))
    return counts


default, same = compilations(), compilations(num_threads=2)
print("compilations after the warm-up, and two timers:", default, "with num_threads=2:", same)
assert default == [1, 2, 2] and same == [1, 1, 1]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
