#!/bin/bash
# datasets 5.2.0 (torch 2.13.0, Python 3.11): the formats "torch" and "numpy" give int64 for all whole numbers and
# float32 for all others, whatever the column's type is.
#
# A reader would guess: the types of the features, which the dataset knows: uint8 stays uint8, float64 stays float64.
#
# Seen: columns of uint8 and int16 come as int64, float16 and float64 as float32, in both formats. So a batch of images
# or of tokens that is stored in bytes is eight times as large in the workers, in the queue and on its way to the GPU,
# and 16,777,217 as float64, say a time or a row number, comes as 16,777,216. with_format("torch", dtype=torch.uint8)
# sets one for all columns; "arrow" keeps them.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q datasets==5.2.0 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import datasets
import numpy as np

columns = {name: np.ones((4, 2), dtype=name) for name in ("uint8", "int16", "float16", "float64")}
columns["number"] = np.full(4, 16_777_217.0)
dataset = datasets.Dataset.from_dict(columns)
print("features:", dataset.features)
assert all(dataset.features[name].feature.dtype == name for name in columns if name != "number")
for how in ("torch", "numpy"):
    batch = dataset.with_format(how)[:4]
    types = {name: str(values.dtype).removeprefix("torch.") for name, values in batch.items()}
    print(how, types, float(batch["number"][0]))
    assert types == dict(uint8="int64", int16="int64", float16="float32", float64="float32", number="float32")
    assert float(batch["number"][0]) == 16_777_216.0
END
cd "$work"
HF_HUB_OFFLINE=1 KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
