"""A schedule for torch.profiler that notes in the trace which tensors came and went during a recording.

torch's CPU profiler does not report the frees of memory that was allocated before the recording. So a full
buffer that replaces its oldest entries looks like a list that grows, and only this tells them apart.
"""

from __future__ import annotations

import gc
import itertools
import json
import logging
import operator
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

KEY: Final = "gpudiag_tensors"
"""Top-level key of the trace."""

MOST_SIZES: Final = 256
"""Sizes that are noted one by one: those with most bytes."""

logger = logging.getLogger("tb_gpudiag.training")


class NotingTensors:
    """`schedule`, as torch.profiler calls it, with notes about the tensors on the CPU that Python holds.

    They are looked for just before the recording and just after its last step, among all objects that
    Python's garbage collector knows: 0.1 s for 300,000 objects, in no recorded step. It first collects what
    is garbage, unless the job has turned it off: the trace shows that this is freed then.
    """

    def __init__(self, schedule: Callable[[int], Any]) -> None:
        self._schedule = schedule
        self._before: dict[int, tuple[int, Any]] | None = None
        self._ends = False

    def __call__(self, step: int) -> Any:
        """Return what torch.profiler is to do in the next step."""
        action = self._schedule(step)
        try:
            self._note(action.name, step)
        except Exception as error:  # the job must go on
            self._before = None
            logger.warning("gpudiag: the recording does not say which tensors Python holds: %s", error)
        return action

    def _note(self, action: str, step: int) -> None:
        if self._ends and self._before is not None:
            add = sys.modules["torch"].autograd._add_metadata_json
            add(KEY, json.dumps({"steps": step, **_changes(self._before, _held())}))
            self._before = None
        self._ends = action == "RECORD_AND_SAVE"
        if action in ("RECORD", "RECORD_AND_SAVE"):
            if self._before is None:
                self._before = _held()
        elif not self._ends:
            self._before = None  # a recording that was given up


def note_from_now_on(profiler: Any) -> None:
    """Have the later recordings of a torch.profiler.profile that records memory be noted."""
    if getattr(profiler, "profile_memory", False) and not isinstance(profiler.schedule, NotingTensors):
        profiler.schedule = NotingTensors(profiler.schedule)


def _held() -> dict[int, tuple[int, Any]]:
    """Return the storages on the CPU of all tensors that Python holds: address -> (bytes, weak reference to
    a tensor)."""
    torch = sys.modules["torch"]
    if gc.isenabled():
        gc.collect()
    kinds, objects = {torch.Tensor, torch.nn.Parameter}, gc.get_objects()
    # A profiler that records stacks records every call from Python's bytecode: map() makes none.
    tensors = list(itertools.compress(objects, map(kinds.__contains__, map(type, objects))))
    del objects
    on_cpu = [tensor for tensor in tensors if tensor.is_cpu and tensor.layout is torch.strided]
    storages = list(map(torch.Tensor.untyped_storage, on_cpu))
    addresses = map(operator.methodcaller("data_ptr"), storages)
    sizes = map(operator.methodcaller("nbytes"), storages)
    return dict(zip(addresses, zip(sizes, map(weakref.ref, on_cpu), strict=True), strict=True))


def _changes(
    before: Mapping[int, tuple[int, Any]], after: Mapping[int, tuple[int, Any]]
) -> dict[str, dict[str, int] | int]:
    """Return how many tensors of each size came and went and are there now, how many of about the size (as
    int.bit_length() has it) of those that came are there beside weights and their gradients, and how many
    bytes came and went.

    A tensor that took the place of one that went has its address: that one has no object any more.
    """
    gone = {address for address, (_, tensor) in before.items() if tensor() is None or address not in after}
    came = Counter(size for address, (size, _) in after.items() if address in gone or address not in before)
    went = Counter(before[address][0] for address in gone)
    held = Counter(size for size, _ in after.values())
    weights = _of_weights(after)
    near = Counter(size.bit_length() for address, (size, _) in after.items() if address not in weights)
    return {
        "came": _largest(came),
        "held": {size: held[int(size)] for size in _largest(came)},
        "near": {str(length): near[length] for length in {size.bit_length() for size in came}},
        "went": _largest(went),
        "came_bytes": sum(size * count for size, count in came.items()),
        "went_bytes": sum(size * count for size, count in went.items()),
    }


def _of_weights(held: Mapping[int, tuple[int, Any]]) -> set[int]:
    """Return the addresses of parameters and of their gradients."""
    kind = sys.modules["torch"].nn.Parameter
    weights = [tensor for _, reference in held.values() if isinstance(tensor := reference(), kind)]
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    return {tensor.untyped_storage().data_ptr() for tensor in [*weights, *gradients]}


def _largest(sizes: Mapping[int, int]) -> dict[str, int]:
    chosen = sorted(sizes, key=lambda size: -size * sizes[size])[:MOST_SIZES]
    return {str(size): sizes[size] for size in chosen}
