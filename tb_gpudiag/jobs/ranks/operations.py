"""Collectives of all ranks in one set of columns, on one time axis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64
from tb_gpudiag.digest.digest import WORK, Digest, numbers, time_parts
from tb_gpudiag.frozen import dataclass

COMPUTING: Final = 0
COMMUNICATING: Final = 2
"""Parts of WORK, by their place in it."""

IN_COLLECTIVE: Final = "collective"
"""The cause of idle time that is part of communicating."""


@dataclass(frozen=True, eq=False)
class TextColumn:
    """A column of strings: `texts[code[i]]`."""

    code: Int32
    texts: list[str]

    def __getitem__(self, row: int) -> str:
        return self.texts[int(self.code[row])]

    def where(self, chosen: Callable[[str], bool]) -> Bool:
        """Mask of the rows with a chosen text."""
        return np.array([chosen(text) for text in self.texts], np.bool_)[self.code]


@dataclass(frozen=True, eq=False)
class RankOperations:
    """Collectives and point-to-point operations, shape (n,) each, by member and then in time order.

    member: index of the rank in the set. Times are ns since the first recording began, by each host's own
    clock. origin_ns: when the recordings began, shape (members,). parts: what the rank did since its previous
    operation: WORK, then causes of idle time; shape (n, len(part_names)).
    """

    origin_ns: Int64
    member: Int32
    kind: TextColumn
    name: TextColumn
    group: TextColumn
    annotation: TextColumn
    caller: TextColumn
    called_at: TextColumn
    unit: TextColumn
    why: TextColumn
    place: TextColumn
    step: TextColumn  # "" outside of steps
    number: Int64
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
    parts: Int64
    part_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.member)

    @property
    def own_parts(self) -> Bool:
        """Mask of the parts that are the rank's own doing: all but communicating, shape (parts,)."""
        return np.array([name not in ("communicating", IN_COLLECTIVE) for name in self.part_names], np.bool_)

    def of_kinds(self, kinds: Collection[str]) -> Bool:
        """Mask of the operations of these kinds, shape (n,)."""
        return self.kind.where(lambda kind: kind in kinds)


def operations_of(members: Sequence[Digest]) -> RankOperations:
    """Put the collectives of all members together."""
    origin_ns = np.array([member.about.origin_ns for member in members], np.int64)
    origin_ns -= origin_ns.min(initial=np.iinfo(np.int64).max)
    causes = members[0].about.causes if members else []
    lengths = [len(member.collectives) for member in members]
    origin = np.repeat(origin_ns, lengths)

    def column(name: str) -> Int64:
        return _joined([numbers(member.collectives, name) for member in members])

    def texts(name: str) -> TextColumn:
        return _names([member.collectives.column(name) for member in members])

    return RankOperations(
        origin_ns=origin_ns,
        member=np.repeat(np.arange(len(members)), lengths).astype(np.int32),
        kind=texts("kind"),
        name=texts("name"),
        group=texts("group"),
        annotation=texts("annotation"),
        caller=texts("caller"),
        called_at=texts("called_at"),
        unit=texts("unit"),
        why=texts("why"),
        place=texts("place"),
        step=_names([_step_names(member) for member in members]),
        number=column("number"),
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
        parts=np.concatenate(
            [time_parts(one.collectives, one.about, causes, on_gpu=one.about.devices > 0) for one in members]
        )
        if members
        else np.zeros((0, len(WORK)), np.int64),
        part_names=(*WORK, *causes),
    )


def _called(member: Digest) -> Int64:
    called = numbers(member.collectives, "host_start_ns")
    return called if (called != NONE).all() else numbers(member.collectives, "start_ns")


def _joined(parts: list[Int64]) -> Int64:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _names(columns: Sequence[pa.ChunkedArray]) -> TextColumn:
    chunks: list[Any] = [chunk for column in columns for chunk in column.chunks]
    whole = pa.chunked_array(chunks, pa.string()).dictionary_encode().unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], pa.string()).dictionary_encode()
    return TextColumn(whole.indices.to_numpy().astype(np.int32), whole.dictionary.to_pylist())


def _step_names(member: Digest) -> pa.ChunkedArray:
    names = pa.chunked_array([pa.array([*member.steps.column("name").to_pylist(), ""], pa.string())])
    step = numbers(member.collectives, "step")
    last = len(member.steps)
    return names.take(pa.array(np.where((step < 0) | (step >= last), last, step)))


def row_groups(*columns: Int64) -> tuple[Int64, Int64]:
    """Number the rows by their values, in the order of the values: first column first.

    Returns:
        The first row of each group, shape (groups,), and the group of each row, shape (n,). This is what
        np.unique does with axis=0, without comparing rows byte by byte.
    """
    group = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        # Numbers stay dense, so that the product does not overflow.
        _, group = np.unique(group * max(1, len(values)) + code.reshape(-1), return_inverse=True)
        group = group.reshape(-1).astype(np.int64)
    _, first = np.unique(group, return_index=True)
    return first.astype(np.int64), group
