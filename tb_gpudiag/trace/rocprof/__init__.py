"""JSON that rocprofv3 of ROCm writes."""
