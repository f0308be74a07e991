"""Properties of GPUs, as a trace states them at its top (`deviceProperties`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Metadata

_AMD_NAMES = ("AMD", "Radeon")
_AMD_ARCHITECTURES = {(9, 0): "gfx90a", (9, 4): "gfx942", (9, 5): "gfx950"}
_AMD_WAVEFRONT = 64

LEAST_UNITS = {"gfx90a": 104, "gfx942": 228, "gfx950": 256}
"""Compute units of MI210, MI300A and MI350X: the fewest of the whole GPUs with each architecture. A device
with fewer is a part of a GPU, or a slower one for another market."""


# No machine has so much of anything, and columns hold 64 bits.
_MOST = 2**50


@dataclass(frozen=True)
class DeviceProperties:
    """One GPU's properties; "", 0 or None where the trace does not say.

    compute_capability: such as (8, 0), of NVIDIA's GPUs only.
    architecture: such as "gfx942", of AMD's Instinct GPUs only.
    multiprocessors: how many the GPU has; AMD calls them compute units.
    threads, registers, shared_bytes: of one multiprocessor.
    """

    name: str
    compute_capability: tuple[int, int] | None
    architecture: str
    memory_bytes: int
    multiprocessors: int
    threads: int
    registers: int
    shared_bytes: int


def device_properties(metadata: Metadata, device: int) -> DeviceProperties:
    """Return the properties of the GPU with this id.

    A process that sees only some GPUs numbers them from 0, and so does the list. Recorders write the GPU's
    number in the machine next to kernels. So an id that is not listed is one of the listed GPUs, and if all
    listed GPUs are alike, it does not matter which.
    """
    listed = [(entry.get("id"), parse_properties(entry)) for entry in metadata.device_properties]
    for number, properties in listed:
        if number == device:
            return properties
    models = {properties for _, properties in listed}
    return models.pop() if len(models) == 1 else parse_properties({})


def of_architecture(properties: DeviceProperties, architecture: str) -> DeviceProperties:
    """Return the properties with this architecture, and the fewest compute units that it has."""
    units = LEAST_UNITS.get(architecture, 0)
    return replace(properties, architecture=architecture, multiprocessors=properties.multiprocessors or units)


def parse_properties(properties: Mapping[str, Any]) -> DeviceProperties:
    """Parse one entry of `deviceProperties`. Values of another type than expected count as not stated."""
    version, is_amd = _version(properties), _is_amd(properties)
    return DeviceProperties(
        str(properties.get("name") or ""),
        None if is_amd else version,
        _AMD_ARCHITECTURES.get(version, "") if version and is_amd else "",
        _positive(properties, "totalGlobalMem"),
        _positive(properties, "numSms"),
        _positive(properties, "maxThreadsPerMultiprocessor"),
        _positive(properties, "regsPerMultiprocessor"),
        _positive(properties, "sharedMemPerMultiprocessor"),
    )


def _version(properties: Mapping[str, Any]) -> tuple[int, int] | None:
    major, minor = _positive(properties, "computeMajor"), _positive(properties, "computeMinor")
    return (major, minor) if major else None


def _is_amd(properties: Mapping[str, Any]) -> bool:
    """AMD's GPUs state a compute capability too: their names and their wavefronts of 64 set them apart."""
    name = str(properties.get("name") or "")
    return properties.get("warpSize") == _AMD_WAVEFRONT or name.startswith(_AMD_NAMES)


def _positive(properties: Mapping[str, Any], key: str) -> int:
    value = properties.get(key)
    return value if type(value) is int and 0 < value < _MOST else 0
