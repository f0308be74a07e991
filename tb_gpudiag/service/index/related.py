"""Which recordings of the log directory belong to a job or a run, as far as their names tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tb_gpudiag.service.index.log_index import TraceEntry

# Of a job with more ranks, the first ones are read; of a run with more recordings, the newest ones.
MOST_MEMBERS = 4_000

_NS_PER_MS = 1_000_000
# Spans are Unix times: in ms until torch 2.1, then in ns. Files named by users have other numbers, all less
# than the time of any day since 2001.
_LEAST_MS_SPAN = 10**12
_LEAST_NS_SPAN = 10**16


def ranks_of(entries: Iterable[TraceEntry], chosen: TraceEntry) -> list[TraceEntry]:
    """Return the traces that may be the job of this one: of each worker of its run, the one nearest in time.

    The chosen trace comes first, then the others by worker: the key of the answer depends on the order.
    Whether they are one job is decided when they are read.
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
    """Return the recordings of a run, the oldest first, including those with only a record."""
    found = sorted(_traces_of(entries.values(), run), key=time_ns)
    return found[-MOST_MEMBERS:]


def time_ns(entry: TraceEntry) -> int:
    """Return when the trace was written: by its name, or by the file's time if the name does not tell."""
    span = int(entry.file.span[:19] or 0)
    if span >= _LEAST_NS_SPAN:
        return span
    return span * _NS_PER_MS if span >= _LEAST_MS_SPAN else entry.file.modified_ns


def _traces_of(entries: Iterable[TraceEntry], run: str) -> Iterable[TraceEntry]:
    return (entry for entry in entries if entry.file.run == run and entry.file.kind == "trace")
