"""GD514: operators that compute on the CPU take most of the time."""

from __future__ import annotations

from collections.abc import Callable

from tb_gpudiag.arrays import Bool, marked
from tb_gpudiag.facts.core.places import by_inputs, by_operator
from tb_gpudiag.facts.core.steady import MOST
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.host_facts import HostWork
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, Rule, fix_code, page_fixes
from tb_gpudiag.rules.shared.cpu_job import CpuTime, cpu_time
from tb_gpudiag.rules.shared.launch_advice import unused_graph
from tb_gpudiag.rules.shared.lost_time import Lost, lost_time, places, removing
from tb_gpudiag.rules.shared.odd_recordings import gpu_error
from tb_gpudiag.rules.shared.repeated import with_repeats
from tb_gpudiag.rules.shared.roofline_evidence import tensors
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.operators import CHEAPER, MULTIPLIES
from tb_gpudiag.wording.format import in_quotes, one_line, share

CODE = fix_code(__name__)
FIXES = page_fixes(__name__)
_COMPILE = "model = torch.compile(model)\n"

# A step that uses few rows of a table needs no gradient of all of them. With 100,000 rows that took 20 to 49%
# of a step, and the optimizer's pass over them 22 to 43%; sparse ones saved 88%. Of five backward passes over
# one forward pass, four took 67%.
LEAST_AVOIDABLE = levels.SIZEABLE

# The largest ones say what kind of work it is.
MOST_OPERATORS = 3


def _elsewhere(_facts: Facts, _claimed: Claimed) -> RuleAnswer:
    return Clear("the job used a GPU or another accelerator")


def _on_cpu(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Say what computes, and where it may compute faster, if nothing else limits a job without a GPU."""
    lost = lost_time(facts)
    spent = cpu_time(lost, facts.host_work.small_operators)
    avoidable = [_avoidable(fix, facts, lost) for fix in _AVOIDABLE]
    found = [one for one in avoidable if one.cost_ns >= LEAST_AVOIDABLE * max(1, lost.window_ns)]
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
    # GD202 says what makes an optimizer cheaper.
    others = chosen & ~marked(facts.host_work.optimizer_steps, lost.event)
    largest = by_operator(facts.host, called[others], lost.length_ns[others])[:MOST_OPERATORS]
    get_a_gpu = "Run the model on a GPU if there is one."
    if facts.gpu_use.error:
        get_a_gpu = f"If this machine has a GPU, update its driver: {gpu_error(facts.gpu_use)}."
    ways = [
        f"{in_quotes(name, 80)} {way}."
        for name, ns in largest
        for names, way in CHEAPER
        if ns >= levels.SIZEABLE * lost.window_ns and names.fullmatch(name)
    ]
    any_job, code = [_UNKNOWN.format(in_quotes(name, 80)) for name, _ in largest[:1]], CODE["cores"]
    if multiplies:
        compiled = facts.launches.modes.compiled.total > 0
        unseen = _UNSEEN[facts.job.training is not False] + _TYPES[facts.recorded.shapes]
        any_job = [get_a_gpu, _CORES, _NEEDED.format(unseen)]
        code = CODE["device"].replace(_COMPILE, "") if compiled else CODE["device"]
    longest = [
        f"{in_quotes(name)} of {tensors(inputs)} takes {share(ns, lost.window_ns)}."
        for name, inputs, ns in by_inputs(facts.host, called[others], lost.length_ns[others])[:1]
        if ns >= levels.SIZEABLE * lost.window_ns
    ]
    text = " ".join([*longest, *(ways or any_job)])
    evidence = [
        Evidence.of_window("In operators", spent.computing_ns, lost.window_ns),
        *(Evidence.of_window(one_line(name, 80), ns, lost.window_ns) for name, ns in largest),
    ]
    double_ns = lost.total_ns(chosen & marked(facts.host_work.in_float64, lost.event))
    if double_ns >= levels.HALF * spent.computing_ns:
        evidence.append(Evidence.of_window("Multiplying float64", double_ns, lost.window_ns))
        text, code = f"{_FLOAT64} {text}", f"{CODE['float64']}\n\n{code}"
    if unused_graph(facts.job):
        text += " If this is inference, call model.eval() and use torch.inference_mode()."
        code = f"{code}\n\n{CODE['inference']}"
    return Finding(
        title=lost.sentence("Computing on the CPU", spent.computing_ns),
        summary="Operators that are long enough to compute take most of the main thread's time, and as far "
        "as the trace shows, no GPU is in use. A GPU usually computes many times as fast. Without one, only "
        "cheaper or fewer operators make the job faster.",
        fix=Fix(text, code, "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"),
        evidence=evidence,
        places=places(facts.host, called[others], lost.length_ns[others], by_operator=True),
        ranges=lost.ranges(chosen),
        leads=multiplies and spent.computing_ns >= MOST * lost.window_ns,
    )


_FLOAT64 = "Most of it multiplies float64: float32 takes about half the time, if it is precise enough."

_CORES = "See that torch.get_num_threads() is the number of free cores."
_NEEDED = "See whether all of it is needed: no trace shows what is padding or zero, {}."
_TYPES = {True: "", False: ", and this one not whether it is float64, which takes twice as long as float32"}
_UNSEEN = {
    True: "positions that the loss ignores, or gradients that nothing uses",
    False: "or computed again, as a text without a cache of its keys and values",
}
"""What may be needless, by whether the job trains."""

_UNKNOWN = (
    "Call {} less often, or on less data. Threads may also wait for cores: compare with "
    "torch.set_num_threads(1)."
)


_AVOIDABLE: dict[str, tuple[Callable[[HostWork], Bool], str, str]] = {
    "rows": (
        lambda work: work.on_tables,
        "Working on all rows of a table",
        "Operators compute with a whole table of an embedding, as dropout on its weight does.",
    ),
    "sparse": (
        lambda work: work.table_gradients & ~work.on_tables,
        "Making and using gradients of a whole table",
        "They are zeros for all rows that a step does not use, and the optimizer goes over all rows, too.",
    ),
    "one_backward": (
        lambda work: work.backward_again[0],
        "Going backward again over the same forward pass",
        "Several backward passes go over one forward pass, which keeps its graph for them "
        "(retain_graph=True). One pass over the sum of the losses adds up the same gradients.",
    ),
    "detach": (
        lambda work: work.backward_again[1],
        "Going backward through what the next optimizer step does not train",
        "A later pass goes over the same forward pass for another optimizer, after gradients were cleared.",
    ),
    "no_grad": (
        lambda work: work.used_by_none,
        "Going backward for gradients that no optimizer uses",
        "The gradients of some weights are added to what earlier steps left, or no operator of an optimizer "
        "has their shapes: no optimizer has these weights, as of a frozen model that runs with gradients.",
    ),
    "buffer": (
        lambda work: work.makes_again,
        "Making tensors in the model that get no gradient",
        "A function that the model calls begins with an operator such as arange, and nothing that it "
        "computes gets a gradient. What depends on sizes only is the same in each step.",
    ),
}
"""Work that a step need not do, by its fix: the events, what takes the time, and a summary."""


def _avoidable(fix: str, facts: Facts, lost: Lost) -> Finding:
    """The finding on avoidable work, whatever it takes."""
    work, (of, subject, summary) = facts.host_work, _AVOIDABLE[fix]
    own = marked(of(work), lost.event)
    where = lost.where(facts.host, own, by_operator=True)
    if fix in {"one_backward", "detach"}:
        where["places"] = [*places(facts.host, *work.backward_calls), *where["places"]]
    return Finding(
        title=lost.sentence(subject, where["cost_ns"]),
        summary=summary,
        fix=FIXES[fix],
        evidence=[Evidence.of_window(subject, where["cost_ns"], lost.window_ns)],
        **where,
        removable=removing(lost.stretches(own)),
        severity=Severity.WARNING,
    )


RULE = Rule(
    "GD514", "cpu_computing", "Computing on the CPU", _elsewhere, on_cpu=_on_cpu, severity=Severity.INFO
)
