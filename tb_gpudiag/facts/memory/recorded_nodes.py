"""Which operators autograd recorded, and whether a backward pass ran what they made."""

from __future__ import annotations

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.vocabulary.recorded import Category
from tb_gpudiag.vocabulary.torch_frames import in_no_grad


def grad_mode(host: Host, operator: int, stack: str) -> bool | None:
    """Autograd numbers the operators that it records. A snapshot shows only decorators that turn it off."""
    events = host.events
    if operator == NONE or not (events.sequence != NONE).any():
        return False if in_no_grad(stack) else None
    chain = [operator, *host.tree.ancestors(operator)]
    return any(events.sequence[i] != NONE for i in chain if events.category[i] == Category.CPU_OP)
