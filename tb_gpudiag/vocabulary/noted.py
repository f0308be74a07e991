"""Bounds of what NotingTensors writes into a trace, for what writes it and what reads it."""

from __future__ import annotations

from typing import Final

MOST_NODES: Final = 50_000
"""The nodes of autograd's graphs are counted up to here: 0.1 s."""

NODES_PER_STEP: Final = 0.5
"""A graph grows if it gets as many nodes per step: the smallest ones, of two or three, may be kept each fifth
step."""
