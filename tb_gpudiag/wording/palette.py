"""Colors, light and dark: of the page (surfaces, text, lines), and of what the page and HTML reports draw."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

Scheme = Literal["light", "dark"]


class Tone(NamedTuple):
    """One color in both themes, `#rrggbb`."""

    light: str
    dark: str


def _tables() -> dict[str, dict[str, Tone]]:
    sections = Path(__file__).with_suffix(".md").read_text(encoding="utf-8").split("\n## ")[1:]
    row = re.compile(r"^\| ([\w-]+) \| (#\w+) \| (#\w+) \|$", re.M)
    return {
        section.partition("\n")[0]: {id: Tone(*tone) for id, *tone in row.findall(section)}
        for section in sections
    }


_TABLES = _tables()

TIME_COLORS: Mapping[str, Tone] = _TABLES["TIME_COLORS"]
"""Work parts and idle causes. Any two can be neighbors in a bar, because parts of no time are left out.
tests/wording/test_colors.py checks that normal and color-blind eyes can tell them apart."""

HATCHED = frozenset({"queued", "unlinked", "profiler", "unrecorded", "host"})
"""Causes that say that the trace does not show the cause."""

SEVERITY_COLORS: Mapping[str, Tone] = _TABLES["SEVERITY_COLORS"]

MEMORY_COLORS: Mapping[str, Tone] = _TABLES["MEMORY_COLORS"]
"""Kinds of memory. Any two can touch in the treemap of the peak."""

MEMORY_LINE_COLORS: Mapping[str, Tone] = _TABLES["MEMORY_LINE_COLORS"]
"""Lines of the memory chart. They can cross."""

CLOCK_COLORS: Mapping[str, Tone] = {
    "input": TIME_COLORS["input"],
    "forward": TIME_COLORS["computing"],
    "backward": TIME_COLORS["python"],
    "wait": TIME_COLORS["communicating"],
    "optimizer": TIME_COLORS["compile"],
    "garbage": TIME_COLORS["launch"],
    "other": TIME_COLORS["latency"],
}
"""Phases of a step, one above the other."""

_ANNOTATION = Tone("#7e6e9f", "#8877b2")
_OTHER = Tone("#878e94", "#707781")

EVENT_COLORS: Mapping[str, Tone] = {
    "other": _OTHER,
    "cpu_op": Tone("#557760", "#62a2a0"),
    "user_annotation": _ANNOTATION,
    "python_function": Tone("#9e8c52", "#978c80"),
    "runtime": Tone("#9d5f39", "#9f6637"),
    "driver": Tone("#754c3a", "#d3a591"),
    "kernel": TIME_COLORS["computing"],
    "memcpy": TIME_COLORS["copying"],
    "memset": TIME_COLORS["copying"],
    "gpu_user_annotation": _ANNOTATION,
    "overhead": TIME_COLORS["profiler"],
    "cuda_sync": Tone("#896478", "#cd7d5e"),
    "instant": _OTHER,
    "communication": TIME_COLORS["communicating"],
    "mtia": _OTHER,
    "ascend": _OTHER,
}
"""Kinds of events on the timeline."""

PALETTE: Mapping[str, Tone] = _TABLES["PALETTE"] | {id.lower(): tone for id, tone in SEVERITY_COLORS.items()}
"""Named as the CSS variables are."""

INKS = ("#14181d", "#ffffff")
"""Text on a colored fill: whichever of the two has more contrast."""

STRIPES = Tone("rgb(255 255 255 / 45%)", "rgb(0 0 0 / 35%)")
"""Hatching over the color of a term that is hatched."""


def _hatched(color: Tone) -> Tone:
    light, dark = (
        f"repeating-linear-gradient(135deg, {stripe} 0 2px, transparent 2px 5px), {fill}"
        for stripe, fill in zip(STRIPES, color, strict=True)
    )
    return Tone(light, dark)


FILLS: Mapping[str, Tone] = {
    id: _hatched(color) if id in HATCHED else color for id, color in TIME_COLORS.items()
}
"""CSS backgrounds of work parts and causes, hatched where the cause is not visible."""


def css_variables(tones: Mapping[str, Tone], scheme: Scheme) -> str:
    """Declare the tones as CSS variables of one theme, one per line."""
    return "\n".join(f"  --{name}: {getattr(tone, scheme)};" for name, tone in tones.items())
