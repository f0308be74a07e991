"""Small trainings of many kinds, which say what they called: a model each, and how its loop treats it."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import random
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._python_dispatch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

SIZE, STEPS = 4, 4

calls: list[str] = []
"""Of the program's own functions, in order."""


def say(what: str) -> None:
    calls.append(what)


def same(y: Any) -> Any:
    return y


def said(what: str, value: Any) -> Any:
    say(what)
    return value


class Net(nn.Module):  # type: ignore[misc]
    """It draws random numbers, and returns what `wrap` makes of its tensor."""

    def __init__(self, wrap: Callable[[Any], Any] = same, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.layer = inner or nn.Linear(SIZE, SIZE)
        self.drop = nn.Dropout(0.3)
        self.wrap = wrap

    def forward(self, x: Any) -> Any:
        return self.wrap(self.drop(self.layer(x)))


class Batches:
    """A loader that draws a seed when it is iterated over, as torch's does."""

    def __iter__(self) -> Iterator[Any]:
        say(f"iter {torch.rand(1).item()}")
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        for number in range(STEPS):
            say(f"batch {number}")
            yield torch.rand(3, SIZE)


def train_step(model: Any, optimizer: Any, batch: Any, loss_of: Callable[[Any], Any]) -> Any:
    loss = loss_of(model(batch))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


@dataclass
class Case:
    """wrap: what forward makes of its tensor. loss: of the output. model: made of the Net. step: what a step
    does. around: entered around the training."""

    wrap: Callable[[Any], Any] = same
    loss: Callable[[Any], Any] = lambda output: output.sum()
    model: Callable[[Net], Any] = lambda net: net
    step: Callable[[Any, Any, Any, Callable[[Any], Any]], Any] = train_step
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    optimizer: Callable[[Any], Any] = lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    has_program_hooks: bool = True
    is_slow: bool = False


class Saying:
    """An iterable, which says when it is iterated over."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __iter__(self) -> Iterator[Any]:
        say("__iter__")
        yield self.value

    def __getattr__(self, name: str) -> Any:
        say(f"__getattr__ {name}")
        raise AttributeError(name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        say("__class__")
        return Saying


class LazyMapping(Mapping[str, Any]):
    def __init__(self, value: Any) -> None:
        self.value = value

    def __getitem__(self, key: str) -> Any:
        say(f"make {key}")
        return self.value

    def __iter__(self) -> Iterator[str]:
        say("keys")
        return iter(["loss"])

    def __len__(self) -> int:
        return 1


class LazyDict(dict[str, Any]):
    def __iter__(self) -> Iterator[str]:
        say("keys")
        return super().__iter__()

    def values(self) -> Any:
        say("values")
        return super().values()

    def __getitem__(self, key: str) -> Any:
        say(f"make {key}")
        return super().__getitem__(key)()


class SayingList(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        say("list's __iter__")
        return super().__iter__()


class Output(OrderedDict[str, Any]):
    """As those of transformers: items and attributes."""

    def values(self) -> Any:
        say("values")
        return super().values()

    def __getattr__(self, name: str) -> Any:
        say(f"get {name}")
        return self[name]


Named = namedtuple("Named", ["logits", "hidden"])


@dataclass
class Fields:
    loss: Any

    @property
    def logits(self) -> Any:
        say("property")
        return self.loss


@dataclass(slots=True)
class Slots:
    loss: Any


class SayingTensor(torch.Tensor):  # type: ignore[misc]
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        say(f"function {getattr(func, '__name__', func)}")
        return super().__torch_function__(func, types, args, kwargs or {})


class FunctionMode(TorchFunctionMode):  # type: ignore[misc]
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        say(f"mode {getattr(func, '__name__', func)}")
        return func(*args, **(kwargs or {}))


class DispatchMode(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        say(f"dispatch {func}")
        return func(*args, **(kwargs or {}))


class Recurrent(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(SIZE, SIZE, num_layers=2, dropout=0.2)
        self.state: Any = None

    def forward(self, x: Any) -> Any:
        output, state = self.lstm(x[None], self.state)
        self.state = tuple(one.detach() for one in state)
        return output, state


class Raises(nn.Module):  # type: ignore[misc]
    """Every other forward raises."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net, self.count = net, 0

    def forward(self, x: Any) -> Any:
        self.count += 1
        if self.count % 2:
            raise ValueError("of the program")
        return self.net(x)


class Returns(nn.Module):  # type: ignore[misc]
    """Returns a leaf, an input or the same tensor again before what it computed."""

    def __init__(self, net: Net, kind: str) -> None:
        super().__init__()
        self.net, self.kind = net, kind
        self.kept: Any = None

    def forward(self, x: Any) -> Any:
        y = self.net(x)
        if self.kind == "kept" and self.kept is None:
            self.kept = self.net.layer.weight * 2
        return {"parameter": self.net.layer.weight, "input": x, "kept": self.kept}[self.kind], y


class Checkpointed(nn.Module):  # type: ignore[misc]
    def __init__(self, net: Net, reentrant: bool) -> None:
        super().__init__()
        self.net, self.reentrant = net, reentrant

    def forward(self, x: Any) -> Any:
        return checkpoint(self.net, x.requires_grad_(), use_reentrant=self.reentrant) * 2


class ReversesBase(nn.Module):  # type: ignore[misc]
    """Returns views of a tensor that was changed in place since: their nodes are made when looked at."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Any) -> Any:
        base = self.net(x) * 1.5
        views = base[:1], base[1:2]
        base.mul_(3.3)
        return (*views, base)


def compiled(backend: str, inner: bool = False) -> Callable[[Net], Any]:
    def compile_it(net: Net) -> Any:
        torch._dynamo.reset()
        if inner:
            net.layer = torch.compile(net.layer, backend=backend)
            return net
        return torch.compile(net, backend=backend)

    return compile_it


def fully_sharded(net: Net) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (1,))
    fully_shard(net.layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def with_hook(hook: Callable[..., Any]) -> Callable[[Net], Any]:
    def add(net: Net) -> Any:
        net.register_forward_hook(hook)
        return net

    return add


def raise_now(*_: Any) -> None:
    say("raises")
    raise ValueError("of the program")


def catching_step(model: Any, optimizer: Any, batch: Any, loss_of: Any) -> Any:
    try:
        return train_step(model, optimizer, batch, loss_of)
    except ValueError as error:
        say(f"caught {error}")
        return torch.zeros(())


def twice_step(model: Any, optimizer: Any, batch: Any, loss_of: Any) -> Any:
    loss = loss_of(model(batch)) * loss_of(model(batch * 2))
    loss.backward(retain_graph=True)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def penalty_step(model: Any, optimizer: Any, batch: Any, loss_of: Any) -> Any:
    batch.requires_grad_()
    loss = loss_of(model(batch)).square()
    (gradient,) = torch.autograd.grad(loss, batch, create_graph=True)
    (loss + gradient.square().sum()).backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def closure_step(model: Any, optimizer: Any, batch: Any, loss_of: Any) -> Any:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(batch)).square()
        loss.backward()
        return loss

    return optimizer.step(closure)


def functional_step(model: Any, optimizer: Any, batch: Any, loss_of: Any) -> Any:
    def loss_with(parameters: Any) -> Any:
        return loss_of(torch.func.functional_call(model, parameters, (batch,)))

    parameters = dict(model.named_parameters())
    gradients, loss = torch.func.grad_and_value(loss_with)(parameters)
    for name, parameter in parameters.items():
        parameter.grad = gradients[name]
    optimizer.step()
    return loss


def saving_step(model: Any, optimizer: Any, batch: Any, loss_of: Any) -> Any:
    loss = train_step(model, optimizer, batch, loss_of)
    average = copy.deepcopy(model)
    loss_of(average(batch)).backward()
    again = pickle.loads(pickle.dumps(model))
    loss_of(again(batch)).backward()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rate": average}, file)
    copy.deepcopy(optimizer).step()
    return loss


def inplace_step(model: Any, optimizer: Any, batch: Any, loss_of: Any) -> Any:
    return train_step(model, optimizer, batch, lambda output: loss_of(output.mul_(2).add_(1)))


def evaluating_step(model: Any, optimizer: Any, batch: Any, loss_of: Any) -> Any:
    loss = train_step(model, optimizer, batch, loss_of)
    model.eval()
    with torch.inference_mode():
        model(batch)
    model.train()
    return loss


def output_saving_step(model: Any, optimizer: Any, batch: Any, loss_of: Any) -> Any:
    output = model(batch)
    torch.save(output, io.BytesIO())  # it warns of hooks of a tensor
    loss = loss_of(output)
    loss.backward()
    optimizer.step()
    return loss


def exporting_step(model: Any, optimizer: Any, batch: Any, loss_of: Any) -> Any:
    loss = train_step(model, optimizer, batch, loss_of)
    exported = torch.export.export(model, (batch,))
    say(str([node.op for node in exported.graph.nodes]))
    say(str(torch.fx.symbolic_trace(model).graph))
    torch.jit.trace(model.eval(), batch)
    model.train()
    return loss


def second(output: Any) -> Any:
    return output[1].sum()


def deep(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def shallow(value: Any) -> Any:
    while isinstance(value, list):
        value = value[0]
    return value.sum()


def circle(value: Any) -> list[Any]:
    found: list[Any] = []
    found += [found, value]
    return found


CASES: dict[str, Case] = {
    "tensor": Case(),
    "tuple": Case(lambda y: (1, y), lambda output: output[1].sum()),
    "list": Case(lambda y: [None, y], lambda output: output[1].sum()),
    "dict": Case(lambda y: {"a": "b", "loss": y}, lambda output: output["loss"].sum()),
    "nested": Case(lambda y: {"a": [(y, 1)], "b": y}, lambda output: output["a"][0][0].sum()),
    "generator": Case(lambda y: (y * i for i in range(3)), lambda output: sum(one.sum() for one in output)),
    "map": Case(lambda y: map(torch.sum, [y, y * 2]), sum),
    "endless": Case(itertools.repeat, lambda output: next(output).sum()),
    "iterable": Case(Saying, lambda output: next(iter(output)).sum()),
    "object": Case(lambda y: [Saying(1), y], lambda output: output[1].sum()),
    "named tuple": Case(lambda y: Named(y, None), lambda output: output.logits.sum()),
    "dataclass": Case(Fields, lambda output: output.logits.sum()),
    "dataclass with slots": Case(Slots, lambda output: output.loss.sum()),
    "model output": Case(lambda y: Output(loss=y), lambda output: output.loss.sum()),
    "lazy mapping": Case(LazyMapping, lambda output: output["loss"].sum()),
    "lazy dict": Case(lambda y: LazyDict(loss=lambda: y), lambda output: output["loss"].sum()),
    "user's dict": Case(lambda y: UserDict(loss=y), lambda output: output["loss"].sum()),
    "user's list": Case(lambda y: SayingList([y]), lambda output: sum(one.sum() for one in output)),
    "set": Case(lambda y: {y}, lambda output: next(iter(output)).sum()),
    "function": Case(lambda y: lambda: y, lambda output: output().sum()),
    "huge list": Case(lambda y: [*range(10**5), y], lambda output: output[-1].sum()),
    "deep list": Case(lambda y: deep(y, 5000), shallow),
    "list in itself": Case(circle, lambda output: output[1].sum()),
    "two tensors": Case(lambda y: [y[:1] * 2, y[1:] * 3], lambda output: output[1].sum() + output[0].sum()),
    "tensor subclass": Case(lambda y: y.as_subclass(SayingTensor)),
    "function mode": Case(around=FunctionMode),
    "dispatch mode": Case(around=DispatchMode),
    "default device": Case(around=lambda: torch.device("cpu")),
    "anomaly mode": Case(around=torch.autograd.detect_anomaly),
    "autocast": Case(around=lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "saved tensors": Case(
        around=lambda: torch.autograd.graph.saved_tensors_hooks(
            lambda one: said(f"pack {tuple(one.shape)}", one), lambda one: said("unpack", one)
        )
    ),
    "compiled by AOT": Case(model=compiled("aot_eager"), is_slow=True),
    "compiled inside": Case(model=compiled("eager", inner=True), is_slow=True),
    "compiled autograd": Case(
        model=compiled("eager"),
        around=lambda: torch._dynamo.config.patch(compiled_autograd=True),
        is_slow=True,
    ),
    "FSDP": Case(model=fully_sharded),
    "DDP": Case(model=nn.parallel.DistributedDataParallel),
    "data parallel": Case(model=nn.DataParallel),
    "hook that raises": Case(model=with_hook(raise_now), step=catching_step),
    "forward that raises": Case(model=Raises, step=catching_step),
    "backward that raises": Case(
        lambda y: (y.register_hook(raise_now), y)[1], step=catching_step, has_program_hooks=False
    ),
    "hook that changes": Case(model=with_hook(lambda _module, _inputs, output: output * 2)),
    "recurrent": Case(model=lambda _: Recurrent(), loss=lambda output: output[0].sum() + output[1][1].sum()),
    "in place": Case(step=inplace_step, has_program_hooks=False),
    "views": Case(
        model=ReversesBase,
        loss=lambda output: (
            (output[2].exp() * 3 + output[2]).sum() + output[0].sum() + output[1].square().sum()
        ),
        has_program_hooks=False,
    ),
    "reentrant checkpoint": Case(model=lambda net: Checkpointed(net, True)),
    "checkpoint": Case(model=lambda net: Checkpointed(net, False)),
    "returns a parameter": Case(model=lambda net: Returns(net, "parameter"), loss=second),
    "returns its input": Case(model=lambda net: Returns(net, "input"), loss=second),
    "returns what it kept": Case(model=lambda net: Returns(net, "kept"), loss=second),
    "two passes": Case(step=twice_step),
    "gradient penalty": Case(step=penalty_step),
    "closure": Case(
        step=closure_step, optimizer=lambda parameters: torch.optim.LBFGS(parameters, max_iter=2)
    ),
    "functional": Case(step=functional_step, has_program_hooks=False),
    "copies": Case(step=saving_step, has_program_hooks=False),
    "saved outputs": Case(step=output_saving_step, has_program_hooks=False),
    "evaluation": Case(step=evaluating_step),
    "exported": Case(step=exporting_step, has_program_hooks=False),
    "sparse": Case(
        model=lambda _: nn.Sequential(nn.Flatten(0), Ids(), nn.Embedding(9, SIZE, sparse=True)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    ),
    "lazy module": Case(model=lambda net: Net(inner=nn.LazyLinear(SIZE))),
    "parametrized": Case(
        model=lambda net: Net(inner=nn.utils.parametrizations.weight_norm(nn.Linear(SIZE, SIZE)))
    ),
}


class Ids(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return (x * 8).long()


def add_program_hooks(model: Any, optimizer: Any) -> None:
    """Hooks of the program, each of which says that it was called, on the model and what is in it."""
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda *_, name=name: say(f"before {name}"))
        module.register_forward_hook(lambda *_, name=name: say(f"after {name}"))
    for name, parameter in model.named_parameters():
        if not isinstance(parameter, nn.UninitializedParameter):
            parameter.register_hook(lambda _, name=name: say(f"gradient {name}"))
    optimizer.register_step_pre_hook(lambda *_: say("before the optimizer"))
    optimizer.register_step_post_hook(lambda *_: say("after the optimizer"))


def hooks_of(model: Any, optimizer: Any) -> list[list[int]]:
    """Return the keys of the hooks that are there."""
    dicts = [
        hooks
        for module in model.modules()
        for hooks in (module._forward_pre_hooks, module._forward_hooks, module._backward_hooks)
    ]
    dicts += [optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks]
    return [list(hooks) for hooks in dicts]


Around = Callable[[Any, Any], AbstractContextManager[tuple[Callable[[Any], Any], Callable[[], None]]]]
"""Of a model and an optimizer: what a loader is wrapped in, and what is called at the end of each step."""


def train(case: Case, around: Around) -> dict[str, Any]:
    """Train a case with something of ours around it. Return what must not depend on that."""
    calls.clear()
    torch.manual_seed(7)
    random.seed(7)
    model = case.model(Net(case.wrap))
    optimizer = case.optimizer(model.parameters())
    if case.has_program_hooks:
        add_program_hooks(model, optimizer)
    losses = list[float]()
    before = hooks_of(model, optimizer)
    with around(model, optimizer) as (wrapped, end_step), case.around():
        batches = iter(wrapped(Batches()))
        torch.rand(1)
        for batch in batches:
            losses.append(case.step(model, optimizer, batch, case.loss).item())
            calls.append(f"drew {torch.rand(1).item()} {random.random()}")
            end_step()
    return {
        "losses": losses,
        "calls": [*calls],
        "random": (torch.rand(1).item(), random.random()),
        "weights": [weight.detach().clone() for weight in model.parameters()],
        "hooks": [before == hooks_of(model, optimizer), {*model.state_dict()}],
    }
