"""What a rank's flight recorder has: its process groups, and the operations that it called last."""

from __future__ import annotations

from enum import IntEnum

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.frames import Frame


class Progress(IntEnum):
    """How far an operation is.

    NCCL's kernel that has begun may still wait for its peers' kernels: only comparing ranks shows who waits.
    Gloo's operations have never begun: the recorder knows only that they were called and that they ended.
    """

    CALLED = 0
    BEGUN = 1
    DONE = 2


@dataclass(frozen=True)
class Signature:
    """What all ranks have to agree on. elements: of all inputs, or -1 where ranks may differ."""

    kind: str
    elements: int
    data_type: str


@dataclass(frozen=True)
class Operation:
    """A collective, or a send or receive, as one rank called it.

    number: counts the rank's operations. sequence: counts the group's collectives; the same on all ranks if
    they call the same ones. group: name of the process group. signature: elements of the largest input.
    sends_to, receives_from: the other rank's number in the group, or -1. frame: of the user's code that
    called it, or None.
    """

    number: int
    sequence: int
    group: str
    signature: Signature
    progress: Progress
    called_ns: int
    sends_to: int
    receives_from: int
    frame: Frame | None

    @property
    def is_collective(self) -> bool:
        return self.sends_to < 0 and self.receives_from < 0


@dataclass(frozen=True)
class ProcessGroup:
    """ranks: its members, in order; empty where this rank does not say."""

    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class FlightDump:
    """The dump of one rank. groups: those that it used, by name. operations: in the order of their calls."""

    rank: int
    path: str
    groups: dict[str, ProcessGroup]
    operations: list[Operation]
