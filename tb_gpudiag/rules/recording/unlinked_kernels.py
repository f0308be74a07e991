"""GD904: GPU work without a recorded launch."""

from __future__ import annotations

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, GpuRule, page_fixes
from tb_gpudiag.rules.shared.recording_advice import record_again
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.quantity import duration, number, share_of

# Work that was queued before the recording has no launch in it, and costs nothing to know. Only idle time
# that ends with such work has no cause.
NOTABLE_SHARE = levels.SLIGHT

# From here on so much idle time has no launch to explain it that the other causes are only half the story.
SPOILS_IDLE_SHARE = levels.LARGE
# Idle time of less than this share of the step window is not worth a warning, whatever its cause.
SPOILS_WINDOW_SHARE = levels.NOTICEABLE


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Measure the idle time that GPU work without a launch leaves unexplained."""
    device, window, work = facts.gpu, facts.window, facts.work
    total, missing = len(work), int((~work.linked).sum())
    idle_ns = device.ledger.idle_ns(window)
    unexplained_ns = device.ledger.by_cause(window).get(Cause.UNLINKED, 0)
    if unexplained_ns < max(1, NOTABLE_SHARE * window.duration_ns):
        return Clear(f"{share_of(total - missing, total, 'of the GPU work')} has a recorded launch")
    spoils = (
        unexplained_ns > SPOILS_IDLE_SHARE * idle_ns
        and unexplained_ns > SPOILS_WINDOW_SHARE * window.duration_ns
    )
    return Finding(
        title=f"{share_of(missing, total, 'of the GPU work')} has no launch in the trace",
        summary=(
            "These kernels and copies keep the GPU busy like any others, but the trace does not show what "
            "launched them. Idle time that ends with one of them has no cause, operator or line."
        ),
        fix=_fix(work),
        evidence=[
            Evidence(
                "Without a launch",
                share_of(missing, total, "of the GPU work"),
                (number(missing, "kernel or copy", "kernels and copies"),),
            ),
            Evidence(
                "Idle time without a cause",
                duration(unexplained_ns),
                (share_of(unexplained_ns, idle_ns, "of the idle time"),),
            ),
        ],
        severity=Severity.WARNING.when(spoils),
    )


def _fix(work: Work) -> Fix:
    """Most work without a launch comes before the first launched work: it was queued before the recording."""
    if not work.linked.any():
        return record_again("Record CPU and CUDA activities together.")
    first_ns = int(work.start_ns[work.linked].min())
    if 2 * int((work.start_ns[~work.linked] < first_ns).sum()) >= int((~work.linked).sum()):
        return page_fixes(__name__)["synchronize"]
    return record_again(
        "Threads or libraries launch this work through calls that this profiler does not trace. A newer "
        "PyTorch traces more of them."
    )


RULE = GpuRule(
    "GD904", "unlinked_kernels", "GPU work without a recorded launch", check, severity=Severity.INFO
)
