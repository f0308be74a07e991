"""A simulated trace that another recorder wrote has the same diagnosis as in torch's form."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.recorded import GPU_WORK_CATEGORIES
from tests.builder.nsys import export_of
from tests.builder.recording import GpuSpan, Recording
from tests.builder.rocprof import recorded_of
from tests.builder.write import TopLevel, to_bytes
from tests.simulator.diagnosed import simulated
from tests.simulator.scenarios import one_per_rule
from tests.trace.support import read_bytes

SCENARIOS = [
    *("healthy", "no_steps", "launch_bound_fixed"),
    *("cache_emptied", "pinned_buffers", "lazy_loading", "module_loads"),
    *("copied_back", "boolean_index", "synchronize", "large_readback", "slow_operator"),
    *(fault.name for fault in one_per_rule() if not fault.rule.startswith("GD4")),
]
"""One for each rule, and what differs in its calls. Nsight records no memory."""

_ENDINGS = {"nsys": ".sqlite", "rocprof": ".json", "pftrace": ".pftrace"}
_QUICK = [(SCENARIOS[0], form) for form in _ENDINGS]
# AMD's two forms have the same calls, and take turns.
_TURNS = [
    (name, form) for i, name in enumerate(SCENARIOS[1:]) for form in ("nsys", ("rocprof", "pftrace")[i % 2])
]
_SLOW = [pytest.param(turn, marks=pytest.mark.slow) for turn in _TURNS]


@cache
def _recording(name: str) -> Recording:
    """What both forms can say of a scenario: no frames, no memory and no annotations of the GPU."""
    recording = simulated(name).recording
    return replace(
        recording,
        host=[
            replace(span, args={k: v for k, v in span.args.items() if k == "Sequence number"})
            for span in recording.host
            if span.kind != "frame"
        ],
        gpu=[span for span in recording.gpu if span.kind != "annotation"],
        memory=[],
        raw=[],
    )


def _as_rocprof_says(span: GpuSpan) -> GpuSpan:
    """Return GPU work as rocprofv3 says it: memsets are kernels, and copies have no kind of memory."""
    if span.kind == "memset":
        return replace(span, kind="kernel", bytes=None)
    if span.kind == "memcpy":
        ends = {"H": "Host", "D": "Device"}
        direction = span.name.split()[1]
        return replace(span, name=f"Memcpy {direction} ({ends[direction[0]]} -> {ends[direction[-1]]})")
    return span


def _as_perfetto_says(span: GpuSpan) -> GpuSpan:
    """Return GPU work as torch's encoder for Perfetto says it: copies have no direction."""
    names = {"memcpy": "Memcpy", "memset": "Memset"}
    return replace(span, name=names.get(span.kind, span.name))


@pytest.fixture(scope="module", params=[*_QUICK, *_SLOW])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Facts, Facts]:
    name, form = request.param
    recording = _recording(name)
    path = tmp_path_factory.mktemp(form) / f"report{_ENDINGS[form]}"
    if form == "rocprof":
        recording = replace(recording, gpu=[_as_rocprof_says(span) for span in recording.gpu])
        recorded_of(recording).write(path)
    elif form == "pftrace":
        from tests.builder.pftrace import encoded  # needs Perfetto's package, of no other form

        recording = replace(recording, gpu=[_as_perfetto_says(span) for span in recording.gpu])
        path.write_bytes(encoded(to_bytes(recording, "C2", TopLevel())))
    else:
        export_of(recording).write(path)
    other = read_trace(str(path))
    path.unlink()
    return Facts(read_bytes(to_bytes(recording, "C2", TopLevel()))), Facts(other)


def test_idle_time_has_the_same_causes_to_the_nanosecond(both: tuple[Facts, Facts]) -> None:
    kineto, other = both
    assert len(other.recorded_steps) == len(kineto.recorded_steps)
    assert other.recorded_window.duration_ns == kineto.recorded_window.duration_ns
    assert kineto.device is not None
    assert other.device is not None
    theirs, ours = (facts.device.ledger for facts in both if facts.device is not None)
    assert ours.by_cause(other.recorded_window) == theirs.by_cause(kineto.recorded_window)
    assert ours.by_trigger(other.recorded_window) == theirs.by_trigger(kineto.recorded_window)


def test_the_gpu_ran_the_same(both: tuple[Facts, Facts]) -> None:
    rows = []
    for facts in both:
        events = facts.trace.events
        work = events.where(*GPU_WORK_CATEGORIES)
        names = np.array(events.names)[events.name[work]]
        order = np.lexsort((names, events.stream[work], events.start_ns[work]))
        work = work[order]
        first = int(events.start_ns[work].min())
        rows.append(
            [
                names[order].tolist(),
                (events.start_ns[work] - first).tolist(),
                events.duration_ns[work].tolist(),
                events.stream[work].tolist(),
                events.device[work].tolist(),
                events.bytes[work].tolist(),
            ]
        )
    assert rows[0] == rows[1]
