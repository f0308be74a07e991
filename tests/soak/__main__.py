"""`python -m tests.soak [SECONDS]`: prints what a soak saw, and fails if anything grew or went wrong."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.soak.soak import ROOM, soak

DEFAULT_S = 1_800


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_S
    with tempfile.TemporaryDirectory() as folder:
        found = soak(Path(folder), seconds)
    print("changes:", found.changes)
    print("answers:", dict(sorted(found.answers.items())))
    print(f"reports equal to the command's: {found.reports}, files refused by both: {found.refused}")
    for name in ROOM:
        values = [sample[name] for sample in found.samples]
        print(f"{name}: first {values[0]:.0f}, last {values[-1]:.0f}, most {max(values):.0f}")
    wrong = [*found.problems, *found.grown()]
    print("\n".join(wrong[:40]) or "nothing went wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
