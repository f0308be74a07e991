"""GD904: GPU work whose launch is not in the trace."""

from __future__ import annotations

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import (
    NO_GPU,
    NOTHING_CLAIMED,
    Answer,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Rule,
    Severity,
)
from tb_gpudiag.rules.shared.recording_advice import record_again
from tb_gpudiag.wording.format import count, share, time_ns

# In public traces 2.5 % of GPU work has no launch, mostly work queued before the recording began: nothing to
# mention.
NOTABLE_SHARE = 0.05

# From here on so much of the idle time has no launch to explain it that the ledger's other causes are a part
# of the picture only.
SPOILS_IDLE_SHARE = 0.25
# And idle time that is less than this of the step window is not worth a warning, whatever its cause.
SPOILS_WINDOW_SHARE = 0.05


def check(facts: Facts, _claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    device = facts.device
    if device is None:
        return NO_GPU
    linked = facts.work.launch >= 0
    total, missing = len(linked), int((~linked).sum())
    window = facts.window
    idle_ns = device.ledger.idle_ns(window)
    unexplained_ns = device.ledger.by_cause(window).get(Cause.UNLINKED, 0)
    many = missing > NOTABLE_SHARE * total
    spoils = (
        unexplained_ns > SPOILS_IDLE_SHARE * idle_ns
        and unexplained_ns > SPOILS_WINDOW_SHARE * window.duration_ns
    )
    if not many and not spoils:
        return Clear(f"{share(total - missing, total)} of the GPU work is joined to its launch")
    return Finding(
        title=f"{share(missing, total)} of the GPU work has no launch in the trace",
        summary=(
            "These kernels and copies keep the GPU busy like any other, but nothing says who launched them: "
            "idle time that ends with one of them has no cause, and its operator and line are unknown."
        ),
        fix=record_again(
            "Record CPU and CUDA activities together, and begin with a warm-up so that work queued before "
            "the recording is done when it begins."
        ),
        evidence=[
            Evidence(
                "without a launch",
                f"{count(missing)} of {count(total, 'kernel or copy', 'kernels and copies')}",
            ),
            Evidence(
                "idle time without a cause",
                f"{time_ns(unexplained_ns)} ({share(unexplained_ns, idle_ns)} of idle)",
            ),
        ],
        severity=Severity.WARNING if spoils else None,
    )


RULE = Rule("GD904", "unlinked_kernels", "GPU work without launches", check, severity=Severity.INFO)
