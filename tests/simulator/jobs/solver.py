"""Solver: when the GPU work of all ranks runs, given what it waits for.

Work settles as soon as everything before it has settled. A collective settles when all of its ranks have put
it on a stream and each one's stream has reached it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

Program = Generator["Work", None, None]
"""A rank's host. It yields work to block until that work has ended."""


class Work:
    """Work on one stream of one rank. `end_ns` is None until it settles."""

    __slots__ = (
        "after",
        "blocked",
        "duration_ns",
        "end_ns",
        "meeting",
        "rank",
        "ready_ns",
        "start_ns",
        "waiting",
    )

    def __init__(self, rank: int, ready_ns: int, duration_ns: int, meeting: Meeting | None = None) -> None:
        self.rank = rank
        self.ready_ns = ready_ns  # not before: its launch
        self.duration_ns = duration_ns  # of work that is not a collective
        self.meeting = meeting
        self.after: list[tuple[Work, int]] = []  # (work, gap after its end)
        self.waiting: list[Work] = []  # work that starts after this
        self.blocked = 0
        self.start_ns = 0
        self.end_ns: int | None = None


@dataclass
class Meeting:
    """One collective, or one send with its receive: the ranks that take part, and their work."""

    ranks: Sequence[int]
    transfer_ns: int
    jitter_ns: int
    draw: random.Random
    work: dict[int, Work] = field(default_factory=dict)


class Solver:
    """Settles work of all ranks."""

    def __init__(self) -> None:
        self._ready: deque[Work] = deque()

    def submit(self, work: Work) -> None:
        """Add work whose `after` is complete."""
        for before, _ in work.after:
            if before.end_ns is None:
                before.waiting.append(work)
                work.blocked += 1
        if not work.blocked:
            self._ready.append(work)
            self._settle()

    def _settle(self) -> None:
        while self._ready:
            work = self._ready.popleft()
            start = work.ready_ns
            for before, gap_ns in work.after:
                assert before.end_ns is not None
                start = max(start, before.end_ns + gap_ns)
            work.start_ns = start
            if work.meeting is None:
                self._end(work, start + work.duration_ns)
            else:
                self._arrive(work, work.meeting)

    def _arrive(self, work: Work, meeting: Meeting) -> None:
        meeting.work[work.rank] = work
        if len(meeting.work) < len(meeting.ranks):
            return
        end = max(one.start_ns for one in meeting.work.values()) + meeting.transfer_ns
        for rank in meeting.ranks:
            jitter = round(abs(meeting.draw.gauss(0, meeting.jitter_ns / 2)))
            self._end(meeting.work[rank], end + min(jitter, 2 * meeting.jitter_ns))

    def _end(self, work: Work, end_ns: int) -> None:
        work.end_ns = end_ns
        for later in work.waiting:
            later.blocked -= 1
            if not later.blocked:
                self._ready.append(later)
        work.waiting.clear()


def run_together(programs: Sequence[Program]) -> None:
    """Run the hosts of all ranks to their ends."""
    awaited: dict[int, Work | None] = dict.fromkeys(range(len(programs)))
    while awaited:
        moved = False
        for rank, work in list(awaited.items()):
            if work is None or work.end_ns is not None:
                moved = True
                try:
                    awaited[rank] = next(programs[rank])
                except StopIteration:
                    del awaited[rank]
        assert moved, f"deadlock: ranks {sorted(awaited)} wait for each other"
