"""Chores of the host, told by names that were recorded."""

from __future__ import annotations

import pytest

from tb_gpudiag.facts.waiting.host_tasks import Chore, chore_of
from tb_gpudiag.trace.events import NONE
from tests.builder import TraceBuilder
from tests.facts import facts_of


@pytest.mark.parametrize(
    ("name", "chore"),
    [
        ("<built-in function collect>", Chore.GARBAGE),
        ("logging/__init__.py(1636): handle", Chore.LOGGING),
        ("/usr/lib/python3.11/logging/handlers.py(70): emit", Chore.LOGGING),
        ("/env/lib/python3.11/site-packages/wandb/sdk/wandb_run.py(1640): log", Chore.LOGGING),
        ("torch/utils/tensorboard/writer.py(340): add_scalar", Chore.LOGGING),
        ("lightning\\pytorch\\loggers\\csv_logs.py(10): log_metrics", Chore.LOGGING),
        ("tqdm/std.py(1332): refresh", Chore.LOGGING),
        ("torch/serialization.py(944): save", Chore.SAVING),
        ("transformers/tokenization_utils_base.py(2800): __call__", Chore.TOKENIZING),
        ("<built-in method encode_batch of tokenizers.Tokenizer object at 0x73f2fce0>", Chore.TOKENIZING),
        ("transformers/models/owlv2/image_processing_owlv2.py(301): resize", Chore.PREPARING),
        ("torchvision/transforms/functional.py(420): resize", Chore.PREPARING),
        ("<built-in method resize of ImagingCore object at 0x7ff19646ddf0>", Chore.PREPARING),
        # The loop over a progress bar runs the whole job in here.
        ("tqdm/std.py(1187): __iter__", None),
        # The user's own, whatever it is called.
        ("logging_utils.py(3): info", None),
        ("project/logging/train.py(3): train", None),
        ("torch/serialization.py(1200): load", None),
        ("<built-in method collect of Pool object at 0x7f>", None),
        ("tokenize.py(443): _tokenize", None),
        ("torchvision/models/resnet.py(89): forward", None),
    ],
)
def test_a_recorded_name(name: str, chore: Chore | None) -> None:
    assert chore_of(name) == chore


def test_the_first_kind_around_a_span_decides_and_the_outermost_call_has_the_caller() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("train.py(5): train", at=0, us=100)
    main.frame("wandb/sdk/wandb_run.py(1640): log", at=10, us=50)
    main.frame("PIL/Image.py(2332): resize", at=20, us=10)
    main.frame("PIL/Image.py(970): load", at=70, us=10)
    facts = facts_of(trace)
    chores, names = facts.chores, [facts.events.names[i] for i in facts.events.name]
    train, log, resize, load = (
        next(i for i, name in enumerate(names) if name.endswith(f": {function}"))
        for function in ("train", "log", "resize", "load")
    )
    assert [chores.kind[i] for i in (train, log, resize, load)] == [
        NONE,
        Chore.LOGGING,
        Chore.LOGGING,
        Chore.PREPARING,
    ]
    assert chores.call[resize] == log
    assert chores.caller[resize] == chores.caller[load] == train
