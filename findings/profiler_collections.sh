#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): `record_python_gc_info=True` records garbage collections only if
# with_stack=True, too.
#
# A reader would guess: the option is enough; stacks are another matter (and expensive).
#
# Seen: with stacks, an event "Python GC" of category python_function; without, none, and no warning.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import gc
import json
import pathlib

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile


def collections(with_stack):
    config = _ExperimentalConfig(record_python_gc_info=True)
    with profile(activities=[ProfilerActivity.CPU], with_stack=with_stack, experimental_config=config) as profiler:
        gc.collect()
        torch.ones(2)
    profiler.export_chrome_trace("trace.json")
    events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
    return {e["cat"] for e in events if e.get("name") == "Python GC"}


print("with stacks:", collections(True), "without:", collections(False))
assert collections(True) == {"python_function"} and collections(False) == set()
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
