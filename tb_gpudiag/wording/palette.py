"""Colors of the page itself, light and dark: surfaces, text, lines. The HTML report has the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from tb_gpudiag.wording.term import Term
from tb_gpudiag.wording.vocabulary import CAUSES, SEVERITIES, WORK_PARTS

Scheme = Literal["light", "dark"]


class Tone(NamedTuple):
    """One color in both themes, `#rrggbb`."""

    light: str
    dark: str


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
    **{id.lower(): Tone(each.light, each.dark) for id, each in SEVERITIES.items()},
}
"""Named as the CSS variables are."""

INKS = ("#14181d", "#ffffff")
"""Text on a colored fill: whichever of the two has more contrast."""

STRIPES = Tone("rgb(255 255 255 / 45%)", "rgb(0 0 0 / 35%)")
"""Hatching over the color of a term that is hatched."""


def _fill(of: Term) -> Tone:
    if not of.hatched:
        return Tone(of.light, of.dark)
    light, dark = (
        f"repeating-linear-gradient(135deg, {stripe} 0 2px, transparent 2px 5px), {color}"
        for stripe, color in zip(STRIPES, (of.light, of.dark), strict=True)
    )
    return Tone(light, dark)


FILLS: Mapping[str, Tone] = {each.id: _fill(each) for each in (*WORK_PARTS.values(), *CAUSES.values())}
"""CSS backgrounds of work parts and causes, hatched where the cause is not visible."""


def css_variables(tones: Mapping[str, Tone], scheme: Scheme) -> str:
    """Declare the tones as CSS variables of one theme, one per line."""
    return "\n".join(f"  --{name}: {getattr(tone, scheme)};" for name, tone in tones.items())
