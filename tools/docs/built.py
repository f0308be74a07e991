"""Tiny traces for rules that have neither a recording to show nor a simulated job, by rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.builder import DeviceProperties, TraceBuilder
from tests.simulator import simulate

STEP_US: Final = 1_000.0


def _fp64(folder: Path) -> Path:
    trace = TraceBuilder()
    trace.recording.devices = [DeviceProperties("NVIDIA GeForce RTX 4090", compute_major=8, compute_minor=9)]
    main = trace.thread()
    for step in range(3):
        at = STEP_US * step
        main.step(step, at=at, us=STEP_US)
        main.frame("serve.py(12): predict", at=at, us=STEP_US)
        main.op("aten::mm", at=at, us=15)
        main.launch("volta_dgemm_64x64_nn", at=at + 5, us=5, runs_at=at + 20, runs_us=800)
    return trace.write(folder)


def _slow_gpu(folder: Path) -> Path:
    """An addition at 4 GB/s, and a matmul at 0.2 TFLOP/s."""
    trace = TraceBuilder()
    trace.recording.devices = [
        DeviceProperties("NVIDIA RTX 500 Ada Generation Laptop GPU", compute_major=8, compute_minor=9)
    ]
    main = trace.thread()
    main.step(0, at=0, us=100_000)
    shapes, types = [[2048, 2048], [2048, 2048]], ["float", "float"]
    strides = {"Input Strides": [[2048, 1], [2048, 1]]}
    add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"
    main.op("aten::add", at=0, us=9, shapes=shapes, types=types, more=strides)
    main.launch(add, at=1, us=5, runs_at=20, runs_us=13_000)
    main.op("aten::mm", at=10, us=9, shapes=shapes, types=types)
    main.launch("ampere_sgemm_128x64_nn", at=11, us=5, runs_at=13_030, runs_us=80_000)
    return trace.write(folder)


def _unlinked(folder: Path) -> Path:
    """The last ten of a hundred kernels have no launch."""
    trace = TraceBuilder()
    main = trace.thread()
    at = 100.0
    for number in range(100):
        if number < 90:
            main.launch("gemm", at=number, us=0.5, runs_at=at, runs_us=10)
        else:
            at += 2
            trace.kernel("gemm", at=at, us=10)
        at += 10
    main.step(0, at=0, us=at)
    return trace.write(folder)


def _unrecorded_graphs(folder: Path) -> Path:
    """Two of four launches of a CUDA graph of ten kernels lack them."""
    trace = TraceBuilder()
    main = trace.thread()
    for step, kernels in enumerate((10, 0, 0, 10)):
        at = STEP_US * step
        main.step(step, at=at, us=STEP_US)
        main.graph_launch([(f"k{i}", at + 20 + i * 40, 40) for i in range(kernels)], at=at, us=10)
        main.launch("last", at=at + 20, us=5, runs_at=at + 420, runs_us=580)
    return trace.write(folder)


def _partial(folder: Path) -> Path:
    """Two thirds of a file."""
    written = simulate("healthy").write(folder, gzipped=False)
    whole = written.read_bytes()
    written.write_bytes(whole[: len(whole) * 2 // 3])
    return written


BUILT: Final[Mapping[str, Callable[[Path], Path]]] = {
    "GD509": _fp64,
    "GD512": _slow_gpu,
    "GD904": _unlinked,
    "GD906": _partial,
    "GD909": _unrecorded_graphs,
}
