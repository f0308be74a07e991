"""Advice on launching less that fits how the job launches now: eagerly, compiled, or with CUDA graphs."""

from __future__ import annotations

from dataclasses import dataclass

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.core.intervals import intersect
from tb_gpudiag.facts.launching.launch_modes import LaunchModes
from tb_gpudiag.facts.waiting.job_kind import JobKind
from tb_gpudiag.rules.rule import Evidence
from tb_gpudiag.rules.shared.evidence import part_time
from tb_gpudiag.rules.shared.lost_time import Lost
from tb_gpudiag.vocabulary.job_names import Server
from tb_gpudiag.wording.format import count, share

# Advice is about compiled code if at least half of the finding's time, or of the step window, is in it. Below
# that, the eager rest costs more.
MOSTLY_COMPILED = 0.5

# With less compiled code than this in the step window, the job counts as eager.
PARTLY_COMPILED = 0.02

# A handful of nodes may come from a single operator on a parameter. From here on, autograd records a graph.
LEAST_NODES = 10

COMPILE_URL = "https://docs.pytorch.org/docs/stable/generated/torch.compile.html"
_CUDA_GRAPHS_URL = "https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs"

_EAGER = """# Fewer, larger kernels:
model = torch.compile(model)                           # fuses elementwise kernels"""

_GRAPHED = """# One launch for all of them: replay CUDA graphs (fixed shapes, no synchronization inside)
model = torch.compile(model, mode="reduce-overhead")"""

_PARTLY_COMPILED = """# Part of this job is already compiled. See what splits it, and compile the rest:
#   TORCH_LOGS=graph_breaks,recompiles python train.py"""

_SERVERS = {
    Server.VLLM: """# vLLM compiles and captures CUDA graphs by itself, unless it is told not to:
llm = LLM(model, enforce_eager=False)                  # on the command line: no --enforce-eager
# Steps with more tokens than the largest captured size run eagerly. Capture larger sizes as well:
llm = LLM(model, compilation_config={"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]})""",
    Server.SGLANG: """# SGLang captures CUDA graphs by itself, up to a batch size:
#   no --disable-cuda-graph, and a larger --cuda-graph-max-bs""",
}

_COMPILED = """# The wrapper that torch.compile wrote launches kernel by kernel from Python. Launch from C++:
torch._inductor.config.cpp_wrapper = True

# Fewer and longer regions: see what splits them, and what compiles them again for new shapes.
#   TORCH_LOGS=graph_breaks,recompiles python train.py
model = torch.compile(model, fullgraph=True)           # an error at the first graph break
torch._dynamo.mark_dynamic(x, 0)                       # one region for every size of dimension 0"""

_COMPILED_GRAPHED = """# Replay each compiled region as one CUDA graph (fixed shapes inside the region):
model = torch.compile(model, mode="reduce-overhead")

"""

_REST_OF_TRAINING = """# Capture the remaining modules (sample inputs need requires_grad as in training),
head = torch.cuda.make_graphed_callables(head, (sample,))
# or the whole step, with an optimizer that allows it: AdamW(..., capturable=True)
with torch.cuda.graph(graph):
    loss = criterion(model(static_x), static_y)
    loss.backward()
    optimizer.step()"""

_REST = """# Capture what is still launched one by one: the remaining modules, sampling, updates of metadata.
with torch.cuda.graph(graph):
    static_output = model(static_input)"""

_BETWEEN_REPLAYS = """
# Between replays, copy inputs with few launches, and prepare the next replay while this one runs:
static_input.copy_(batch, non_blocking=True)
graph.replay()"""


@dataclass(frozen=True)
class LaunchAdvice:
    """How to launch less, for one finding.

    mostly_compiled: at least half of the finding's time, or of the step window, is in compiled code.
    partly_compiled: some of the step window is.
    compiled_ns: how much of the finding's time, cost_ns, is in it.
    obstacles: what keeps a CUDA graph from replaying the step, or the compiled regions.
    """

    modes: LaunchModes
    job: JobKind
    mostly_compiled: bool
    partly_compiled: bool
    compiled_ns: int
    cost_ns: int
    obstacles: tuple[str, ...]

    @property
    def graphs_in_use(self) -> bool:
        return self.modes.graph_launches > 0

    @property
    def fix_text(self) -> str:
        """What to do, as an imperative."""
        if self.graphs_in_use:
            return "CUDA graphs are in use: capture the rest as well, and do less between replays."
        if self.job.server is not None:
            return f"Let {self.job.server.value} replay CUDA graphs: these steps launch kernel by kernel."
        if self.mostly_compiled and not self.obstacles:
            return (
                "This code is already compiled: replay it as CUDA graphs, or launch its kernels from C++ "
                "instead of Python."
            )
        if self.mostly_compiled:
            return (
                "This code is already compiled: launch its kernels from C++ instead of Python, and remove "
                "graph breaks."
            )
        if self.partly_compiled:
            graphs = "" if self.obstacles else ", and replay the compiled regions as CUDA graphs"
            return f"Part of the job is already compiled: compile the rest{graphs}."
        if self.obstacles:
            return "Launch fewer and larger kernels: fuse them."
        return "Launch fewer and larger kernels: fuse them, or replay the whole step as a CUDA graph."

    @property
    def code(self) -> str:
        """Code for the fix."""
        if self.graphs_in_use:
            rest = _REST_OF_TRAINING if self.job.training else _REST
            return f"{rest}\n{_BETWEEN_REPLAYS}"
        if self.job.server is not None:
            return _SERVERS[self.job.server]
        if self.partly_compiled and not self.mostly_compiled:
            return (
                _PARTLY_COMPILED if self.obstacles else f"{_PARTLY_COMPILED}\n\n{_COMPILED_GRAPHED}".rstrip()
            )
        if self.mostly_compiled:
            return _COMPILED if self.obstacles else _COMPILED_GRAPHED + _COMPILED
        return _EAGER if self.obstacles else f"{_EAGER}\n{_GRAPHED}"

    @property
    def url(self) -> str:
        return _CUDA_GRAPHS_URL if self.graphs_in_use else COMPILE_URL

    @property
    def in_compiled_code(self) -> list[Evidence]:
        """The finding's time in compiled code, if there is any."""
        if not self.compiled_ns:
            return []
        return [part_time("In compiled code", self.compiled_ns, self.cost_ns)]

    @property
    def graph_evidence(self) -> Evidence:
        """Say whether CUDA graphs are in use, and whether one could replay the step or the rest of it."""
        whole = "in each compiled region" if self.mostly_compiled else "between launches"
        if self.obstacles:
            verdict = f"not as it is: {', and '.join(self.obstacles)}"
        elif self.modes.same_shapes:
            same = "every step runs the same operators and matmuls"
            verdict = f"possible: no synchronization {whole}, and {same}"
        else:
            unknown = "if shapes stay the same, which the trace does not say"
            verdict = f"possible {unknown}: no synchronization {whole}"
        if self.graphs_in_use:
            launches = count(self.modes.graph_launches, "launch", "launches")
            work = share(self.modes.graph_work, self.modes.work)
            verdict = f"in use: {launches} for {work} of the GPU's work; for the rest {verdict}"
        return Evidence("CUDA graph", verdict)

    @property
    def autograd_evidence(self) -> list[Evidence]:
        """Say that a job without a backward pass records autograd's graph."""
        if self.job.training is not False or self.job.autograd_nodes < LEAST_NODES:
            return []
        nodes = count(self.job.autograd_nodes, "node")
        advice = "if this is inference, run it under torch.inference_mode()"
        return [Evidence("Autograd graph without a backward pass", nodes, (advice,))]


def launch_advice(modes: LaunchModes, job: JobKind, lost: Lost, chosen: Bool) -> LaunchAdvice:
    """Return the advice for a finding about the chosen segments of lost time."""
    cost_ns = lost.total_ns(chosen)
    compiled_ns = intersect(lost.stretches(chosen), modes.compiled).total
    of_finding, of_window = compiled_ns / max(1, cost_ns), lost.share(modes.compiled.total)
    mostly_compiled = max(of_finding, of_window) >= MOSTLY_COMPILED
    waits, where = modes.waits, "between launches"
    if mostly_compiled:
        waits, where = modes.waits_in_compiled, "in compiled code"
    obstacles = (
        *((f"{count(waits, 'synchronization')} {where}",) if waits else ()),
        *(("operators or their shapes differ from step to step",) if modes.same_shapes is False else ()),
    )
    partly_compiled = of_window >= PARTLY_COMPILED
    return LaunchAdvice(modes, job, mostly_compiled, partly_compiled, compiled_ns, cost_ns, obstacles)
