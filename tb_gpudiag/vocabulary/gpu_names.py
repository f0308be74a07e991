"""Names of GPUs, where they say more than the compute capability. facts/kernels/peaks.py has their rates."""

from __future__ import annotations

from tb_gpudiag.vocabulary.patterns import any_of

WITHOUT_TENSOR_CORES = any_of(r"GTX 16\d\d", r"\bT(400|500|550|600|1000|1200)\b", r"Quadro T\d", r"\bMX\d")
"""Turing's smaller chips: their capability, 7.5, is that of chips with tensor cores."""
