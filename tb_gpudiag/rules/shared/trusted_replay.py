"""Whether the replay of a trace can be trusted to predict anything."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Replay
from tb_gpudiag.rules.shared.lost_records import steps_not_comparable
from tb_gpudiag.wording.format import share

# How far the model may be off in parts of the recording that it was not fitted to (Replay.error). Public
# traces of one rank's own work are off by 0.0 to 1.4%; those with waits for other ranks, or for something
# else that the trace does not have, by 2.5 to 73%.
WORST_ERROR = 0.02

# How much of the work may start at another time than predicted: at most 1% in public traces that the model
# explains. Random delays on all starts make it 20% and more.
MOST_STARTS = 0.10


def trusted_replay(facts: Facts) -> Replay | None:
    """Return the replay if there is a GPU and the model explains its waits, else None."""
    if facts.device is None or not facts.window.duration_ns or why_not_replayed(facts):
        return None
    return facts.replay


def why_not_replayed(facts: Facts) -> str:
    """Say why nothing can be predicted from this trace; "" if it can."""
    if unknown := steps_not_comparable(facts):
        return unknown.reason
    replay = facts.replay
    if replay.unexplained_share > WORST_ERROR:
        waits = share(replay.unexplained_share)
        return f"waits that this trace does not explain take {waits} of the step window"
    if replay.unexplained_starts > MOST_STARTS:
        starts = share(replay.unexplained_starts)
        return f"{starts} of the GPU work starts at a time that this trace does not explain"
    if replay.part_error > WORST_ERROR:
        return f"one half of the recording predicts the other with an error of {share(replay.part_error)}"
    return ""
