"""Names that show what kind of job a trace is of."""

from __future__ import annotations

import re
from enum import Enum

from tb_gpudiag.vocabulary.patterns import IN_FILE, PACKAGE, any_of

# Hugging Face's pipelines, which make a DataLoader of their own.
PIPELINE = any_of(PACKAGE + r"transformers/pipelines/.*" + IN_FILE)

# Kernels of a backward pass or an optimizer.
TRAINING_KERNEL = any_of(r".*(backward|_bwd|bwd_|wgrad|adamw?(?![a-z])|FusedSgd).*", flags=re.I | re.S)


class Server(Enum):
    """Inference servers, which compile and capture the model themselves. The value is the server's name."""

    VLLM = "vLLM"
    SGLANG = "SGLang"


# The servers' own frames and operators.
SERVERS = {
    Server.VLLM: any_of(PACKAGE + r"vllm/(v1|worker|model_executor)/.*" + IN_FILE, r"vllm::.*"),
    Server.SGLANG: any_of(PACKAGE + r"sglang/srt/.*" + IN_FILE, r"sglang::.*"),
}
