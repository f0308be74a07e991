"""GD906: a part of the file could not be read."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import (
    MEMORY_FILES,
    NOTHING_CLAIMED,
    TRACES,
    Answer,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Rule,
    Severity,
)
from tb_gpudiag.wording.format import count, share

# A stray bad event says nothing about the rest. Where one in a hundred is bad, something is wrong with the
# file.
SPOILS_SHARE = 0.01


def check(facts: Facts, _claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    trace = facts.trace
    read, bad = trace.events_read, trace.malformed_events
    evidence = [Evidence("events read", count(read)), Evidence("malformed events", count(bad))]
    if trace.status == "WRITING":
        return Finding(
            title="The file is still being written",
            summary="What is there so far was read. The rest follows when the writer has finished.",
            fix=Fix("Look again when the file has stopped growing."),
            evidence=evidence,
        )
    if trace.status == "PARTIAL":
        return Finding(
            title="The file ends in the middle: the figures are about what is left of it",
            summary=(
                "Everything up to the last whole event was read. Events are not written in order of time, so "
                "what is missing may be from anywhere: idle time may only seem idle, and a cause may be "
                "hidden."
            ),
            fix=Fix(
                "Record again, and let the job finish writing: do not kill it, and see that the disk has "
                "room. If the file was copied, copy it again."
            ),
            evidence=evidence,
            severity=Severity.WARNING,
        )
    if bad:
        return Finding(
            title=f"Left out because they are malformed: {count(bad, 'event')}",
            summary="Everything else was read. What those events said is missing from all figures.",
            fix=Fix("If a tool rewrote the file, diagnose the one that the profiler wrote."),
            evidence=[*evidence, Evidence("share", share(bad, read + bad))],
            severity=Severity.WARNING if bad > SPOILS_SHARE * (read + bad) else None,
        )
    return Clear(f"all {count(read, 'event')} read")


RULE = Rule(
    "GD906", "partial_file", "Partial file", check, severity=Severity.INFO, about=TRACES | MEMORY_FILES
)
