"""GD514: operators that compute on the CPU take most of the time."""

from __future__ import annotations

from dataclasses import replace

from tb_gpudiag.arrays import Bool, marked
from tb_gpudiag.facts.core.places import by_operator
from tb_gpudiag.facts.core.steady import MOST
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, Rule, fix_code, page_fixes
from tb_gpudiag.rules.shared.cpu_job import CpuTime, cpu_time
from tb_gpudiag.rules.shared.lost_time import Lost, lost_time, places, removing
from tb_gpudiag.rules.shared.odd_recordings import gpu_error
from tb_gpudiag.rules.shared.repeated import with_repeats
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.operators import CHEAPER, MULTIPLIES
from tb_gpudiag.wording.format import in_quotes, one_line
from tb_gpudiag.wording.quantity import number, per_step

CODE = fix_code(__name__)
FIXES = page_fixes(__name__)

_COMPILE = "model = torch.compile(model)\n"

# A step that uses few rows of a table needs no gradient of all of them. With 100,000 rows that took 20 to 49%
# of a step, and the optimizer's pass over them 22 to 43%; sparse ones saved 88%. Of five backward passes over
# one forward pass, four took 67%.
LEAST_AVOIDABLE = levels.SIZEABLE

# The largest ones say what kind of work it is.
MOST_OPERATORS = 3


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Say what computes, and where it may compute faster, if nothing else limits a job without a GPU."""
    if not facts.on_cpu:
        return Clear("the job used a GPU or another accelerator")
    lost = lost_time(facts)
    spent, work = cpu_time(lost, facts.host_work.small_operators), facts.host_work
    avoidable = (
        (_of_tables, marked(work.table_gradients, lost.event)),
        (_passed_again, marked(work.backward_again, lost.event)),
        (_made_again, spent.computing & marked(work.makes_again, lost.event)),
    )
    found = [
        say(facts, lost, own) for say, own in avoidable if lost.share(lost.total_ns(own)) >= LEAST_AVOIDABLE
    ]
    if spent.computing_limits:
        found.append(with_repeats(_general(facts, lost, spent), facts, lost, spent.computing))
    return found or Clear(lost.sentence("computing", spent.computing_ns))


def _general(facts: Facts, lost: Lost, spent: CpuTime) -> Finding:
    """What computes, and where it may compute faster."""
    chosen = spent.computing
    called = facts.host_work.called(lost.event)
    of_all = by_operator(facts.host, lost.event[chosen], lost.length_ns[chosen])
    multiplying_ns = sum(ns for name, ns in of_all if MULTIPLIES.fullmatch(name))
    multiplies = multiplying_ns >= levels.HALF * spent.computing_ns
    largest = by_operator(facts.host, called[chosen], lost.length_ns[chosen])[:MOST_OPERATORS]
    layout = ", channels_last" if any("conv" in name for name, _ in largest) else ""
    compiled = facts.launches.modes.compiled.total > 0
    to_try = f"{'' if compiled else 'torch.compile, '}bfloat16{layout}"
    get_a_gpu = "Run the model on a GPU if there is one."
    if facts.gpu_use.error:
        get_a_gpu = f"If this machine has a GPU, update its driver: {gpu_error(facts.gpu_use)}."
    ways = [
        f"{in_quotes(name, 80)} {way}."
        for name, ns in largest
        for names, way in CHEAPER
        if ns >= levels.SIZEABLE * lost.window_ns and names.fullmatch(name)
    ]
    less = [_UNKNOWN.format(in_quotes(name, 80)) for name, _ in largest[:1]]
    text, code = " ".join(ways or less), CODE["cores"]
    if multiplies:
        text = " ".join([*ways, f"{get_a_gpu} On the CPU, try {to_try}."])
        code = CODE["device"].replace(_COMPILE, "") if compiled else CODE["device"]
    evidence = [
        Evidence.of_window("In operators", spent.computing_ns, lost.window_ns),
        *(Evidence.of_window(one_line(name, 80), ns, lost.window_ns) for name, ns in largest),
    ]
    double_ns = lost.total_ns(chosen & marked(facts.host_work.in_float64, lost.event))
    if double_ns >= levels.HALF * spent.computing_ns:
        evidence.append(Evidence.of_window("Multiplying float64", double_ns, lost.window_ns))
        text, code = f"{_FLOAT64} {text}", f"{CODE['float64']}\n\n{code}"
    if facts.job.training is False:
        text += " If this is inference, call model.eval() and use torch.inference_mode()."
        code = f"{code}\n\n{CODE['inference']}"
    return Finding(
        title=lost.sentence("Computing on the CPU", spent.computing_ns),
        summary="Operators that are long enough to compute take most of the main thread's time, and as far "
        "as the trace shows, no GPU is in use. A GPU usually computes many times as fast. Without one, only "
        "cheaper or fewer operators make the job faster.",
        fix=Fix(text, code, "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"),
        evidence=evidence,
        places=places(facts.host, called[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        leads=multiplies and spent.computing_ns >= MOST * lost.window_ns,
    )


_FLOAT64 = "Most of it multiplies float64: float32 takes about half the time, if it is precise enough."

_UNKNOWN = (
    "Call {} less often, or on less data. Threads may also wait for cores: compare with "
    "torch.set_num_threads(1)."
)


def _of_tables(facts: Facts, lost: Lost, gradients: Bool) -> Finding:
    """The finding if gradients of whole tables take much of the time. gradients: mask of it."""
    optimizer = marked(facts.host_work.optimizer_steps, lost.event)
    cost_ns = lost.total_ns(gradients)
    return Finding(
        title=lost.sentence("Making gradients of a whole table", cost_ns),
        summary="An embedding's gradient has a row for each row of its table, and is filled with zeros for "
        "all that a step does not use. The optimizer goes over all rows, too.",
        fix=FIXES["sparse"],
        evidence=[
            Evidence.of_window("Gradients of tables", cost_ns, lost.window_ns),
            Evidence.of_window("Optimizer", lost.total_ns(optimizer), lost.window_ns),
        ],
        **lost.where(facts.host, gradients, by_operator=True),
        removable=replace(
            removing(lost.stretches(gradients | optimizer)), beyond="the optimizer goes over few rows, too"
        ),
        severity=Severity.WARNING,
    )


def _passed_again(facts: Facts, lost: Lost, again: Bool) -> Finding:
    """The finding if backward passes go over one forward pass several times. again: mask of all but the
    first."""
    host, cost_ns = facts.host, lost.total_ns(again)
    passes, lengths_ns = facts.host_work.backward_calls
    where = lost.where(host, again)
    where["places"] = [*places(host, passes, lengths_ns), *where["places"]]
    return Finding(
        title=lost.sentence("Going backward again over the same forward pass", cost_ns),
        summary="Several backward passes of a step go over operators of one forward pass, which keeps its "
        "graph for them (retain_graph=True). Gradients add up: one pass over the sum of the losses gives the "
        "same.",
        fix=FIXES["one_backward"],
        evidence=[
            Evidence.of_window("All but the first pass over each operator", cost_ns, lost.window_ns),
            Evidence(
                "Backward passes", number(len(passes)), per_step(len(passes), len(facts.recorded_steps))
            ),
        ],
        **where,
        removable=removing(lost.stretches(again)),
        severity=Severity.WARNING,
    )


def _made_again(facts: Facts, lost: Lost, chosen: Bool) -> Finding:
    """The finding if a model makes tensors again that it does not learn from. chosen: mask of it."""
    cost_ns = lost.total_ns(chosen)
    return Finding(
        title=lost.sentence("Making tensors in the model that get no gradient", cost_ns),
        summary="A function that the model calls begins with an operator such as arange, and nothing that it "
        "computes gets a gradient. What depends on sizes only is the same in each step.",
        fix=Fix(
            "If it does not depend on the batch, make it once.",
            CODE["buffer"],
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",
        ),
        evidence=[Evidence.of_window("Without a gradient", cost_ns, lost.window_ns)],
        **lost.where(facts.host, chosen),
        removable=removing(lost.stretches(chosen)),
        severity=Severity.WARNING,
    )


RULE = Rule("GD514", "cpu_computing", "Computing on the CPU", check, severity=Severity.INFO)
