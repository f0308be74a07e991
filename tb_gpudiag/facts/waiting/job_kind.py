"""The kind of job, as far as names in the trace show it: training or inference, and what feeds it."""

from __future__ import annotations

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import distinct
from tb_gpudiag.facts.core.matching import match_some, occurs
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary import api_calls, engines, kernel_names, marks, operators, torch_frames
from tb_gpudiag.vocabulary.recorded import GPU_WORK_CATEGORIES, Category
from tb_gpudiag.vocabulary.torch_frames import LOADER


@dataclass(frozen=True)
class JobKind:
    """training: whether a backward pass or an optimizer ran; None if the trace does not show it.

    pipeline: a Hugging Face pipeline runs the model. loader: a DataLoader fetches batches.
    autograd_nodes: nodes that forward operators added to autograd's graph.
    server: the inference server that runs the model. None in a training: that may use a server's kernels.
    data_parallel: nn.DataParallel runs the model on several GPUs of one process.
    """

    training: bool | None
    pipeline: bool
    loader: bool
    autograd_nodes: int
    server: engines.Server | None = None
    data_parallel: bool = False


def job_kind(host: Host) -> JobKind:
    events = host.events
    forward = (events.category == Category.CPU_OP) & (events.sequence != NONE) & (events.forward_thread <= 0)
    # Operators have a sequence number while gradients are enabled, and it rises with each node that is made.
    numbers = len(distinct(events.sequence[forward]))
    server = next((server for server, names in engines.SERVERS.items() if occurs(events, names)), None)
    training = _training(events)
    return JobKind(
        training=False if training is None and server is not None else training,
        pipeline=occurs(events, engines.PIPELINE),
        loader=occurs(events, LOADER),
        autograd_nodes=max(0, numbers - 1),
        server=None if training else server,
        data_parallel=occurs(events, operators.DATA_PARALLEL),
    )


def _training(events: Events) -> bool | None:
    on_host = (operators.BACKWARD_NODE, marks.OPTIMIZER_STEP, marks.ZERO_GRAD)
    frames = (torch_frames.BACKWARD_FRAME, torch_frames.OPTIMIZER_FRAME)
    if (
        ((events.category == Category.CPU_OP) & (events.forward_thread > 0)).any()
        or any(occurs(events, pattern) for pattern in (*on_host, *frames))
        or match_some(events, kernel_names.TRAINING_KERNEL, events.where(*GPU_WORK_CATEGORIES)).any()
    ):
        return True
    # A CUDA graph replays a backward pass without any operator.
    replays = occurs(events, api_calls.GRAPH_LAUNCH)
    return None if replays or not (events.category == Category.CPU_OP).any() else False
