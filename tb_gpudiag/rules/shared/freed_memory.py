"""Large blocks of host memory that the main thread frees while the GPU waits (GD102)."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS
from tb_gpudiag.facts.core.intervals import coverage
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Removal
from tb_gpudiag.facts.waiting.loading import loader_kind
from tb_gpudiag.rules.answer import Evidence, Finding, Fix, Removable
from tb_gpudiag.rules.rule import fix_code
from tb_gpudiag.rules.shared.lost_time import Lost
from tb_gpudiag.vocabulary.torch_frames import MULTI_PROCESS_ITERATOR
from tb_gpudiag.wording.quantity import number, per_step

_CODE = fix_code("tb_gpudiag.rules.idle.host_bound")

_PIN = Fix(
    "Pin the batches: a thread of the loader copies them, and frees the workers' memory. Or keep the data on "
    "the GPU.",
    _CODE["free_batches"],
    "https://docs.pytorch.org/docs/stable/data.html#memory-pinning",
)
_KEEP = Fix(
    "Keep large tensors on the host, and write into them in each step.",
    _CODE["keep_buffers"],
    "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.copy_.html",
)


def in_freeing(facts: Facts, lost: Lost) -> Bool:
    """Mask of the segments between operators that mostly go into freeing large blocks, shape (s,)."""
    freed_ns = coverage(facts.freeing, lost.start_ns, lost.end_ns)
    return lost.of(*BETWEEN_CALLS) & (2 * freed_ns >= np.maximum(1, lost.length_ns))


def freeing_finding(facts: Facts, lost: Lost, chosen: Bool) -> Finding:
    """chosen: mask of such segments. A thread of the loader may take Python's lock as it frees a batch, so
    that pinning promises nothing."""
    cost_ns, times = lost.total_ns(chosen), len(facts.freeing.start)
    of_workers = loader_kind(facts.host) == MULTI_PROCESS_ITERATOR
    batches = " They are batches that the loader's workers made, in shared memory." if of_workers else ""
    return Finding(
        title=lost.sentence("Freeing host memory", cost_ns),
        summary="Before the next launch, the host gives large blocks of memory back to the system, which "
        f"takes longer the larger they are.{batches}",
        fix=_PIN if of_workers else _KEEP,
        evidence=[
            Evidence.of_window("Idle while freeing memory", cost_ns, lost.window_ns),
            Evidence("Blocks freed", number(times), per_step(times, len(facts.steps))),
        ],
        **lost.where(facts.host, chosen),
        removable=Removable(Removal(facts.freeing), least=Removal()),
    )
