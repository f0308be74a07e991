"""What first-run work consists of, as far as it was recorded."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, summed
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import coverage
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.shared.lost_time import Lost, lost_time
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import in_quotes, share

_NAMED = 3

_LOADER = "starting a data loader, until its first batch"


def first_run_parts(facts: Facts) -> str:
    """Return the calls in which most of the step window's first-run work is, each with its share of it, such
    as `45.7% in "cudaLaunchKernel", 20.8% in "cudaFree"`; "" if none is large."""
    lost = lost_time(facts)
    of_first_run = lost.of(Cause.INITIALIZATION)
    loading = of_first_run & _starts_loader(facts, lost)
    named = np.flatnonzero(of_first_run & ~loading & (lost.event != NONE))
    event, length_ns = lost.event[named], lost.length_ns[named]
    names, first, place = np.unique(facts.host.names(event), return_index=True, return_inverse=True)
    time_ns = summed(place, length_ns, len(names))
    most = np.argsort(-time_ns, kind="stable")[:_NAMED].tolist()
    taken = [(int(time_ns[i]), f"in {in_quotes(facts.host.name(int(event[first[i]])), 80)}") for i in most]
    taken = sorted([*taken, (lost.total_ns(loading), _LOADER)], reverse=True)
    least_ns = max(1, levels.SIZEABLE * lost.window_ns)
    return ", ".join(f"{share(ns, lost.window_ns)} {words}" for ns, words in taken if ns >= least_ns)


def first_run_sentence(facts: Facts) -> str:
    """Say how much first-run work there is, and what it is."""
    lost = lost_time(facts)
    taken = share(lost.total_ns(lost.of(Cause.INITIALIZATION)), lost.window_ns)
    parts = filter(None, [first_run_parts(facts)])
    return f"{': '.join([f'First-run work took {taken} of the time', *parts])}. {_AGAIN}"


_AGAIN = "Record again after a few warm-up steps."


def _starts_loader(facts: Facts, lost: Lost) -> Bool:
    starts: Bool = coverage(facts.loader_starts.once, lost.start_ns, lost.end_ns) > 0
    return starts
