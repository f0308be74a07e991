"""The phase of each memory event (forward, backward, the optimizer and so on), by marks, operators and
frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, UInt8
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.transfers import Transfers
from tb_gpudiag.facts.memory.phase import Phase, in_engine
from tb_gpudiag.trace.events import MemoryEvents
from tb_gpudiag.vocabulary import marks, operators, torch_frames
from tb_gpudiag.vocabulary.name_matcher import NameMatcher
from tb_gpudiag.vocabulary.recorded import Category, MemoryAction
from tb_gpudiag.vocabulary.torch_frames import LOADER

# Of these phases, the innermost one decides: a closure runs backward inside the optimizer's step, a hook runs
# the optimizer inside backward.
_MAIN = (Phase.BACKWARD, Phase.OPTIMIZER, Phase.ZERO_GRAD)

_MARKS = {Phase.OPTIMIZER: marks.OPTIMIZER_STEP, Phase.ZERO_GRAD: marks.ZERO_GRAD}

_FRAMES = {
    Phase.OPTIMIZER: torch_frames.OPTIMIZER_FRAME,
    Phase.ZERO_GRAD: torch_frames.ZERO_GRAD_FRAME,
    Phase.BACKWARD: torch_frames.BACKWARD_FRAME,
    Phase.PARAMETER: torch_frames.PARAMETER_FRAME,
    Phase.INPUT: LOADER,
    Phase.FORWARD: torch_frames.FORWARD_FRAME,
}


def phases(memory: MemoryEvents, host: Host, transfers: Transfers, around: Int64) -> UInt8:
    """Return the phase of each memory event, in snapshots by its stack, shape (m,).

    around: the innermost host span on its thread at that instant, or NONE, shape (m,).
    """
    found = np.full(len(memory), Phase.UNKNOWN, np.uint8)
    known = around != NONE
    if known.any():
        found[known] = phase_of_spans(host, transfers)[around[known]]
    if memory.stacks:
        of_stack = phases_of_stacks(memory.stacks)
        by_stack = np.where(memory.stack == NONE, Phase.UNKNOWN, of_stack[memory.stack])
        found = np.where(by_stack == Phase.UNKNOWN, found, by_stack).astype(np.uint8)
        # The engine's own threads run no Python: a snapshot has no frames of what they allocate. Some record
        # none at all.
        unknown = (memory.stack == NONE) & (found == Phase.UNKNOWN)
        makes = memory.action == MemoryAction.ALLOCATE
        if memory.found is not None:
            makes &= ~memory.found
        if (makes & (memory.stack != NONE)).any():
            found[makes & unknown] = Phase.BACKWARD
        if (found == Phase.BACKWARD).any():
            found[(memory.action == MemoryAction.OUT_OF_MEMORY) & unknown] = Phase.BACKWARD
    return found


def phase_of_spans(host: Host, transfers: Transfers) -> UInt8:
    """Return the phase of each host span where it is the innermost one, shape (n,)."""
    events, tree = host.events, host.tree
    operator = events.category == Category.CPU_OP
    python = events.category == Category.PYTHON_FUNCTION
    mark = events.category == Category.USER_ANNOTATION
    own = np.full(len(events), NONE, np.int32)
    numbered = operator & (events.sequence != NONE)
    node = (operator & match(events, operators.BACKWARD_NODE)) | (numbered & (events.forward_thread > 0))
    own[node | host.engine_wait] = Phase.BACKWARD
    for phase, pattern in _MARKS.items():
        own[(match(events, pattern) & mark) | (match(events, _FRAMES[phase]) & python)] = phase
    main = tree.nearest(own)
    # An optimizer calls no modules, and nothing in it requires gradients: modules and operators that do,
    # inside its step, are a closure's forward pass. Inside backward, a forward pass recomputes activations.
    closure = match(events, torch_frames.CLOSURE_FRAME) & python
    forward = (match(events, marks.MODULE) & python) | (numbered & (events.forward_thread <= 0)) | closure
    own[forward & (own == NONE)] = Phase.FORWARD
    inner = tree.fill(own)
    main[(inner == Phase.FORWARD) & (main == Phase.OPTIMIZER)] = NONE
    found = np.full(len(events), Phase.UNKNOWN, np.uint8)
    found[(host.operator != NONE) | (inner == Phase.FORWARD)] = Phase.FORWARD
    found[host.loader | _takes_from_host(host, transfers)] = Phase.INPUT
    found[tree.under(match(events, _FRAMES[Phase.PARAMETER]) & python)] = Phase.PARAMETER
    found[main != NONE] = main[main != NONE]
    return found


def _takes_from_host(host: Host, transfers: Transfers) -> Bool:
    """Mask of the host spans inside an operator that copies from the host to the device, shape (n,)."""
    launch = transfers.launch[transfers.to_device & (transfers.launch != NONE)]
    copying = np.zeros(len(host.events), np.bool_)
    copying[launch] = True
    if not len(launch):
        return copying
    return host.tree.under(host.tree.any_below(copying) & match(host.events, operators.DEVICE_COPY))


def phases_of_stacks(stacks: Sequence[str]) -> UInt8:
    """Return the phase of each of a snapshot's stacks: frames, one per line, outermost first."""
    lines = list({line for stack in stacks for line in stack.split("\n")})
    matcher = NameMatcher(lines)
    phase = np.full(len(lines), Phase.UNKNOWN, np.uint8)
    for one, pattern in reversed(_FRAMES.items()):  # the first one that matches stays
        phase[matcher.matches(pattern)] = one
    phase_of = dict(zip(lines, map(Phase, phase.tolist()), strict=True))
    closures = {lines[i] for i in np.flatnonzero(matcher.matches(torch_frames.CLOSURE_FRAME))}
    found = np.array([_phase_of_stack(stack, phase_of, closures) for stack in stacks], np.uint8)
    found[in_engine(stacks) & (found == Phase.FORWARD)] = Phase.BACKWARD
    return found


def _phase_of_stack(stack: str, phase_of: Mapping[str, Phase], closures: Set[str]) -> Phase:
    """Return the phase of a stack. Allocations outside of all other phases are forward's."""
    if not stack:
        return Phase.UNKNOWN
    lines = stack.split("\n")
    inwards = [phase_of[line] for line in lines]
    main = next((phase for phase in reversed(inwards) if phase in _MAIN), None)
    if main is not None:
        last = max(at for at, phase in enumerate(inwards) if phase == main)
        closure = main == Phase.OPTIMIZER and (
            Phase.FORWARD in inwards[last:] or not closures.isdisjoint(lines[last + 1 :])
        )
        return Phase.FORWARD if closure else main
    return next((phase for phase in reversed(inwards) if phase != Phase.UNKNOWN), Phase.FORWARD)
