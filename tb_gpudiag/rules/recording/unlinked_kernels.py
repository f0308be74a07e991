"""GD904: GPU work without a recorded launch."""

from __future__ import annotations

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import Claimed, Clear, Evidence, Finding, Rule, RuleAnswer, Severity
from tb_gpudiag.rules.shared.recording_advice import record_again
from tb_gpudiag.wording.quantity import duration, number, share_of

# In public traces 2.5% of the GPU work has no launch, mostly because it was queued before the recording. That
# is not worth mentioning.
NOTABLE_SHARE = 0.05

# From here on so much idle time has no launch to explain it that the other causes are only half the story.
SPOILS_IDLE_SHARE = 0.25
# Idle time of less than this share of the step window is not worth a warning, whatever its cause.
SPOILS_WINDOW_SHARE = 0.05


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Count GPU work without a launch, and the idle time that it leaves unexplained."""
    device = facts.gpu
    linked = facts.work.launch >= 0
    total, missing = len(linked), int((~linked).sum())
    window = facts.window
    idle_ns = device.ledger.idle_ns(window)
    unexplained_ns = device.ledger.by_cause(window).get(Cause.UNLINKED, 0)
    work = number(missing, "kernel or copy", "kernels and copies")
    many = missing > NOTABLE_SHARE * total
    spoils = (
        unexplained_ns > SPOILS_IDLE_SHARE * idle_ns
        and unexplained_ns > SPOILS_WINDOW_SHARE * window.duration_ns
    )
    if not many and not spoils:
        return Clear(f"{share_of(total - missing, total, 'of the GPU work')} has a recorded launch")
    return Finding(
        title=f"{share_of(missing, total, 'of the GPU work')} has no launch in the trace",
        summary=(
            "These kernels and copies keep the GPU busy like any others, but the trace does not show what "
            "launched them. Idle time that ends with one of them has no cause, operator or line."
        ),
        fix=record_again(
            "Record CPU and CUDA activities together, and start with a warm-up so that earlier queued work "
            "finishes before the recording."
        ),
        evidence=[
            Evidence("Without a launch", share_of(missing, total, "of the GPU work"), (work,)),
            Evidence(
                "Idle time without a cause",
                duration(unexplained_ns),
                (share_of(unexplained_ns, idle_ns, "of the idle time"),),
            ),
        ],
        severity=Severity.WARNING if spoils else None,
    )


RULE = Rule(
    "GD904",
    "unlinked_kernels",
    "GPU work without a recorded launch",
    check,
    needs_gpu=True,
    severity=Severity.INFO,
)
