"""Libraries around the model by their names in traces: inference servers and pipelines. Of engines: the marks
of their steps, the functions of their loops, and where they wait for requests."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from tb_gpudiag.arrays import NONE
from tb_gpudiag.vocabulary.patterns import IN_FILE, LONGEST_MATCHED, PACKAGE, PATH, any_of, lazy_re
from tb_gpudiag.vocabulary.recorded import LabeledEnum

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
        flags=re.S | re.I,
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


class StepKind(LabeledEnum):
    """What the requests of an engine step are at."""

    PREFILL = 0  # their prompts
    DECODE = 1  # their next token, or next few
    MIXED = 2  # some at their prompts, some at their next token: chunked prefill
    IDLE = 3  # none: with data parallelism, an engine without requests runs along
    FORWARD = 4  # the trace does not say


class EngineMark(NamedTuple):
    """What the mark of an engine step says. Numbers that it does not say are NONE.

    pairs, keys: of queries and keys that causal attention multiplies, and keys that it reads, of all of them.
    """

    kind: StepKind
    requests: int = NONE
    tokens: int = NONE  # that the model computes: of prompts, and one or more of each request that decodes
    prefill_requests: int = NONE
    decode_requests: int = NONE
    pairs: int = NONE
    keys: int = NONE


UNKNOWN_STEP: Final = EngineMark(StepKind.FORWARD)


# Speculative decoding checks a handful of tokens of each request; prompts come in chunks of hundreds. Older
# versions of vLLM count a later chunk of a prompt as generation.
MOST_SPECULATED: Final = 32

# vLLM's mark, `execute_context_1(888)_generation_3(3)`: requests and their tokens. With details, the text in
# brackets has sums over requests, `sq` of queries first, `sk` of keys, `sqsq` and `sqsk` of products, and all
# tokens come before `context`.
_TOKENS: Final = (
    r"\((sq)?(?P<{0}>\d{{1,9}})(sk(?P<{0}_sk>\d{{1,12}})sqsq(?P<{0}_sqsq>\d{{1,12}})sqsk(?P<{0}_sqsk>\d{{1,12}})"
    r"|[_s]\w*)?\)"
)
_VLLM_STEP: Final = lazy_re(
    r"execute_(\d+_)?context_(?P<prefills>\d{1,9})"
    + _TOKENS.format("prefilled")
    + r"_generation_(?P<decodes>\d{1,9})"
    + _TOKENS.format("decoded"),
    re.ASCII,
)
# SGLang's, `step[EXTEND bs=2 toks=14721]`. Details are the sums: `c_sq` of prompts, `g_sq` of generation.
_SGLANG_STEP: Final = lazy_re(r"step\[(?P<mode>[A-Z_0-9]+)(?P<numbers>( \w+=\d{1,18})*)\]", re.A | re.I)
_NUMBER: Final = lazy_re(r" (\w+)=(\d{1,12})\b", re.ASCII)

_MODES: Final = {
    "EXTEND": StepKind.PREFILL,
    "DECODE": StepKind.DECODE,
    "MIXED": StepKind.MIXED,
    "TARGET_VERIFY": StepKind.DECODE,
    "IDLE": StepKind.IDLE,
}

STEP_MARK: Final = any_of(
    r"execute_(\d+_)?context_\d+\(\w+\)_generation_\d+\(\w+\)",
    r"step\[(EXTEND|DECODE|MIXED|TARGET_VERIFY|IDLE)( .*)?\]",
    flags=re.S | re.I,
)
"""A mark of one run of the model. What drafts tokens has marks of its own, such as `step[DRAFT_EXTEND bs=1]`:
they belong to the step that verifies the tokens."""

VERIFIES: Final = any_of(r"step\[TARGET_VERIFY( .*)?\]", flags=re.S | re.I)
"""With speculative decoding, every step that decodes verifies; SGLang's steps that decode are drafts then."""

DRAFTS: Final = any_of(r"step\[DECODE( .*)?\]", flags=re.S | re.I)

RUN_BATCH: Final = any_of(
    PATH + r"sglang/srt/managers/scheduler\.py\(\d+\): run_batch", r"scheduler\.run_batch"
)
"""SGLang's run of one batch: of the model, and of a smaller model that drafts tokens for it."""

STEP_FRAME: Final = any_of(
    PATH + r"vllm/(v1/)?worker/(\w+/)?\w*model_runner\.py\(\d+\): execute_model",
    PATH + r"sglang/srt/managers/scheduler\.py\(\d+\): run_batch",
    PATH + r"text_generation_server/models/\w+\.py\(\d+\): generate_token",
)
"""The function that runs the model once, for traces without marks."""

KIND_FRAMES: Final = (
    (StepKind.DECODE, any_of(PATH + r"sglang/srt/model_executor/\w+\.py\(\d+\): (forward_decode|replay)")),
    (StepKind.PREFILL, any_of(PATH + r"sglang/srt/model_executor/\w+\.py\(\d+\): forward_extend")),
    (StepKind.DECODE, any_of(PATH + r"text_generation_server/server\.py\(\d+\): Decode")),
    (StepKind.PREFILL, any_of(PATH + r"text_generation_server/server\.py\(\d+\): Prefill")),
)
"""Functions inside of or around a step that say its kind."""

PACKAGES: Final = ("vllm/", "sglang/", "text_generation_server/")
"""Their files begin with these folders, wherever they are installed."""

# Layers and models are what the GPU runs. All else of these packages is the engine's own work.
ENGINE_FRAME: Final = any_of(
    PATH + r"vllm/(v1/)?(core|engine|executor|sample|spec_decode|structured_output|worker)/.*" + IN_FILE,
    PATH
    + r"vllm/(compilation/cuda_graph|distributed/device_communicators/shm_broadcast|entrypoints/llm)"
    + IN_FILE,
    PATH + r"sglang/srt/(managers|mem_cache|model_executor|speculative|constrained|sampling)/.*" + IN_FILE,
    PATH + r"sglang/srt/(disaggregation/.*|layers/(sampler|logits_processor))" + IN_FILE,
    PATH + r"text_generation_server/(models/(model|\w*causal_lm|seq2seq_lm)|server|utils/tokens)" + IN_FILE,
)
"""A function of an engine's loop: scheduling, preparing inputs, sampling, and processing outputs."""

ENGINE_RANGE: Final = any_of(
    r"(gpu_model_runner|schedule|llm_engine step|core_step|async_llm): .*", r"scheduler\.\w+", flags=re.S
)
"""Marks that vLLM and SGLang set around such functions."""

NOTHING_TO_SERVE: Final = any_of(
    PATH + r"sglang/srt/.*\.py\(\d+\): (self_check_during_idle|on_idle|maybe_sleep)", flags=re.S
)
"""What SGLang's scheduler calls if it got no batch and no request is left."""

INPUT_QUEUE: Final = any_of(PATH + r"vllm/v1/engine/core\.py\(\d+\): _process_input_queue")
"""vLLM's engine waits here only if no request is left. It also takes new requests here, without a wait."""

WORKER_LOOP: Final = any_of(PATH + r"vllm/(v1/)?executor/\w+\.py\(\d+\): worker_busy_loop")
WORKER_WAITS: Final = any_of(
    PATH + r"vllm/distributed/device_communicators/shm_broadcast\.py\(\d+\): (dequeue|acquire_read)"
)
"""In its loop, a worker of vLLM waits here for the batch that the engine's process sends. Whether that has no
request or is still scheduling, the worker's recording does not show."""

BLOCKED: Final = any_of(
    PATH + r"(threading\.py\(\d+\): wait|queue\.py\(\d+\): get)",
    r"<built-in method acquire of _thread\.lock object at .*",
)
"""A Python thread waits for another one."""


def read_mark(name: str) -> EngineMark | None:
    """Return what the mark of an engine step says; None for another name."""
    found = _VLLM_STEP.fullmatch(name, 0, LONGEST_MATCHED)
    if found is not None:
        said = {key: int(value) for key, value in found.groupdict().items() if value}
        mark = _of_vllm(*(said[key] for key in ("prefills", "prefilled", "decodes", "decoded")))
        return _with_sums(mark, *(_sums(said, key, key + "_") for key in ("prefilled", "decoded")))
    found = _SGLANG_STEP.fullmatch(name, 0, LONGEST_MATCHED)
    if found is None or (mode := found["mode"].upper()) not in _MODES:
        return None
    said = {key: int(value) for key, value in _NUMBER.findall(found["numbers"])}
    alone = {"c": "toks", "g": "bs"}  # what repeats another number is left out
    sums = (_sums({key + "_sq": said.get(alone[key], 0), **said}, key + "_sq", key + "_") for key in alone)
    return _with_sums(_of_sglang(mode, said), *sums)


def _sums(said: dict[str, int], queries: str, of: str) -> tuple[int, int]:
    """Return pairs and keys of prompts, or of generation; 0 where nothing is said of them."""
    keys, squares, products = (said.get(of + key, 0) for key in ("sk", "sqsq", "sqsk"))
    # Of n queries, the last one has all keys, and each before it has one less.
    return max(products - (squares - said[queries]) // 2, 0) if products else 0, keys


def _with_sums(mark: EngineMark, *sums: tuple[int, int]) -> EngineMark:
    pairs, keys = (sum(numbers) for numbers in zip(*sums, strict=True))
    return mark._replace(pairs=pairs, keys=keys) if pairs and keys else mark


def _of_vllm(prefills: int, prefilled: int, decodes: int, decoded: int) -> EngineMark:
    requests, tokens = prefills + decodes, prefilled + decoded
    if not requests:
        return EngineMark(StepKind.IDLE, 0, 0, 0, 0)
    chunks = decoded > MOST_SPECULATED * decodes
    if not decodes or (chunks and requests == 1):
        return EngineMark(StepKind.PREFILL, requests, tokens, requests, 0)
    if chunks:  # at least one request is still at its prompt, and it is not known which
        return EngineMark(StepKind.MIXED, requests, tokens)
    kind = StepKind.MIXED if prefills else StepKind.DECODE
    return EngineMark(kind, requests, tokens, prefills, decodes)


def _of_sglang(mode: str, numbers: dict[str, int]) -> EngineMark:
    kind, requests = _MODES[mode], numbers.get("bs", NONE)
    if kind is StepKind.IDLE:
        return EngineMark(kind, 0, 0, 0, 0)
    if kind is StepKind.MIXED:
        known = "c_sq" in numbers and "g_sq" in numbers
        tokens = numbers["c_sq"] + numbers["g_sq"] if known else NONE
        return EngineMark(kind, requests, tokens, numbers.get("c", NONE), numbers.get("g", NONE))
    if kind is StepKind.PREFILL:
        return EngineMark(kind, requests, numbers.get("toks", numbers.get("c_sq", NONE)), requests, 0)
    # How many of the tokens that it verifies are right, the mark does not say.
    tokens = NONE if mode == "TARGET_VERIFY" else requests
    return EngineMark(kind, requests, tokens, 0, requests)
