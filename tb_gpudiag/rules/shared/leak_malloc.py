"""Growth of memory that no tensor of Python's holds, such as a list of TorchScript's: malloc says whether the
process had more and more before the recording. A full buffer did not."""

from __future__ import annotations

from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.rules.shared.kept_sites import EACH_STEP, NOTED_HELD, NOTED_REPLACED
from tb_gpudiag.rules.shared.leak_causes import CAUSE_SHARE
from tb_gpudiag.rules.shared.leak_state import LATER_SHARE, growth_per_unit, keepers


def malloc_grows(memory: DeviceMemory) -> bool:
    """Whether the process got as much more in each step, before the recording, and Python holds little of
    it."""
    more = memory.others_per_step
    return _is_outside_python(memory) and more >= LATER_SHARE * growth_per_unit(memory)


def malloc_is_level(memory: DeviceMemory) -> bool:
    """Whether the process got hardly more before the recording, though almost each step keeps something that
    Python does not hold."""
    trend, own = memory.trend, keepers(memory)
    if trend is None or not _is_outside_python(memory):
        return False
    each_step = all(site.steps >= EACH_STEP * trend.steps for site in own)
    return each_step and memory.share_of_others(growth_per_unit(memory)) <= NOTED_REPLACED


def _is_outside_python(memory: DeviceMemory) -> bool:
    trend, own = memory.trend, keepers(memory)
    known = [site for site in own if site.noted is not None and site.noted.held < NOTED_HELD]
    whole = sum(site.per_unit for site in own)
    steps = trend is not None and trend.unit == "step"
    return steps and sum(site.per_unit for site in known) > CAUSE_SHARE * whole
