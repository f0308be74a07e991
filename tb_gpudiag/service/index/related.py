"""Which recordings of the log directory an answer about several is about, as far as their names tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tb_gpudiag.service.index.log_index import TraceEntry

# A job of more ranks, or a run of more recordings, is answered for the first, or the newest ones.
MOST_MEMBERS = 4_000

_NS_PER_MS = 1_000_000
# Spans are Unix times: in ms until torch 2.1, then in ns. Files that somebody named have other numbers, which
# are less than any time since 2001.
_LEAST_MS_SPAN = 10**12
_LEAST_NS_SPAN = 10**16


def ranks_of(entries: Iterable[TraceEntry], chosen: TraceEntry) -> list[TraceEntry]:
    """Return what may be the job of a trace: of each worker of its run, the recording nearest in time.

    The chosen trace comes first, then the others by worker: the answer's key depends on the order. Reading
    them decides whether they belong together.
    """
    nearest: dict[str, TraceEntry] = {chosen.file.worker: chosen}
    at_ns = time_ns(chosen)
    for entry in _traces_of(entries, chosen.file.run):
        if entry.record is not None:
            continue
        worker = entry.file.worker
        if worker == chosen.file.worker:
            continue
        known = nearest.get(worker)
        if known is None or abs(time_ns(entry) - at_ns) < abs(time_ns(known) - at_ns):
            nearest[worker] = entry
    others = sorted(nearest.keys() - {chosen.file.worker})
    return [chosen, *(nearest[worker] for worker in others)][:MOST_MEMBERS]


def recordings_of(entries: Mapping[str, TraceEntry], run: str) -> list[TraceEntry]:
    """Return the recordings of a run, the oldest first, also those with a record only."""
    found = sorted(_traces_of(entries.values(), run), key=time_ns)
    return found[-MOST_MEMBERS:]


def time_ns(entry: TraceEntry) -> int:
    """Return when the trace was written, as its name tells, else as the file does."""
    span = int(entry.file.span[:19] or 0)
    if span >= _LEAST_NS_SPAN:
        return span
    return span * _NS_PER_MS if span >= _LEAST_MS_SPAN else entry.file.modified_ns


def _traces_of(entries: Iterable[TraceEntry], run: str) -> Iterable[TraceEntry]:
    return (entry for entry in entries if entry.file.run == run and entry.file.kind == "trace")
