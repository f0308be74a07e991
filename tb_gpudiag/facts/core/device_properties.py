"""Properties of GPUs, as a trace states them at its top (`deviceProperties`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tb_gpudiag.trace.events import Metadata

_AMD_NAMES = ("AMD", "Radeon")
_AMD_WAVEFRONT = 64


@dataclass(frozen=True)
class DeviceProperties:
    """One GPU's properties; "", 0 or None where the trace does not say.

    compute_capability: such as (8, 0), of NVIDIA's GPUs only.
    threads, registers, shared_bytes: of one multiprocessor.
    """

    name: str
    compute_capability: tuple[int, int] | None
    memory_bytes: int
    threads: int
    registers: int
    shared_bytes: int


def device_properties(metadata: Metadata, device: int) -> DeviceProperties:
    """Return the properties of the GPU with this id."""
    for properties in metadata.device_properties:
        if properties.get("id") == device:
            return parse_properties(properties)
    return parse_properties({})


def parse_properties(properties: Mapping[str, Any]) -> DeviceProperties:
    """Parse one entry of `deviceProperties`. Values of another type than expected count as not stated."""
    return DeviceProperties(
        str(properties.get("name") or ""),
        _compute_capability(properties),
        _positive(properties, "totalGlobalMem"),
        _positive(properties, "maxThreadsPerMultiprocessor"),
        _positive(properties, "regsPerMultiprocessor"),
        _positive(properties, "sharedMemPerMultiprocessor"),
    )


def _compute_capability(properties: Mapping[str, Any]) -> tuple[int, int] | None:
    """AMD's GPUs state one too: their names and their wavefronts of 64 set them apart."""
    major, minor = properties.get("computeMajor"), properties.get("computeMinor")
    if properties.get("warpSize") == _AMD_WAVEFRONT:
        return None
    if str(properties.get("name") or "").startswith(_AMD_NAMES):
        return None
    return (major, minor) if type(major) is int and type(minor) is int else None


def _positive(properties: Mapping[str, Any], key: str) -> int:
    value = properties.get(key)
    return value if type(value) is int and value > 0 else 0
