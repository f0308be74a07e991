"""What the recording lacks, in one line, and one recipe that records all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.answer import NO_GPU, CannotTell, Finding, Severity
from tb_gpudiag.rules.outcome import Outcome, RuleFinding
from tb_gpudiag.rules.rule import AnyRule
from tb_gpudiag.rules.shared.recording_advice import for_recorders, record_again
from tb_gpudiag.rules.shared.server_recording import for_server
from tb_gpudiag.wording.format import around, count, in_sentence
from tb_gpudiag.wording.good_recording import RECORDING_OF_HOST_LEAKS, SNAPSHOT_RECORDING

NOTES = "NotingTensors"


@dataclass(frozen=True)
class BetterRecording:
    """sentence: what this recording lacks. code: records all of it; "" if no recording does."""

    sentence: str
    code: str


def better_recording(outcome: Outcome, facts: Facts) -> BetterRecording | None:
    """Put hints about the recording and rules that could not check into one line; None without any."""
    hints = [found for found in outcome.findings if _is_hint(found)]
    lacks = [(rule, answer) for rule, answer in outcome.unchecked if not answer.defect]
    times = facts.trace.time_notes
    if not (*hints, *lacks, *times):
        return None
    parts = _missing_parts(facts)
    said = [around("Not recorded: ", ", ".join(parts), ".")]
    said += [answer.hint for _, answer in lacks if answer.hint]
    said += _not_checked(lacks, on_cpu=facts.on_cpu, why=not parts)
    said += [f"{hint.finding.title}." for hint in hints if hint.rule.topic != "part"]
    said += times
    asks = bool(parts) or any(answer.how_to_record for _, answer in lacks if answer != NO_GPU)
    read = not facts.recorded.unread_accelerator
    notes = any(NOTES in answer.how_to_record for _, answer in lacks)
    return BetterRecording(" ".join(filter(None, said)), _recipe(facts, notes=notes) if asks and read else "")


def _recipe(facts: Facts, *, notes: bool) -> str:
    """How to record everything, with what recorded this trace. notes: also which tensors come and go."""
    if (special := _RECIPES.get((facts.trace.without_history, notes))) is not None:
        return special
    whole = for_recorders(Finding("", "", record_again("")), {facts.trace.metadata.recorder})
    whole = for_server(whole, facts.job.server)
    return whole.fix.code if isinstance(whole, Finding) else ""


_RECIPES = {(False, True): RECORDING_OF_HOST_LEAKS, (True, False): SNAPSHOT_RECORDING}
"""Recipes other than the usual one: for a snapshot without a history, and for tensors that come and go."""


def _is_hint(found: RuleFinding) -> bool:
    """Whether the finding is only about the recording: there is nothing to fix in the job."""
    return found.rule.family == "recording" and found.severity == Severity.INFO


def _missing_parts(facts: Facts) -> list[str]:
    """The parts of a trace that this one lacks."""
    recorded = facts.recorded
    if facts.trace.kind != "trace":
        return []
    known = {
        "GPU activity": facts.device is not None or facts.on_cpu or recorded.unread_accelerator,
        "steps": recorded.steps or facts.job.server is not None,
        "operators": recorded.operators,
        "Python stacks": recorded.stacks,
        "shapes": recorded.shapes,
        "memory": recorded.memory,
    }
    return [part for part, there in known.items() if not there]


def _not_checked(lacks: Sequence[tuple[AnyRule, CannotTell]], *, on_cpu: bool, why: bool) -> Iterator[str]:
    """How many rules could not check. A job on the CPU does not lack a GPU: rules about it are apart.
    why: say what most of them lack."""
    apart = [NO_GPU] if on_cpu else []
    if any(answer in apart for _, answer in lacks):
        yield "Rules about GPUs did not apply."
    others = [answer for _, answer in lacks if not answer.hint and answer not in apart]
    for lack, _ in Counter(answer.how_to_record or answer.reason for answer in others).most_common(1):
        yield (
            f"{count(len(others), 'check')} skipped{f': {in_sentence(lack)}' if why else ''}".rstrip(".")
            + "."
        )
