#!/bin/bash
# ptflops 0.7.5 (torch 2.13.0, Python 3.11): the same product of matrices is counted if it is written torch.matmul, and
# is 0 if it is written @, einsum or F.linear.
#
# A reader would guess: `q @ k` is torch.matmul(q, k), so it counts the same.
#
# Seen, 10 x 16 by 16 x 10: matmul and bmm 1,600; @, einsum, F.linear and scaled_dot_product_attention 0 with the
# default backend, which replaces functions by name. backend="aten" counts all of them, attention as 3,200, but has 0
# for an LSTM, which the default counts as 23,360.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ptflops==0.7.5 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import warnings

import torch
from ptflops import get_model_complexity_info
from torch.nn import functional

warnings.simplefilter("ignore")
PRODUCTS = {
    "matmul": lambda x: torch.matmul(x, x.mT),
    "bmm": lambda x: torch.bmm(x, x.mT),
    "@": lambda x: x @ x.mT,
    "einsum": lambda x: torch.einsum("bij,bkj->bik", x, x),
    "linear": lambda x: functional.linear(x, torch.ones(10, 16)),
    "attention": lambda x: functional.scaled_dot_product_attention(x, x, x),
}


class Product(torch.nn.Module):
    def __init__(self, product):
        super().__init__()
        self.product = product

    def forward(self, x):
        return self.product(x)


def counted(**how):
    macs = {}
    for name, product in PRODUCTS.items():
        told = get_model_complexity_info(
            Product(product), (10, 16), as_strings=False, print_per_layer_stat=False, verbose=False, **how
        )
        macs[name] = told[0]
    return macs


def counted_lstm(backend):
    lstm = torch.nn.LSTM(16, 16, batch_first=True)
    told = get_model_complexity_info(
        lstm, (10, 16), as_strings=False, print_per_layer_stat=False, verbose=False, backend=backend
    )
    return told[0]


default, aten = counted(), counted(backend="aten")
print("default:", default, "aten:", aten, sep="\n")
lstms = counted_lstm("pytorch"), counted_lstm("aten")
print("LSTM:", lstms)
assert list(default.values()) == [1600, 1600, 0, 0, 0, 0] and list(aten.values()) == [1600] * 5 + [3200]
assert lstms[0] > 20000 and lstms[1] == 0
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
