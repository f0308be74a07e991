"""What the step window leaves out of a recording, in a sentence."""

from __future__ import annotations

from tb_gpudiag.facts.core.steady import Steady
from tb_gpudiag.wording.format import time_ns

# A shorter part is not worth a sentence.
LEAST_SHARE = 0.10

# If more than half as much is left out of the step window as is in it, that is the first thing to know.
LEADS_SHARE = 0.5


def leads(steady: Steady) -> bool:
    """Return whether what is left out comes before the verdict."""
    return steady.before_ns + steady.after_ns >= LEADS_SHARE * steady.window.duration_ns


def left_out_sentences(steady: Steady, *, inferred: bool) -> list[str]:
    """What the step window leaves out of the recording, and why, where it is worth a sentence: the verdict is
    about the rest."""
    worth_ns = LEAST_SHARE * steady.window.duration_ns
    parts = (("first", steady.before_ns), ("last", steady.after_ns))
    said = " and ".join(f"the {which} {time_ns(ns)}" for which, ns in parts if ns >= worth_ns)
    if not said:
        return []
    reasons = (
        (steady.first_run_ns, "first-run work ({} idle)"),
        (steady.unrecorded_ns, "the GPU may have been running work from before the recording ({})"),
        (steady.earlier_ns, "the GPU was still running work from before these steps ({})"),
    )
    all_ns = steady.before_ns + steady.after_ns
    told = [text.format(time_ns(ns)) for ns, text in reasons if ns >= LEAST_SHARE * all_ns]
    rest = "they are outside of the inferred steps" if inferred else "steps that took longer than the others"
    if not len(steady.steps):
        rest = "they come before the GPU's first work"
    reason = (", and ".join(told) or rest).removesuffix(f" ({time_ns(all_ns)})")
    return [f"{said[0].upper()}{said[1:]} of the recording are left out: {reason}."]
