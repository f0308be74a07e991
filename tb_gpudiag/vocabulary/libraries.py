"""Libraries around the model, by the folders of their frames, their built-ins and their operators: inference
servers, pipelines, and what works on the host next to the model."""

from __future__ import annotations

from enum import Enum

from tb_gpudiag.vocabulary.patterns import IN_FILE, PACKAGE, any_of

# Hugging Face's pipelines, which make a DataLoader of their own.
PIPELINE = any_of(PACKAGE + r"transformers/pipelines/.*" + IN_FILE)


class Server(Enum):
    """Inference servers, which compile and capture the model themselves. The value is the server's name."""

    VLLM = "vLLM"
    SGLANG = "SGLang"


# The servers' own frames and operators.
SERVERS = {
    Server.VLLM: any_of(PACKAGE + r"vllm/(v1|worker|model_executor)/.*" + IN_FILE, r"vllm::.*"),
    Server.SGLANG: any_of(PACKAGE + r"sglang/srt/.*" + IN_FILE, r"sglang::.*"),
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
    r"<built-in function print>",
)

SAVING = any_of(
    PACKAGE + r"torch/serialization\.py\(\d+\): save",
    PACKAGE + r"torch/distributed/checkpoint/.*\.py\(\d+\): (save|async_save)",
    PACKAGE + r"safetensors/(torch|numpy)\.py\(\d+\): save\w*",
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
