#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): FlopCounterMode has 0 for grouped_mm, the products of a mixture of experts, and
# for Bilinear, cdist and addbmm.
#
# A reader would guess: a grouped product counts as the products it is made of, as bmm does.
#
# Seen, 16 tokens for two experts of 8 x 8: grouped_mm has 0 in FlopCounterMode, forward and backward, and 2,048 in
# with_flops of the profiler, which on a CPU sees the two products inside. A loop over the experts has 2,048 in both.
# So the experts, most of the FLOPs of such a model, are missing from a utilisation (MFU) that comes from this counter.
# Bilinear, cdist and addbmm are 0 as well: they, too, have products inside that the mode does not see.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
import torch.nn.functional as F
from torch.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

tokens = torch.ones(16, 8, dtype=torch.bfloat16, requires_grad=True)
experts = torch.ones(2, 8, 8, dtype=torch.bfloat16, requires_grad=True)
ends = torch.tensor([8, 16], dtype=torch.int32)


def grouped():
    return F.grouped_mm(tokens, experts, offs=ends)


def loop():
    return torch.cat([part @ expert for part, expert in zip(tokens.split(8), experts)])


def counts(run):
    """Return the FLOPs in FlopCounterMode, the same with a backward pass, and those of the profiler."""
    with FlopCounterMode(display=False) as forward:
        run()
    with FlopCounterMode(display=False) as both:
        output = run()
        output.backward(torch.ones_like(output))
    with profile(with_flops=True) as prof:
        run()
    return forward.get_total_flops(), both.get_total_flops(), sum(event.flops for event in prof.key_averages())


assert torch.equal(grouped(), loop())
seen = {run.__name__: counts(run) for run in (grouped, loop)}
others = {
    "Bilinear": lambda: torch.nn.Bilinear(8, 8, 8)(torch.ones(4, 8), torch.ones(4, 8)),
    "cdist": lambda: torch.cdist(torch.ones(100, 16), torch.ones(100, 16)),
    "addbmm": lambda: torch.addbmm(torch.ones(8, 8), torch.ones(2, 8, 8), torch.ones(2, 8, 8)),
}
for name, run in others.items():
    with FlopCounterMode(display=False) as counter:
        run()
    seen[name] = counter.get_total_flops()
print(seen)
assert seen == {"grouped": (0, 0, 2048), "loop": (2048, 3 * 2048, 2048), "Bilinear": 0, "cdist": 0, "addbmm": 0}
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
