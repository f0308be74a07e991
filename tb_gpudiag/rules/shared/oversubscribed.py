"""A CPU with more threads than cores: what shows it."""

from __future__ import annotations

from tb_gpudiag.facts.waiting.interruptions import Interruptions
from tb_gpudiag.wording.format import count, time_ns


def oversubscribed_sentence(found: Interruptions) -> str:
    """Say that the CPU has too few cores for the job's threads; "" if nothing shows it."""
    if not found.several:
        return ""
    return (
        f"The CPU may be oversubscribed: {count(found.stalls, 'operator')} that usually take "
        f"{time_ns(found.usual_ns)} took {time_ns(found.stall_ns)}, as if another thread had the core."
    )
