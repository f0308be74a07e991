"""`python -m tests.soak [SECONDS]`: prints what a soak saw, and fails if anything grew or went wrong."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.soak.soak import ROOM, Soaked, soak
from tests.soak.team import soak_team

DEFAULT_S = 1_800
SHARE_OF_TEAM = 0.3


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_S
    of_team_s = seconds * SHARE_OF_TEAM
    wrong = [*run("one TensorBoard", soak, seconds - of_team_s), *run("a team", soak_team, of_team_s)]
    print("\n".join(wrong[:40]) or "nothing went wrong")
    sys.exit(1 if wrong else 0)


def run(name: str, part: Callable[[Path, float], Soaked], seconds: float) -> list[str]:
    """Run a part, print what it saw, and return what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        found = part(Path(folder), seconds)
    print(f"--- {name}")
    print("changes:", found.changes)
    print("answers:", dict(sorted(found.answers.items())))
    print(f"reports equal to the command's: {found.reports}, files refused by both: {found.refused}")
    for name in ROOM:
        values = [sample[name] for sample in found.samples]
        print(f"{name}: first {values[0]:.0f}, last {values[-1]:.0f}, most {max(values):.0f}")
    return [*found.problems, *found.grown()]


if __name__ == "__main__":
    main()
