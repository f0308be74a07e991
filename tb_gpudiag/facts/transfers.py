"""Copies: their direction, and whether the host's side was pageable."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tb_gpudiag.facts.launches import Work
from tb_gpudiag.facts.names import match
from tb_gpudiag.trace.events import Bool, Category, Events, Int64

_PAGEABLE = re.compile(r"Memcpy .*\((Pageable -> .*|.* -> Pageable)\)", re.S)
_TO_DEVICE = re.compile(r"Memcpy HtoD.*", re.S)
_TO_HOST = re.compile(r"Memcpy DtoH.*", re.S)


@dataclass(frozen=True)
class Transfers:
    """The copies among a trace's GPU work, in order of start. Shape (t,) each."""

    event: Int64
    launch: Int64  # event index of the call, or NONE
    bytes: Int64  # NONE where the trace does not say
    pageable: Bool  # one side is pageable host memory: only NVIDIA's traces tell
    to_device: Bool
    to_host: Bool


def find_transfers(events: Events, work: Work) -> Transfers:
    """Direction and kind of memory stand only in the copy's name."""
    some = np.flatnonzero(events.category[work.event] == Category.MEMCPY)
    event = work.event[some]
    return Transfers(
        event,
        work.launch[some],
        events.bytes[event],
        match(events, _PAGEABLE)[event],
        match(events, _TO_DEVICE)[event],
        match(events, _TO_HOST)[event],
    )
