"""`python -m tests.soak [SECONDS]`: prints what a soak saw, and fails if anything grew or went wrong."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.soak.soak import ROOM, Soaked, soak
from tests.soak.team import soak_team
from tests.soak.training import soak_training

DEFAULT_S = 1_800
# Of the time.
SHARES = {"one TensorBoard": 0.5, "a team": 0.25, "a training": 0.25}
PARTS: dict[str, Callable[[Path, float], Soaked]] = {
    "one TensorBoard": soak,
    "a team": soak_team,
    "a training": soak_training,
}


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_S
    wrong = [problem for name, part in PARTS.items() for problem in run(name, part, SHARES[name] * seconds)]
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
