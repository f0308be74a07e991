"""Colors differ and can be read: for normal and for color-blind eyes, in the light and the dark theme."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

import numpy as np
import pytest

from tb_gpudiag.wording.palette import (
    EVENT_COLORS,
    HATCHED,
    INKS,
    MEMORY_COLORS,
    MEMORY_LINE_COLORS,
    PALETTE,
    SEVERITY_COLORS,
    STRIPES,
    TIME_COLORS,
    Scheme,
    Tone,
)
from tests.with_each import with_each
from tests.wording.color_vision import EYES, ciede2000, contrast, difference, over

APART = 10.0
"""CIEDE2000 between neighbors. 1 is just noticeable side by side; legends and thin boxes need much more."""

TEXT = 4.5
GRAPHICS = 3.0
"""Contrast ratios that WCAG 2.1 asks for at level AA (1.4.3 and 1.4.11)."""

SCHEMES: tuple[Scheme, ...] = ("light", "dark")

# Frames of one color are one kind to the eye: copies and memsets, annotations of the host and of the GPU.
EVENTS = (
    "other",
    "cpu_op",
    "user_annotation",
    "python_function",
    "runtime",
    "driver",
    "cuda_sync",
    "overhead",
)
GPU_WORK = ("kernel", "memcpy", "communication")

NEIGHBORS: dict[str, Mapping[str, Tone]] = {
    # Any two: an account leaves out parts of no time, and a gap has its causes in any order. Hatching
    # separates the causes that the trace does not explain from all the others.
    "time": {id: tone for id, tone in TIME_COLORS.items() if id not in HATCHED},
    "time, not visible": {id: TIME_COLORS[id] for id in HATCHED},
    "memory": MEMORY_COLORS,
    "memory chart": MEMORY_LINE_COLORS,
    "events of a thread": {id: EVENT_COLORS[id] for id in EVENTS},
    "events of a stream": {id: EVENT_COLORS[id] for id in GPU_WORK},
    "severities": SEVERITY_COLORS,
}


@pytest.mark.slow
@with_each("scheme", SCHEMES)
@with_each("eyes", EYES)
@with_each("group", [name for name in NEIGHBORS if name != "severities"])
def test_neighbors_differ(group: str, eyes: str, scheme: Scheme) -> None:
    close = [
        f"{a} and {b}: {apart:.1f}"
        for (a, one), (b, other) in combinations(NEIGHBORS[group].items(), 2)
        if (apart := difference(getattr(one, scheme), getattr(other, scheme), eyes)) < APART
    ]
    assert not close


def _surfaces(scheme: Scheme) -> list[str]:
    return [getattr(PALETTE[name], scheme) for name in ("page", "surface", "raised")]


@with_each("scheme", SCHEMES)
@with_each("group", NEIGHBORS)
def test_colors_stand_out_from_the_page(group: str, scheme: Scheme) -> None:
    _all_have(
        GRAPHICS,
        ((getattr(tone, scheme), page) for tone in NEIGHBORS[group].values() for page in _surfaces(scheme)),
    )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_on_a_fill_can_be_read(scheme: Scheme) -> None:
    for tone in (*TIME_COLORS.values(), *EVENT_COLORS.values(), *MEMORY_COLORS.values()):
        color = getattr(tone, scheme)
        assert max(contrast(ink, color) for ink in INKS) >= TEXT, tone


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_of_the_page_can_be_read(scheme: Scheme) -> None:
    tone = {name: getattr(tones, scheme) for name, tones in PALETTE.items()}
    _all_have(TEXT, ((tone[ink], page) for ink in ("text", "muted", "accent") for page in _surfaces(scheme)))
    _all_have(TEXT, ((tone[ink], tone["code"]) for ink in ("text", "muted")))
    _all_have(TEXT, ((tone[name], tone[f"{name}-soft"]) for name in ("error", "warning", "info", "accent")))
    _all_have(
        TEXT, ((tone[name], page) for name in ("error", "warning", "info") for page in _surfaces(scheme))
    )


def _all_have(least: float, pairs: Iterable[tuple[str, str]]) -> None:
    low = [f"{a} on {b}: {ratio:.2f}" for a, b in pairs if (ratio := contrast(a, b)) < least]
    assert not low


@pytest.mark.parametrize("scheme", SCHEMES)
def test_hatching_is_visible(scheme: Scheme) -> None:
    top, alpha = ("#ffffff", 0.45) if scheme == "light" else ("#000000", 0.35)
    red, _, _, _, percent = getattr(STRIPES, scheme).removeprefix("rgb(").removesuffix("%)").split()
    assert (int(red), int(percent) / 100) == (int(top[1:3], 16), alpha)
    for id in HATCHED:
        color = getattr(TIME_COLORS[id], scheme)
        assert difference(color, over(top, alpha, color), "normal") >= APART, id


# From the supplementary data of Sharma, Wu and Dalal (2005).
@with_each(
    ("one", "other", "apart"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, -1.3802, -84.2814), (50.0, 0.0, -82.7485), 1.0000),
        ((50.0, 0.0, 0.0), (50.0, -1.0, 2.0), 2.3669),
        ((50.0, 2.49, -0.001), (50.0, -2.49, 0.0009), 7.1792),
        ((50.0, 2.49, -0.001), (50.0, -2.49, 0.0011), 7.2195),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((50.0, 2.5, 0.0), (58.0, 24.0, 15.0), 19.4535),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_difference_is_the_published_one(
    one: tuple[float, ...], other: tuple[float, ...], apart: float
) -> None:
    assert ciede2000(np.array(one), np.array(other)) == pytest.approx(apart, abs=5e-5)


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
