"""Savings of fixes, from replaying the job with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.replay.job_replay import UNCHANGED, Change
from tb_gpudiag.jobs.replay.peers import SHARED
from tb_gpudiag.jobs.rules.uneven_ranks import LEAST_SHARE, find_uneven
from tb_gpudiag.rules.rule import Saving
from tb_gpudiag.rules.run import RuleFinding

# A replay with nothing changed gives the recorded steps within 1% for simulated jobs. One that misses them by
# more than this does not know the job.
TRUSTED_ERROR = 0.05

EVEN_WORK = Change(parts=frozenset(SHARED), even=True)
"""Ranks with the same role share their work evenly."""

_ABOUT_RANKS = ("GD602", "GD603")


def saved_by(facts: JobFacts, change: Change) -> int | None:
    """Return what a change saves over the steps, in ns, by a replay; None if it cannot be trusted."""
    if facts.replay is None or facts.replay.error > TRUSTED_ERROR:
        return None
    unchanged, changed = facts.replay.step_ns([UNCHANGED, change])
    return int(np.maximum(0, unchanged.mean() - changed.mean()) * len(facts.own_time.steps))


def with_replayed_saving(facts: JobFacts, found: RuleFinding) -> RuleFinding:
    """Return the finding with the saving of the whole job, where the replay can be trusted: if its ranks did
    as their peers, or if all of them shared the work that is uneven."""
    if found.rule.id not in _ABOUT_RANKS or found.finding.saving is None:
        return found
    uneven = find_uneven(facts)
    if not uneven.found:
        return found
    like_peers = Change(parts=None, members=frozenset(uneven.members.tolist()))
    saved_ns = saved_by(facts, EVEN_WORK if found.rule.id == "GD603" else like_peers)
    # Stages of a pipeline without replicas have no peers that run the same program: then nothing changes.
    if saved_ns is None or saved_ns < LEAST_SHARE * facts.job_ns:
        return found
    return replace(found, finding=replace(found.finding, saving=Saving(saved_ns, saved_ns, "replayed")))
