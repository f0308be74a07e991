#!/bin/bash
# safetensors 0.8.0 (torch 2.13.0, Python 3.11): a slice that is read from a file has the storage of the whole tensor,
# and is written and sent with it.
#
# A reader would guess: get_slice reads the rows that are asked for, so that a rank of four holds a quarter: a tensor of
# its own, contiguous and of their size.
#
# Seen, 2 of 1,000 rows of 4 KB: the storage has 4,000,000 bytes; torch.save writes 4 MB, and so does pickling the
# tensor for another process. The rank that saves its shard writes everybody's. Columns come as a view that is not
# contiguous. `.clone()` makes 8 KB of it.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q safetensors==0.8.0 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import io
import pickle

import torch
from safetensors import safe_open
from safetensors.torch import save_file


def sizes(tensor):
    """Return the bytes of the storage, of a file of torch.save and of a pickle."""
    file = io.BytesIO()
    torch.save(tensor, file)
    return tensor.untyped_storage().nbytes(), len(file.getvalue()), len(pickle.dumps(tensor))


save_file({"weight": torch.ones(1000, 1000)}, "model.safetensors")
with safe_open("model.safetensors", "pt") as file:
    whole = file.get_slice("weight")
    rows, columns = whole[:2], whole[:, :2]
print("bytes of storage, file, pickle; 2 rows:", sizes(rows), "2 columns:", sizes(columns), "clone:", sizes(rows.clone()))
assert rows.shape == (2, 1000) and columns.shape == (1000, 2) and not columns.is_contiguous()
for size in (*sizes(rows), *sizes(columns)):
    assert 4_000_000 <= size < 4_010_000
assert all(8_000 <= size < 10_000 for size in sizes(rows.clone()))
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
