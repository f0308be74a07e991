#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): both flop counters take a sparse product for a dense one, or for none, and
# with_flops=True counts it up to three times.
#
# A reader would guess: they count what is multiplied: two for each nonzero element and column, or nothing.
#
# Seen, a 32 x 32 matrix with 32 nonzero elements times a dense one (2,048 flops; 65,536 if dense): FlopCounterMode
# 65,536 for COO and CSR with @, and 0 for torch.sparse.mm, which is the same product. The profiler: 131,072 for COO,
# 196,608 for CSR, 65,536 for torch.sparse.mm: the operator calls another one of the kind, and each is counted.
# A product of complex matrices counts as much as a real one, though it multiplies four times as much.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

dense, diagonal = torch.ones(32, 32), torch.eye(32)
coo, csr, waves = diagonal.to_sparse(), diagonal.to_sparse_csr(), dense.to(torch.complex64)


def counted(product):
    """Return the flops by FlopCounterMode and by the profiler."""
    with FlopCounterMode(display=False) as counter:
        product()
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as recording:
        product()
    return counter.get_total_flops(), sum(row.flops or 0 for row in recording.key_averages())


seen = {
    "dense @": counted(lambda: dense @ dense),
    "complex @": counted(lambda: waves @ waves),
    "COO @": counted(lambda: coo @ dense),
    "CSR @": counted(lambda: csr @ dense),
    "sparse.mm": counted(lambda: torch.sparse.mm(coo, dense)),
}
print("FlopCounterMode, profiler:", seen)
assert seen["dense @"] == seen["complex @"] == (65536, 65536)
assert (seen["COO @"], seen["CSR @"], seen["sparse.mm"]) == ((65536, 131072), (65536, 196608), (0, 65536))
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
