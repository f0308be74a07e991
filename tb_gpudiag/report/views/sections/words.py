"""Ids on the wire as words."""

from __future__ import annotations

CAUSES = {
    "input": "data loading",
    "compile": "compilation",
    "sync": "synchronization",
    "allocator": "memory allocation",
    "collective": "collective call",
    "python": "Python between operators",
    "dispatch": "CPU operator overhead",
    "launch": "launch calls",
    "latency": "launch latency",
    "queued": "queued, cause not visible",
    "unlinked": "no launch recorded",
    "profiler": "the profiler itself",
}
"""Each idle cause."""

LIMITERS = {
    "input": "Input",
    "launch": "Kernel launches",
    "sync": "Synchronization",
    "python": "Python on the host",
    "compute": "GPU computing",
    "copy": "Copies",
    "communication": "Communication",
    "memory": "Memory",
    "mixed": "Several causes",
    "unknown": "Not known",
}

SYNC_KINDS = {
    "print": "a tensor as text",
    "size": "size known to the GPU only (nonzero, boolean index)",
    "condition": "if on a tensor's value",
    "item": ".item() or float()",
    "copy_to_host": "copy to the host (.cpu(), .tolist())",
    "copy_to_device": "copy to the device",
    "device": "wait for the whole device",
    "event": "wait for an event",
    "stream": "wait for a stream",
    "copy": "copy",
}
"""Each kind of synchronization."""

MEMORY_KINDS = {
    "before": "allocated before recording",
    "parameter": "parameters",
    "gradient": "gradients",
    "optimizer_state": "optimizer state",
    "activation": "activations",
    "temporary": "temporaries",
    "input": "input",
    "unknown": "unknown",
}
"""Each kind of memory."""
