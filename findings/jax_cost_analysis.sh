#!/bin/bash
# jax 0.10.2 (jaxlib 0.10.2, CPU, Python 3.11): cost_analysis counts the body of a loop once, and no products of a
# convolution with its padding.
#
# A reader would guess: the FLOPs of a scan over 100 layers are those of 100 layers, and a convolution's are two for
# each weight and element of the output, as all other counters have it.
#
# Seen, before and after compiling: lax.scan and fori_loop of 100 products have the FLOPs of one, and 100 products that
# are written out those of 100; unroll=4 gives 4. So scanned layers, or gradients that are accumulated in a scan, make a
# utilization that is too small by the length. A 3x3 convolution with padding SAME has 4 % less than expected for 32x32,
# and 31 % for 4x4; with VALID the number is the expected one.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$work/see.py" <<'END'
import jax
import jax.numpy as jnp
from jax import lax

SIZE = 64


def flops(function, *arguments):
    """Return the FLOPs before and after compiling."""
    lowered = jax.jit(function).lower(*arguments)
    return lowered.cost_analysis()["flops"], lowered.compile().cost_analysis()["flops"]


def written_out(x):
    y = x
    for _ in range(100):
        y = y @ x
    return y


def scan(x, unroll=1):
    return lax.scan(lambda y, _: (y @ x, None), x, length=100, unroll=unroll)[0]


x, product = jnp.ones((SIZE, SIZE)), 2 * SIZE**3
for name, function, expected in (
    ("one product", lambda x: x @ x, 1), ("written out", written_out, 100), ("scan", scan, 1),
    ("fori_loop", lambda x: lax.fori_loop(0, 100, lambda _, y: y @ x, x), 1),
    ("scan, unroll=4", lambda x: scan(x, 4), 4),
):
    counted = [count / product for count in flops(function, x)]
    print(name, counted)
    assert all(abs(count - expected) < 0.01 for count in counted)
for size, padding, share in ((32, "SAME", 0.9588), (4, "SAME", 0.6944), (8, "VALID", 1.0)):
    output = size if padding == "SAME" else size - 2
    images, weights = jnp.ones((1, 16, size, size)), jnp.ones((32, 16, 3, 3))
    counted = flops(lambda images, weights: lax.conv(images, weights, (1, 1), padding), images, weights)
    expected = 2 * weights.size * output**2
    print(f"convolution, {size}x{size}, {padding}: {counted}, expected {expected}")
    assert all(round(count / expected, 4) == share for count in counted)
END
cd "$work"
JAX_PLATFORMS=cpu venv/bin/python see.py
