"""Names that show what kind of job a trace is of."""

from __future__ import annotations

import re

from tb_gpudiag.trace.vocabulary.patterns import IN_FILE, PACKAGE, any_of

# Hugging Face's pipelines, which make a DataLoader of their own.
PIPELINE = any_of(PACKAGE + r"transformers/pipelines/.*" + IN_FILE)

# Kernels of a backward pass or an optimizer.
TRAINING_KERNEL = any_of(r".*(backward|_bwd|bwd_|wgrad|adamw?(?![a-z])|FusedSgd).*", flags=re.I | re.S)
