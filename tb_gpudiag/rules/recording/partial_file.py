"""GD906: part of the file could not be read, or was removed from it."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import MEMORY_FILES, TRACES, Claimed, Rule
from tb_gpudiag.rules.shared.odd_recordings import is_thinned, thinned_sentence
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import share
from tb_gpudiag.wording.good_recording import THINNED_TITLE
from tb_gpudiag.wording.quantity import number, share_of

# A stray malformed event says nothing about the rest. If one in a hundred is malformed, something is wrong
# with the file.
SPOILS_SHARE = levels.SLIGHT


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Check whether the whole file was read."""
    trace = facts.trace
    read, bad = trace.events_read, trace.malformed_events
    evidence = [Evidence("Events read", number(read)), Evidence("Malformed events", number(bad))]
    if trace.status == "WRITING":
        return Finding(
            title="The file is still being written",
            summary="Only the events written so far were read.",
            fix=Fix("Open the trace again when the file has stopped growing."),
            evidence=evidence,
        )
    if trace.status == "PARTIAL":
        return Finding(
            title="The file is truncated: the figures cover only the part that is left",
            summary=(
                "Everything up to the last complete event was read. Events are not written in order of time, "
                "so missing events may be from anywhere: the GPU may look idle where it was not, and causes "
                "may be missing."
            ),
            fix=Fix(
                "Record again, and let the job finish writing: do not kill it, and check that the disk has "
                "room. If the file is a copy, copy it again."
            ),
            evidence=evidence,
            severity=Severity.WARNING,
        )
    if is_thinned(facts):
        return Finding(
            title=THINNED_TITLE,
            summary=f"{thinned_sentence(facts)} torch.profiler numbers them without gaps. Kernels and calls "
            "are missing as well, so how long the GPU worked or waited, and what the host did, is not known.",
            fix=Fix("Diagnose the file as the profiler wrote it, before a tool sampled or filtered it."),
            evidence=[
                Evidence("Operators left", number(facts.operator_numbers.known)),
                Evidence("Followed by the next number", share(facts.operator_numbers.followed)),
                *evidence[:1],
            ],
            severity=Severity.WARNING,
            leads=True,
        )
    if bad:
        return Finding(
            title=f"{number(bad, 'malformed event')}",
            summary="Everything else was read. What these events hold is missing from all figures, or how "
            "long they took, if that alone is wrong.",
            fix=Fix("If a tool rewrote the file, diagnose the file that the profiler wrote."),
            evidence=[*evidence, Evidence("Malformed share", share_of(bad, read + bad, "of all events"))],
            severity=Severity.WARNING.when(bad > SPOILS_SHARE * (read + bad)),
        )
    return Clear(f"all {number(read, 'event')} read")


RULE = Rule(
    "GD906", "partial_file", "Incomplete file", check, severity=Severity.INFO, about=TRACES | MEMORY_FILES
)
