"""Whether a job without GPU activity in its trace used a GPU: signs of one on the host's side."""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window, clip, union
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.operator_inputs import input_list
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events, Trace
from tb_gpudiag.vocabulary import levels, operators, torch_frames
from tb_gpudiag.vocabulary.api_calls import COPY_CALL
from tb_gpudiag.vocabulary.recorded import Category, DeviceType

# A value in the CPU's own memory is read in about a microsecond.
_WAITS_NS = 1_000_000

# Reading a GPU's value takes a copy and a synchronization, 20 us and more, even if the GPU has nothing to do.
_COPIES_NS = 10_000

# The operating system may interrupt a thread in a read, too, but no more often than elsewhere. Reads take a
# thousandth of the time of a job on the CPU.
_LEAST_WAITING = levels.NOTICEABLE
_FEWEST_READS = 2

# `to(copy=True)` on the CPU looks like a copy to another device.
_FEWEST_COPIES = 2

# Autograd runs the nodes of a GPU on a thread of their own, and those of the CPU on the thread that asks for
# gradients. A few may be matched with the wrong operators: their numbers are each thread's own.
_FEWEST_NODES = 10
_MOST_NODES = levels.MOST

# Of a job on the CPU with a loader, operators of the main thread take a fifth and more.
_COMPUTES = levels.LARGE


@dataclass(frozen=True, eq=False)
class GpuUse:
    """Signs of a GPU in a trace without GPU activity.

    launches: calls that start work on a GPU.
    memory_events: of a GPU's allocator. Where memory was recorded and none of it is a GPU's, the job ran on
        the CPU, and what only looks like a GPU is left out: reads, copies and nodes.
    operators: those that run on a GPU only, and calls of Python that only a GPU needs: name -> how many.
    waits, waits_ns: how many reads of a single value took milliseconds, and how long all of them.
    held, held_ns: event indices of the operators that took milliseconds because they read a value, or call a
        copy, and their durations.
    copies: `to(device)` of tensors that keep their number format.
    nodes: of autograd, on another thread than the operators that they are the gradients of.
    apple: it is a GPU of Apple's.
    listed: names of the GPUs of the machine that the job could use.
    computed_on_cpu: the trace shows that operators computed on the CPU, and no sign of a GPU.
    keeps_up: reads of its values return at once, so the host does not wait for the GPU.
    error: with which CUDA or HIP said that it has no GPU; 0 if the recording has none.
    counted: CUPTI's range profiler ran the kernels for their counters. It does not time them.
    """

    launches: int = 0
    memory_events: int = 0
    operators: Counter[str] = field(default_factory=Counter)
    waits: int = 0
    waits_ns: int = 0
    held: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    held_ns: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    copies: int = 0
    nodes: int = 0
    apple: bool = False
    listed: tuple[str, ...] = ()
    computed_on_cpu: bool = False
    keeps_up: bool = False
    counted: bool = False
    error: int = 0

    @property
    def certain(self) -> bool:
        """Whether the job used a GPU. A read may be interrupted, and a copy may be on the CPU: one of the two
        kinds alone is no sign."""
        signs = self.launches, self.memory_events, self.operators, self.nodes, min(self.waits, self.copies)
        return any(signs)

    @property
    def possible(self) -> bool:
        """Whether the job may have used a GPU."""
        return self.certain or self.waits > 0 or (bool(self.listed) and not self.computed_on_cpu)


def find_gpu_use(trace: Trace, host: Host, launches: int, window: Window, in_operators_ns: int) -> GpuUse:
    """Look for signs of a GPU.

    launches: how many calls start work on one. in_operators_ns: the main thread's time in operators, in the
    window.
    """
    events, memory = trace.events, trace.memory
    used = match(events, operators.GPU_ONLY) | match(events, operators.APPLE_ONLY)
    used &= events.category != Category.OTHER
    used |= match(events, torch_frames.GPU_CALL) & (events.category == Category.PYTHON_FUNCTION)
    names = Counter(events.names[i] for i in events.name[used].tolist())
    on_gpu = ~np.isin(memory.device_type, np.array([DeviceType.CPU, NONE], np.int32))
    value, copy = match(events, operators.READ_VALUE), match(events, operators.DEVICE_COPY)
    every_read = _outermost(host, value)
    reads, held, copies, nodes = every_read[:0], every_read[:0], 0, 0
    if on_gpu.any() == bool(len(memory)):  # else all of it is the CPU's
        reads = _that_waited(events, every_read, window)
        copies_too = value | (copy & host.tree.any_below(match(events, COPY_CALL)))
        held = _that_waited(events, _outermost(host, copies_too), window)
        copies, nodes = _device_copies(host), _nodes_elsewhere(host)
    found = GpuUse(
        launches=launches,
        memory_events=int(on_gpu.sum()),
        operators=names,
        waits=len(reads),
        waits_ns=int(events.duration_ns[reads].sum()),
        held=held,
        held_ns=events.duration_ns[held],
        copies=copies,
        nodes=nodes,
        apple=bool(match(events, operators.APPLE_ONLY).any() or (memory.device_type == DeviceType.MPS).any()),
        keeps_up=_keeps_up(events, every_read, window),
        counted=any(not counter.timed for counter in trace.counters),
        error=trace.metadata.gpu_error,
        listed=tuple(str(entry.get("name") or "GPU") for entry in trace.metadata.device_properties),
    )
    computing_ns = in_operators_ns if len(memory) else _only_on_cpu_ns(events, window)
    on_cpu = not found.certain and computing_ns >= _COMPUTES * window.duration_ns
    return replace(found, computed_on_cpu=on_cpu)


def _only_on_cpu_ns(events: Events, window: Window) -> int:
    """Return the time in operators that no GPU runs."""
    some = match(events, operators.CPU_ONLY) & (events.category == Category.CPU_OP)
    return clip(union(events.start_ns[some], events.end_ns[some]), window.start_ns, window.end_ns).total


def _outermost(host: Host, some: Bool) -> Int64:
    outer = host.tree.outermost_of(some & (host.events.category == Category.CPU_OP))
    return np.flatnonzero(outer & ~host.loader)  # a loader's tensors are the CPU's


def _keeps_up(events: Events, reads: Int64, window: Window) -> bool:
    copies_ns = events.duration_ns[reads][events.duration_ns[reads] >= _COPIES_NS]
    return len(copies_ns) >= _FEWEST_READS and int(copies_ns.sum()) < _LEAST_WAITING * window.duration_ns


def _that_waited(events: Events, reads: Int64, window: Window) -> Int64:
    """Find the reads, or copies, that waited for a GPU; none if those are too few to tell."""
    found = reads[events.duration_ns[reads] >= _WAITS_NS]
    waited_ns = int(events.duration_ns[found].sum())
    enough = len(found) >= _FEWEST_READS and waited_ns >= _LEAST_WAITING * window.duration_ns
    return found if enough else found[:0]


def _device_copies(host: Host) -> int:
    """Count copies that change neither number format nor layout of memory: they change the device."""
    events = host.events
    copies = np.flatnonzero(
        match(events, operators.TO_COPY) & (events.settings != NONE) & (events.types != NONE)
    )
    pairs, count = np.unique(
        np.stack([events.types[copies], events.settings[copies]]), axis=1, return_counts=True
    )
    found = sum(
        number
        for (types, settings), number in zip(pairs.T.tolist(), count.tolist(), strict=True)
        if _changes_device(events.input_types[types], events.input_settings[settings])
    )
    return found if found >= _FEWEST_COPIES else 0


def _nodes_elsewhere(host: Host) -> int:
    """Count autograd's nodes that run on another thread than their forward operators; 0 unless most do."""
    events = host.events
    nodes = np.flatnonzero(match(events, operators.BACKWARD_NODE) & (events.category == Category.CPU_OP))
    creator = host.creators(nodes, host.forward_by_sequence)
    known = creator != NONE
    elsewhere = int((events.thread[nodes[known]] != events.thread[creator[known]]).sum())
    return elsewhere if elsewhere >= max(_FEWEST_NODES, _MOST_NODES * known.sum()) else 0


def _changes_device(types: str, settings: str) -> bool:
    """types, settings: of aten::_to_copy, as recorded: (tensor, number format, layout, device, pinned, non
    blocking, memory format). Where a device is given, so is the layout; the device itself is not recorded."""
    given, formats = input_list(settings), input_list(types)
    if len(given) != 7 or not formats:
        return False
    _, wanted, layout, _, _, _, memory_format = map(str, given)
    kept = operators.number_format(str(formats[0]))
    return layout == "0" and not memory_format and operators.NUMBER_FORMATS.get(wanted) == kept
