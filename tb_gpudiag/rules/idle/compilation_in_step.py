"""GD104: code is compiled, captured or loaded inside the measured steps."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import Intervals, union
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.compilation import (
    CompiledFunction,
    Making,
    Makings,
    compiled_functions,
    makings,
)
from tb_gpudiag.rules.rule import (
    NOTHING_CLAIMED,
    Answer,
    CannotTell,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Rule,
    Saving,
)
from tb_gpudiag.rules.shared.lost_time import NO_DEVICE, Lost, lost_time, places, removing
from tb_gpudiag.trace.events import NONE, Bool
from tb_gpudiag.wording.format import count, one_line, share, time_ns

# In steady state nothing is compiled. A single lazy kernel load (about a millisecond) in a window of many is
# noise.
LEAST_SHARE = 0.02

# A function that had been compiled before is compiled again. Where the trace does not say so, it takes
# compiling in two steps.
AGAIN_STEPS = 2

FUNCTIONS_SHOWN = 4

_WHAT = {
    Making.DYNAMO: "torch.compile",
    Making.CAPTURE: "capturing CUDA graphs",
    Making.EXTENSION: "building extensions",
    Making.AUTOTUNE: "tuning Triton kernels",
    Making.TRITON: "compiling Triton kernels",
    Making.LOADING: "loading modules",
}

_RECORD_LATER = """# Let compilation and lazy loading happen before the measured steps:
with torch.profiler.profile(
    schedule=torch.profiler.schedule(wait=1, warmup=3, active=5),
    on_trace_ready=torch.profiler.tensorboard_trace_handler("log"),
) as prof:
    ...

# If it comes back in later steps, find what makes torch.compile start again:
#   TORCH_LOGS="recompiles,graph_breaks" python train.py
model = torch.compile(model, dynamic=True)  # when only sizes change"""

_AGAIN = """# Which function, and which of its guards failed:
#   TORCH_LOGS="recompiles" python train.py

torch._dynamo.mark_dynamic(batch, 0)             # this dimension changes from step to step,
model = torch.compile(model, dynamic=True)       # or many do

# Or make sizes repeat: pad to a few lengths, drop the short last batch.
tokens = torch.nn.functional.pad(tokens, (0, -tokens.shape[1] % 128))
loader = DataLoader(dataset, batch_size=batch_size, drop_last=True)

# A Python number that changes (a step, a learning rate) is compiled in: make it a tensor."""

_LOAD = """# CUDA loads a kernel's code at its first use. Use each once before it counts:
for shape in shapes:
    model(torch.zeros(shape, device="cuda"))
torch.cuda.synchronize()

# Or load everything at start, which takes longer there, and more memory (in the shell):
#   CUDA_MODULE_LOADING=EAGER python serve.py"""

_AGAIN_TITLE = "Compiling functions again takes"
_AGAIN_SUMMARY = (
    "torch.compile compiles functions again in the middle of the run, {waits}: a shape, a Python value or "
    "another guard of theirs has changed."
)
_ONCE_TITLE = "Compiling or loading GPU code takes"
_ONCE_SUMMARY = (
    "Code is compiled, or a kernel's module loaded at its first use, {waits}. In a steady run this happens "
    "once: either the recording began too early, or something is compiled again and again."
)

_URL = "https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_troubleshooting.html"
_LOAD_URL = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#lazy-loading"


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Idle time under compilation (TorchDynamo, Inductor, Triton, nvrtc), graph capture or module loading.
    Loading alone is a finding of its own, for it has another fix."""
    lost = lost_time(facts.window, facts.device, facts.host_pieces, claimed)
    if not lost.window_ns:
        return CannotTell("the trace holds no host or GPU activity")
    chosen = lost.of(Cause.COMPILE)
    cost_ns = lost.total_ns(chosen)
    if lost.share(cost_ns) < LEAST_SHARE:
        return Clear(f"compiling and loading code took {share(cost_ns, lost.window_ns)} of the step window")
    made = makings(facts.host, np.where(chosen, lost.event, NONE))
    loading = chosen & (made.kind == Making.LOADING)
    compiling = chosen & ~loading
    parts = [lost.share(lost.total_ns(part)) >= LEAST_SHARE for part in (compiling, loading)]
    if not parts[1]:
        return _compiled(facts, lost, chosen, made)
    if not parts[0]:
        return _loaded(facts, lost, chosen)
    return [_compiled(facts, lost, compiling, made), _loaded(facts, lost, loading)]


def _compiled(facts: Facts, lost: Lost, chosen: Bool, made: Makings) -> Finding:
    cost_ns = lost.total_ns(chosen)
    functions = compiled_functions(facts.host, facts.steps, facts.window)
    steps = list(dict.fromkeys(f.step for f in functions if f.step))
    again = _again(facts, functions, steps)
    waits = "while the steps wait for it" if lost.device == NO_DEVICE else "while the GPU waits"
    by_kind = [(lost.total_ns(chosen & (made.kind == k)), k) for k in Making]
    return Finding(
        title=f"{_AGAIN_TITLE if again else _ONCE_TITLE} {share(cost_ns, lost.window_ns)} of the measured "
        "time",
        summary=(_AGAIN_SUMMARY if again else _ONCE_SUMMARY).format(waits=waits),
        fix=Fix("Make sizes and Python values repeat, or compile for sizes that change.", _AGAIN, _URL)
        if again
        else Fix("Record after warm-up; if it happens in later steps too, stop it.", _RECORD_LATER, _URL),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            Evidence(
                "compiling, loading", f"{time_ns(cost_ns)}, {share(cost_ns, lost.window_ns)} of the window"
            ),
            *(Evidence(f"of that, {_WHAT[k]}", time_ns(ns)) for ns, k in sorted(by_kind, reverse=True) if ns),
            Evidence("stretches", count(len(lost.stretches(chosen).start))),
            *_functions(facts, functions, steps),
        ],
        places=places(facts.host, made.call[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=removing(_making(facts, lost.stretches(chosen), loading=False)),
    )


def _again(facts: Facts, functions: list[CompiledFunction], steps: list[str]) -> bool:
    """Whether it goes on beside the steady steps: what has stopped by the second half of them was the
    warm-up."""
    if any(f.before != NONE for f in functions):
        again = any(f.before > 0 for f in functions)
    else:
        again = len(steps) >= AGAIN_STEPS
    order = sorted(range(len(facts.steps)), key=lambda i: int(facts.steps.start_ns[i]))
    late = {facts.steps.names[i] for i in order[len(order) // 2 :]}
    return again and (not steps or any(step in late for step in steps))


def _functions(facts: Facts, functions: list[CompiledFunction], steps: list[str]) -> list[Evidence]:
    """What torch.compile compiled, the longest first, as far as the trace says."""
    if not functions:
        return []
    found = [Evidence("functions compiled", count(len(functions)))]
    if steps:
        shown = ", ".join(one_line(step, 40) for step in steps[:FUNCTIONS_SHOWN])
        more = f" and {count(len(steps) - FUNCTIONS_SHOWN)} more" if len(steps) > FUNCTIONS_SHOWN else ""
        found.append(Evidence("in", shown + more))
    for function in sorted(functions, key=lambda f: -f.duration_ns)[:FUNCTIONS_SHOWN]:
        at = facts.host.frame(int(facts.host.place[function.event]))
        said = [time_ns(function.duration_ns)]
        if at is not None:
            said.append(f"called from {one_line(at.function, 60)} ({one_line(at.file, 80)}:{at.line})")
        if function.before > 0:
            said.append(f"compiled {count(function.before, 'time')} before")
        if function.step and len(steps) > 1:
            said.append(f"in {one_line(function.step, 40)}")
        name = f"function {one_line(function.function, 20)}" if function.function else "a function"
        found.append(Evidence(name, ", ".join(said)))
    return found


def _loaded(facts: Facts, lost: Lost, chosen: Bool) -> Finding:
    cost_ns = lost.total_ns(chosen)
    event = lost.event[chosen]
    calls = len(np.unique(event[event != NONE]))
    return Finding(
        title=f"Loading GPU code takes {share(cost_ns, lost.window_ns)} of the measured time",
        summary="The driver loads a kernel's code at its first use, and the GPU waits meanwhile. In a steady "
        "run this happens once for each kernel: either the recording began too early, or new kernels come up "
        "with new shapes.",
        fix=Fix("Use every kernel once before it counts.", _LOAD, _LOAD_URL),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            Evidence("loading", f"{time_ns(cost_ns)}, {share(cost_ns, lost.window_ns)} of the window"),
            Evidence("calls that load", count(calls)),
            Evidence("longest", time_ns(int(lost.length_ns[chosen].max(initial=0)))),
        ],
        places=places(facts.host, event, lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=removing(_making(facts, lost.stretches(chosen), loading=True)),
    )


def _making(facts: Facts, idle: Intervals, *, loading: bool) -> Intervals:
    """The main thread's time in it, and the launch calls that turned out to load a module."""
    pieces = facts.host_pieces
    some = pieces.cause == Cause.COMPILE
    some[some] = (makings(facts.host, pieces.event[some]).kind == Making.LOADING) == loading
    return union(np.r_[pieces.start_ns[some], idle.start], np.r_[pieces.end_ns[some], idle.end])


RULE = Rule("GD104", "compilation_in_step", "Compilation in the step", check, error_share=0.20)
