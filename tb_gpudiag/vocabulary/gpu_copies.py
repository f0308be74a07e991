"""Copies on the GPU's side: CUPTI and ROCm write direction and kind of memory into the name.

For example `Memcpy HtoD (Pageable -> Device)`.
"""

from __future__ import annotations

import re

from tb_gpudiag.vocabulary.patterns import any_of

TO_DEVICE = any_of(r"Memcpy HtoD.*", flags=re.S)
TO_HOST = any_of(r"Memcpy DtoH.*", flags=re.S)
ON_DEVICE = any_of(r"Memcpy DtoD.*", r"CopyDeviceToDevice.*", flags=re.S)

# One side is pageable host memory. Only NVIDIA's traces say so.
PAGEABLE = any_of(r"Memcpy .*\((Pageable -> .*|.* -> Pageable)\)", flags=re.S)
