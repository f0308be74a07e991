"""GD503: attention computed in pieces, with the whole score matrix written to memory in between."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
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
)
from tb_gpudiag.rules.shared.kernel_time import kernel_time
from tb_gpudiag.wording.format import count, time_ns

# Public traces with attention in pieces have 22 % of the window between the two products, or below 1 %:
# nothing in between to choose from, and below 5 % the change would hardly be seen.
LEAST_SHARE = 0.05

_CODE = """# In place of  softmax(q @ k.transpose(-2, -1) * scale + mask) @ v :
out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

# Transformers:
model = AutoModel.from_pretrained(name, attn_implementation="sdpa")   # or "flash_attention_2\""""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """What runs between the two batched products of an attention: softmax, scale, mask, dropout, casts."""
    time = kernel_time(facts.device, facts.window, facts.work, facts.host)
    found = facts.unfused_attention
    if time is None or found is None:
        return NO_GPU
    free = time.free(found.between, claimed)
    cost_ns = free.total
    if time.share(cost_ns) < LEAST_SHARE:
        return Clear(
            f"softmax between two batched products takes {time.of_window(cost_ns)} of the step window"
            if len(found.softmax)
            else "no softmax ran between two batched products"
        )
    kernels = time.kernels
    return Finding(
        title=f"Attention in pieces: {time.of_window(cost_ns)} of the time between its two products",
        summary="The scores of every token for every other are written to memory, scaled, masked, "
        "normalised and read again, kernel by kernel. Fused attention keeps them on the chip: it "
        "has none of these kernels, and its memory grows with the tokens and not with their square.",
        fix=Fix(
            "Compute attention with one fused operator.",
            _CODE,
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            Evidence("attention computed in pieces", count(len(found.softmax), "time")),
            Evidence(
                "between the products",
                f"{time.figure(found.between)}, {count(int(found.between.sum()))} kernels",
            ),
            Evidence("of this the softmax itself", time_ns(time.total_ns(found.between & kernels.softmax))),
        ],
        places=time.places(found.between),
        ranges=time.ranges(found.between),
        claims={time.device.id: free},
    )


RULE = Rule("GD503", "unfused_attention", "Attention in pieces", check)
