"""Blocks of a model: modules that one line calls again and again. Checkpointing would drop their activations.

A snapshot shows neither modules nor their numbers. Blocks of the same kind are called by the same line, and
each begins with the same allocations.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.vocabulary.frames import Frame, innermost_place
from tb_gpudiag.vocabulary.torch_frames import MODULE_CALL

MOST_TRIED = 8
"""Most lines that are tried, those with most activations first: a model has a loop or two over its blocks."""


@dataclass(frozen=True, eq=False)
class Block:
    """One call of a block: indices of its allocations, and the position at which it returns."""

    own: Int64
    end: int


@dataclass(frozen=True, eq=False)
class Blocks:
    """Calls of the blocks of one line, in order. One that has not returned is not among them."""

    frame: Frame | None  # the calling line
    calls: list[Block]


def find_blocks(allocations: Allocations, activation: Bool) -> list[Blocks]:
    """Return the lines that call blocks, two calls or more each; of lines that call each other with the same
    activations, the inner one first. activation: mask, shape (a,)."""
    inside = (allocations.phase == Phase.FORWARD) & ~allocations.found & (allocations.stack != NONE)
    held = np.bincount(
        allocations.stack[inside & activation].astype(np.int64),
        weights=allocations.bytes[inside & activation],
        minlength=len(allocations.memory.stacks),
    )
    codes_of, bytes_of = defaultdict[str, list[int]](list), defaultdict[str, float](float)
    for code in np.unique(allocations.stack[inside]).tolist():
        for site in _call_sites(allocations.memory.stacks[code]):
            codes_of[site].append(code)
            bytes_of[site] += held[code]
    found = [
        _blocks(allocations, np.flatnonzero(inside), site, codes_of[site])
        for site in sorted(bytes_of, key=lambda site: (-bytes_of[site], -len(site)))[:MOST_TRIED]
        if bytes_of[site]
    ]
    return [one for one in found if len(one.calls) > 1]


def _call_sites(stack: str) -> list[str]:
    """Return the beginnings of a stack that end where a module is called."""
    lines = stack.split("\n")
    calls = [MODULE_CALL.fullmatch(line) is not None for line in lines]
    return ["\n".join(lines[: i + 1]) for i in range(len(lines) - 1) if calls[i + 1] and not calls[i]]


def _blocks(allocations: Allocations, forward: Int64, site: str, codes: list[int]) -> Blocks:
    member = np.isin(allocations.stack[forward], codes)
    own = forward[member]
    first = allocations.stack[own] == allocations.stack[own[0]]
    # A call begins with the allocations that the first one begins with, and ends where others follow.
    begins = np.flatnonzero(
        first & ~np.r_[False, first[:-1]] | np.r_[True, np.diff(np.flatnonzero(member)) > 1]
    )
    calls = []
    for begin, behind in zip(begins.tolist(), [*begins[1:].tolist(), NONE], strict=True):
        if behind == NONE and not _goes_on(allocations, int(own[-1])):
            break
        of_call = own[begin : behind if behind != NONE else None]
        calls.append(Block(of_call, int(allocations.position[of_call[-1]])))
    return Blocks(innermost_place(site), calls)


def _goes_on(allocations: Allocations, last: int) -> bool:
    """Whether the job allocates something after this allocation: the call has returned."""
    return last + 1 < len(allocations)
