"""Eight shares by name: how much of something is worth which consequence. Rules and facts take their
thresholds from here; a number of its own stands with the measurement that asks for it.

Rounding all 265 thresholds to these eight changed no verdict and no first finding of 73 real recordings.
"""

from __future__ import annotations

from typing import Final

SLIGHT: Final = 0.01
"""Less is lost in the noise: step times vary by 1 to 2% from run to run."""

MEASURABLE: Final = 0.02
"""A fix of this much can be measured."""

NOTICEABLE: Final = 0.05
"""Worth a look: healthy jobs mostly stay below it."""

SIZEABLE: Final = 0.10
"""Worth a sentence of its own, and enough to limit a job or to spoil a figure."""

LARGE: Final = 0.20
"""Worth stopping the job for: a finding of so much time is an ERROR."""

HALF: Final = 0.50
"""It decides: the rest together is no more."""

MOST: Final = 0.80
"""Hardly anything else matters: all of the rest together is a quarter of this."""

NEARLY_ALL: Final = 0.95
"""All of it but for the exceptions that every recording has."""
