"""What a step clock says of steps that take longer, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tb_gpudiag.trace.step_clocks.clock_state import COMPARED_BLOCKS, RankSteps
from tb_gpudiag.vocabulary.written import PHASES
from tb_gpudiag.wording.format import figures, share
from tb_gpudiag.wording.vocabulary import CLOCK_PHASES

_NOT_RECORDED: Final = (
    "Nothing was recorded: other processes have the cores, the rank waits for another one, or there were "
    "recordings before."
)


# A phase that takes less than this of what a step takes longer is not the reason.
MAIN_PHASE_SHARE = 0.25


def why_longer(slowest: RankSteps, ranks: int) -> str:
    """Say by how much the steps of a rank take longer, since when, and what takes it. ranks: how many."""
    longer_ms, *of_phases_ms, _ = slowest.longer_ms
    where = "" if ranks == 1 else f"on rank {slowest.rank} of {ranks} "
    if slowest.only_waits:
        where = f"on all {ranks} ranks "
    since = f"step {slowest.since}"
    since = f"little by little, compared with {since}" if slowest.gradual else f"since about {since}"
    return (
        f"steps {where}take {share(longer_ms / max(slowest.step_ms - longer_ms, 1e-6))} longer {since}: "
        f"{ms_text(longer_ms)}{most_of(longer_ms, of_phases_ms)}"
    )


def clock_verdict(ranks: Sequence[RankSteps], why: str) -> tuple[bool, str, str]:
    """Return what a job's clocks have found: whether that is a drift, a headline, and sentences.

    why: they last asked for a recording; "" if they did not.
    """
    drifted = [rank for rank in ranks if rank.drifts and rank.longer_ms]
    now = f"Steps take {ms_text(max(rank.step_ms for rank in ranks))} now." if ranks else ""
    if why:
        return True, "Steps take longer", f"{why[:1].upper()}{why[1:]}. {now}".strip()
    if drifted:
        slowest = max(drifted, key=lambda rank: rank.longer_ms[0])
        where = "Steps" if len(ranks) == 1 else f"Steps on rank {slowest.rank}"
        what = f"{where} take {drift_text(slowest)}."
        return True, "Steps take longer", f"{what} {_NOT_RECORDED} {now}"
    if not ranks or min(rank.blocks for rank in ranks) < COMPARED_BLOCKS:
        what = "It is too early to find a drift: the clock compares several minutes of the run."
        return False, "Too early to find a drift", f"{now} {what}".strip()
    return False, "No drift", f"{now} The clock has not found that steps take longer than before."


def drift_text(rank: RankSteps) -> str:
    """Return the last drift of a rank, such as `30 ms longer since step 900; 29 ms of it in forward`."""
    longer_ms, *of_phases_ms, _ = rank.longer_ms
    since = f"than at step {rank.since:,}" if rank.gradual else f"since step {rank.since:,}"
    return f"{ms_text(longer_ms)} longer {since}{most_of(longer_ms, of_phases_ms)}"


def most_of(longer_ms: float, of_phases_ms: Sequence[float]) -> str:
    """Say behind a sentence which phase takes most of it; "" if none does: few steps have timed phases."""
    phase = max(range(len(PHASES)), key=lambda at: of_phases_ms[at])
    if of_phases_ms[phase] < MAIN_PHASE_SHARE * longer_ms:
        return ""
    return f"; {ms_text(of_phases_ms[phase])} of it in {CLOCK_PHASES[PHASES[phase]].noun}"


def ms_text(time_ms: float) -> str:
    """`12.3 ms`: in the log, all times of a clock have one unit."""
    return f"{figures(time_ms)} ms"
