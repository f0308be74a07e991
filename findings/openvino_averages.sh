#!/bin/bash
# openvino 2026.4.1 (CPU, Python 3.11): get_profiling_info has the mean times of all inferences so far, also of other
# requests, not those of the last one.
#
# A reader would guess: after infer() it says what each layer took in this inference.
#
# Seen: a product of 4x4 after one of 1000x1000 has half of the large one's time, which is many times that of the whole
# inference; then a third, a quarter: the sum of all inferences over their number. A new request of the same compiled
# model goes on with the same sums. So a first slow inference stays in the profile, and the time of one input is the
# difference of sums. Compile a model anew for a profile of its own.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q openvino==2026.4.1 numpy==2.4.6
cat >"$work/see.py" <<'END'
import time

import numpy
import openvino
from openvino import opset13


def compiled():
    a, b = (opset13.parameter([-1, -1], numpy.float32) for _ in range(2))
    model = openvino.Model([opset13.matmul(a, b, False, False)], [a, b])
    return openvino.Core().compile_model(model, "CPU", {"PERF_COUNT": True, "INFERENCE_NUM_THREADS": 1})


def inferred(request, size):
    """Return how long an inference takes, and what the profile says of its product, in us."""
    matrix = numpy.ones((size, size), numpy.float32)
    start = time.perf_counter()
    request.infer({0: matrix, 1: matrix})
    wall = (time.perf_counter() - start) * 1e6
    (product,) = (info for info in request.get_profiling_info() if info.node_type == "MatMul")
    return wall, product.real_time.total_seconds() * 1e6


model = compiled()
request = model.create_infer_request()
_, total = inferred(request, 1000)
for number in range(2, 8):
    if number == 5:
        request = model.create_infer_request()
    wall, said = inferred(request, 4)
    print(f"inference {number}: {wall:.0f} us in all; the profile says {said:.0f}, times {number} {said * number:.0f}")
    assert abs(said * number / total - 1) < 0.2
fresh = compiled().create_infer_request()
inferred(fresh, 4)
assert inferred(fresh, 4)[1] < said
END
cd "$work"
venv/bin/python see.py
