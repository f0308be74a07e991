"""Advice on what a job that ran out of memory could do without: it comes before what costs time."""

from __future__ import annotations

from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.waste import Waste, WasteKind
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.rule import fix_code
from tb_gpudiag.rules.shared.usual_causes import GRADIENTS, GRAPH, HOOKS, OTHER
from tb_gpudiag.wording.quantity import number, size

CODE = fix_code("tb_gpudiag.rules.memory.memory_peak")

# A kind of memory that makes up a third of the peak dominates it: less of it lowers the peak at once.
MAIN_SHARE = 0.33

# What is a tenth of the memory in use is worth a change of the job, if the request fits without it.
WORTH_SHARE = 0.1

# What was kept since the job first got as far, with requests of the same size, is the only difference: if the
# request fits without it, it is why it fails, however small. Below a twentieth, the replay may be lucky.
KEPT_SHARE = 0.05

_SINCE_THEN = (
    WasteKind.RESULTS,
    WasteKind.INTERMEDIATE,
    WasteKind.HISTORY,
    WasteKind.BACKWARD,
    WasteKind.KEPT,
)


@dataclass(frozen=True)
class Advice:
    text: str
    code: str


def waste_of(memory: DeviceMemory) -> list[Waste]:
    """Return the waste that matters, most bytes first. A graph of gradients keeps what they were computed
    from as well."""
    found = [waste for waste in memory.shortage.waste if _matters(waste, memory)]
    backward = [waste for waste in found if waste.kind is WasteKind.BACKWARD]
    return [one for one in found if one.kind not in _SINCE_THEN or one in backward] if backward else found


def kept_of(memory: DeviceMemory) -> list[Waste]:
    """Return what was kept since the job first got as far, and matters."""
    return [waste for waste in waste_of(memory) if waste.kind in _SINCE_THEN]


def _matters(waste: Waste, memory: DeviceMemory) -> bool:
    failure = memory.failure
    if failure is None:
        return False
    held = failure.held.allocated_bytes
    if waste.kind is WasteKind.LOADED:
        return waste.bytes >= failure.requested_bytes
    if waste.kind is WasteKind.COPIES:  # whether they are in use shows only in part
        return waste.bytes >= WORTH_SHARE * held and waste.fits is not False
    if waste.kind is WasteKind.GRADIENTS:
        enough = waste.bytes >= max(WORTH_SHARE * held, failure.requested_bytes)
        return enough and waste.fits is not False
    if waste.kind in _SINCE_THEN:
        return waste.bytes >= (KEPT_SHARE if waste.fits else MAIN_SHARE) * held
    least = WORTH_SHARE if waste.fits and waste.kind is not WasteKind.DATA else MAIN_SHARE
    return waste.bytes >= least * held


def advice_on_waste(waste: Waste) -> Advice:
    """Say what holds the memory, where it is from, and how to do without."""
    text, code = _ON[waste.kind]
    where = f" {waste.frame.preposition} {waste.frame}" if waste.frame is not None else ""
    return Advice(
        text.format(held=size(waste.bytes), many=number(waste.count, "allocation"), where=where), code
    )


MODELS = Advice(
    "Models that were made one after the other are all still there: keep on the GPU those that are in use, "
    "and the others in the host's memory, or on disk.",
    CODE["models"],
)

_RESULTS = (
    "Results of modules from earlier steps still hold {held} ({many}, most of it{where}): keep numbers "
    "instead of outputs, or move the outputs to the host."
)

_ON: dict[WasteKind, tuple[str, str]] = {
    WasteKind.LOST_PASSES: (
        "The forward passes called{where} keep {held} for backward passes that never come: run them without "
        "gradients, and keep results on the host.",
        CODE["inference"],
    ),
    WasteKind.RETAINED: (
        "The graphs of the forward passes called{where} still hold {held} after their backward passes: do "
        "not call backward() with retain_graph=True, and detach what goes on to the next step.",
        GRAPH.code,
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
    WasteKind.COPIES: (
        "Copies of weights or optimizer state hold {held}, most of it{where}: make them in the host's "
        "memory.",
        CODE["models"],
    ),
    WasteKind.DATA: (
        "Data that was put on the GPU before the first step holds {held}, most of it{where}: leave the data "
        "set in the host's memory, and copy one batch at a time.",
        CODE["inputs"],
    ),
    WasteKind.GRADIENTS: (
        "Gradients of the last step hold {held} during the forward pass. Unless you accumulate them over "
        "several batches, free them before it.",
        CODE["set_to_none"],
    ),
    WasteKind.GROWN: (
        "The line of this request makes one tensor anew and larger each time, beside the one before, which "
        "holds {held}: keep its parts in the host's memory, and join them there. If it has to be here, limit "
        "it, or make it once at its full size.",
        OTHER.code,
    ),
    WasteKind.RESULTS: (_RESULTS, OTHER.code),
    WasteKind.INTERMEDIATE: (_RESULTS, HOOKS.code),
    WasteKind.HISTORY: (
        "The optimizer's history of earlier steps holds {held}{where}: L-BFGS keeps two vectors as large as "
        "all weights for each step. Lower history_size.",
        OTHER.code,
    ),
    WasteKind.BACKWARD: (
        f"What earlier backward passes made still holds {{held}}. {GRADIENTS.fix}",
        GRADIENTS.code,
    ),
    WasteKind.KEPT: (
        f"What earlier steps made still holds {{held}}, most of it{{where}}. {OTHER.fix}",
        OTHER.code,
    ),
}
