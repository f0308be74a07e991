"""Libraries around the model, by the folders of their frames, their built-ins and their operators: inference
servers and pipelines. What works on the host next to the model is in task_names.tsv."""

from __future__ import annotations

import re
from enum import Enum

from tb_gpudiag.vocabulary.patterns import IN_FILE, PACKAGE, PATH, any_of

# Hugging Face's pipelines, which make a DataLoader of their own.
PIPELINE = any_of(PACKAGE + r"transformers/pipelines/.*" + IN_FILE)


class Server(Enum):
    """Inference servers, which compile and capture the model themselves. The value is the server's name."""

    VLLM = "vLLM"
    SGLANG = "SGLang"
    TGI = "Text Generation Inference"


# The servers' own frames, operators, kernels and annotations. SGLang and Text Generation Inference use vLLM's
# kernels, too, so they come first.
SERVERS = {
    Server.SGLANG: any_of(
        PATH + r"sglang/srt/.*" + IN_FILE,
        r"(void )?sglang(_profiler)?::.*",
        r"step\[(DECODE|EXTEND|MIXED|IDLE|TARGET_VERIFY|DRAFT_EXTEND)\b.*\]",
        flags=re.S,
    ),
    Server.TGI: any_of(PATH + r"text_generation_server/.*" + IN_FILE),
    Server.VLLM: any_of(
        PATH + r"vllm/(v1|worker|model_executor|engine)/.*" + IN_FILE,
        r"(void )?vllm::.*",
        r"execute_(\d+_)?context_\d+\(.*\)_generation_\d+\(.*\)",
        r"execute_model",
        flags=re.S,
    ),
}
