"""GD514: operators that compute on the CPU take most of the time."""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.places import by_operator
from tb_gpudiag.facts.core.steady import MOST
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.fix_code import fix_code
from tb_gpudiag.rules.rule import Claimed, Clear, Evidence, Finding, Fix, Rule, RuleAnswer, Severity
from tb_gpudiag.rules.shared.cpu_job import cpu_time
from tb_gpudiag.rules.shared.lost_time import Lost, lost_time, places
from tb_gpudiag.wording.format import one_line

CODE = fix_code(__name__)

# The largest ones say what kind of work it is.
MOST_OPERATORS = 3


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Say what computes, and where it may compute faster, if nothing else limits a job without a GPU."""
    if not facts.on_cpu:
        return Clear("the job does not compute on the CPU")
    lost = lost_time(facts)
    spent = cpu_time(lost, facts.small_operators)
    if not spent.computing_limits:
        return Clear(lost.sentence("computing", spent.computing_ns))
    chosen = spent.computing
    inference = facts.job.training is False
    largest = list(_largest(facts.host, lost, chosen))
    layout = ", channels_last" if any("conv" in part.label for part in largest) else ""
    text = f"Run the model on a GPU if there is one. On the CPU, try torch.compile, bfloat16{layout}."
    if inference:
        text += " If this is inference, call model.eval() and use torch.inference_mode()."
    return Finding(
        title=lost.sentence("Computing on the CPU", spent.computing_ns),
        summary="Operators that are long enough to compute take most of the main thread's time, and as far "
        "as the trace shows, no GPU is in use. A GPU usually computes many times as fast. Without one, only "
        "cheaper or fewer operators make the job faster.",
        fix=Fix(
            text,
            f"{CODE['device']}\n\n{CODE['inference']}" if inference else CODE["device"],
            "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        ),
        evidence=[
            Evidence.of_window("In operators", spent.computing_ns, lost.window_ns),
            *largest,
        ],
        places=places(facts.host, lost.event[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        leads=spent.computing_ns >= MOST * lost.window_ns,
    )


def _largest(host: Host, lost: Lost, chosen: Bool) -> Iterator[Evidence]:
    """The operators that take longest."""
    for name, spent_ns in by_operator(host, lost.event[chosen], lost.length_ns[chosen])[:MOST_OPERATORS]:
        yield Evidence.of_window(one_line(name, 80), spent_ns, lost.window_ns)


RULE = Rule("GD514", "cpu_computing", "Computing on the CPU", check, severity=Severity.INFO)
