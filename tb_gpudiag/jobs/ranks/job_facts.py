"""Facts about the ranks of one job, each computed once and on demand. Rules and reports read them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Final, TypeVar

import numpy as np

from tb_gpudiag.arrays import Bool, Float64, Int64
from tb_gpudiag.digest.digest import WORK, time_parts
from tb_gpudiag.errors import TraceError
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.bandwidth import size_classes
from tb_gpudiag.jobs.ranks.channels import channels_of
from tb_gpudiag.jobs.ranks.clocks import clocks_of
from tb_gpudiag.jobs.ranks.collective_matching import match_operations
from tb_gpudiag.jobs.ranks.kernels_compared import compare_kernels
from tb_gpudiag.jobs.ranks.members import JobSet
from tb_gpudiag.jobs.ranks.operations import operations_of
from tb_gpudiag.jobs.ranks.own_time import own_time_of
from tb_gpudiag.jobs.ranks.parallelism import parallelisms, units_of
from tb_gpudiag.jobs.ranks.pipeline import pipeline_of
from tb_gpudiag.jobs.ranks.rank_memory import rank_memory_of
from tb_gpudiag.jobs.ranks.waits import LateCauses, starts_of, waits_of
from tb_gpudiag.jobs.replay.job_replay import UNCHANGED, JobChange, JobReplay, JobSlowdown, slowdown_of
from tb_gpudiag.jobs.replay.job_work import job_work
from tb_gpudiag.jobs.step_parts import ids_of
from tb_gpudiag.vocabulary.recorded import Recorder

# For simulated jobs, a replay with nothing changed gives the recorded steps within 1%. If it misses them by
# more than this, it does not model the job.
TRUSTED_ERROR: Final = 0.05

# If collectives end this soon after the last recorded rank arrived, as a share of the time for which the
# first one waited, no rank without a trace was later. In a public job that lacks one of four ranks it is 3%.
ENDS_AT_ONCE: Final = 0.1

# 95% of means of as many steps are within this many standard errors.
STANDARD_ERRORS: Final = 2.0

# Digests are untrusted: times can be any numbers.
_NOT_REPLAYED = (TraceError, ValueError, OverflowError, IndexError, FloatingPointError)


T = TypeVar("T")


def job_fact(compute: Callable[[JobFacts], T]) -> cached_property[T]:
    """Return a property of JobFacts that is computed once, when it is first used."""
    return cached_property(compute)


@dataclass(frozen=True, eq=False)
class JobFacts:
    """What the digests of a job's ranks say together."""

    set: JobSet

    operations = job_fact(lambda f: operations_of(f.set.members))

    channels = job_fact(lambda f: channels_of(f.operations, f.set.members))
    """Process groups and pairs of ranks that exchange messages."""

    matching = job_fact(lambda f: match_operations(f.operations, f.channels))
    """Operations of different ranks that are one collective."""

    clocks = job_fact(lambda f: clocks_of(f.set.members, f.operations, f.matching))
    """Offsets between the ranks' clocks."""

    waits = job_fact(lambda f: waits_of(f.operations, f.matching, f.clocks))
    """Arrivals, waiting and transfer of the matched collectives."""

    own_time = job_fact(lambda f: own_time_of(f.set.members, f.operations, f.channels, f.waits))
    """What each rank did itself, by step."""

    @cached_property
    def steady_parts(self) -> list[dict[str, int]]:
        """Time of each member's steady steps by part, in ns: WORK, then its causes."""
        found = []
        for member in self.set.members:
            about = member.about
            parts = time_parts(member.steady_steps, about, about.causes, on_gpu=about.devices > 0)
            found.append(dict(zip((*WORK, *about.causes), parts.sum(axis=0).tolist(), strict=True)))
        return found

    kernels = job_fact(lambda f: compare_kernels(f.set.members, f.own_time.role))
    """The same kernels on different ranks."""

    memory = job_fact(lambda f: rank_memory_of(f.set.members))
    """What held the ranks' memory at their peaks, of snapshots."""

    starts = job_fact(lambda f: starts_of(f.operations, f.clocks, f.waits))
    """Starts of the recordings and the first collective."""

    sizes = job_fact(lambda f: size_classes(f.operations, f.channels, f.waits, f.clocks))
    """Transfer times by kind and size."""

    late_causes = job_fact(lambda f: LateCauses(f.operations, f.waits))
    """Why ranks arrived last, by collective."""

    work = job_fact(lambda f: job_work(f.set.members, f.operations, f.waits, f.clocks))
    """What the ranks did between their collectives, for the replay."""

    @cached_property
    def replay(self) -> JobReplay | None:
        """The replay of the job; None if it cannot be replayed, or its ranks have no common clock."""
        if not len(self.waits) or not self.clocks.known.all():
            return None
        try:
            return JobReplay(self.work)
        except _NOT_REPLAYED:
            return None

    def saved_ns(self, change: JobChange) -> int | None:
        """Return what a change saves over the steps, by a replay; None if the replay cannot be trusted."""
        saved = self._saved_by_step_ns(change)
        return None if saved is None else self._over_the_steps(float(saved.mean()))

    def saved_range_ns(self, change: JobChange) -> tuple[int, int] | None:
        """Return what a change would save in as many other steps: these are a sample of them. Like `saved_ns`
        otherwise."""
        saved = self._saved_by_step_ns(change)
        if saved is None:
            return None
        doubt = STANDARD_ERRORS * saved.std(ddof=1) / math.sqrt(len(saved)) if len(saved) > 1 else 0.0
        low, high = saved.mean() - doubt, saved.mean() + doubt
        return self._over_the_steps(float(low)), self._over_the_steps(float(high))

    def _saved_by_step_ns(self, change: JobChange) -> Float64 | None:
        if self.replay is None or self.replay.error > TRUSTED_ERROR:
            return None
        unchanged, changed = self.replay.step_ns([UNCHANGED, change])
        return np.asarray(unchanged - changed, np.float64)

    def _over_the_steps(self, saved_ns: float) -> int:
        most_ns = self.replay.most_saved_ns if self.replay is not None else 0.0
        return int(max(0.0, min(saved_ns, most_ns)) * len(self.own_time.steps))

    @cached_property
    def in_another_mode(self) -> Bool:
        """Mask of the members that are in a mode which slows them, and most others are not. A mode slows each
        operator, which the time that is surely its own does not show."""
        modes, members = ids_of("mode"), self.set.members
        found = np.array([any(one.rule in modes for one in each.findings) for each in members], np.bool_)
        return found & (2 * found.sum() <= len(found))

    @cached_property
    def waits_for_absent(self) -> bool:
        """Whether every process group has ranks without a trace, and may wait for one: that looks like
        transfer. Not where collectives end soon after the last recorded rank arrived."""
        if not self.sizes or any(like.whole.links for like in self.sizes):
            return False
        return int(self.waits.transfer_ns.sum()) >= ENDS_AT_ONCE * int(self.waits.skew_ns.sum())

    @cached_property
    def slowdown(self) -> JobSlowdown | None:
        """What stragglers cost; None if that cannot be replayed, or the replay cannot be trusted."""
        if self.waits_for_absent or self.replay is None or self.replay.error > TRUSTED_ERROR:
            return None
        try:
            return slowdown_of(self.work, self.replay)
        except _NOT_REPLAYED:
            return None

    @property
    def server(self) -> str:
        """The inference server that runs the model, "" for none."""
        return next((member.about.server for member in self.set.members if member.about.server), "")

    parallelism = job_fact(lambda f: parallelisms(f.operations, f.channels, f.waits))
    """Parallelisms, as far as collectives show them."""

    units = job_fact(lambda f: units_of(f.operations, f.waits))
    """Collectives by what they are for, those that cost most first."""

    pipeline = job_fact(lambda f: pipeline_of(f.set.members, f.operations, f.channels, f.clocks))
    """The pipeline and its bubbles; None if the job has none."""

    @cached_property
    def window_ns(self) -> Int64:
        """Length of each member's step window, shape (members,)."""
        abouts = [member.about for member in self.set.members]
        return np.array([about.window_end_ns - about.window_start_ns for about in abouts], np.int64)

    @property
    def recorders(self) -> frozenset[Recorder]:
        """What recorded the ranks."""
        return frozenset(member.about.recorder for member in self.set.members)

    @property
    def recorded_differently(self) -> bool:
        """Whether several recorders were used: they record different things about collectives."""
        return len(self.recorders) > 1

    @property
    def job_ns(self) -> int:
        """Median length of the ranks' step windows. Costs are shares of it."""
        return int(np.median(self.window_ns)) if len(self.window_ns) else 0

    @property
    def unprofiled_share(self) -> float:
        """How much of a step is left without the recorder, of the rank in the middle."""
        return float(np.median([one.about.unprofiled_share for one in self.set.members]))

    @property
    def on_gpu(self) -> bool:
        """Whether any rank recorded a GPU."""
        return any(member.about.devices for member in self.set.members)

    def ranks(self, members: Int64) -> list[int]:
        numbers = self.set.ranks
        return [numbers[member] for member in members.tolist()]
