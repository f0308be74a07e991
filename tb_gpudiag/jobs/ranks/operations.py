"""Collectives of all ranks in one set of columns, on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64
from tb_gpudiag.digest.digest import Digest, numbers, per_cause

COMPUTING: Final = 0
COPYING: Final = 1
COMMUNICATING: Final = 2
WORK: Final = ("computing", "copying", "communicating")
"""The first parts of a stretch of time; the causes of idle time follow."""

IN_COLLECTIVE: Final = "collective"
IN_OPERATORS: Final = "dispatch"
"""The cause of idle time that is part of communicating."""

Parts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Names:
    """A column of texts: `texts[code[i]]`."""

    code: Int32
    texts: list[str]

    def __getitem__(self, row: int) -> str:
        return self.texts[int(self.code[row])]


@dataclass(frozen=True)
class RankOperations:
    """Collectives and point-to-point operations, shape (n,) each, by member and then in order of time.

    member: index of the rank in the set. Times are ns since `base_ns`, by each host's own clock.
    parts: what the rank did since its previous operation, shape (n, len(part_names)).
    """

    base_ns: int
    member: Int32
    kind: Names
    name: Names
    group: Names
    annotation: Names
    place: Names
    step: Names  # "" outside of steps
    sequence: Int64
    source: Int64
    destination: Int64
    bytes: Int64
    called_ns: Int64  # when the host called it, else its start: streams may begin in another order
    since_ns: Int64
    start_ns: Int64
    end_ns: Int64
    exposed_ns: Int64
    place_ns: Int64
    kernels: Int64
    work: Int64
    work_sizes: Int64
    parts: Parts
    part_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.member)

    @property
    def own_parts(self) -> Bool:
        """Mask of the parts that are the rank's own doing: all but communicating, shape (parts,)."""
        return np.array([name not in ("communicating", IN_COLLECTIVE) for name in self.part_names], np.bool_)


def operations_of(members: Sequence[Digest]) -> RankOperations:
    """Put the collectives of all members together."""
    base_ns = min((member.about.origin_ns for member in members), default=0)
    causes = members[0].about.causes if members else []
    lengths = [len(member.collectives) for member in members]
    origin = np.repeat([member.about.origin_ns - base_ns for member in members], lengths).astype(np.int64)

    def column(name: str) -> Int64:
        return _joined([numbers(member.collectives, name) for member in members])

    def texts(name: str) -> Names:
        return _names([member.collectives.column(name) for member in members])

    return RankOperations(
        base_ns=base_ns,
        member=np.repeat(np.arange(len(members)), lengths).astype(np.int32),
        kind=texts("kind"),
        name=texts("name"),
        group=texts("group"),
        annotation=texts("annotation"),
        place=texts("place"),
        step=_names([_step_names(member) for member in members]),
        sequence=column("sequence"),
        source=column("source"),
        destination=column("destination"),
        bytes=column("bytes"),
        called_ns=_joined([_called(member) for member in members]) + origin,
        since_ns=column("since_ns") + origin,
        start_ns=column("start_ns") + origin,
        end_ns=column("end_ns") + origin,
        exposed_ns=column("exposed_ns"),
        place_ns=column("place_ns"),
        kernels=column("kernels"),
        work=column("work"),
        work_sizes=column("work_sizes"),
        parts=np.concatenate([_parts(member, causes) for member in members])
        if members
        else np.zeros((0, len(WORK)), np.int64),
        part_names=(*WORK, *causes),
    )


def _called(member: Digest) -> Int64:
    called = numbers(member.collectives, "host_start_ns")
    return called if (called != NONE).all() else numbers(member.collectives, "start_ns")


def _joined(parts: list[Int64]) -> Int64:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _names(columns: Sequence[pa.ChunkedArray]) -> Names:
    chunks: list[Any] = [chunk for column in columns for chunk in column.chunks]
    whole = pa.chunked_array(chunks, pa.string()).dictionary_encode().unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], pa.string()).dictionary_encode()
    return Names(whole.indices.to_numpy().astype(np.int32), whole.dictionary.to_pylist())


def _step_names(member: Digest) -> pa.ChunkedArray:
    names = pa.chunked_array([pa.array([*member.steps.column("name").to_pylist(), ""], pa.string())])
    step = numbers(member.collectives, "step")
    last = len(member.steps)
    taken: pa.ChunkedArray = names.take(pa.array(np.where((step < 0) | (step >= last), last, step)))
    return taken


def _parts(member: Digest, causes: list[str]) -> Parts:
    """Shape (rows, 3 + causes). Without a GPU, the host's time counts instead of the idle time, and what it
    spends in operators is computing."""
    table = member.collectives
    own = member.about.causes
    by_cause = per_cause(table, "idle_ns" if member.about.devices else "host_ns", len(own))
    if own != causes:
        order = [own.index(cause) if cause in own else NONE for cause in causes]
        padded = np.concatenate([by_cause, np.zeros((len(table), 1), np.int64)], axis=1)
        by_cause = padded[:, order]
    work = np.stack([numbers(table, f"{name}_ns") for name in WORK], axis=1)
    if not member.about.devices and IN_OPERATORS in causes:
        operators = causes.index(IN_OPERATORS)
        work[:, WORK.index("computing")] += by_cause[:, operators]
        by_cause = by_cause.copy()
        by_cause[:, operators] = 0
    return np.concatenate([work, by_cause], axis=1)
