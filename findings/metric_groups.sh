#!/bin/bash
# torchmetrics 1.9.0 (torch 2.13.0, Python 3.11): a MetricCollection merges metrics whose states are equal after the
# first batch, for good.
#
# A reader would guess: compute groups are metrics that always count the same, such as precision and recall of the same
# classes. Accuracies with thresholds of 0.5 and 0.9 are none.
#
# Seen: if the first batch counts the same for both, they are one group, and each later batch updates only the first of
# them: both say 0.5, while the one with a threshold of 0.5 is 1.0 alone. It is the same with and without ignore_index,
# if the first batch does not have that class. Whether the values are right depends on the first batch.
# MetricCollection(..., compute_groups=False) has none of this.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torchmetrics==1.9.0 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAccuracy, MulticlassAccuracy


def thresholds():
    return {"low": BinaryAccuracy(threshold=0.5), "high": BinaryAccuracy(threshold=0.9)}


def ignoring():
    return {
        "all": MulticlassAccuracy(3, average="micro"),
        "without class 0": MulticlassAccuracy(3, average="micro", ignore_index=0),
    }


def values(metrics, batches):
    for predicted, target in batches:
        for metric in metrics.values() if isinstance(metrics, dict) else (metrics,):
            metric.update(torch.tensor(predicted), torch.tensor(target))
    if isinstance(metrics, dict):
        return {name: round(metric.compute().item(), 4) for name, metric in metrics.items()}
    return {name: round(value.item(), 4) for name, value in metrics.compute().items()}


for make, plain, other in (
    (thresholds, ([0.99, 0.01], [1, 0]), ([0.7, 0.6], [1, 1])),
    (ignoring, ([1, 2], [1, 2]), ([0, 0, 0, 1], [0, 0, 0, 2])),
):
    alone = values(make(), [plain, other])
    together = values(MetricCollection(make()), [plain, other])
    other_order = values(MetricCollection(make()), [other, plain])
    ungrouped = values(MetricCollection(make(), compute_groups=False), [plain, other])
    print(f"alone {alone}, in a collection {together}, with the batches in the other order {other_order}")
    first, second = together.values()
    assert first == second and len(set(alone.values())) == 2
    assert alone == other_order == ungrouped
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
