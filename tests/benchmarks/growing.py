"""Traces that grow in one way: more threads, streams, names, steps, … A list of events for a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Event = dict[str, Any]


def _in_group(number: int) -> Event:
    """Arguments of a collective."""
    return {
        "Collective name": "allreduce",
        "In msg nelems": 1000,
        "Out msg nelems": 1000,
        "dtype": "Float",
        "Group size": 2,
        "Process Group Name": str(number),
        "Process Group Ranks": "[0, 1]",
    }


def _span(
    category: str, name: str, at: float, us: float, *, pid: int = 1, tid: int = 1, **args: Any
) -> Event:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": at,
        "dur": us,
        "args": args,
    }


def _launch(
    i: int,
    *,
    pid: int = 1,
    thread: int = 1,
    stream: int = 7,
    device: int = 0,
    operator: str = "aten::mm",
    kernel: str = "k",
    shape: int = 1,
    **more: Any,
) -> list[Event]:
    at, where = 1_000 + 20 * i, {"device": device, "stream": stream}
    return [
        _span("cpu_op", operator, at, 5, pid=pid, tid=thread, **{"Input Dims": [[shape, 2]]}),
        _span("cuda_runtime", "cudaLaunchKernel", at + 1, 3, pid=pid, tid=thread, correlation=i + 1),
        _span("kernel", kernel, at + 6, 5, pid=device, tid=stream, correlation=i + 1, **where, **more),
    ]


def _wait(i: int) -> list[Event]:
    """A launch on one stream that waits for an event of another one."""
    at, record, wait = 1_000 + 20 * (3 * i + 2), 3 * i + 1, 3 * i + 2
    sync = {"wait_on_stream": 7, "stream": 20, "device": 0, "wait_on_cuda_event_record_corr_id": record}
    return [
        _span("cuda_runtime", "cudaEventRecord", at - 8, 1, correlation=record),
        _span("cuda_runtime", "cudaStreamWaitEvent", at - 6, 1, correlation=wait),
        _span("cuda_sync", "Stream Wait Event", at - 6, 0, pid=0, tid=20, correlation=wait, **sync),
        *_launch(3 * i + 2, stream=(7, 20)[i % 2]),
    ]


def _copy(i: int) -> list[Event]:
    at, where = 1_000 + 20 * i, {"device": 0, "stream": 7, "bytes": 100}
    return [
        _span("cuda_runtime", "cudaMemcpyAsync", at + 1, 15, correlation=i + 1),
        _span(
            "gpu_memcpy",
            "Memcpy DtoH (Device -> Pageable)",
            at + 6,
            5,
            pid=0,
            tid=7,
            correlation=i + 1,
            **where,
        ),
    ]


def _graph(i: int) -> list[Event]:
    at, where = 1_000 + 20 * i, {"device": 0, "stream": 7, "graph id": i}
    nodes = (
        _span("kernel", f"k{j}", at + 6 + 3 * j, 2, pid=0, tid=7, correlation=i + 1, **where)
        for j in range(3)
    )
    return [_span("cuda_runtime", "cudaGraphLaunch", at, 5, correlation=i + 1), *nodes]


def _nested(name: Callable[[int], str], category: str = "python_function") -> Callable[[int], list[Event]]:
    def events(count: int) -> list[Event]:
        spans = [
            _span(category, name(i), 1_000 + i * 0.001, 25.0 * count - i * 0.002)
            | {"args": {"Python id": i + 1, "Python parent id": i or None}}
            for i in range(count)
        ]
        return spans + [event for i in range(100) for event in _launch(i + count // 100)]

    return events


def _each(some: Callable[[int], list[Event]]) -> Callable[[int], list[Event]]:
    return lambda count: [event for i in range(count) for event in some(i)]


def _in_span(category: str, name: str) -> Callable[[int], list[Event]]:
    return _each(lambda i: [_span(category, name.format(i), 1_000 + 20 * i, 19), *_launch(i)])


GROWING: dict[str, Callable[[int], list[Event]]] = {
    "launches": _each(_launch),
    "threads": _each(lambda i: _launch(i, thread=i)),
    "processes": _each(lambda i: _launch(i, pid=i + 10)),
    "streams": _each(lambda i: _launch(i, stream=i)),
    "devices": _each(lambda i: _launch(i, device=i)),
    "names of kernels": _each(lambda i: _launch(i, kernel=f"{i:06d}{'k' * 1_000}")),
    "names of operators": _each(lambda i: _launch(i, operator=f"aten::op{i}")),
    "shapes": _each(lambda i: _launch(i, shape=i)),
    "groups of processes": _each(lambda i: _launch(i, kernel="ncclDevKernel_AllReduce", **_in_group(i))),
    "waits of streams": _each(_wait),
    "copies": _each(_copy),
    "graphs": _each(_graph),
    "steps": _in_span("user_annotation", "ProfilerStep#{}"),
    "ranges": _in_span("user_annotation", "range {}"),
    "functions": _in_span("python_function", "m{0}.py({0}): f{0}"),
    "depth of functions": _nested(lambda i: f"m.py({i}): f{i}"),
    "depth of modules": _nested(lambda i: f"nn.Module: Block_{i}"),
    "depth of operators": _nested(lambda i: f"aten::op{i % 7}", "cpu_op"),
}
