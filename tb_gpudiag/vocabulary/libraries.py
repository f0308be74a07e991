"""Libraries around the model, by the folders of their frames, their built-ins and their operators: inference
servers, pipelines, and what works on the host next to the model."""

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

GARBAGE_COLLECTION = any_of(r"<built-in function collect>")

SLEEPING = any_of(r"<built-in function sleep>")

LOGGING = any_of(
    PACKAGE + r"logging/(__init__|handlers)" + IN_FILE,
    PACKAGE + r"(wandb|tensorboard|tensorboardX|torch/utils/tensorboard)/.*" + IN_FILE,
    PACKAGE + r"(mlflow|comet_ml|clearml|loguru)/.*" + IN_FILE,
    PACKAGE + r"(lightning/pytorch|pytorch_lightning)/(loggers|trainer/.*/logger_connector)/.*" + IN_FILE,
    # Not its __iter__: the loop's own data loading runs in there.
    PACKAGE + r"tqdm/\w+\.py\(\d+\): (update|refresh|display|write|close|set_(postfix|description)\w*)",
    PACKAGE + r"ipykernel/iostream" + IN_FILE,
    PACKAGE + r"torch/_tensor_str" + IN_FILE,  # formats a tensor to print it
    r"<built-in function print>",
)

SAVING = any_of(
    PACKAGE + r"torch/serialization\.py\(\d+\): save",
    PACKAGE + r"torch/distributed/checkpoint/.*\.py\(\d+\): (save|async_save)",
    PACKAGE + r"safetensors/(torch|numpy)\.py\(\d+\): save\w*",
)

# Weights and other tensors from files. Accelerate reads those again that it offloaded.
READING = any_of(
    PACKAGE + r"torch/serialization\.py\(\d+\): load",
    PACKAGE + r"safetensors/(torch|numpy)\.py\(\d+\): load\w*",
    PACKAGE + r"transformers/modeling_utils\.py\(\d+\): (from_pretrained|_?load_\w+)",
    PACKAGE + r"accelerate/utils/(offload\.py\(\d+\): (__getitem__|load_offloaded_weights?)|"
    r"modeling\.py\(\d+\): (set_module_tensor_to_device|load_\w+))",
    r"<built-in method get_(tensor|slice) of (builtins\.)?safe_open object at .*",
)

TOKENIZING = any_of(
    PACKAGE + r"transformers/(models/\w+/)?tokenization_\w+" + IN_FILE,
    PACKAGE + r"(tiktoken|sentencepiece|sacremoses)/.*" + IN_FILE,
    r"<built-in method \w+ of tokenizers\.Tokenizer object at .*",
)

PREPARING = any_of(
    PACKAGE + r"transformers/(image|audio|video|feature)_(processing|extraction|utils|transf)\w*" + IN_FILE,
    PACKAGE + r"transformers/models/\w+/((image|video)_processing|feature_extraction)_\w+" + IN_FILE,
    PACKAGE + r"(torchvision/(transforms|io)|PIL|cv2|albumentations|imgaug)/.*" + IN_FILE,
    PACKAGE + r"(librosa|torchaudio|decord)/.*" + IN_FILE,
    r"<built-in method \w+ of (ImagingCore|av\.\w.*|decord\.\w.*) object at .*",
    r"<built-in function (imread|imdecode|resize|cvtColor|warpAffine)>",
)
