"""Names of the files that step clocks write."""

from __future__ import annotations

import os
from typing import Final

NOW: Final = "now"
"""File of a rank: its RankSteps."""
MADE: Final = "recorded"
"""File of a rank: the recordings that its clock has made, each a ClockRecording."""
ORDER: Final = "order"
"""File of a run: its last RecordingOrder, the step from which it holds (`at`), the first step of the rank
that gave it (`first`), and when it was given."""

FOLDER: Final = os.path.join("gpudiag", "clock")

EVENT_FILE: Final = ".tfevents."
"""Part of the names of event files."""


def clock_of(path: str) -> str:
    """Return the folder of the clocks that wrote the file of this path; "" if it is another file."""
    place, name = os.path.split(path)
    if name == ORDER and place.endswith(os.sep + FOLDER):
        return place
    clock, rank = os.path.split(place)
    is_rank = rank.startswith("rank-") and rank[5:].isdecimal() and clock.endswith(os.sep + FOLDER)
    return clock if is_rank and (EVENT_FILE in name or name in (NOW, MADE)) else ""
