"""Kinds of collectives, from the names of c10d's operators, of the back ends' marks, and of kernels."""

from __future__ import annotations

import re
from enum import IntEnum

from tb_gpudiag.vocabulary import marks
from tb_gpudiag.vocabulary.patterns import LONGEST_MATCHED, any_of, lazy_re


class Collective(IntEnum):
    """Collectives that have the same fix."""

    ALL_REDUCE = 0
    SHARDED = 1  # all-gather and reduce-scatter: weights and gradients in shards
    ALL_TO_ALL = 2
    POINT_TO_POINT = 3  # send and receive
    BROADCAST = 4
    OTHER = 5


_ANY = re.I | re.S

# NCCL runs both all-to-all and point-to-point in kernels named SendRecv: those names decide nothing.
NAMES = (
    (Collective.SHARDED, any_of(r".*(all_?gather|reduce_?scatter).*", flags=_ANY)),
    (
        Collective.ALL_TO_ALL,
        any_of(
            r".*(all_?to_?all|all2all|deep_ep|(\b|_)ep::|internode|intranode|mori::|ulysses).*", flags=_ANY
        ),
    ),
    (Collective.ALL_REDUCE, any_of(r".*(all_?reduce|cross_device_reduce).*", flags=_ANY)),
    (Collective.BROADCAST, any_of(r".*broadcast.*", flags=_ANY)),
    (Collective.POINT_TO_POINT, any_of(r"(c10d::|\w+:)(batch_)?i?(send|recv)(_|\b).*", flags=_ANY)),
)
"""The first row that matches the whole name decides."""


BACK_END_MARK = any_of(r"(nccl|rccl|gloo|mpi|ucc|xccl|hccl):.*")
"""A back end's mark around its operation: on the host for NCCL, while the operation runs for those on the
CPU."""

CALL = any_of(r"c10d::.*")
"""The host's call of an operation of any back end."""

FSDP = "fsdp"
OPTIMIZER = "optimizer"
FUNCTIONAL = "functional"
GRADIENTS = "gradients"

CALLERS = (
    (FSDP, any_of(r"(FSDP|fsdp)::.*", r"FullyShardedDataParallel\..*", flags=re.S)),
    (OPTIMIZER, marks.OPTIMIZER_STEP),
    (FUNCTIONAL, any_of(r"_c10d_functional(_autograd)?::.*")),
    (GRADIENTS, any_of(r"(autograd::engine::evaluate_function: )?torch::autograd::AccumulateGrad")),
)
"""What calls a collective, by the mark or operator around it: FSDP, an optimizer that shares its work out
among ranks, a functional collective, as DTensor's parallel layers use, or a hook on a gradient, as of
DistributedDataParallel. The first row that matches."""

IN_ORDER = frozenset({FSDP, FUNCTIONAL, GRADIENTS})
"""Callers that call for the same units in the same order in each step: without a name, the place tells units
apart."""

PREFETCHED = any_of(
    r"FSDP::(forward|backward)_prefetch for .*", r"FullyShardedDataParallel\._\w+_prefetch", flags=re.S
)
"""FSDP's mark around what it gathers for a later unit."""

NEEDED_NOW = any_of(
    r"FSDP::(root_)?pre_(forward|backward).*",
    r"FullyShardedDataParallel\._(root_)?pre_(forward|unshard|backward_hook)",
    r"FullyShardedDataParallel\.forward",
    flags=re.S,
)
"""FSDP's mark around what it gathers for the unit that runs next."""

FSDP_HOOK = any_of(r"(FSDP|fsdp)::.*", r"FullyShardedDataParallel\._\w+", flags=re.S)
"""FSDP's marks and operators around its own work before and after a unit runs. It copies there what it
gathers and reduces."""

FSDP_REDUCES = any_of(
    r"FSDP::post_backward_reduce.*", r"FullyShardedDataParallel\._post_backward_hook", flags=re.S
)
"""FSDP's mark around the reduction of a unit's gradients, which it adds to those of earlier passes."""

RATE_LIMITER = any_of(r"FullyShardedDataParallel\.rate_limiter")
"""FSDP's host waits until the GPU is done with an earlier unit (`limit_all_gathers`)."""

_UNIT = lazy_re(r"FSDP::\w+ \((?P<unit>.*)\)", re.S)


def fsdp_unit(mark: str) -> str:
    """Return `layers.3` for `FSDP::all_gather (layers.3)`, and "" for a mark that names no unit."""
    found = _UNIT.fullmatch(mark[:LONGEST_MATCHED])
    return found["unit"] if found else ""


_OPERATIONS = tuple(
    (name, lazy_re(pattern, re.I))
    for name, pattern in (
        ("reduce_scatter", r"reduce_?scatter"),
        ("all_gather", r"all_?gather"),
        ("all_reduce", r"all_?reduce|cross_device_reduce"),
        ("all_to_all", r"all_?to_?all|all2all"),
        ("send_recv", r"send_?recv"),
        ("send", r"(^|:|_|\b)i?send"),
        ("recv", r"(^|:|_|\b)i?recv"),
        ("broadcast", r"broadcast"),
        ("barrier", r"barrier"),
        ("scatter", r"scatter"),
        ("gather", r"gather"),
        ("reduce", r"reduce"),
    )
)
OPERATIONS = frozenset({"other", *(name for name, _ in _OPERATIONS)})
"""What digests call collectives."""

_LONGEST_NAME = 200


def operation(name: str) -> str:
    """Return the operation that a name of c10d, of a back end or of a kernel contains, such as `all_reduce`;
    "" if it contains none."""
    shown = name[:_LONGEST_NAME]
    return next((found for found, pattern in _OPERATIONS if pattern.search(shown)), "")


DDP = "DDP"
FULLY_SHARDED = "FSDP"
SHARDED_OPTIMIZER = "sharded optimizer"
TENSOR = "tensor"
PIPELINE = "pipeline"
EXPERT = "expert"

_BY_CALLER = {FSDP: FULLY_SHARDED, OPTIMIZER: SHARDED_OPTIMIZER, FUNCTIONAL: TENSOR}
_BY_KIND = dict.fromkeys(("send", "recv", "send_recv"), PIPELINE)


def parallelism_of(kind: str, caller: str) -> str:
    """Return the parallelism that a collective belongs to, as far as it says so itself; else "".

    kind: of OPERATIONS. caller: of CALLERS, or ""."""
    if caller == GRADIENTS:
        return DDP if kind == "all_reduce" else SHARDED_OPTIMIZER
    return _BY_CALLER.get(caller) or _BY_KIND.get(kind, "")
