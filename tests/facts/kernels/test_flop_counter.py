"""FLOPs of operators against torch.utils.flop_counter, and recomputation, on real recordings of the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.operator_costs import operator_cost
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.recorded import Category

torch: Any = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

pytestmark = pytest.mark.torch

Run = Callable[[], object]


def image(channels: int = 8) -> Any:
    return torch.randn(2, channels, 15, 17, requires_grad=True)


def trained(layer: Any, *inputs: Any) -> Run:
    def run() -> None:
        out = layer(*inputs)
        (out[0] if isinstance(out, tuple) else out).sum().backward()

    return run


def attention() -> None:
    q, k, v = (torch.randn(2, 4, length, 8, requires_grad=True) for length in (16, 24, 24))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        F.scaled_dot_product_attention(q, k, v).sum().backward()


def factors() -> tuple[Any, Any]:
    return torch.randn(3, 4, 5, requires_grad=True), torch.randn(3, 5, 6, requires_grad=True)


JOBS: dict[str, Callable[[], Run]] = {
    "mlp": lambda: trained(
        nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10)), torch.randn(8, 32, requires_grad=True)
    ),
    "strided": lambda: trained(nn.Conv2d(8, 16, 3, stride=(2, 1), padding=(1, 2), dilation=2), image()),
    "same": lambda: trained(nn.Conv1d(8, 16, 5, padding="same"), torch.randn(2, 8, 15, requires_grad=True)),
    "no gradient of the input": lambda: trained(nn.Conv3d(2, 4, 3), torch.randn(2, 2, 8, 8, 8)),
    "transposed": lambda: trained(
        nn.ConvTranspose2d(8, 16, 3, stride=2, padding=1, output_padding=1), image()
    ),
    "attention": lambda: attention,
    "bmm": lambda: trained(torch.bmm, *factors()),
    "baddbmm": lambda: trained(torch.baddbmm, torch.randn(3, 4, 6), *factors()),
    "einsum": lambda: trained(lambda a, b: torch.einsum("bij,bjk->ik", a, b), *factors()),
    "broadcast": lambda: trained(torch.matmul, factors()[0], torch.randn(5, 7)),
    "gru": lambda: trained(nn.GRU(16, 32), torch.randn(4, 6, 16, requires_grad=True)),
    "encoder": lambda: trained(
        nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), torch.randn(2, 10, 32)
    ),
    "bf16": lambda: (
        lambda: torch.randn(8, 32, dtype=torch.bfloat16) @ torch.randn(32, 16, dtype=torch.bfloat16)
    ),
    "grouped": lambda: trained(nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=4), image()),
    "depthwise": lambda: trained(nn.Conv2d(8, 8, 3, padding=1, groups=8), image()),
    "grouped transposed": lambda: trained(nn.ConvTranspose2d(8, 16, 3, stride=2, groups=2), image()),
}

GROUPS = {"grouped": 4, "depthwise": 8, "grouped transposed": 2}
"""torch counts the gradient of a grouped convolution's weight once for each group."""


@pytest.mark.parametrize("name", JOBS)
def test_flops_are_those_that_torch_counts(name: str, tmp_path: Path) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    run = JOBS[name]()
    with FlopCounterMode(display=False) as counter:
        run()
    counted = {f"aten::{str(of).split('.')[-1]}": n for of, n in counter.get_flop_counts()["Global"].items()}
    assert counted
    found = flops(recorded(run, tmp_path))
    for operator, operations in counted.items():
        groups = GROUPS.get(name, 1) if operator.endswith("convolution_backward") else 1
        assert found[operator] * (1 + groups) == 2 * operations, operator


def flops(facts: Facts) -> Counter[str]:
    """Add up the FLOPs of all calls by operator."""
    events, total = facts.events, Counter[str]()
    for i in events.where(Category.CPU_OP):
        if events.shapes[i] != -1 and events.types[i] != -1:
            setting = "" if events.settings[i] == -1 else events.input_settings[events.settings[i]]
            name = events.names[events.name[i]]
            shapes, types = events.input_shapes[events.shapes[i]], events.input_types[events.types[i]]
            cost = operator_cost(name, shapes, types, setting)
            total[name] += cost.operations if cost else 0
    return total


@pytest.mark.parametrize(
    ("operator", "inputs"),
    [
        ("_scaled_dot_product_flash_attention", 3),
        ("_scaled_dot_product_efficient_attention", 3),
        ("_scaled_dot_product_cudnn_attention", 3),
        ("_scaled_dot_product_flash_attention_backward", 4),
        ("_scaled_dot_product_efficient_attention_backward", 4),
        ("_scaled_dot_product_cudnn_attention_backward", 4),
    ],
)
def test_fused_attention_costs_what_torch_s_formulas_say(operator: str, inputs: int) -> None:
    """Grouped queries, other lengths and sizes of keys and values than of queries."""
    import json

    from torch.utils.flop_counter import flop_registry

    query, key, value = [2, 8, 16, 64], [2, 2, 24, 64], [2, 2, 24, 32]
    shapes = [query, key, value] if inputs == 3 else [[2, 8, 16, 32], query, key, value]
    expected = flop_registry[getattr(torch.ops.aten, operator)](
        *(torch.empty(shape, device="meta") for shape in shapes),
        out_val=torch.empty(0, device="meta"),
    )
    types = ["c10::BFloat16"] * inputs
    cost = operator_cost(f"aten::{operator}", json.dumps(shapes), json.dumps(types))
    assert cost is not None
    assert cost.operations == expected
    causal = [[2, 8, 16, 64]] * inputs
    whole, half = (
        operator_cost(f"aten::{operator}", json.dumps(causal), json.dumps(types), json.dumps([flag] * 20))
        for flag in ("False", "True")
    )
    assert whole is not None
    assert half is not None
    assert whole.operations == 2 * half.operations


def recorded(run: Run, folder: Path) -> Facts:
    run()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as profiler:
        run()
    path = folder / "cpu.pt.trace.json"
    profiler.export_chrome_trace(str(path))
    return Facts(read_trace(str(path)))


def layers() -> Any:
    return nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(4))


def checkpointed(*, use_reentrant: bool, pieces: bool = False) -> Run:
    from torch.utils.checkpoint import checkpoint

    model, x = layers(), torch.randn(8, 32, requires_grad=True)
    called = [piece for layer in model for piece in layer] if pieces else list(model)

    def run() -> None:
        y = x
        for layer in called:
            y = checkpoint(layer, y, use_reentrant=use_reentrant)
        y.sum().backward()

    return run


def gradient_penalty() -> None:
    x, y = torch.randn(8, 32, requires_grad=True), None
    for layer in layers():
        y = layer(x if y is None else y)
    assert y is not None
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (y.mean() + gradient.pow(2).sum()).backward()


@pytest.mark.parametrize(
    ("run", "matmuls"),
    [
        (checkpointed(use_reentrant=True), 8),
        (checkpointed(use_reentrant=False), 8),
        (checkpointed(use_reentrant=False, pieces=True), 8),
        (trained(nn.Sequential(*layers()), torch.randn(8, 32, requires_grad=True)), 0),
        (gradient_penalty, 0),
    ],
    ids=["reentrant", "hooks", "each layer", "not checkpointed", "gradient penalty"],
)
def test_a_forward_pass_that_ran_again_is_found(run: Run, matmuls: int, tmp_path: Path) -> None:
    facts = recorded(run, tmp_path)
    events = facts.events
    again = Counter(events.names[events.name[i]] for i in facts.recomputed.nonzero()[0])
    assert again["aten::addmm"] == matmuls
    assert again["aten::mm"] == 0
    assert 2 * again["aten::gelu"] == matmuls
