"""Check a commit's message: `python -m tools.commit_message FILE`, as the commit-msg hook does.

A subject of at most 72 characters, an empty line, and a body that says why.
"""

from __future__ import annotations

import sys
from pathlib import Path

MOST_CHARACTERS = 72

# What git writes itself, or folds into another commit.
BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")

# `git commit --verbose` puts the changes below this line.
SCISSORS = "# ------------------------ >8 ------------------------"


def problems(message: str) -> list[str]:
    """Return what is wrong with a message, as git passes it to a hook: with comments."""
    text = message.partition(SCISSORS)[0]
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith("#")]
    subject, *rest = "\n".join(lines).strip().split("\n")
    if not subject or subject.startswith(BY_GIT):
        return []  # git refuses an empty message itself
    found = []
    if len(subject) > MOST_CHARACTERS:
        found.append(f"the subject has {len(subject)} characters, and may have {MOST_CHARACTERS}")
    if rest and rest[0]:
        found.append("the second line is not empty")
    if not rest:
        found.append("there is no body: say why, and what you measured")
    return found


def main() -> None:
    found = problems(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if found:
        sys.exit("\n".join(f"commit message: {problem}" for problem in found))


if __name__ == "__main__":
    main()
