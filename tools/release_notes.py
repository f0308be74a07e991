"""Print what CHANGELOG.md says about a version: `python tools/release_notes.py 0.1.0`."""

from __future__ import annotations

import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def notes(changelog: str, version: str) -> str:
    """Return the section of a version, without its heading. Raises SystemExit if there is none."""
    for section in changelog.split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        if heading.startswith(f"[{version}]"):
            return text.strip() + "\n"
    raise SystemExit(f"CHANGELOG.md has no section for {version}")


if __name__ == "__main__":
    print(notes(CHANGELOG.read_text(encoding="utf-8"), sys.argv[1]), end="")
