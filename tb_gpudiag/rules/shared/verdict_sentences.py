"""Sentences beside the verdict: what the step window leaves out of the recording, and what to fix first where
that is not what limits the job."""

from __future__ import annotations

from collections.abc import Sequence

from tb_gpudiag.facts.core.steady import Steady
from tb_gpudiag.rules.answer import Saving, Severity
from tb_gpudiag.rules.outcome import RuleFinding
from tb_gpudiag.rules.rule import AnyRule
from tb_gpudiag.rules.shared.exposure_advice import LATE_RANK
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import share, time_ns

Said = tuple[str, str]
"""A verdict's limiter and the sentence about it."""

# A shorter part is not worth a sentence.
LEAST_SHARE = levels.SIZEABLE


BESIDES_COMPUTING = "After computing ({computing}), {most}."
"""Says less than that a part limits the job: without it, the job would still take most of the time."""

NO_REQUESTS = (
    "The server had nothing to run {all_requests} of the time, and no fix changes that. Record it under load "
    "to see what limits it."
)

FOR_ENGINE = (
    "There was no batch to run {all_requests} of the time: this worker waited for its engine's process, "
    "which schedules or has no request. Record that process as well, under load."
)


def leads(steady: Steady) -> bool:
    """Return whether what is left out comes before the verdict."""
    return steady.before_ns + steady.after_ns >= levels.HALF * steady.window.duration_ns


def left_out_sentences(steady: Steady, *, inferred: bool) -> list[str]:
    """What the step window leaves out of the recording, and why, where it is worth a sentence: the verdict is
    about the rest."""
    worth_ns = LEAST_SHARE * steady.window.duration_ns
    parts = (
        ("first", steady.before_ns, "come before the GPU's first work"),
        ("last", steady.after_ns, "come after the GPU's last work"),
    )
    worth = [part for part in parts if part[1] >= worth_ns]
    said = " and ".join(f"the {which} {time_ns(ns)}" for which, ns, _ in worth)
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
        rest = f"they {' and '.join(where for _, _, where in worth)}"
    reason = (", and ".join(told) or rest).removesuffix(f" ({time_ns(all_ns)})")
    return [f"{said[0].upper()}{said[1:]} of the recording are left out: {reason}."]


def waiting_sentence(limiter: str, ranked: Sequence[RuleFinding]) -> str:
    """Say that communication is probably waiting, if the finding about it says so; "" otherwise."""
    waits = limiter == "communication" and any(found.finding.fix.code == LATE_RANK.code for found in ranked)
    return "Most of the communication is probably waiting for another rank." if waits else ""


_EXPLAINS = {
    "python": ("launch", "compile", "input", "waiting"),  # making tensors counts as data loading
    "launch": ("python", "compile"),
    "compile": ("python", "launch"),
    "graph": ("launch",),
    "kernels": ("evaluation",),
    "transfers": ("copy", "sync"),
    "ranks": ("communication",),
}
"""Topic, or family without one -> limiters that a finding explains besides its rule's topic."""

# These verdicts name no cause that a finding could differ from.
_NO_CAUSE = frozenset({"compute", "mixed", "unknown", "initialization"})


def first_fix_sentence(limiter: str, ranked: Sequence[RuleFinding], window_ns: int) -> str:
    """Say why the first finding about time is about something else than the limiter; "" if it is not.

    ranked: all findings, in their order.
    """
    for found in ranked:
        if found.severity <= Severity.INFO or not found.finding.cost_ns:
            continue
        rule = found.rule
        if limiter in {*_NO_CAUSE, rule.topic, *_EXPLAINS.get(rule.topic or rule.family, ())}:
            return ""
        saving = found.finding.saving
        if saving is not None and saving.high_ns:
            return _comes_first(rule, saving, window_ns)
    return ""


def _comes_first(rule: AnyRule, saving: Saving, window_ns: int) -> str:
    saved = f"probably saves {share(saving.low_ns, window_ns)} to {share(saving.high_ns, window_ns)}"
    if not saving.low_ns:
        saved = f"may save up to {share(saving.high_ns, window_ns)}"
    return f"{rule.title} ({rule.id}) comes first: fixing it {saved} of the time."
