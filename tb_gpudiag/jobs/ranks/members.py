"""Find digests that are ranks of one job, recorded at the same time, and put many into one set of tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import cache, lru_cache
from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import NONE
from tb_gpudiag.digest.digest import TABLES, About, Digest
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.kernels_compared import ROWS_COMPARED
from tb_gpudiag.jobs.ranks.rank_memory import peak_of, rank_memory_of
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.wording.format import count, in_quotes, ranks_text
from tb_gpudiag.wording.good_recording import RECORD_HISTORY, RECORDERS, THINNED_TITLE

NAMES_SHOWN: Final = 8
"""Ranks or files that a note lists."""

# Two recordings of one rank are of the same time if they share this much of the shorter one.
_SAME_TIME: Final = 0.5

_MOST_SHARED_BYTES: Final = 64 << 10


@dataclass(frozen=True, eq=False)
class JobSet:
    """Recordings of one job at one time, one per rank, sorted by rank: traces, or the memory snapshots that
    ranks left. world_size: 0 if no file says it."""

    run: str
    world_size: int
    members: tuple[Digest, ...]
    missing: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Of the files: trace or snapshot."""
        return self.members[0].about.kind

    @property
    def ranks(self) -> list[int]:
        return [member.about.rank for member in self.members]


@dataclass
class Sets:
    """Sets of at least two ranks, and notes on the digests that are in none."""

    sets: list[JobSet] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class SlimDigest(Digest):
    """A digest with only what the analysis of ranks reads."""


def slim(digest: Digest) -> SlimDigest:
    """Return the digest with only what the analysis of ranks reads, in memory of its own. It reads what held
    memory in snapshots only: traces are compared by time.

    A table that was read from a file keeps the whole file's memory: a thousand of them would take gigabytes.
    """
    if isinstance(digest, SlimDigest):
        return digest
    kernels = digest.kernels.slice(0, ROWS_COMPARED)
    column = kernels.schema.get_field_index("path")
    without_paths = kernels.set_column(column, "path", pa.array([""] * len(kernels), pa.string()))
    kept = {"steps": digest.steps, "collectives": digest.collectives, "kernels": without_paths}
    if digest.about.kind == "snapshot":
        kept["held"] = digest.held
    tables = {name: _copied(kept[name]) if name in kept else _empty(name) for name in TABLES}
    return SlimDigest(about=digest.about, findings=digest.findings, **tables)


@cache
def _empty(name: str) -> pa.Table:
    return TABLES[name].empty_table()


def _copied(table: pa.Table) -> pa.Table:
    taken = table.take(pa.array(np.arange(len(table))))
    return pa.Table.from_arrays([*map(_of_all_ranks, taken.columns)], schema=taken.schema)


def _of_all_ranks(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.StringArray:
    """Return the column, or the same texts of another rank."""
    if column.type != pa.string() or column.num_chunks != 1 or not 0 < column.nbytes < _MOST_SHARED_BYTES:
        return column
    texts = column.chunk(0)
    _, ends, content = texts.buffers()
    first = texts.offset * 4
    return _texts(len(texts), ends[first : first + 4 * len(texts) + 4].to_pybytes(), content.to_pybytes())


# The ranks of a job call the same collectives.
@lru_cache(maxsize=1024)
def _texts(count: int, ends: bytes, content: bytes) -> pa.StringArray:
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(content))


def find_sets(digests: Iterable[Digest]) -> Sets:
    """Sort digests into jobs, by run, world size and time."""
    found = Sets()
    by_job: dict[tuple[str, int], list[Digest]] = defaultdict(list)
    snapshots: dict[str, list[Digest]] = defaultdict(list)
    contents: set[tuple[int, ...]] = set()
    for digest in digests:
        about = digest.about
        if about.kind == "snapshot" and about.rank != NONE:
            snapshots[about.run].append(digest)
        if about.kind != "trace":
            continue
        times = (about.origin_ns, about.recording_ns, about.window_end_ns)
        content = (about.world_size, about.rank, *times, len(digest.collectives))
        again = " is the same recording as another file: it counts once"
        why_not = again if content in contents else _no_rank(about) or _thinned(digest)
        if why_not:
            found.notes.append(f"{_name(about)}{why_not}")
        else:
            by_job[about.run, about.world_size].append(digest)
        contents.add(content)
    for (run, world_size), members in sorted(by_job.items(), key=lambda item: item[0]):
        others = sorted(size for name, size in by_job if name == run and size != world_size)
        shown = ", ".join(map(str, others[:NAMES_SHOWN]))
        note = f"This folder has ranks of different jobs: of world size {world_size}, and of {shown}"
        _sort_by_time(run, world_size, members, [note] * bool(others), found)
    for run, members in sorted(snapshots.items()):
        found.sets += _snapshots(run, members)
    return found


def _snapshots(run: str, found: list[Digest]) -> Iterator[JobSet]:
    """Yield the set of a folder's snapshots: of each rank, the one with a failed allocation, or the last."""
    best: dict[int, Digest] = {}
    for one in sorted(found, key=lambda one: (peak_of(one).failures > 0, one.about.origin_ns)):
        best[one.about.rank] = one
    if len(best) < 2:
        return
    members = [one for _, one in sorted(best.items())]
    missing = tuple(rank for rank in range(max(best)) if rank not in best)
    unknown = [members[i].about.rank for i in rank_memory_of(members).without_history.tolist()]
    notes = []
    if unknown:
        snapshots = "snapshot of" if len(unknown) == 1 else "snapshots of"
        notes.append(
            f"No history in the {snapshots} {ranks_text(unknown)}: what held memory there is unknown. "
            f"{RECORD_HISTORY}"
        )
    if missing:
        notes.append(f"No snapshot of {ranks_text(missing)} could be read")
    notes.append("The ranks are those that the names of the files say")
    if len(found) > len(members):
        notes.append(
            "Some ranks have several snapshots: the one with a failed allocation counts, else the last one"
        )
    yield JobSet(run, 0, tuple(members), missing, tuple(notes))


def _no_rank(about: About) -> str:
    """Return why a recording is not of a rank; "" if it is."""
    if about.rank == NONE and about.recorder == "nsys":
        return " does not say which rank it is: set RANK and WORLD_SIZE in the environment of nsys profile"
    if about.rank == NONE and about.recorder == "rocprof":
        return " does not say which rank it is: its rocprofv3 did not record the environment"
    if about.rank == NONE:
        return (
            " does not say which rank it is: record it in the process of the rank, after init_process_group()"
        )
    if 0 < about.world_size <= about.rank:
        return f" is rank {about.rank} of {about.world_size}, which cannot be"
    return ""


def _thinned(digest: Digest) -> str:
    """Return that events were removed, so that collectives cannot be matched; "" if they were not."""
    thinned = any(found.title == THINNED_TITLE for found in digest.findings)
    return " is thinned: events were removed from it" if thinned else ""


def _sort_by_time(run: str, world_size: int, members: list[Digest], notes: list[str], found: Sets) -> None:
    by_rank: dict[int, list[Digest]] = defaultdict(list)
    for member in members:
        by_rank[member.about.rank].append(member)
    rest = [one for rank, own in sorted(by_rank.items()) for one in _told_apart(rank, own, found.notes)]
    together = [rest] if _simultaneous(rest) else _by_overlap(rest)
    kept = [cluster for cluster in together if len(cluster) > 1]
    why = "was not recorded at the time of the other ranks, so it is left out"
    if not kept:
        why = "has no other rank recorded at the same time"
    alone = [cluster[0].about for cluster in together if len(cluster) == 1]
    found.notes += [f"{_name(about)} (rank {about.rank}) {why}" for about in alone]
    more = f"The folder has {len(kept)} recordings of this job: each has a report of its own"
    notes = [*notes, more] if len(kept) > 1 else notes
    found.sets += [_set(run, world_size, cluster, list(notes)) for cluster in kept]


def _told_apart(rank: int, own: list[Digest], notes: list[str]) -> list[Digest]:
    """Return a rank's recordings in time order, without those that overlap."""
    own.sort(key=lambda digest: digest.about.origin_ns)
    twice = _overlapping(own)
    if twice:
        names = _listed([_name(digest.about) for digest in twice])
        notes.append(
            f"Rank {rank} has {count(len(twice), 'recording')} of the same time ({names}): none is used, "
            "because nothing says which one belongs to the other ranks"
        )
    return [digest for digest in own if not any(digest is other for other in twice)]


def _overlapping(own: Sequence[Digest]) -> list[Digest]:
    """Return the recordings of one rank that share most of their time with another one."""
    found = []
    for i, digest in enumerate(own):
        if any(_shared(digest.about, other.about) for j, other in enumerate(own) if i != j):
            found.append(digest)
    return found


def _interval(about: About) -> tuple[int, int]:
    return about.origin_ns, about.origin_ns + max(1, about.recording_ns)


def _shared(one: About, other: About) -> bool:
    shorter = min(one.recording_ns, other.recording_ns)
    (a, b), (c, d) = _interval(one), _interval(other)
    return (min(b, d) - max(a, c)) > _SAME_TIME * shorter


def _simultaneous(members: Sequence[Digest]) -> bool:
    """Return whether each rank has one recording, and the recordings of each host overlap.

    Clocks of hosts may differ by hours. Then the sequence numbers of shared collectives have to agree.
    """
    if len({member.about.rank for member in members}) < len(members) or len(members) < 2:
        return False
    clusters = _by_overlap(members)
    if len(clusters) == 1:
        return True
    hosts = [host for cluster in clusters for host in {member.about.host for member in cluster}]
    apart = all(hosts) and len(set(hosts)) == len(hosts)
    return apart or _numbers_agree(clusters)


def _numbers_agree(clusters: Sequence[Sequence[Digest]]) -> bool:
    numbered = [set().union(*(_numbers(member) for member in cluster)) for cluster in clusters]
    return all(numbered[0] & other for other in numbered[1:])


def _numbers(digest: Digest) -> set[tuple[str, int]]:
    groups = digest.collectives.column("group").to_pylist()
    sequences = digest.collectives.column("sequence").to_pylist()
    return {(g, s) for g, s in zip(groups, sequences, strict=True) if g and s != NONE}


def _by_overlap(members: Sequence[Digest]) -> list[list[Digest]]:
    """Sort recordings into clusters that overlap in time, with each rank once."""
    clusters: list[list[Digest]] = []
    spans: list[tuple[int, int]] = []
    ranks: list[set[int]] = []
    for member in sorted(members, key=lambda digest: digest.about.origin_ns):
        start, end = _interval(member.about)
        best, most = -1, 0
        for i, (low, high) in enumerate(spans):
            shared = min(end, high) - max(start, low)
            if shared > most and member.about.rank not in ranks[i]:
                best, most = i, shared
        if best < 0:
            clusters.append([member])
            spans.append((start, end))
            ranks.append({member.about.rank})
        else:
            clusters[best].append(member)
            spans[best] = min(start, spans[best][0]), max(end, spans[best][1])
            ranks[best].add(member.about.rank)
    return clusters


def _set(run: str, world_size: int, members: list[Digest], notes: list[str]) -> JobSet:
    members = sorted(members, key=lambda member: member.about.rank)
    ranks = {member.about.rank for member in members}
    missing = tuple(rank for rank in range(world_size) if rank not in ranks)
    if not world_size:
        notes.append("No trace says how many ranks the job has, so missing ranks are not known")
    if missing:
        notes.append(
            f"{count(len(missing), 'rank')} of {world_size:,} missing: {_listed([str(r) for r in missing])}"
        )
    cut = [str(member.about.rank) for member in members if member.about.status != "COMPLETE"]
    if cut:
        notes.append(f"The recording of rank {_listed(cut)} is truncated or still being written")
    short = [str(member.about.rank) for member in members if "collective" in " ".join(member.about.left_out)]
    if short:
        notes.append(f"The digest of rank {_listed(short)} has no room for all of its collectives")
    notes += _recorder_notes(members)
    notes += _group_notes(members)
    return JobSet(run, world_size, tuple(members), missing, tuple(notes))


def _recorder_notes(members: Sequence[Digest]) -> list[str]:
    """Say which recorder recorded which ranks, if there are several recorders."""
    found = {name: [m for m in members if m.about.recorder == key] for key, name in RECORDERS.items()}
    said = [
        f"{name} recorded rank {_listed([str(m.about.rank) for m in own])}"
        for name, own in found.items()
        if own
    ]
    if len(said) < 2:
        return []
    return [f"{', '.join(said)}: they cost different host time, so a rank may look slower than it is"]


def _group_notes(members: Sequence[Digest]) -> list[str]:
    """Say on which process groups the ranks disagree."""
    first: dict[tuple[str, int], tuple[int, Sequence[int]]] = {}
    said: list[str] = []
    for member in members:
        for name, ranks in member.about.groups.items():
            if not ranks:
                continue
            rank, known = first.setdefault((name, ranks[0]), (member.about.rank, ranks))
            if known is not ranks and known != ranks and len(said) < NAMES_SHOWN:
                said.append(
                    f"Ranks {rank} and {member.about.rank} disagree on process group {in_quotes(name, 40)}: "
                    f"{len(known)} and {len(ranks)} ranks"
                )
    return said


def _name(about: About) -> str:
    return in_quotes(about.path or about.worker or about.id, 200)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


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
