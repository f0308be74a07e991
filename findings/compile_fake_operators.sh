#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): a recording in which torch.compile compiles has the operators of its tracing,
# too, on tensors without memory, under the names and with the shapes of the real ones.
#
# A reader would guess: the compiler's work is ranges of its own, and one product in the code is one aten::mm.
#
# Seen, x @ w of 64 x 64 in a compiled function: the call that compiles has aten::mm three times with backend "eager"
# and eight times with "aot_eager", all with 64 x 64, and as many aten::sin; with_flops counts 3 and 8 times the
# product's FLOPs. A call that does not compile has one. Only the operator named "dynamo" that is around them tells. So
# a first step, or one that compiles again, has operators, FLOPs and an MFU that are several times what was computed.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.profiler import ProfilerActivity, profile

MATRIX = torch.ones(64, 64)
SHAPES = {"aten::mm": [[64, 64], [64, 64]], "aten::sin": [[64, 64]]}


def recorded(function):
    """Return how often the two operators are in the recording of a call, with these shapes, and the FLOPs of its table."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True) as profiler:
        function(MATRIX, MATRIX)
    seen = [event.name for event in profiler.events() if SHAPES.get(event.name) == event.input_shapes]
    flops = sum(row.flops for row in profiler.key_averages() if row.key == "aten::mm")
    return seen.count("aten::mm"), seen.count("aten::sin"), flops


once = 2 * 64**3
for backend, times in (("eager", 3), ("aot_eager", 8)):
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, w: torch.sin(x @ w), backend=backend)
    first, second = recorded(compiled), recorded(compiled)
    print(backend, "aten::mm, aten::sin, FLOPs; first call:", first, "second call:", second, "product:", once)
    assert first == (times, times, times * once) and second == (1, 1, once)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
