"""What a collective is for, in words: a unit of the model, or a place among those of a step."""

from __future__ import annotations

from tb_gpudiag.vocabulary.collective_kinds import DDP


def unit_text(parallelism: str, unit: str, number: int, of: int) -> str:
    """`layers.3`, `bucket 4 of 5`, `number 3 of 12 in a step`; "" where the trace does not say.

    number: from 1; lower if the trace does not say."""
    if unit or number < 1:
        return unit
    return f"bucket {number} of {of}" if parallelism == DDP else f"number {number} of {of} in a step"
