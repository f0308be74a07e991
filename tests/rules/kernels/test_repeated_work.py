"""Work that a step does again is named, with its cost and the place that asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.kernels.cpu_computing import RULE
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, figures, finding, findings

STEPS = 4


def _calls(tmp_path: Path, *, widths: tuple[int, ...], backward: str = "", modules: int = 1) -> Facts:
    """Steps of 1,000 us that call a module four times, on inputs of these widths by turns; between the calls,
    backward passes, if any: that "adds" to gradients, or "returns" them. modules: how many there are."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for i in range(STEPS):
        at = 1_000 * i
        main.step(i, at=at, us=1_000)
        main.frame("train.py(9): translate", at=at, us=999)
        for call in range(4):
            begin, width = at + 1 + 240 * call, widths[call % len(widths)]
            main.frame(f"nn.Module: Encoder_{call % modules}", at=begin, us=200)
            main.op(
                "aten::mm", at=begin + 1, us=198, shapes=[[width, 512], [512, 512]], sequence=4 * i + call
            )
            if backward:
                main.op("MmBackward0", at=begin + 201, us=20, sequence=4 * i + call, forward_thread=1)
                if backward == "adds":
                    main.op("torch::autograd::AccumulateGrad", at=begin + 222, us=5)
    return facts_of(trace, tmp_path)


@pytest.mark.parametrize(("backward", "share"), [("", "59.4%"), ("returns", "65.4%")])
def test_a_module_that_a_step_calls_with_equal_work_is_named(
    backward: str, share: str, tmp_path: Path
) -> None:
    found = finding(findings(RULE.check(_calls(tmp_path, widths=(64,), backward=backward)))[-1])
    assert found.title.endswith(f"Encoder_0 runs 4 times in a step, all but the first for {share}")
    assert "from translate (train.py, defined at line 9)" in found.summary
    assert found.fix.text.startswith("If the inputs of these calls are the same")
    assert "All but the first" in figures(found)


@pytest.mark.parametrize(
    "others",
    [{"widths": (64, 65, 66, 67)}, {"widths": (64,), "modules": 4}, {"widths": (64,), "backward": "adds"}],
)
def test_other_shapes_modules_and_batches_are_no_repeats(others: dict[str, object], tmp_path: Path) -> None:
    found = findings(RULE.check(_calls(tmp_path, **others)))[-1]  # type: ignore[arg-type]
    assert "all but the first" not in found.title


def test_of_loops_inside_one_another_the_one_with_most_calls_is_named(tmp_path: Path) -> None:
    """Each step refines a batch three times, which calls a module for each of four items."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for i in range(STEPS):
        at = 1_000 * i
        main.step(i, at=at, us=1_000)
        main.frame("train.py(9): train", at=at, us=999)
        for outer in range(3):
            main.frame("train.py(20): refine", at=at + 1 + 330 * outer, us=320)
            main.op("aten::add", at=at + 2 + 330 * outer, us=60, shapes=[[4, 64], [4, 64]])
            for item in range(4):
                begin = at + 63 + 330 * outer + 60 * item
                main.frame("nn.Module: Expert_0", at=begin, us=58)
                main.op("aten::mm", at=begin + 1, us=56, shapes=[[1, 64], [64, 64]], sequence=99 * i + item)
    found = findings(RULE.check(facts_of(trace, tmp_path)))[-1]
    assert "Expert_0 runs 12 times in a step" in found.title


def _backward(
    tmp_path: Path, *, passes: int, makes_graph: bool = False, between: str = "", adds: bool = True
) -> Facts:
    """Steps of a forward operator and of backward passes over it of 200 us each, called by `train`. between:
    what ends each pass. adds: to the parameters' gradients."""
    trace = TraceBuilder(devices=())
    main, engine = trace.thread(), trace.thread()
    for i in range(STEPS):
        at = 1_000 * i
        main.step(i, at=at, us=1_000)
        main.frame("train.py(9): train", at=at, us=999)
        main.op("aten::mm", at=at + 1, us=150, sequence=100 * i)
        for one in range(passes):
            begin = at + 155 + 205 * one
            main.frame("torch/autograd/graph.py(851): _engine_run_backward", at=begin, us=203)
            engine.op("MmBackward0", at=begin + 1, us=200, sequence=100 * i, forward_thread=1)
            if adds:
                engine.op("torch::autograd::AccumulateGrad", at=begin + 201.2, us=0.5)
            if between:
                main.annotation(between, at=begin + 203.2, us=1)
            engine.op("aten::mm", at=begin + 2, us=190, sequence=100 * i + 10 + one if makes_graph else None)
    return facts_of(trace, tmp_path)


def test_backward_passes_over_one_forward_pass_are_a_warning_at_their_caller(tmp_path: Path) -> None:
    found = findings(RULE.check(_backward(tmp_path, passes=4)))[0]
    assert found.title.startswith("Going backward again over the same forward pass")
    assert (found.cost_ns, found.severity) == (STEPS * 3 * 200_000, Severity.WARNING)
    assert found.places[0].function == "train"


@pytest.mark.parametrize(
    "others",
    [
        {"passes": 1},
        {"passes": 4, "makes_graph": True},
        {"passes": 4, "between": "Optimizer.step#SGD.step"},
        {"passes": 4, "between": "Optimizer.zero_grad#SGD.zero_grad"},
        {"passes": 4, "adds": False},
    ],
)
def test_second_derivatives_other_networks_and_gradients_of_each_loss_are_no_repeats(
    others: dict[str, object], tmp_path: Path
) -> None:
    answer = RULE.check(_backward(tmp_path, **others))  # type: ignore[arg-type]
    assert "backward again" not in str(answer)


def test_a_pass_through_what_the_next_step_does_not_train_is_to_be_cut_off(tmp_path: Path) -> None:
    """As a discriminator's loss goes back through the generator, whose gradients are then cleared."""
    trace = TraceBuilder(devices=())
    main, engine = trace.thread(), trace.thread()
    for i in range(STEPS):
        at = 1_000 * i
        main.step(i, at=at, us=1_000)
        main.frame("train.py(9): train", at=at, us=999)
        main.op("aten::mm", at=at + 1, us=150, sequence=100 * i)
        for one in range(2):
            begin = at + 155 + 300 * one
            main.frame("torch/autograd/graph.py(851): _engine_run_backward", at=begin, us=203)
            engine.op("MmBackward0", at=begin + 1, us=200, sequence=100 * i, forward_thread=1)
            engine.op("aten::mm", at=begin + 2, us=190)
            engine.op("torch::autograd::AccumulateGrad", at=begin + 201.2, us=0.5)
            main.annotation("Optimizer.step#Adam.step", at=begin + 204, us=20)
            main.annotation("Optimizer.zero_grad#Adam.zero_grad", at=begin + 225, us=20)
    found = findings(RULE.check(facts_of(trace, tmp_path)))[0]
    assert found.cost_ns == STEPS * 200_000
    assert "detach()" in found.fix.text
    assert found.places[0].function == "train"


@pytest.mark.parametrize(("rows", "reported"), [(100_000, True), (64, False)])
def test_dropout_on_a_whole_table_is_work_on_all_of_its_rows(
    rows: int, *, reported: bool, tmp_path: Path
) -> None:
    """A step multiplies a tensor of this many rows, forward and backward, and looks up some of 100,000."""
    trace = TraceBuilder(devices=())
    main, engine = trace.thread(), trace.thread()
    for i in range(STEPS):
        at, shapes = 1_000 * i, [[rows, 128], [rows, 128]]
        main.step(i, at=at, us=1_000)
        main.frame("train.py(9): dropped", at=at, us=999)
        main.op("aten::mul", at=at + 1, us=400, shapes=shapes, sequence=100 * i)
        main.op("aten::embedding", at=at + 402, us=10, shapes=[[100_000, 128], [64]], sequence=100 * i + 1)
        main.frame("torch/autograd/graph.py(851): _engine_run_backward", at=at + 415, us=400)
        engine.op("MulBackward0", at=at + 416, us=390, sequence=100 * i, forward_thread=1)
    found = findings(RULE.check(facts_of(trace, tmp_path)))[0]
    assert found.title.startswith("Working on all rows of a table takes 79.0%") == reported
    assert ("F.embedding" in found.fix.code) == reported


@pytest.mark.parametrize("steps", [STEPS, 0])
@pytest.mark.parametrize(
    ("lengths", "grows"), [(range(96, 108), True), ([8, 9, 11, 15, 23, 39, 71, 135], False)]
)
def test_a_model_that_goes_over_a_text_again_for_each_token_is_named(
    lengths: Sequence[int], steps: int, *, grows: bool, tmp_path: Path
) -> None:
    """With and without steps. Batches that are sorted by length grow, too, but not by as much each time."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for i in range(max(1, steps)):
        at = 1_000 * i
        if steps:
            main.step(i, at=at, us=1_000)
        main.frame("sample.py(9): generate", at=at, us=999)
        for call, length in enumerate(lengths):
            main.frame("nn.Module: GPT_0", at=at + 1 + 80 * call, us=78)
            main.op("aten::mm", at=at + 2 + 80 * call, us=76, shapes=[[length, 64], [64, 64]])
    found = finding(findings(RULE.check(facts_of(trace, tmp_path)))[-1])
    assert ("GPT_0 runs 12 times in a row, each on more than before" in found.title) == grows
    assert ("past_key_values" in found.fix.code) == grows
    assert (found.severity == Severity.WARNING) == grows
    assert not grows or found.places[0].function == "generate"


def test_sizes_that_no_computer_has_are_no_growth(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1_000)
    for call in range(10):
        main.frame("nn.Module: GPT_0", at=1 + 90 * call, us=88)
        main.op("aten::mm", at=2 + 90 * call, us=86, shapes=[[2**30 + call, 2**29]] * 16)
    assert facts_of(trace, tmp_path).host_work.calls_on_more.per_step == 0


def _frozen(
    tmp_path: Path,
    *,
    older: int = 3,
    forwards: int = 1,
    mixed: bool = False,
    steps: int = STEPS,
    taken: tuple[int, ...] = (),
) -> Facts:
    """Steps that go forward through six layers of 50 us and backward, of 100 us each. The gradients of the
    last `older` layers are added to older ones; mixed: of every second layer. forwards: how often a step goes
    forward and backward. taken: of layers, whose width is their number, those that an optimizer updates."""
    trace = TraceBuilder(devices=())
    main, engine = trace.thread(), trace.thread()
    for i in range(STEPS * forwards):
        at = 1_000 * i
        if i % forwards == 0 and i < steps * forwards:
            main.step(i, at=at, us=1_000 * forwards)
        for layer in range(6):
            main.op("aten::mm", at=at + 1 + 51 * layer, us=50, sequence=10 * i + layer)
        for place, layer in enumerate(reversed(range(6))):
            begin = at + 310 + 105 * place
            adds = layer % 2 == 0 if mixed else layer >= 6 - older
            engine.op("MmBackward0", at=begin, us=100, sequence=10 * i + layer, forward_thread=1)
            engine.op("torch::autograd::AccumulateGrad", at=begin + 100.5, us=3, shapes=[[layer + 1]])
            engine.op("aten::add_" if adds else "aten::detach", at=begin + 101, us=2)
        update = main.op("Optimizer.step#SGD.step", at=at + 950, us=40)
        for layer in taken:
            update.op("aten::add_", at=at + 951 + 2 * layer, us=1, shapes=[[layer + 1], [layer + 1]])
    return facts_of(trace, tmp_path)


@pytest.mark.parametrize("how", [{"older": 3}, {"older": 0, "taken": (3, 4, 5)}])
def test_a_backward_pass_for_gradients_that_no_optimizer_uses_is_to_be_left_out(
    how: dict[str, object], tmp_path: Path
) -> None:
    """As of a teacher or a frozen model that runs with gradients, which are added to older ones, or which the
    model clears: the nodes of its layers, and nothing else, are avoidable."""
    found = findings(RULE.check(_frozen(tmp_path, **how)))[0]  # type: ignore[arg-type]
    assert found.title.startswith("Going backward for gradients that no optimizer uses takes 30.")
    assert (found.cost_ns, found.severity) == (STEPS * 3 * 100_000, Severity.WARNING)
    assert "torch.no_grad()" in found.fix.code


@pytest.mark.parametrize(
    "others",
    [
        {"older": 6},  # zero_grad(set_to_none=False), or a later one of several micro-batches
        {"older": 0},
        {"mixed": True},  # weights that not every pass uses
        {"forwards": 2},  # two networks, each of which clears its own gradients before its pass
        {"steps": 0},
        {"older": 0, "taken": (0, 1, 2, 3, 4, 5)},
        {"older": 0, "taken": (1, 3, 5)},  # layers between others: nothing can be left out
        {"older": 0, "taken": (99,)},  # flat parameters: an optimizer has none of these shapes
    ],
)
def test_gradients_that_a_step_uses_clears_or_collects_are_needed(
    others: dict[str, object], tmp_path: Path
) -> None:
    answer = RULE.check(_frozen(tmp_path, **others))  # type: ignore[arg-type]
    assert "no optimizer uses" not in str(answer)
