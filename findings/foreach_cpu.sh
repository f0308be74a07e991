#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): foreach=True makes an optimizer no faster on a CPU: its operators run the
# loop over the parameters inside, so the trace has nearly as many operators as without.
#
# A reader would guess: foreach replaces the loop by a few operators for all parameters, as on a GPU, and there is
# less to record.
#
# Seen, one step of Adam with 50 parameters: 1,300 aten operators with the loop, 1,262 with foreach. Each
# aten::_foreach_ operator has 50 others in it. fused=True has 352, nearly all of them for the 50 step counters.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.profiler import ProfilerActivity, profile

PARAMETERS = 50


def operators(**how):
    """Return the number of all operators of a step, and of those that foreach operators call."""
    parameters = [torch.nn.Parameter(torch.ones(4)) for _ in range(PARAMETERS)]
    optimizer = torch.optim.Adam(parameters, **how)
    for parameter in parameters:
        parameter.grad = torch.ones(4)
    optimizer.step()
    with profile(activities=[ProfilerActivity.CPU]) as recording:
        optimizer.step()
    events = [event for event in recording.events() if event.name.startswith("aten::")]
    inside = [len(event.cpu_children) for event in events if event.name == "aten::_foreach_addcmul_"]
    return len(events), inside


loop, foreach, fused = operators(), operators(foreach=True), operators(fused=True)
print("all operators, and those in each _foreach_addcmul_; loop:", loop, "foreach:", foreach, "fused:", fused)
assert foreach[0] > 0.9 * loop[0] and fused[0] < 0.4 * loop[0] and foreach[1] == [PARAMETERS]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
