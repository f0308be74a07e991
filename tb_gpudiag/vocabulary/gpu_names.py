"""Names of GPUs that say more than the compute capability, and of copies on the GPU's side.

CUPTI and ROCm write direction and kind of memory into them: `Memcpy HtoD (Pageable -> Device)`. For
Intel's PTI, host memory that the driver allocated is H, and other host memory M: `Memcpy M2D (Host (User
Allocated) -> Device)`.
"""

from __future__ import annotations

import re

from tb_gpudiag.vocabulary.patterns import any_of

WITHOUT_TENSOR_CORES = any_of(r"GTX 16\d\d", r"\bT(400|500|550|600|1000|1200)\b", r"Quadro T\d", r"\bMX\d")
"""Turing's smaller chips: their capability, 7.5, is that of chips with tensor cores."""

AMPERE = (8, 0)
"""The compute capability from which tensor cores take TF32 and bf16."""


TO_DEVICE = any_of(r"Memcpy (HtoD|[MH]2D).*", flags=re.S)
TO_HOST = any_of(r"Memcpy (DtoH|D2[MH]).*", flags=re.S)
ON_DEVICE = any_of(r"Memcpy D(to|2)D.*", r"CopyDeviceToDevice.*", flags=re.S)

# One side is pageable host memory. Only NVIDIA's traces say so.
PAGEABLE = any_of(r"Memcpy .*\((Pageable -> .*|.* -> Pageable)\)", flags=re.S)
