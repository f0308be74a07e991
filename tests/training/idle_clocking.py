"""The helper of a step clock whose steps take given times: no other process takes any of them."""

from __future__ import annotations

from tb_gpudiag.training import clocking

clocking.coreless_ms = lambda pid: 0.0  # type: ignore[attr-defined]

answer = clocking.answer
