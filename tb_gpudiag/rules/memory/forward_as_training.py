"""GD406: a forward pass that runs as in training, and no backward pass."""

from __future__ import annotations

from dataclasses import replace

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
_DIFFER = ", so results differ from those of model.eval(). "
_EFFECTS = {
    "": "",
    "BatchNorm": f"{_OF_NORMS}{_DIFFER}",
    "Dropout": f"Dropout drops values{_DIFFER}",
    "BatchNorm and dropout": f"{_OF_NORMS}, and dropout drops values{_DIFFER}",
}
"""By the layers in training mode."""

MOST_PLACES = 3
"""The largest allocations at the peak."""


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Find memory that a forward pass keeps, and layers in training mode, where no backward pass runs."""
    if facts.job.training is not False or facts.job.server is not None:
        return Clear("the trace shows a training or an inference server")
    memory, layers = _keeps_most(facts), facts.host_work.training_mode
    names = _in_training(layers)
    if memory is not None:
        return _keeping(_finding(facts, layers, names), memory, names)
    return _finding(facts, layers, names) if names else Clear(_CLEAR.format(_NORMS[layers.unknown > 0]))


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


_SUMMARY = (
    "The recording has a forward pass and no backward pass. If this is inference, it runs as a training "
    "does. {}If it is a part of a training, nothing is wrong."
)
_URL = "https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation"


def _finding(facts: Facts, layers: TrainingMode, names: str) -> Finding:
    """names: of the layers in training mode."""
    return Finding(
        title=f"{names} in training mode, without a backward pass",
        summary=_SUMMARY.format(_EFFECTS[names]),
        fix=Fix("In inference, call model.eval().", CODE["inference"], _URL),
        evidence=[
            Evidence("Nodes of autograd's graph", number(facts.job.autograd_nodes)),
            *Evidence.some("BatchNorm in training mode", number(len(layers.batch_norms), "call")),
            *Evidence.some("Dropout in training mode", number(len(layers.dropouts), "call")),
        ],
    )


def _keeping(found: Finding, memory: DeviceMemory, names: str) -> Finding:
    """The same where the forward pass keeps much on this device."""
    kept = size_bytes(_kept(memory))
    freed = f"With gradients off, nearly all of the {kept} would be freed during the pass. "
    also = " and call model.eval()" if names else ""
    return replace(
        found,
        title=f"{memory.name}: a forward pass keeps {kept} for a backward pass that was not recorded",
        summary=_SUMMARY.format(f"{freed}{_EFFECTS[names]}"),
        fix=replace(found.fix, text=f"In inference, switch gradients off{also}."),
        cost_bytes=_kept(memory),
        evidence=[
            Evidence("Kept by forward operators", size(_kept(memory))),
            Evidence("Allocated before it", size(memory.curve.start_bytes)),
            Evidence("Allocated at the end", size(memory.end_bytes)),
            *found.evidence,
        ],
        places=[
            place_at(owner.frame, operator=owner.operator, bytes=owner.bytes)
            for owner in memory.peak.owners[:MOST_PLACES]
        ],
        memory_device=memory.device,
    )


RULE = Rule("GD406", "forward_as_training", "Inference that runs as training", check, severity=Severity.INFO)
