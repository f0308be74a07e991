"""Advice on launching less, for the findings about launches.

It fits how the job launches now: eagerly, compiled or with CUDA graphs, item by item or in batches, with or
without the copies of DistributedDataParallel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import intersect
from tb_gpudiag.facts.kernels.operator_costs import batch_of_one
from tb_gpudiag.facts.launching.clusters import DdpCopies
from tb_gpudiag.facts.launching.launch_modes import LaunchModes
from tb_gpudiag.facts.waiting.compile_reasons import CompileReasons
from tb_gpudiag.facts.waiting.job_kind import JobKind
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.answer import Evidence, Finding, Fix
from tb_gpudiag.rules.rule import fix_code
from tb_gpudiag.rules.shared.compile_causes import graph_break_evidence, no_graph_reasons
from tb_gpudiag.rules.shared.lost_time import Lost
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.engines import Server
from tb_gpudiag.wording.format import count, share
from tb_gpudiag.wording.quantity import number, share_of

if TYPE_CHECKING:
    from tb_gpudiag.facts.facts import Facts

_CODE = fix_code("tb_gpudiag.rules.launches.launch_bound")

# Advice is about compiled code if at least half of the finding's time, or of the step window, is in it. Below
# that, the eager rest costs more.
MOSTLY_COMPILED = levels.HALF

# A handful of nodes may come from a single operator on a parameter. From here on, autograd records a graph.
LEAST_NODES = 10

# Fewer linear layers than this may be a head that works on a single item by design.
FEWEST_LAYERS = 4

# Suggest a larger batch only if at most this share of the memory is in use at the peak, and the GPU waits for
# data for less than this share of the step window.
ROOM_SHARE = levels.HALF


_DDP_URL = "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"

COMPILE_URL = "https://docs.pytorch.org/docs/stable/generated/torch.compile.html"
_CUDA_GRAPHS_URL = "https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs"
SERVER_URLS: dict[Server | None, str] = {Server.VLLM: "https://docs.vllm.ai/en/latest/design/cuda_graphs/"}
"""Where servers say more about graphs."""


@dataclass(frozen=True)
class LaunchAdvice:
    """How to launch less, for one finding.

    mostly_compiled: at least half of the finding's time, or of the step window, is in compiled code.
    partly_compiled: some of the step window is in compiled code.
    compiled_ns: how much of the finding's time, cost_ns, is in compiled code.
    obstacles: what keeps a CUDA graph from replaying the step, or the compiled regions.
    reasons: what torch.compile logged.
    """

    modes: LaunchModes
    job: JobKind
    mostly_compiled: bool
    partly_compiled: bool
    compiled_ns: int
    cost_ns: int
    obstacles: tuple[str, ...]
    reasons: CompileReasons

    @property
    def graphs_in_use(self) -> bool:
        return self.modes.graph_launches > 0

    @property
    def fix_text(self) -> str:
        """What to do, as an imperative."""
        return self._case[0]

    @property
    def code(self) -> str:
        return "\n\n".join(_CODE[block] for block in self._case[1])

    @property
    def _case(self) -> tuple[str, Sequence[str]]:
        """What to do, and the blocks of code for it."""
        if (server := self.job.server) is not None:
            return _of_server(server, graphs=self.graphs_in_use)
        now = {
            "graphs": self.graphs_in_use,
            "traced_only": self.mostly_compiled and self.modes.traced_only,
            "compiled": self.mostly_compiled,
            "partly_compiled": self.partly_compiled,
            "eager": True,
        }
        launched = next(way for way, holds in now.items() if holds)
        text, blocks = _CASES[launched, bool(self.obstacles)]
        return text, [_IN_TRAINING.get((block, self.job.training), block) for block in blocks]

    @property
    def url(self) -> str:
        own = _CUDA_GRAPHS_URL if self.graphs_in_use else COMPILE_URL
        return SERVER_URLS.get(self.job.server, own)

    @property
    def in_compiled_code(self) -> list[Evidence]:
        """The finding's time in compiled code, if there is any, and the known breaks of its graphs."""
        if not self.compiled_ns:
            return []
        inside = Evidence.of_cost("In compiled code", self.compiled_ns, self.cost_ns)
        return [inside, *graph_break_evidence(self.reasons)]

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
        if not unused_graph(self.job):
            return []
        nodes = count(self.job.autograd_nodes, "node")
        advice = "if this is inference, run it under torch.inference_mode()"
        return [Evidence("Autograd graph without a backward pass", nodes, (advice,))]


def unused_graph(job: JobKind) -> bool:
    """Whether a job without a backward pass records autograd's graph for one."""
    return job.training is False and job.autograd_nodes >= LEAST_NODES


_COMPILED = "This code is already compiled"
_THE_REST = "Part of the job is already compiled: compile the rest"
_TRACED_ONLY = f"{_COMPILED}, by a backend that writes no kernels: use one that fuses.", ("traced_only",)

_CASES: Mapping[tuple[str, bool], tuple[str, Sequence[str]]] = {
    ("graphs", False): (
        "CUDA graphs are in use: capture the rest as well, and do less between replays.",
        ("rest", "between_replays"),
    ),
    ("graphs", True): (
        "CUDA graphs are in use: fuse what they cannot capture, and do less between replays.",
        ("eager", "between_replays"),
    ),
    ("traced_only", False): _TRACED_ONLY,
    ("traced_only", True): _TRACED_ONLY,
    ("compiled", False): (
        f"{_COMPILED}: replay it as CUDA graphs, or launch its kernels from C++ instead of Python.",
        ("compiled_graphs", "compiled"),
    ),
    ("compiled", True): (
        f"{_COMPILED}: launch its kernels from C++ instead of Python, and remove graph breaks.",
        ("compiled",),
    ),
    ("partly_compiled", False): (
        f"{_THE_REST}, and replay the compiled regions as CUDA graphs.",
        ("partly_compiled", "compiled_graphs"),
    ),
    ("partly_compiled", True): (f"{_THE_REST}.", ("partly_compiled",)),
    ("eager", False): (
        "Fuse kernels so that each launch does more work, or replay the whole step as a CUDA graph.",
        ("eager", "graphs"),
    ),
    ("eager", True): ("Fuse kernels so that each launch does more work.", ("eager",)),
}
"""What to do, and its blocks of code, by how the job launches now, and whether something keeps a CUDA graph
from replaying it."""

_IN_TRAINING: Mapping[tuple[str, bool | None], str] = {("rest", True): "rest_of_training"}
"""Blocks of code that a training has instead."""

_SERVERS = {Server.VLLM: ("vllm", "vllm_between"), Server.SGLANG: ("sglang", "sglang_between")}
"""Blocks of code for servers that launch kernel by kernel, and for those that replay graphs."""


def _of_server(server: Server, *, graphs: bool) -> tuple[str, Sequence[str]]:
    by_kernel, by_graph = _SERVERS.get(server, ("server", "server_between"))
    if graphs:
        to_do = "prepare the next step while the GPU works, and batch more requests."
        return f"Let {server.value} {to_do}", (by_graph,)
    return f"Let {server.value} replay CUDA graphs: these steps launch kernel by kernel.", (by_kernel,)


def launch_advice(facts: Facts, lost: Lost, chosen: Bool) -> LaunchAdvice:
    """Return the advice for a finding about the chosen segments of lost time."""
    modes, job = facts.launches.modes, facts.job
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
        *no_graph_reasons(facts.compile_reasons),
    )
    partly_compiled = of_window >= levels.MEASURABLE
    parts = mostly_compiled, partly_compiled, compiled_ns, cost_ns, obstacles, facts.compile_reasons
    return LaunchAdvice(modes, job, *parts)


def larger_batch_evidence(facts: Facts) -> list[Evidence]:
    """Suggest a larger batch if memory is known to have room and the GPU does not wait for data."""
    waiting = facts.gpu.ledger.by_cause(facts.window).get(Cause.INPUT, 0)
    own = facts.memory_of(facts.gpu.id)
    if own is None or not own.knows_room or waiting >= levels.NOTICEABLE * facts.window.duration_ns:
        return []
    used = max(own.peak_allocated_bytes, own.peak_reserved_bytes)
    if used > ROOM_SHARE * own.capacity_bytes:
        return []
    peak = share_of(used, own.capacity_bytes, "of the GPU's memory in use at the peak")
    return [Evidence("Room for a larger batch", peak)]


def batch_evidence(facts: Facts) -> list[Evidence]:
    """Report items that go through the model one by one, if shapes show it."""
    if not batch_of_one(facts.host, facts.host_window, FEWEST_LAYERS):
        return []
    advice = "in every linear layer; larger batches need hardly more launches"
    return [Evidence("Batch size", number(1), (advice,))]


class _Part(NamedTuple):
    label: str
    argument: str
    comment: str


_BUFFERS = _Part(
    "DDP broadcasting and copying buffers",
    "broadcast_buffers=False",
    "buffers, such as BatchNorm's statistics, stay those of each rank",
)
_GRADIENTS = _Part(
    "DDP copying buckets into gradients", "gradient_as_bucket_view=True", "gradients are views of the buckets"
)


def with_ddp_copies(found: Finding, copies: DdpCopies, lost: Lost) -> Finding:
    """Add evidence and the fix, if copies that DistributedDataParallel makes are a part of the claims."""
    claimed = found.claims.get(lost.device)
    if claimed is None or not found.cost_ns:
        return found
    times = ((_BUFFERS, copies.buffers), (_GRADIENTS, copies.gradients))
    inside = [(part, intersect(claimed, spans).total) for part, spans in times]
    parts = [(part, ns) for part, ns in inside if ns >= levels.SIZEABLE * found.cost_ns]
    if not parts:
        return found
    arguments = " and ".join(part.argument for part, _ in parts)
    lines = "\n".join(f"    {part.argument},   # {part.comment}" for part, _ in parts)
    code = f"model = DistributedDataParallel(\n    model,\n{lines}\n)"
    fix = Fix(f"Pass {arguments} to DistributedDataParallel.", code, _DDP_URL)
    if sum(ns for _, ns in parts) < levels.MOST * found.cost_ns:
        fix = Fix(f"{fix.text} {found.fix.text}", f"{fix.code}\n\n{found.fix.code}", found.fix.url)
    return replace(
        found,
        fix=fix,
        evidence=[*found.evidence, *(Evidence.of_cost(part.label, ns, found.cost_ns) for part, ns in parts)],
    )
