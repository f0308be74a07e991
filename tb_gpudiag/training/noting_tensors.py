"""A schedule for torch.profiler that notes in the trace which tensors came and went during a recording.

torch's CPU profiler does not report the frees of memory that was allocated before the recording. So a full
buffer that replaces its oldest entries looks like a list that grows, and only this tells them apart.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import json
import logging
import operator
import sys
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from tb_gpudiag.training.on_demand import is_of_signal
from tb_gpudiag.training.other_profilers import unseen
from tb_gpudiag.training.tensor_holders import (
    graph_nodes,
    holders,
    limited_containers,
    needing_gradients,
    node_kinds,
)
from tb_gpudiag.vocabulary.written import NODES_PER_STEP

_PROBE: Final = 2**20
"""Bytes of a tensor that must show, or tensors are allocated by something else, such as jemalloc."""


class _Mallinfo2(ctypes.Structure):
    _fields_: ClassVar = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    ]


def malloc_bytes() -> int | None:
    """Return the bytes that are allocated, in all threads; None where tensors are not in them. It takes
    0.5 µs, and longer if much is free in small pieces."""
    read = _reader()
    return _in_use(read) if read is not None else None


def _in_use(read: Callable[[], Any]) -> int:
    info = read()
    return int(info.uordblks + info.hblkhd)


@functools.cache
def _reader() -> Callable[[], Any] | None:
    try:
        read = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):  # no glibc, or one before 2.33; Windows
        return None
    read.restype = _Mallinfo2
    before = _in_use(read)
    probe = sys.modules["torch"].empty(_PROBE, dtype=sys.modules["torch"].uint8)
    shown = _in_use(read) - before >= probe.nbytes
    return read if shown else None


KEY: Final = "gpudiag_tensors"
"""Top-level key of the trace."""

MOST_SIZES: Final = 256
"""Sizes that are noted one by one: those with most bytes."""

LEAST_BYTES: Final = 4 * 2**10
"""What holds tensors is looked for where those of one size became more by as much per step, or more."""

MOST_ROOTS: Final = 8
"""Of so many tensors of a size, the last ones, it is counted how large their graphs are."""

FIRST_SUM: Final = 4
"""Step before which memory is not summed up: until then a job makes its optimizer's state, and more."""

Storages = Mapping[int, tuple[int, Any]]
"""Address -> (bytes, weak reference to a tensor, or to the storage if there is none)."""

_Lists = defaultdict[int, list[Any]]

logger = logging.getLogger("tb_gpudiag.training")


class _Held(NamedTuple):
    """What Python holds. attached, leaves: addresses of storages of tensors that have a graph of autograd's,
    and of those that need gradients without one. nodes: of these graphs, and others that Python holds; None
    if that is not known."""

    storages: Storages
    attached: set[int]
    leaves: set[int]
    nodes: int | None


class NotingTensors:
    """`schedule`, as torch.profiler calls it, with notes about the tensors on the CPU that Python holds.

    They are looked for just before the recording and just after its last step, among all objects that
    Python's garbage collector knows: 0.1 s for 300,000 objects, in no recorded step. It first collects what
    is garbage, unless the job has turned it off: the trace shows that this is freed then. Tensors are asked
    whether they have a graph of autograd's or need gradients, and these graphs' nodes are counted. Where
    tensors became more, it also looks for what holds them, which takes as long again. Before the recording,
    it sums them up at steps 4, 8, 12, 16, 24 and so on, and when the profiler warms up: what grew from the
    job's beginning on is no buffer. Then it also asks malloc how much the whole process has.
    """

    def __init__(self, schedule: Callable[[int], Any]) -> None:
        self._schedule = schedule
        self._before: _Held | None = None
        self._limited = dict[int, Any]()
        self._history, self._nodes = dict[int, int](), dict[int, int]()
        self._malloc, self._warm_up = dict[int, int](), list[tuple[int, int]]()
        self._since = 0
        self._profiles = False
        self._ends = False

    def __call__(self, step: int) -> Any:
        """Return what torch.profiler is to do in the next step."""
        action = self._schedule(step)
        try:
            with unseen():
                self._note(action.name, step)
        except Exception as error:  # the job must go on
            if is_of_signal(error):
                raise
            self._before = None
            logger.warning("gpudiag: the recording does not say which tensors Python holds: %s", error)
        return action

    def _note(self, action: str, step: int) -> None:
        if action != "NONE" and not self._profiles:
            if step >= FIRST_SUM:
                self._look(step)
                self._warm_up = [(step, self._history.pop(step))]
                self._nodes.pop(step, None)
            self._profiles = True  # it has memory of its own from now on, also after a recording
        if self._ends and self._before is not None:
            add = sys.modules["torch"].autograd._add_metadata_json
            after, steps = self._look(step), step - self._since
            noted = {
                "steps": step,
                **_changes(self._before.storages, after.storages),
                "attached": _became_more(self._before, after, self._before.attached, after.attached),
                "leaves": _became_more(self._before, after, self._before.leaves, after.leaves),
                "holders": holders(_grown(self._before, after, steps), self._limited),
                "roots": holders(_roots(self._before, after, steps), self._limited),
                "history": list(self._history.items()),
                "nodes": list(self._nodes.items()),
                "malloc": list(self._malloc.items()),
                "warm_up": self._warm_up,
                "optimizers": _has_optimizers(),
            }
            add(KEY, json.dumps(noted))
            self._before = None
        self._ends = action == "RECORD_AND_SAVE"
        if action in ("RECORD", "RECORD_AND_SAVE"):
            if self._before is None:
                self._before, self._since, self._limited = self._look(step), step, limited_containers()
        elif not self._ends:
            self._before = None  # a recording that was given up
            if step >= FIRST_SUM and _is_summed_up(step):
                self._look(step)

    def _look(self, step: int) -> _Held:
        if gc.isenabled():
            gc.collect()
        if not self._profiles and (allocated := malloc_bytes()) is not None:
            self._malloc[step] = allocated
        held = _held()
        self._history[step] = sum(size for size, _ in held.storages.values())
        if held.nodes is not None:
            self._nodes[step] = held.nodes
        return held


def _is_summed_up(step: int) -> bool:
    """Whether it is a power of two, or half as much more: 8, 12, 16, 24, ..."""
    return step.bit_count() == 1 or (step.bit_count() == 2 and step & step // 2 > 0 and step > 6)


def note_from_now_on(profiler: Any) -> None:
    """Have the later recordings of a torch.profiler.profile that records memory be noted."""
    if getattr(profiler, "profile_memory", False) and not isinstance(profiler.schedule, NotingTensors):
        profiler.schedule = NotingTensors(profiler.schedule)
        profiler.schedule._profiles = True


def _held() -> _Held:
    """Return what Python holds on the CPU, most of it in tensors."""
    torch = sys.modules["torch"]
    objects = gc.get_objects()
    kinds = list(map(type, objects))
    of_nodes = node_kinds(set(kinds))
    of_tensors, of_storages = {torch.Tensor, torch.nn.Parameter}, {torch.UntypedStorage}
    wanted = (of_tensors | of_storages | of_nodes).__contains__
    objects = list(itertools.compress(objects, map(wanted, kinds)))
    del kinds
    tensors = _of_kinds(objects, of_tensors)
    functorch = getattr(torch._C, "_functorch", None)  # since torch 2.0, what it is asked since 2.1
    if in_transform := getattr(functorch, "is_functorch_wrapped_tensor", None):
        tensors = list(itertools.filterfalse(in_transform, tensors))  # the others have no storage
    alone = [one for one in _of_kinds(objects, of_storages) if one.device.type == "cpu"]
    attached, leaves, nodes = _in_graphs(tensors, _of_kinds(objects, of_nodes))
    del objects
    strided = [tensor for tensor in tensors if tensor.is_cpu and tensor.layout is torch.strided]
    owners, parts = [*alone, *strided], list(strided)
    for sparse in [tensor for tensor in tensors if tensor.is_cpu and tensor.layout is torch.sparse_coo]:
        owners += [sparse, sparse]
        parts += [sparse._indices(), sparse._values()]
    storages = [*alone, *map(torch.Tensor.untyped_storage, parts)]
    sizes = map(operator.methodcaller("nbytes"), storages)
    held = dict(zip(_addresses(storages), zip(sizes, map(weakref.ref, owners), strict=True), strict=True))
    return _Held(held, _storages_of(attached), _storages_of(leaves), nodes)


def _in_graphs(tensors: list[Any], nodes: list[Any]) -> tuple[list[Any], list[Any], int | None]:
    try:
        attached, leaves = needing_gradients(tensors)
        return attached, leaves, graph_nodes(attached, nodes)
    except Exception as error:  # objects of the job may do anything when they are looked at
        logger.warning("gpudiag: the recording does not say which tensors have a graph: %s", error)
        return [], [], None


def _storages_of(tensors: list[Any]) -> set[int]:
    dense = [tensor for tensor in tensors if tensor.is_cpu and tensor.layout is sys.modules["torch"].strided]
    return set(_addresses(map(sys.modules["torch"].Tensor.untyped_storage, dense)))


def _addresses(storages: Iterable[Any]) -> Iterator[int]:
    return map(operator.methodcaller("data_ptr"), storages)


def _of_kinds(objects: list[Any], kinds: set[type]) -> list[Any]:
    """A profiler that records stacks records every call from Python's bytecode: map() makes none."""
    return list(itertools.compress(objects, map(kinds.__contains__, map(type, objects))))


def _changes(before: Storages, after: Storages) -> dict[str, dict[str, int]]:
    """Return how many tensors of each size came and went. A tensor that took the place of one that went has
    its address: that one has no object any more."""
    gone = _gone(before, after)
    came = Counter(size for address, (size, _) in after.items() if address in gone or address not in before)
    went = Counter(before[address][0] for address in gone)
    return {"came": _largest(came), "went": _largest(went)}


def _became_more(before: _Held, after: _Held, old: set[int], new: set[int]) -> dict[str, int]:
    """Return by how many the storages at these addresses became more, of each size of which they did."""
    gone = _gone(before.storages, after.storages)
    came = (address for address in new if address in gone or address not in before.storages)
    more = Counter(after.storages[address][0] for address in came)
    more.subtract(before.storages[address][0] for address in old & gone)
    return _largest(+more)


def _has_optimizers() -> bool:
    base = sys.modules["torch"].optim.Optimizer
    return any(issubclass(kind, base) for kind in set(map(type, gc.get_objects())))


def _gone(before: Storages, after: Storages) -> set[int]:
    return {address for address, (_, tensor) in before.items() if tensor() is None or address not in after}


def _grown(before: _Held, after: _Held, steps: int) -> dict[int, list[Any]]:
    """Return weak references to the tensors that came, of the sizes of which there are more and more."""
    came = _came(before, after, after.storages)
    went = Counter(before.storages[address][0] for address in _gone(before.storages, after.storages))
    more = {size: size * (len(tensors) - went[size]) for size, tensors in came.items()}
    chosen = [size for size in came if more[size] >= LEAST_BYTES * steps]
    return {size: came[size] for size in sorted(chosen, key=lambda size: -more[size])}


def _came(before: _Held, after: _Held, addresses: Iterable[int]) -> _Lists:
    """Return weak references to the tensors at these addresses that came, beside weights, by their sizes."""
    gone, weights, came = _gone(before.storages, after.storages), _of_weights(after.storages), _Lists(list)
    for address in addresses:
        size, tensor = after.storages[address]
        if (address in gone or address not in before.storages) and address not in weights:
            came[size].append(tensor)
    return came


def _roots(before: _Held, after: _Held, steps: int) -> dict[int, list[Any]]:
    """Return weak references to the tensors that came and have a graph, if one grows: to those of a size of
    which there are more and more, or else to the one with the largest graph."""
    if before.nodes is None or after.nodes is None or after.nodes - before.nodes < NODES_PER_STEP * steps:
        return {}
    came = _came(before, after, after.attached)
    more = _became_more(before, after, before.attached, after.attached)
    many = [size for size in came if more.get(str(size), 0) >= NODES_PER_STEP * steps]
    if many:
        return {many[0]: came[many[0]]}
    some = [(size, reference) for size in came for reference in came[size][-MOST_ROOTS:]]
    alive = [(size, ref, graph_nodes([one], [])) for size, ref in some if (one := ref()) is not None]
    return {size: [ref] for size, ref, _ in sorted(alive, key=operator.itemgetter(2))[-1:]}


def _of_weights(held: Storages) -> set[int]:
    """Return the addresses of parameters and of their gradients, but for sparse ones: these become larger."""
    torch = sys.modules["torch"]
    weights = [
        tensor for _, reference in held.values() if isinstance(tensor := reference(), torch.nn.Parameter)
    ]
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    dense = [tensor for tensor in [*weights, *gradients] if tensor.layout is torch.strided]
    return {tensor.untyped_storage().data_ptr() for tensor in dense}


def _largest(sizes: Mapping[int, int]) -> dict[str, int]:
    chosen = sorted(sizes, key=lambda size: -size * sizes[size])[:MOST_SIZES]
    return {str(size): sizes[size] for size in chosen}
