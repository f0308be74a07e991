"""GD514: operators that compute on the CPU take most of the time."""

from __future__ import annotations

from tb_gpudiag.facts.core.places import by_operator
from tb_gpudiag.facts.core.steady import MOST
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, Rule, fix_code
from tb_gpudiag.rules.shared.cpu_job import cpu_time
from tb_gpudiag.rules.shared.lost_time import lost_time, places
from tb_gpudiag.vocabulary.operators import MULTIPLIES
from tb_gpudiag.wording.format import one_line

CODE = fix_code(__name__)

# Where little multiplies, arithmetic is not the limit: a loss may take milliseconds as its threads wait for
# cores. In five public recordings of networks on a CPU, convolutions alone take 66 to 89%.
MULTIPLYING_SHARE = 0.5

# Unless a step computes so long that waiting threads cannot be all of it: in two public trainings on a CPU,
# steps of several seconds multiply 11 and 19% of the time, and normalize and divide in the rest.
LONG_STEP_NS = 500_000_000

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
    ranked = by_operator(facts.host, lost.event[chosen], lost.length_ns[chosen])
    multiplying_ns = sum(ns for name, ns in ranked if MULTIPLIES.fullmatch(name))
    a_step_ns = spent.computing_ns / max(1, len(facts.steps))
    if multiplying_ns < MULTIPLYING_SHARE * spent.computing_ns and a_step_ns < LONG_STEP_NS:
        return Clear(lost.sentence("multiplying", multiplying_ns))
    inference = facts.job.training is False
    largest = ranked[:MOST_OPERATORS]
    layout = ", channels_last" if any("conv" in name for name, _ in largest) else ""
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
            *(Evidence.of_window(one_line(name, 80), ns, lost.window_ns) for name, ns in largest),
        ],
        places=places(facts.host, lost.event[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        leads=spent.computing_ns >= MOST * lost.window_ns,
    )


RULE = Rule("GD514", "cpu_computing", "Computing on the CPU", check, severity=Severity.INFO)
