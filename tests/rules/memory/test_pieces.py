"""Whether a request failed because memory is in pieces, or because of what there is, and is to come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.memory.memory_peak import RULE
from tests.facts.memory.failing import BACKWARD, CALL, Job
from tests.rules.memory_stage import only

FORWARD = ["train.py(5): fit", CALL, "model.py(8): forward"]
READ = ["train.py(2): main", "data.py(7): read"]
NOTE = ["train.py(9): fit", "log.py(3): note"]


class Pieces(Job):
    def forward(self, results: int, mib: int, *, room_mib: int, scratch: list[str]) -> list[int]:
        """Keep so many results. Each one is put where something larger has been, made by this stack."""
        made = list[int]()
        for _ in range(results):
            self.drop([self.make(scratch, room_mib)])
            made.append(self.make(FORWARD, mib))
        return made

    def train(self, results: int) -> None:
        """Results of 20 MiB in pieces of 32, which are empty at the end."""
        made = self.forward(results, 20, room_mib=32, scratch=READ)
        made.append(self.make(BACKWARD, 2))
        self.drop(made)


@pytest.mark.parametrize(
    ("before", "room_mib", "arranges"),
    [(0, 28, False), (0, 34, True), (18, 34, True), (20, 28, True)],
)
def test_the_first_pass_needs_more_than_its_pieces(
    before: int, room_mib: int, arranges: bool, tmp_path: Path
) -> None:
    """How much is to come is known of a pass that is like the one before, whose results took so many MiB. In
    pieces of 28 MiB, results of 20 leave less than a fifth of the memory, and in those of 34 more."""
    job = Pieces()
    if before:
        made = job.forward(9, before, room_mib=room_mib, scratch=READ)
        made.append(job.make(BACKWARD, 2))
        job.drop(made)
        job.make(NOTE, room_mib - 19)  # one result fits no more
        for _ in range(8):
            job.make(FORWARD, 20)
    else:
        job.forward(8, 20, room_mib=room_mib, scratch=[*FORWARD[:-1], "model.py(7): forward"])
    found = only(RULE.check(job.fail(FORWARD, 20, tmp_path)))
    assert ("expandable_segments" in found.fix.code) is arranges
    assert ("accumulate" in found.fix.text) is not arranges


def test_pieces_come_before_what_holds_less_than_their_room(tmp_path: Path) -> None:
    """14 MiB are kept in one of nine pieces, which have four times as much room. Without them, the request
    would fit as well."""
    job = Pieces()
    job.train(9)
    job.make(NOTE, 14)
    job.train(8)
    for _ in range(8):
        job.make(FORWARD, 20)
    found = only(RULE.check(job.fail(FORWARD, 20, tmp_path)))
    assert "expandable_segments" in found.fix.code


def test_pieces_come_before_a_small_leak_of_many_steps(tmp_path: Path) -> None:
    """Each step keeps 2 MiB, the first ones in a segment that nothing else uses."""
    job = Pieces()
    job.make(["train.py(4): main"], 2)
    for _ in range(16):
        job.train(9)
        job.make(NOTE, 2)
    for _ in range(8):
        job.make(FORWARD, 20)
    found = only(RULE.check(job.fail(FORWARD, 20, tmp_path)))
    assert "expandable_segments" in found.fix.code
    assert "leak" not in found.fix.text
