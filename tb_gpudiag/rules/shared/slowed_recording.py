"""Recordings in which the recorder itself probably slows the host: its time promises nothing."""

from __future__ import annotations

from dataclasses import replace

from tb_gpudiag.facts.waiting.lost_lead import LostLead
from tb_gpudiag.rules.answer import Finding
from tb_gpudiag.wording.format import share, time_ns

ABOUT_HOST_SPEED = frozenset({"GD102", "GD201", "GD202"})
"""Rules about the host's own work between and in launches, which recording makes slower."""

MEASURE = (
    "Measure the step time without the profiler first: it may be much shorter than the "
    "recorded one, and then the host is not what limits the job."
)


def slowed_sentence(lead: LostLead) -> str:
    """Say what shows that the recording slows the host."""
    return (
        "The recording itself probably slows the host: when it began, the host was "
        f"{time_ns(lead.lead_ns)} ahead of the GPU, and in later steps the GPU waits for it "
        f"{share(lead.starved_share)} of the time."
    )


def without_promise(finding: Finding) -> Finding:
    """Return a finding about the host's own work that promises no saving."""
    return replace(
        finding,
        summary=f"{finding.summary} The recording itself probably slows the host (GD908): what a fix saves "
        "without the profiler is not known.",
        saving=None,
        removable=None,
        sure=False,
    )
