"""How colors look to normal and to color-blind eyes: how different two are, and how well text is read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency",
# IEEE TVCG 15(6), 2009: severity 1.0, applied to linear RGB.
EYES: dict[str, Array] = {
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}

# sRGB (IEC 61966-2-1) to CIE XYZ, white point D65.
_TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(color: str) -> Array:
    """Linear RGB of `#rrggbb`, 0 to 1, shape (3,)."""
    value = np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(color: str, eyes: str = "normal") -> Array:
    """CIE L*a*b* of `#rrggbb` as these eyes see it, shape (3,)."""
    seen = np.clip(EYES[eyes] @ linear(color), 0, 1)
    x = _TO_XYZ @ seen / _TO_XYZ.sum(axis=1)
    f = np.where(x > 216 / 24389, np.cbrt(x), (24389 / 27 * x + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def ciede2000(one: Array, other: Array) -> float:
    """Color difference of two L*a*b* colors, after Sharma, Wu and Dalal (2005)."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean_c = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = 0.5 * (1 - np.sqrt(mean_c**7 / (mean_c**7 + 25.0**7)))
    a1, a2 = a1 * (1 + g), a2 * (1 + g)
    c1, c2 = np.hypot(a1, b1), np.hypot(a2, b2)
    h1, h2 = np.degrees(np.arctan2(b1, a1)) % 360, np.degrees(np.arctan2(b2, a2)) % 360
    gray = c1 * c2 == 0
    turn = 0.0 if gray else (h2 - h1 + 180) % 360 - 180
    if not gray and abs(h2 - h1) == 180:
        turn = h2 - h1
    dl, dc, dh = l2 - l1, c2 - c1, 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn) / 2)
    lightness, c = (l1 + l2) / 2, (c1 + c2) / 2
    h = h1 + h2 if gray else (h1 + turn / 2) % 360
    t = (
        1
        - 0.17 * np.cos(np.radians(h - 30))
        + 0.24 * np.cos(np.radians(2 * h))
        + 0.32 * np.cos(np.radians(3 * h + 6))
        - 0.20 * np.cos(np.radians(4 * h - 63))
    )
    sl = 1 + 0.015 * (lightness - 50) ** 2 / np.sqrt(20 + (lightness - 50) ** 2)
    sc, sh = 1 + 0.045 * c, 1 + 0.015 * c * t
    rotation = (
        -np.sin(np.radians(60 * np.exp(-(((h - 275) / 25) ** 2)))) * 2 * np.sqrt(c**7 / (c**7 + 25.0**7))
    )
    return float(np.sqrt((dl / sl) ** 2 + (dc / sc) ** 2 + (dh / sh) ** 2 + rotation * dc / sc * dh / sh))


def difference(one: str, other: str, eyes: str) -> float:
    """CIEDE2000 between two colors as these eyes see them. 1 is just noticeable."""
    return ciede2000(lab(one, eyes), lab(other, eyes))


def contrast(one: str, other: str) -> float:
    """Contrast ratio of WCAG 2, 1 to 21."""
    low, high = sorted(float(linear(color) @ [0.2126, 0.7152, 0.0722]) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


def over(top: str, alpha: float, below: str) -> str:
    """A translucent color over another one."""
    mixed = (
        round(alpha * int(top[at : at + 2], 16) + (1 - alpha) * int(below[at : at + 2], 16))
        for at in (1, 3, 5)
    )
    return "#" + "".join(f"{value:02x}" for value in mixed)
