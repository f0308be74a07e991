#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): the number in "nn.Module: Linear_0" is the order of first calls within a
# recording, so that one name is another module in the next cycle's file.
#
# A reader would guess: the number names a module, as the order in which modules were made or registered, and
# stays while they live.
#
# Seen: `encoder` and `decoder`, both Linear, are Linear_0 and Linear_1 in a recording that begins with the
# encoder. In one that begins with the decoder, decoder is Linear_0. "Python module id" is 0 for it, too.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import json
import pathlib

import torch
from torch.profiler import ProfilerActivity, profile, record_function

encoder, decoder = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)


def names(*modules):
    """Return the recorded names, by range around the call, of modules called in this order."""
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as profiler:
        torch.ones(2)
        for module in modules:
            with record_function("encoder" if module is encoder else "decoder"):
                module(torch.ones(2))
    profiler.export_chrome_trace("trace.json")
    events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
    ranges = [e for e in events if e.get("cat") == "user_annotation"]
    calls = [e for e in events if e.get("name", "").startswith("nn.Module")]
    return {
        part["name"]: (call["name"], call["args"]["Python module id"])
        for part in ranges for call in calls if part["ts"] <= call["ts"] < part["ts"] + part["dur"]
    }


first, second = names(encoder, decoder), names(decoder, encoder)
print(first, second)
assert first == {"encoder": ("nn.Module: Linear_0", 0), "decoder": ("nn.Module: Linear_1", 1)}
assert second == {"decoder": ("nn.Module: Linear_0", 0), "encoder": ("nn.Module: Linear_1", 1)}
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
