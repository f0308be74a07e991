"""Layers that behave differently in training, and did so here: BatchNorm and dropout."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match, match_some
from tb_gpudiag.vocabulary import kernel_names, operators

_TRAINING = 5  # place of `training` among the inputs of aten::batch_norm


@dataclass(frozen=True)
class TrainingMode:
    """batch_norms, dropouts: their calls in training mode, or the kernels of such calls; event indices."""

    batch_norms: Int64
    dropouts: Int64


def training_mode(host: Host, work: Work) -> TrainingMode:
    """Find the calls by what operators recorded about their settings, and by the names of kernels."""
    events = host.events
    calls = np.flatnonzero(match(events, operators.BATCH_NORM) & (events.settings != NONE))
    trains = np.array([_is_true(text) for text in events.input_settings] or [False], np.bool_)
    norms = calls[trains[events.settings[calls]]]
    if not len(norms):
        norms = work.event[match_some(events, kernel_names.BATCH_STATISTICS, work.event)]
    return TrainingMode(norms, np.flatnonzero(match(events, operators.ACTIVE_DROPOUT)))


def _is_true(settings: str) -> bool:
    try:
        return str(json.loads(settings)[_TRAINING]) == "True"
    except (ValueError, IndexError, TypeError, KeyError, RecursionError):
        return False
