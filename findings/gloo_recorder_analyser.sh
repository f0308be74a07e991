#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): the flight-recorder analyser of torch itself
# (torch.distributed.flight_recorder.fr_trace) cannot read the dumps that the same release writes for a gloo
# job.
#
# A reader would guess: it prints a table of the collectives of both ranks, and finds no mismatch.
#
# Seen: KeyError: ('0', 0). The entries call the group "0", while the dump's pg_config has it under the empty
# name.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 tabulate==0.9.0
cat >"$work/see.py" <<'END'
import datetime
import pathlib
import pickle
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch._C import _distributed_c10d


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    dist.all_reduce(torch.ones(4))
    dist.barrier()
    pathlib.Path(f"dumps/nccl_trace_rank_{number}").write_bytes(_distributed_c10d._dump_fr_trace())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    pathlib.Path("dumps").mkdir()
    torch.multiprocessing.spawn(rank, nprocs=2)
    dump = pickle.loads(pathlib.Path("dumps/nccl_trace_rank_0").read_bytes())
    print([e["process_group"] for e in dump["entries"]], dump["pg_config"])
    analyser = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", "dumps", "-p", "nccl_trace_rank_"]
    done = subprocess.run(analyser, capture_output=True, text=True, check=False)
    print(done.stderr[-200:])
    assert done.returncode != 0 and "KeyError: ('0', 0)" in done.stderr
    assert list(dump["pg_config"]) == [""]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
