"""A strategy for traces in which anything may happen, also what could not have been recorded."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.builder import GENERATIONS, TraceBuilder

_times = st.integers(0, 400)
_lengths = st.integers(0, 120)


@st.composite
def any_traces(draw: st.DrawFn) -> TraceBuilder:
    """Build any trace: crossing spans, several threads, streams and devices, launches after their work."""
    trace = TraceBuilder(draw(st.sampled_from(GENERATIONS)), devices=("GPU a", "GPU b"))
    threads = [trace.thread(), trace.thread("autograd")]
    some = st.sampled_from(threads)
    if draw(st.booleans()):
        threads[0].step(0, at=draw(_times), us=draw(st.integers(1, 200)))
    for _ in range(draw(st.integers(0, 8))):
        at, us = draw(_times), draw(_lengths)
        match draw(st.integers(0, 6)):
            case 0:
                draw(some).op("aten::mm", at=at, us=us)
            case 1:
                draw(some).loader(at=at, us=us)
            case 2:
                draw(some).sync(at=at, us=us)
            case 3:
                draw(some).frame("train.py(7): step", at=at, us=us)
            case 4:
                draw(some).call("cudaMalloc", at=at, us=us)
            case 5:
                trace.overhead("Buffer Flush", at=at, us=us)
            case _:
                trace.kernel("stray", at=at, us=us, device=draw(st.integers(0, 1)))
    for _ in range(draw(st.integers(0, 6))):
        at, us = draw(_times), draw(_lengths)
        draw(some).launch(
            draw(st.sampled_from(["gemm", "ncclDevKernel_AllReduce"])),
            at=at,
            us=us,
            runs_at=draw(_times),
            runs_us=draw(_lengths),
            stream=draw(st.sampled_from([7, 20])),
            device=draw(st.integers(0, 1)),
        )
        draw(some).copy("HtoD", at=at, us=us, runs_at=draw(_times), runs_us=draw(_lengths), bytes=1 << 20)
    return trace
