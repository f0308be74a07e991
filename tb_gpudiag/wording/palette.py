"""Colors, light and dark: of the page (surfaces, text, lines), and of what the page and HTML reports draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Scheme = Literal["light", "dark"]


class Tone(NamedTuple):
    """One color in both themes, `#rrggbb`."""

    light: str
    dark: str


TIME_COLORS: Mapping[str, Tone] = {
    "computing": Tone("#2093e2", "#4b78a1"),
    "copying": Tone("#6c86a6", "#bfdaf4"),
    "communicating": Tone("#6239a0", "#9b63f2"),
    "input": Tone("#d67100", "#e79c01"),
    "compile": Tone("#b47d8c", "#cd6e89"),
    "initialization": Tone("#10685c", "#2cd2a2"),
    "sync": Tone("#d9002c", "#f43828"),
    "allocator": Tone("#91684f", "#a37d5f"),
    "collective": Tone("#7b5eb5", "#a38eb8"),
    "python": Tone("#616300", "#efdc20"),
    "dispatch": Tone("#919059", "#cbcd74"),
    "launch": Tone("#b70961", "#ff7aee"),
    "latency": Tone("#5e6981", "#91a7a8"),
    "graph": Tone("#123a2c", "#a5ffe4"),
    "queued": Tone("#535a64", "#86898e"),
    "unlinked": Tone("#6b786e", "#687488"),
    "profiler": Tone("#908e77", "#78745e"),
    "unrecorded": Tone("#817084", "#b0a0b5"),
    "host": Tone("#693900", "#96f594"),
    "requests": Tone("#0d073d", "#f4fdb9"),
    "waiting": Tone("#39047b", "#d81790"),
}
"""Work parts and idle causes. Any two can be neighbors in a bar, because parts of no time are left out.
tests/wording/test_colors.py checks that normal and color-blind eyes can tell them apart."""

HATCHED = frozenset({"queued", "unlinked", "profiler", "unrecorded", "host"})
"""Causes that say that the trace does not show the cause."""

SEVERITY_COLORS: Mapping[str, Tone] = {
    "INFO": Tone("#47627d", "#a9bccf"),
    "WARNING": Tone("#9a5b00", "#f2b95c"),
    "ERROR": Tone("#b3261e", "#ff9a8f"),
}

MEMORY_COLORS: Mapping[str, Tone] = {
    "parameter": Tone("#2c92e1", "#4a77a1"),
    "gradient": Tone("#b94f30", "#d46e4d"),
    "optimizer_state": Tone("#6154a6", "#8579da"),
    "activation": Tone("#2c8467", "#55b297"),
    "temporary": Tone("#a48c00", "#d0ba40"),
    "input": Tone("#884666", "#fbc0d9"),
    "before": Tone("#677588", "#6b7884"),
    "unknown": Tone("#898d93", "#99a4b2"),
}
"""Kinds of memory. Any two can touch in the treemap of the peak."""

MEMORY_LINE_COLORS: Mapping[str, Tone] = {
    "allocated": Tone("#1e91de", "#7ab5e7"),
    "reserved": Tone("#8c819f", "#a594b3"),
    "floor": Tone("#c4420d", "#ef854f"),
    "capacity": Tone("#8f231b", "#ffa99a"),
}
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

PALETTE: Mapping[str, Tone] = {
    "page": Tone("#f3f5f7", "#17191c"),
    "surface": Tone("#ffffff", "#212429"),
    "raised": Tone("#f7f9fa", "#262a30"),
    "line": Tone("#dfe3e8", "#383e46"),
    "line-soft": Tone("#eceff2", "#2d3238"),
    "text": Tone("#1d2329", "#e8ebee"),
    "muted": Tone("#5f6a76", "#99a3ae"),
    "accent": Tone("#1f5fbf", "#7fb0f5"),
    "accent-soft": Tone("#e7effb", "#263650"),
    "error-soft": Tone("#fbe9e7", "#41241f"),
    "warning-soft": Tone("#fdf1dc", "#3d301a"),
    "info-soft": Tone("#e8eef4", "#2b343e"),
    "code": Tone("#f4f6f8", "#1a1d21"),
    "other": Tone("#767c82", "#8a9097"),  # an id that this version does not know
    **{id.lower(): tone for id, tone in SEVERITY_COLORS.items()},
}
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
