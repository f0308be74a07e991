"""What limits a job, in words."""

from __future__ import annotations

from tb_gpudiag.wording.term import term
from tb_gpudiag.wording.vocabulary import LIMITERS


def limiter_word(limiter: str, *, on_gpu: bool) -> str:
    """Return the word for a limiter. Without a GPU, computing is the CPU's."""
    if limiter == "compute" and not on_gpu:
        return "CPU computing"
    return term(LIMITERS, limiter).word
