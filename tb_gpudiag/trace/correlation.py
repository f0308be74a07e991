"""Join GPU work to what started it on the host, by the ids that both have."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.trace.events import Events, is_id
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES


def launches(events: Events, work: Int64) -> Int64:
    """Return the call that launched each GPU work, as event indices, or NONE. Shape of work.

    An id decides, and not the time: clocks of host and GPU may differ. Some of ROCm's recorders write the
    correlation as external id, and no correlation.
    """
    calls = events.where(*CALL_CATEGORIES)
    correlation, external = events.correlation, events.external_id
    launch = with_id(correlation[work], calls, correlation[calls])
    bare = np.flatnonzero((launch == NONE) & ~is_id(correlation[work]) & is_id(external[work]))
    if len(bare):
        calls = calls[~is_id(correlation[calls])]
        launch[bare] = with_id(external[work[bare]], calls, external[calls])
    return launch


def with_id(wanted: Int64, events: Int64, ids: Int64) -> Int64:
    """Return the first event with each wanted id, or NONE. Shape of wanted. 0 and NONE join
    nothing."""
    found = np.full(len(wanted), NONE, np.int64)
    events, ids = events[is_id(ids)], ids[is_id(ids)]
    order = np.argsort(ids, kind="stable")
    events, ids = events[order], ids[order]
    if len(events):
        at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        fits = ids[at] == wanted
        found[fits] = events[at[fits]]
    return found
