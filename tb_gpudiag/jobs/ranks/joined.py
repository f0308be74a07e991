"""Digests of many ranks in one set of tables: what a cluster's workers put together, so that one process need
not read and unpack thousands of digests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import pyarrow as pa

from tb_gpudiag.digest.digest import TABLES, About
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.members import SlimDigest
from tb_gpudiag.report import report_pb2 as pb


@dataclass(frozen=True, eq=False)
class JoinedDigests:
    """Digests in order, and the rows of all. lengths: how many rows each digest has, by table."""

    abouts: list[About]
    findings: list[list[pb.Finding]]
    lengths: dict[str, list[int]]
    tables: dict[str, pa.Table]

    def __iter__(self) -> Iterator[SlimDigest]:
        starts = {name: [0, *accumulate(lengths)] for name, lengths in self.lengths.items()}
        for i, (about, findings) in enumerate(zip(self.abouts, self.findings, strict=True)):
            tables = {
                name: table.slice(starts[name][i], self.lengths[name][i])
                for name, table in self.tables.items()
            }
            yield SlimDigest(about=about, findings=findings, **tables)


def joined(digest: SlimDigest) -> JoinedDigests:
    """Return one digest as the beginning of many."""
    tables = {name: digest.table(name) for name in TABLES}
    lengths = {name: [len(table)] for name, table in tables.items()}
    return JoinedDigests([digest.about], [digest.findings], lengths, tables)


def join(parts: Sequence[JoinedDigests]) -> JoinedDigests:
    """Put them together, in this order. There is at least one."""
    return JoinedDigests(
        [about for part in parts for about in part.abouts],
        [findings for part in parts for findings in part.findings],
        {name: [length for part in parts for length in part.lengths[name]] for name in TABLES},
        {name: pa.concat_tables([part.tables[name] for part in parts]).combine_chunks() for name in TABLES},
    )
