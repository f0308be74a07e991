"""Writes figures of what nobody had tuned to into held_out.json, which docs/how-right-it-is.md shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

HELD_OUT: Final = Path(__file__).with_name("held_out.json")


def put_held_out(inputs: str, figures: dict[str, list[int]], instead_of: str) -> None:
    """Add a row at the end, and take out the row whose inputs contain `instead_of`. figures: [right, of]."""
    kept = json.loads(HELD_OUT.read_text(encoding="utf-8"))
    rows = [one for one in kept if instead_of not in one["inputs"]]
    text = json.dumps([*rows, {"inputs": inputs, "figures": figures}], indent=2, ensure_ascii=False)
    HELD_OUT.write_text(re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", text) + "\n", encoding="utf-8")
