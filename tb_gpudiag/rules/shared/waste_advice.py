"""Advice on what a job that ran out of memory could do without: it comes before what costs time."""

from __future__ import annotations

from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.waste import Waste, WasteKind
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.rule import fix_code
from tb_gpudiag.wording.quantity import size

CODE = fix_code("tb_gpudiag.rules.memory.memory_peak")

# A kind of memory that makes up a third of the peak dominates it: less of it lowers the peak at once.
MAIN_SHARE = 0.33

# What is a tenth of the memory in use is worth a change of the job, if the request fits without it.
WORTH_SHARE = 0.1


@dataclass(frozen=True)
class Advice:
    text: str
    code: str


def waste_of(memory: DeviceMemory) -> list[Waste]:
    """Return the waste that matters, most bytes first."""
    return [waste for waste in memory.shortage.waste if _matters(waste, memory)]


def _matters(waste: Waste, memory: DeviceMemory) -> bool:
    failure = memory.failure
    if failure is None:
        return False
    held = failure.held.allocated_bytes
    if waste.kind is WasteKind.LOADED:
        return waste.bytes >= failure.requested_bytes
    if waste.kind is WasteKind.GRADIENTS:
        enough = waste.bytes >= max(WORTH_SHARE * held, failure.requested_bytes)
        return enough and waste.fits is not False
    return waste.bytes >= (WORTH_SHARE if waste.fits else MAIN_SHARE) * held


def advice_on_waste(waste: Waste) -> Advice:
    """Say what holds the memory, where it is from, and how to do without."""
    text, code = _ON[waste.kind]
    where = f" {waste.frame.preposition} {waste.frame}" if waste.frame is not None else ""
    return Advice(text.format(held=size(waste.bytes), where=where), code)


MODELS = Advice(
    "Models that were made one after the other are all still there: keep on the GPU those that are in use, "
    "and the others in the host's memory, or on disk.",
    CODE["models"],
)

_ON: dict[WasteKind, tuple[str, str]] = {
    WasteKind.LOST_PASSES: (
        "The forward passes called{where} keep {held} for backward passes that never come: run them without "
        "gradients, and keep results on the host.",
        CODE["inference"],
    ),
    WasteKind.MODELS: (
        "Models that were trained before are still there, with their optimizers ({held}): keep what you need "
        "of them on the host, and let go of the rest before the next one is made.",
        CODE["models"],
    ),
    WasteKind.LOADED: (
        "What torch.load() put on the GPU is still there beside the model ({held}): load checkpoints into "
        "the host's memory, and let go of them.",
        CODE["load"],
    ),
    WasteKind.GRADIENTS: (
        "Gradients of the last step hold {held} during the forward pass. Unless you accumulate them over "
        "several batches, free them before it.",
        CODE["set_to_none"],
    ),
}
