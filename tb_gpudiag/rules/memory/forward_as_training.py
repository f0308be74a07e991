"""GD406: a forward pass that runs as in training, and no backward pass."""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.waiting.training_mode import TrainingMode
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Fix, RuleAnswer, Severity, place_at
from tb_gpudiag.rules.rule import Claimed, Rule, fix_code
from tb_gpudiag.rules.shared.launch_advice import unused_graph
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import size_bytes
from tb_gpudiag.wording.quantity import number, size

CODE = fix_code(__name__)

# Without gradients, a forward pass keeps its result only. What it keeps matters if it is as much as was there
# before (the model), or a tenth of the device.
LEAST_BYTES = 256 * 2**20
LEAST_OF_DEVICE = levels.SIZEABLE

_OF_NORMS = "In training mode BatchNorm normalizes by each batch and changes its running statistics"
_EFFECTS = {
    "BatchNorm": _OF_NORMS,
    "Dropout": "Dropout drops values",
    "BatchNorm and dropout": f"{_OF_NORMS}, and dropout drops values",
}

MOST_PLACES = 3
"""The largest allocations at the peak."""


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Find memory that a forward pass keeps, and layers in training mode, where no backward pass runs."""
    if facts.job.training is not False or facts.job.server is not None:
        return Clear("the trace shows a training or an inference server")
    memory, layers = _keeps_most(facts), facts.host_work.training_mode
    if memory is not None:
        return _finding(facts, layers, memory)
    norms = _NORMS[layers.unknown > 0]
    return _finding(facts, layers) if _in_training(layers) else Clear(_CLEAR.format(norms))


_CLEAR = "no forward pass keeps much memory for a backward pass, and {} or dropout is in training mode"
_NORMS = {
    False: "no BatchNorm",
    True: "as far as was recorded (without record_shapes, BatchNorm does not show it) no BatchNorm",
}


def _keeps_most(facts: Facts) -> DeviceMemory | None:
    """The device on which the forward pass keeps most memory; None if it is little, or gradients are off."""
    if not (unused_graph(facts.job) and facts.memory):
        return None
    most = max(facts.memory, key=_kept)
    enough = most.curve.start_bytes
    if most.capacity_bytes:
        enough = min(enough, round(LEAST_OF_DEVICE * most.capacity_bytes))
    return most if _kept(most) >= max(LEAST_BYTES, enough) else None


def _kept(memory: DeviceMemory) -> int:
    return memory.allocations.kept_by_forward


def _in_training(layers: TrainingMode) -> str:
    """The layers in training mode: "BatchNorm", "Dropout" or both; "" without any."""
    parts = (("BatchNorm", layers.batch_norms), ("dropout", layers.dropouts))
    names = " and ".join(name for name, calls in parts if len(calls))
    return names[:1].upper() + names[1:]


def _finding(facts: Facts, layers: TrainingMode, memory: DeviceMemory | None = None) -> Finding:
    """memory: of the device on which a forward pass keeps much, if there is one."""
    names = _in_training(layers)
    title, summary, actions = f"{names} in training mode, without a backward pass", "", []
    if memory is not None:
        kept = size_bytes(_kept(memory))
        title = f"{memory.name}: a forward pass keeps {kept} for a backward pass that was not recorded"
        summary = f"With gradients off, nearly all of the {kept} would be freed during the pass. "
        actions.append("switch gradients off")
    if names:
        summary += f"{_EFFECTS[names]}, so results differ from those of model.eval(). "
        actions.append("call model.eval()")
    return Finding(
        title=title,
        summary="The recording has a forward pass and no backward pass. If this is inference, it runs as a "
        f"training does. {summary}If it is a part of a training, nothing is wrong.",
        fix=Fix(
            f"In inference, {' and '.join(actions)}.",
            CODE["inference"],
            "https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation",
        ),
        cost_bytes=_kept(memory) if memory is not None else 0,
        evidence=list(_evidence(facts, layers, memory)),
        places=[
            place_at(owner.frame, operator=owner.operator, bytes=owner.bytes)
            for owner in (memory.peak.owners[:MOST_PLACES] if memory is not None else [])
        ],
        memory_device=memory.device if memory is not None else NONE,
    )


def _evidence(facts: Facts, layers: TrainingMode, memory: DeviceMemory | None) -> Iterator[Evidence]:
    if memory is not None:
        yield Evidence("Kept by forward operators", size(_kept(memory)))
        yield Evidence("Allocated before it", size(memory.curve.start_bytes))
        yield Evidence("Allocated at the end", size(memory.end_bytes))
    yield Evidence("Nodes of autograd's graph", number(facts.job.autograd_nodes))
    if len(layers.batch_norms):
        yield Evidence("BatchNorm in training mode", number(len(layers.batch_norms), "call"))
    if len(layers.dropouts):
        yield Evidence("Dropout in training mode", number(len(layers.dropouts), "call"))


RULE = Rule("GD406", "forward_as_training", "Inference that runs as training", check, severity=Severity.INFO)
