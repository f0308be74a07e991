"""GD506: the GPU's time goes into casts and changes of layout."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.moves import Move, find_moves
from tb_gpudiag.rules.rule import (
    NO_GPU,
    NOTHING_CLAIMED,
    Answer,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Rule,
    Saving,
    Severity,
)
from tb_gpudiag.rules.shared.kernel_time import kernel_time
from tb_gpudiag.wording.format import count, share, time_ns

# Public traces of training are at 0 to 3 % of the window, segmentation with much postprocessing at 5 %, a
# convolutional net on a GPU whose library wants another layout at 8 %. The field's alarm of 40 % in an
# operator table counts the host's time in aten::copy_, waits included, and says little about the GPU.
LEAST_SHARE = 0.05

_CAST = """# One number format through the model, instead of casts between layers:
model = model.to(torch.bfloat16)                     # or all of the forward pass under one autocast
with torch.autocast("cuda", dtype=torch.bfloat16):   # weights are cast once for each forward pass
    loss = criterion(model(x), y)
x = x.to(torch.bfloat16)                             # once, before the loop; no .float() inside layers"""

_LAYOUT = """# One layout through the model: convolutions on tensor cores want channels last
model = model.to(memory_format=torch.channels_last)
x = x.to(memory_format=torch.channels_last)

# A transposed view need not be made contiguous for a matrix product:
y = torch.einsum("bhqd,bhkd->bhqk", q, k)            # instead of: q @ k.permute(0, 1, 3, 2).contiguous()
# and what has to be rearranged can be fused with what comes next:
f = torch.compile(f)"""

_COPY = """# Write results where they belong, instead of copying them there:
torch.matmul(a, b, out=buffer[i])                    # instead of: buffer[i].copy_(a @ b)
x = torch.nn.functional.pad(x, (0, n))               # instead of: zeros(...); y[:, :k] = x"""

_KINDS = {
    Move.CAST: ("casts to another number format", "Keep one number format through the model.", _CAST),
    Move.LAYOUT: ("other layouts of the same numbers", "Keep one layout through the model.", _LAYOUT),
    Move.COPY: ("copies into other tensors", "Write results where they belong.", _COPY),
}


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """GPU work that operators of casting, copying and making contiguous launched, and kernels that libraries
    put around theirs to change the layout."""
    time = kernel_time(facts.device, facts.window, facts.work, facts.host)
    if time is None:
        return NO_GPU
    move = find_moves(time.kernels, facts.work, facts.host)
    chosen = move >= 0
    free = time.free(chosen, claimed)
    cost_ns = free.total
    if time.share(cost_ns) < LEAST_SHARE:
        return Clear(
            f"casts, layouts and copies on the GPU take {time.of_window(cost_ns)} of the step window"
        )
    kinds = sorted(
        ((time.total_ns(move == kind), kind) for kind in Move if (move == kind).any()), reverse=True
    )
    most = _KINDS[kinds[0][1]]
    return Finding(
        title=f"Moving data on the GPU takes {time.of_window(cost_ns)} of the time, mostly {most[0]}",
        summary="Casts, changes of layout and copies read and write whole tensors, and compute nothing. "
        f"They are {share(time.total_ns(chosen), time.busy_ns)} of the GPU's work.",
        fix=Fix(
            *most[1:],
            "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            *(
                Evidence(_KINDS[kind][0], f"{time_ns(ns)}, {count(int((move == kind).sum()))}")
                for ns, kind in kinds
            ),
            Evidence("together", time.figure(chosen)),
        ],
        places=time.places(chosen),
        ranges=time.ranges(chosen),
        claims={time.device.id: free},
    )


RULE = Rule("GD506", "data_movement", "Moving data on the GPU", check, severity=Severity.INFO)
