"""What policies, recognizers, maps, explanations, samplers and servers keep for good.

Written, with what is right, before any of them was diagnosed, by somebody who did not know the rules.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from tests.truth.leak_loop import (
    GRADIENTS,
    GRAPH,
    GROWING,
    METRICS,
    NO_USUAL,
    OUTPUTS,
    Convolutions,
    Trainer,
    batch,
    images,
    leaks,
)


class SafePolicy:
    """A policy with a limit on its cost: the multiplier of the constraint rises while it is broken."""

    def __init__(self) -> None:
        self.policy = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 8))
        self.rewards, self.costs = nn.Linear(8, 1), nn.Linear(8, 1)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=0.001)
        self.multiplier = torch.zeros(())

    def cost(self, states: Any) -> Any:
        return nn.functional.softplus(self.costs(self.policy(states))).mean()

    def improve(self, states: Any) -> None:
        self.optimizer.zero_grad()
        reward = self.rewards(self.policy(states)).mean()
        (self.multiplier.detach() * self.cost(states) - reward).backward()
        self.optimizer.step()

    def tighten(self, states: Any) -> None:
        self.multiplier = (self.multiplier + 0.05 * (self.cost(states) - 0.2)).clamp(min=0)


@leaks("tighten cost", cause=GRAPH)
def a_multiplier_that_knows_all_costs() -> Iterator[None]:
    """A constraint's multiplier is raised by a cost that is not detached, so its graph has all costs."""
    agent = SafePolicy()
    while True:
        states = batch()
        agent.improve(states)
        agent.tighten(states)
        yield


class Recognizer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.tokens = nn.GRU(40, 48, batch_first=True), nn.Linear(48, 64)

    def forward(self, frames: Any, state: Any) -> tuple[Any, Any]:
        encoded, state = self.encoder(frames, state)
        return self.tokens(encoded), state


@dataclass
class Session:
    """What is known of one speaker."""

    state: Any = None
    partials: list[Any] = field(default_factory=list)
    text: list[int] = field(default_factory=list)


class Dictation:
    def __init__(self) -> None:
        self.recognizer = Recognizer().eval()

    @torch.inference_mode()
    def feed(self, session: Session, frames: Any) -> list[int]:
        logits, session.state = self.recognizer(frames, session.state)
        session.partials.append(logits)
        words = logits.argmax(-1).flatten().tolist()
        session.text = (session.text + words)[-200:]
        return session.text


@leaks("feed forward", cause=OUTPUTS)
def partial_results_of_a_microphone_left_on() -> Iterator[None]:
    """Logits of each chunk are kept to score them again at the end, but nobody switches it off."""
    dictation, session = Dictation(), Session()
    while True:
        dictation.feed(session, torch.rand(1, 40, 40))
        yield


class ActivationMonitor:
    """Draws how the activations of each layer are distributed, step by step."""

    def __init__(self, model: nn.Module) -> None:
        self.histograms = defaultdict[str, list[Any]](list)
        for name, layer in model.named_modules():
            if not list(layer.children()):
                layer.register_forward_hook(self.watch(name))

    def watch(self, name: str) -> Callable[..., None]:
        def record(_layer: nn.Module, _inputs: Any, output: Any) -> None:
            self.histograms[name].append(torch.histc(output.detach(), 256, -3, 3))

        return record


@leaks("record", cause=METRICS)
def histograms_of_each_layer() -> Iterator[None]:
    """A monitor adds a histogram of each layer in each step, for a picture that is drawn after training."""
    layers = itertools.chain.from_iterable((nn.Linear(64, 64), nn.ReLU()) for _ in range(5))
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ActivationMonitor(model)
    while True:
        optimizer.zero_grad()
        model(batch()).square().mean().backward()
        optimizer.step()
        yield


def remembered(encode: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """Encode each text once."""
    known = dict[str, Any]()

    @functools.wraps(encode)
    def once(self: Any, text: str) -> Any:
        key = hashlib.sha256(text.encode()).hexdigest()
        if key not in known:
            known[key] = encode(self, text)
        return known[key]

    return once


@leaks("once encode", cause=OUTPUTS | GROWING | NO_USUAL)
def prompts_that_begin_with_the_time() -> Iterator[None]:
    """Encoded prompts are remembered by their text, and the assistant's prompt has the time in it."""

    class Assistant:
        def __init__(self) -> None:
            self.encoder = nn.Sequential(nn.Embedding(128, 64), nn.Linear(64, 64), nn.Tanh())
            self.choose = nn.Linear(64, 10)

        @remembered
        def encode(self, text: str) -> Any:
            return self.encoder(torch.tensor([ord(letter) % 128 for letter in text]))

        @torch.no_grad()
        def answer(self, question: str, now: float) -> int:
            prompt = f"It is {now:.3f}. You are helpful and polite. The user asks: {question}"
            return int(self.choose(self.encode(prompt).mean(0)).argmax())

    assistant, clock = Assistant(), itertools.count(1_700_000_000.0, 0.37)
    while True:
        for question in ("How are you?", "Where is my order?"):
            assistant.answer(question, next(clock))
        yield


class PointMap:
    """The world as a robot has seen it: a row of each tensor is a point."""

    def __init__(self) -> None:
        widths = {"position": 3, "normal": 3, "color": 3, "weight": 1}
        self.points = {name: torch.zeros(0, width) for name, width in widths.items()}

    def register(self, scan: dict[str, Any], pose: Any) -> dict[str, Any]:
        turn, shift = pose[:3, :3], pose[:3, 3]
        return scan | {"position": scan["position"] @ turn.T + shift, "normal": scan["normal"] @ turn.T}

    def integrate(self, scan: dict[str, Any]) -> None:
        for name, old in self.points.items():
            self.points[name] = torch.cat([old, scan[name]])

    def distance(self, scan: dict[str, Any]) -> Any:
        some = self.points["position"][:: max(1, len(self.points["position"]) // 100)]
        return torch.cdist(scan["position"], some).min(1).values.mean()


@leaks("integrate", cause=GROWING)
def a_map_of_a_robot_that_only_drives_on() -> Iterator[None]:
    """Each scan is joined to the map, also where the map has points already."""
    world, angle = PointMap(), 0.0
    while True:
        scan = {name: torch.rand(300, old.shape[1]) for name, old in world.points.items()}
        angle += 0.1
        turn = torch.tensor([[0.0, -angle, 0.0], [angle, 0.0, 0.0], [0.0, 0.0, 0.0]]).matrix_exp()
        pose = torch.cat([turn, torch.tensor([[angle], [0.0], [0.0]])], 1)
        world.integrate(world.register(scan, pose))
        world.distance(scan)
        yield


@dataclass
class Explanation:
    label: int
    saliency: Any


class Explainer:
    """Which pixels a class depends on."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.report = list[Explanation]()

    def explain(self, image: Any) -> Explanation:
        image = image.clone().requires_grad_()
        scores = self.network(image)
        label = int(scores.mean(0).argmax())
        scores[:, label].sum().backward()
        return Explanation(label, image.grad)

    def review(self, pictures: Any) -> None:
        self.report.append(self.explain(pictures))


@leaks("explain review", cause=GRADIENTS)
def saliency_of_all_reviewed_pictures() -> Iterator[None]:
    """The gradient of each picture goes into a report that is only written at the end."""
    trainer = Convolutions(8)
    explainer = Explainer(trainer.model)
    while True:
        pictures = images()
        trainer.train(pictures)
        explainer.review(pictures[:2])
        yield


class Rejected(Exception):
    """The sample cannot be: its weight is zero."""


class Program:
    """A probabilistic program, whose choices are recorded by the handler on top of the stack."""

    def __init__(self) -> None:
        self.handlers = list[dict[str, Any]]()
        self.prior = nn.Linear(64, 64)

    @contextmanager
    def traced(self) -> Iterator[dict[str, Any]]:
        self.handlers.append({})
        yield self.handlers[-1]
        self.handlers.pop()

    def sample(self, name: str, mean: Any) -> Any:
        value = torch.distributions.Normal(mean, 1.0).sample()
        self.handlers[-1][name] = value
        return value

    def __call__(self) -> None:
        weather = self.sample("weather", torch.zeros(16, 64))
        traffic = self.sample("traffic", self.prior(weather))
        if self.sample("delay", traffic.tanh()).mean() < 0:
            raise Rejected

    @torch.no_grad()
    def infer(self, particles: int) -> list[dict[str, Any]]:
        accepted = []
        for _ in range(particles):
            try:
                with self.traced() as choices:
                    self()
            except Rejected:
                continue
            accepted.append(choices)
        return accepted


@leaks("sample __call__ traced infer", cause=METRICS | NO_USUAL)
def traces_of_rejected_samples() -> Iterator[None]:
    """A context without a finally leaves its handler on the stack whenever a sample is rejected."""
    program = Program()
    while True:
        program.infer(6)
        yield


class Cooccurrences:
    """Counts which words stand side by side."""

    def __init__(self, words: int) -> None:
        self.counts = torch.sparse_coo_tensor(
            torch.zeros(2, 0, dtype=torch.long), torch.zeros(0), (words, words)
        )

    def add(self, text: Any) -> None:
        pairs = torch.stack([text[:-1], text[1:]])
        self.counts = self.counts + torch.sparse_coo_tensor(
            pairs, torch.ones(pairs.shape[1]), self.counts.shape
        )


@leaks("add", cause=GROWING | NO_USUAL)
def sparse_counts_that_are_never_coalesced() -> Iterator[None]:
    """A sum of sparse tensors has the entries of both, also of words that it has counted already."""
    counts, vectors = Cooccurrences(200), nn.Embedding(200, 32)
    optimizer = torch.optim.SGD(vectors.parameters(), lr=0.1)
    while True:
        text = torch.randint(200, (500,))
        counts.add(text)
        optimizer.zero_grad()
        (vectors(text[:-1]) * vectors(text[1:])).sum(-1).sigmoid().mean().backward()
        optimizer.step()
        yield


class Gateway:
    """Answers requests in the background. The loop has weak references only, so tasks are held here."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)).eval()
        self.background = set[asyncio.Task[Any]]()

    async def answer(self, rows: Any) -> Any:
        await asyncio.sleep(0)
        with torch.no_grad():
            return self.model(rows)

    def submit(self, rows: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(self.answer(rows))
        self.background.add(task)
        return task

    async def serve(self) -> None:
        tasks = [self.submit(batch(16)) for _ in range(3)]
        for task in asyncio.as_completed(tasks):
            (await task).argmax(-1).tolist()


@leaks("submit answer serve", cause=OUTPUTS | NO_USUAL)
def tasks_that_are_done_stay_in_a_set() -> Iterator[None]:
    """Tasks are put into a set lest they vanish, are never discarded, and each has its result."""
    gateway, loop = Gateway(), asyncio.new_event_loop()
    try:
        while True:
            loop.run_until_complete(gateway.serve())
            yield
    finally:
        loop.close()


class Buffers:
    """Lends buffers, by their shape."""

    def __init__(self) -> None:
        self.free = defaultdict[tuple[int, ...], list[Any]](list)

    def take(self, *shape: int) -> Any:
        return self.free[shape].pop() if self.free[shape] else torch.empty(shape)

    def give(self, buffer: Any) -> None:
        self.free[tuple(buffer.shape)].append(buffer)


@leaks("take give step", cause=GROWING | NO_USUAL)
def buffers_come_back_in_another_shape() -> Iterator[None]:
    """A pool gets its buffers back flattened, and has none of the shape that is asked for."""
    trainer, buffers = Trainer(), Buffers()

    def step() -> None:
        buffer = buffers.take(4, 12, 64)
        for window in buffer:
            torch.sin(torch.rand(12, 64), out=window)
        rows = buffer.view(48, 64)
        trainer.train(rows)
        buffers.give(rows)

    while True:
        step()
        yield


class HeavyBall:
    """Gradient descent with momentum."""

    def __init__(self, weights: Any) -> None:
        self.weights = list(weights)
        self.velocities = dict[Any, Any]()

    def zero_grad(self) -> None:
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for weight in self.weights:
            velocity = self.velocities.get(weight.grad)
            if velocity is None:
                velocity = torch.zeros_like(weight)
            self.velocities[weight.grad] = velocity.mul_(0.9).add_(weight.grad)
            weight.sub_(velocity, alpha=0.01)


@leaks("step", cause=GRADIENTS | NO_USUAL)
def velocities_by_gradient() -> Iterator[None]:
    """An optimizer has its state by the gradient instead of the weight, and each step makes a new one."""
    model = nn.Sequential(nn.Linear(64, 24), nn.Tanh(), nn.Linear(24, 8))
    optimizer = HeavyBall(model.parameters())
    while True:
        optimizer.zero_grad()
        model(batch()).square().mean().backward()
        optimizer.step()
        yield


class Perception:
    """Runs modules in order. A result is dropped when the last of those that need it has run."""

    def __init__(self) -> None:
        self.needs = {"lanes": ["image"], "depth": ["image"], "flow": ["image"], "plan": ["lanes", "flow"]}
        self.modules = {name: nn.Linear(64 * len(needs), 64) for name, needs in self.needs.items()}
        self.results, self.waiting = dict[tuple[int, str], Any](), dict[tuple[int, str], int]()

    def put(self, run: int, name: str, result: Any) -> None:
        self.results[run, name] = result
        self.waiting[run, name] = sum(name in needs for needs in self.needs.values())

    def release(self, run: int, name: str) -> None:
        self.waiting[run, name] -= 1
        if self.waiting[run, name] == 0:
            del self.results[run, name], self.waiting[run, name]

    @torch.inference_mode()
    def __call__(self, run: int, image: Any) -> Any:
        self.put(run, "image", image)
        for name, needs in self.needs.items():
            inputs = torch.cat([self.results[run, need] for need in needs], -1)
            self.put(run, name, self.modules[name](inputs))
            for need in needs:
                self.release(run, need)
        return self.results.pop((run, "plan"))


@leaks("put __call__", cause=OUTPUTS)
def results_that_nobody_needs() -> Iterator[None]:
    """A result is dropped after the last module that needs it, but no module needs the depth."""
    perception = Perception()
    for run in itertools.count():
        perception(run, batch(48)).mean().item()
        yield
