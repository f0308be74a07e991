"""Host tasks: which names that were recorded belong to which task."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.waiting.host_tasks import host_task_of
from tb_gpudiag.vocabulary.torch_frames import HostTask
from tests.builder import TraceBuilder
from tests.facts import facts_of
from tests.with_each import with_each


@with_each(
    ("name", "task"),
    [
        ("<built-in function collect>", HostTask.GARBAGE),
        ("logging/__init__.py(1636): handle", HostTask.LOGGING),
        ("/usr/lib/python3.11/logging/handlers.py(70): emit", HostTask.LOGGING),
        ("/env/lib/python3.11/site-packages/wandb/sdk/wandb_run.py(1640): log", HostTask.LOGGING),
        ("torch/utils/tensorboard/writer.py(340): add_scalar", HostTask.LOGGING),
        ("lightning\\pytorch\\loggers\\csv_logs.py(10): log_metrics", HostTask.LOGGING),
        ("tqdm/std.py(1332): refresh", HostTask.LOGGING),
        ("torch/serialization.py(944): save", HostTask.SAVING),
        ("torch/serialization.py(1200): load", HostTask.READING),
        ("safetensors/torch.py(383): load_file", HostTask.READING),
        ("<built-in method get_tensor of builtins.safe_open object at 0x7f01>", HostTask.READING),
        ("transformers/modeling_utils.py(277): from_pretrained", HostTask.READING),
        ("accelerate/utils/offload.py(165): __getitem__", HostTask.READING),
        ("transformers/modeling_utils.py(900): forward", None),
        ("torch/serialization.py(1200): _legacy_load", None),  # inside of load
        ("transformers/tokenization_utils_base.py(2800): __call__", HostTask.TOKENIZING),
        ("<built-in method encode_batch of tokenizers.Tokenizer object at 0x73f2fce0>", HostTask.TOKENIZING),
        ("transformers/models/owlv2/image_processing_owlv2.py(301): resize", HostTask.PREPARING),
        ("torchvision/transforms/functional.py(420): resize", HostTask.PREPARING),
        ("<built-in method resize of ImagingCore object at 0x7ff19646ddf0>", HostTask.PREPARING),
        ("[pl][profile]save_checkpoint", HostTask.SAVING),
        ("[pl][profile][Strategy]DDPStrategy.validation_step", HostTask.EVALUATING),
        ("[pl][profile][Strategy]DDPStrategy.training_step", None),
        ("[pl][profile][Callback]ModelCheckpoint{'monitor': None}.on_train_batch_end", None),
        ("transformers/trainer.py(3100): _save_checkpoint", HostTask.SAVING),
        ("transformers/trainer.py(4100): evaluate", HostTask.EVALUATING),
        ("queue.py(154): get", HostTask.THREAD),
        ("/usr/lib/python3.11/queue.py(154): get", HostTask.THREAD),
        ("<built-in method get of _queue.SimpleQueue object at 0x7f>", HostTask.THREAD),
        ("<built-in method readall of _io.FileIO object at 0x7fb>", HostTask.FILE),
        ("<built-in method get of dict object at 0x7fb>", None),
        ("<built-in method tensor of type object at 0x7f20644cea40>", HostTask.CONVERTING),
        ("<built-in method conv2d of type object at 0x7f20644cea40>", None),
        ("project/queue.py(3): get", None),
        # The whole job runs inside the loop over a progress bar.
        ("tqdm/std.py(1187): __iter__", None),
        # A user's own file with the name of a library.
        ("logging_utils.py(3): info", None),
        ("project/logging/train.py(3): train", None),
        ("<built-in method collect of Pool object at 0x7f>", None),
        ("tokenize.py(443): _tokenize", None),
        ("torchvision/models/resnet.py(89): forward", None),
    ],
)
def test_task_of_a_recorded_name(name: str, task: HostTask | None) -> None:
    assert host_task_of(name) == task


def test_the_first_task_around_a_span_decides_and_the_caller_is_that_of_the_outermost_call() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("train.py(5): train", at=0, us=100)
    main.frame("wandb/sdk/wandb_run.py(1640): log", at=10, us=50)
    main.frame("PIL/Image.py(2332): resize", at=20, us=10)
    main.frame("PIL/Image.py(970): load", at=70, us=10)
    facts = facts_of(trace)
    tasks, names = facts.host_work.tasks, [facts.events.names[i] for i in facts.events.name]
    train, log, resize, load = (
        next(i for i, name in enumerate(names) if name.endswith(f": {function}"))
        for function in ("train", "log", "resize", "load")
    )
    assert [tasks.kind[i] for i in (train, log, resize, load)] == [
        NONE,
        HostTask.LOGGING,
        HostTask.LOGGING,
        HostTask.PREPARING,
    ]
    assert tasks.call[resize] == log
    assert tasks.caller(np.array([resize, load, train])).tolist() == [train, train, train]


def test_random_tensors_of_the_host_are_a_task_of_a_job_with_a_gpu() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.op("aten::randn", at=0, us=50)
    main.op("aten::normal_", at=10, us=40)
    main.op("aten::randn", at=60, us=30)  # device="cuda"
    main.op("aten::normal_", at=65, us=20)
    main.launch("normal", at=70, us=5, runs_at=80, runs_us=5)
    main.op("aten::randint_like", at=100, us=30)
    main.op("aten::uniform_", at=140, us=30)
    main.op("aten::bernoulli_", at=180, us=30)  # dropout
    kinds = [int(kind) for kind in _kinds(trace, "aten::")]
    random = HostTask.MAKING
    assert kinds == [random, random, NONE, NONE, random, random, NONE]


def test_a_random_tensor_of_the_gpu_whose_kernel_was_lost_is_not_the_hosts() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.op("aten::randn", at=0, us=50).call("cudaLaunchKernel", at=10, us=5)
    main.launch("gemm", at=60, us=5, runs_at=80, runs_us=5)
    assert list(_kinds(trace, "aten::")) == [NONE]


def test_a_job_without_a_gpu_makes_its_random_tensors_where_they_are_needed() -> None:
    trace = TraceBuilder()
    trace.thread().op("aten::randn", at=0, us=50)
    assert list(_kinds(trace, "aten::")) == [NONE]


def test_long_operators_that_launch_nothing_compute_on_the_host_of_a_job_with_a_gpu() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.op("aten::mm", at=0, us=900)  # on the GPU, and slow to launch
    main.launch("gemm", at=10, us=880, runs_at=900, runs_us=5)
    main.op("aten::sort", at=1_000, us=900).op("aten::copy_", at=1_010, us=200)
    for i in range(3):  # one of three was interrupted
        main.op("aten::add", at=2_000 + 1_000 * i, us=(900, 10, 10)[i], shapes=[[4]])
    main.op("aten::add", at=5_000, us=900, shapes=[[1_000_000]])
    main.op("aten::view", at=6_000, us=900)  # something intercepts it
    main.op("aten::cat", at=7_000, us=900)  # of samples to a batch
    main.op("aten::empty", at=7_950, us=40_000)  # it starts CUDA
    main.op("aten::unflatten", at=50_000, us=1_500)  # it calls many, each of which is short
    for i in range(4):
        main.op("aten::narrow", at=50_010 + 220 * i, us=200)
    computing = HostTask.COMPUTING
    kinds = [NONE, computing, computing, NONE, NONE, NONE, computing, *[NONE] * 8]
    assert list(_kinds(trace, "aten::")) == kinds


def test_a_job_without_a_gpu_computes_where_it_has_to() -> None:
    trace = TraceBuilder()
    trace.thread().op("aten::sort", at=0, us=900)
    assert list(_kinds(trace, "aten::")) == [NONE]


def test_cudnn_plans_attention_where_a_call_takes_many_times_as_long_as_one_with_a_plan() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for at, us in ((0, 600), (1_000, 20_000)):
        main.op("aten::_cudnn_attention_forward", at=at, us=us)
        main.launch("cudnn", at=at + us - 20, us=5, runs_at=at + us, runs_us=5)
    assert list(_kinds(trace, "aten::")) == [NONE, HostTask.PLANNING]


def _kinds(trace: TraceBuilder, prefix: str) -> Int64:
    facts = facts_of(trace)
    chosen = [facts.events.names[i].startswith(prefix) for i in facts.events.name]
    kinds: Int64 = facts.host_work.tasks.kind[np.array(chosen)]
    return kinds
