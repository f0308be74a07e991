"""What models of text, speech, items, graphs and series keep for a while, and then let go.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import random
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.leak_loop import healthy
from tests.truth.text_models import (
    WORDS,
    Classifier,
    Distillation,
    Forecaster,
    GraphNetwork,
    Hypothesis,
    LanguageModel,
    Learner,
    Recognizer,
    Slot,
    Translation,
    TwoTowers,
    nested_concat,
    sentences,
    series,
)


@healthy
def logits_joined_within_an_evaluation() -> Iterator[None]:
    """After six steps of training, 24 batches are evaluated, and their logits joined for one score."""
    learner, predictions = Learner(), None

    @torch.no_grad()
    def prediction_step(tokens: Any) -> None:
        nonlocal predictions
        predictions = nested_concat(predictions, learner.model(tokens))

    while True:
        for _ in range(6):
            learner.train()
            yield
        for number in range(24):
            prediction_step(sentences(4, 24 + number % 7))
            yield
        predictions = None


@healthy
def tokens_of_texts_that_come_again() -> Iterator[None]:
    """A tokenizer has lru_cache with room for 40 texts around it; some texts are much more usual."""
    learner, chance = Learner(), random.Random(1)

    @functools.lru_cache(maxsize=40)
    def encode(text: str) -> Any:
        return torch.tensor([ord(letter) % WORDS for letter in text[:512].ljust(512)])

    while True:
        texts = [f"message {int(chance.paretovariate(0.4))} " * 30 for _ in range(8)]
        learner.train(torch.stack([encode(text) for text in texts])[:, :48])
        yield


@healthy
def streams_of_speech_that_end() -> Iterator[None]:
    """Four streams at a time send chunks. Each ends after 3 to 9 of them, and all that it has goes."""
    recognizer, chance, numbers = Recognizer(), random.Random(2), itertools.count()
    left = dict[int, int]()
    while True:
        while len(left) < 4:
            left[next(numbers)] = chance.randint(3, 9)
        for stream in list(left):
            recognizer.transcribe(stream, torch.rand(1, 40, 48))
            left[stream] -= 1
            if not left[stream]:
                del left[stream], recognizer.keys[stream], recognizer.frames[stream]
                recognizer.finish(stream)
        yield


@healthy
def items_of_the_last_batches_as_negatives() -> Iterator[None]:
    """Users are also compared with the items of the last 16 batches."""
    towers, before = TwoTowers(), deque[Any](maxlen=16)
    optimizer = torch.optim.Adam(towers.parameters(), lr=0.01)

    def train_step() -> None:
        users, numbers = torch.randint(500, (64,)), torch.randint(2000, (64,))
        items = towers.items(numbers)
        scores = towers.users(users) @ torch.cat([items, *before]).T
        optimizer.zero_grad()
        functional.cross_entropy(scores, torch.arange(64)).backward()
        optimizer.step()
        before.append(items.detach())

    while True:
        train_step()
        yield


@healthy
def clusters_of_a_graph() -> Iterator[None]:
    """A graph is cut into twelve clusters, in any order; the features of each are cut out once."""
    features, order = torch.rand(12 * 64, 32), list[int]()
    network, clusters = GraphNetwork(), dict[int, tuple[Any, Any]]()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)

    def cut_out(cluster: int) -> tuple[Any, Any]:
        if cluster not in clusters:
            nodes = torch.arange(cluster * 64, cluster * 64 + 64)
            others = features[nodes[torch.randint(64, (64, 8))]]
            clusters[cluster] = features[nodes].clone(), others
        return clusters[cluster]

    while True:
        order = order or torch.randperm(12).tolist()
        own, others = cut_out(order.pop())
        optimizer.zero_grad()
        functional.cross_entropy(network(own, others), torch.arange(64) % 7).backward()
        optimizer.step()
        yield


@healthy
def errors_of_the_last_forecasts_by_hour() -> Iterator[None]:
    """Intervals of a forecast come from the last ten errors for each hour."""
    forecaster = Forecaster()
    forecaster.errors = {hour: deque(maxlen=10) for hour in range(24)}
    while True:
        past, future = series()
        forecaster.observe(forecaster.fit(past, future), future)
        forecaster.interval(12)
        yield


@healthy
def states_of_prompts_within_four_megabytes() -> Iterator[None]:
    """A request takes two steps, then its state is saved for others; the oldest go when it is too much."""
    slot, saved = Slot(), OrderedDict[tuple[int, ...], Any]()

    def prompt_save() -> None:
        saved[tuple(slot.tokens)] = slot.state[:, :, : len(slot.tokens)].clone()
        while sum(state.nbytes for state in saved.values()) > 4 << 20:
            saved.popitem(last=False)
        slot.tokens = []

    for number in itertools.count():
        slot.decode(torch.randint(WORDS, (80 + number * 37 % 150,)).tolist())
        yield
        slot.decode([number % WORDS])
        prompt_save()
        yield


@healthy
def layers_of_teacher_and_student() -> Iterator[None]:
    """Hooks list what each layer gives for two parts of a batch, and the loss takes them out."""
    distillation = Distillation()
    while True:
        for _ in range(2):
            distillation.run(torch.rand(4, 32, 64))
        distillation.learn()
        distillation.of_student.clear()
        distillation.of_teacher.clear()
        yield


@healthy
def weights_of_the_five_best_trials() -> Iterator[None]:
    """A search has the weights of its five best trials; one ends every second step."""
    best, chance = list[tuple[float, int, dict[str, Any]]](), random.Random(3)

    def suggest() -> Learner:
        return Learner(width=chance.choice([32, 48, 64]))

    def report(number: int, learner: Learner) -> None:
        with torch.no_grad():
            value = -float(learner.model.loss(sentences()))
        weights = {name: weight.clone() for name, weight in learner.model.state_dict().items()}
        heapq.heappush(best, (value, number, weights))
        if len(best) > 5:
            heapq.heappop(best)

    for number in itertools.count():
        learner = suggest()
        for _ in range(2):
            learner.train()
            yield
        report(number, learner)


class Module:
    """A model that lists the outputs of its steps until the end of an epoch."""

    def __init__(self) -> None:
        self.learner, self.outputs, self.epochs = Learner(), list[dict[str, Any]](), list[float]()

    def training_step(self, tokens: Any) -> Any:
        logits = self.learner.model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        self.outputs.append({"loss": loss, "logits": logits})
        return loss

    def on_train_epoch_end(self) -> None:
        self.epochs.append(torch.stack([output["loss"] for output in self.outputs]).mean().item())
        self.outputs.clear()


@healthy
def outputs_with_graphs_of_an_epoch() -> Iterator[None]:
    """A module lists the loss and logits of each step as they are; each epoch of nine steps clears them."""
    module = Module()
    while True:
        for _ in range(9):
            module.learner.optimizer.zero_grad()
            module.training_step(sentences()).backward()
            module.learner.optimizer.step()
            yield
        module.on_train_epoch_end()


@healthy
def translations_of_seven_steps() -> Iterator[None]:
    """Each step translates a text; after seven steps, hypotheses become text and are scored together."""
    translation, hypotheses, scores = Translation(), list[Hypothesis](), list[float]()

    def score() -> None:
        texts = [bytes(hypothesis.tokens.tolist()) for hypothesis in hypotheses]
        scores.append(sum(len(set(text)) for text in texts) / len(texts))
        hypotheses.clear()

    for number in itertools.count(1):
        translation.train()
        hypotheses.append(translation.model.translate(sentences(1, 96)))
        if number % 7 == 0:
            score()
        yield


@healthy
def gradients_of_tasks_until_the_update() -> Iterator[None]:
    """Gradients of two tasks wait in lists for five steps; the update adds those up that agree."""
    words = nn.Embedding(2000, 96)
    heads = {"tags": nn.Linear(96, 17), "chunks": nn.Linear(96, 5)}
    optimizer = torch.optim.SGD(words.parameters(), lr=0.01)
    gradients = defaultdict[str, list[Any]](list)

    def accumulate(task: str, tokens: Any) -> None:
        words.weight.grad = None
        logits = heads[task](words(tokens)).flatten(0, 1)
        functional.cross_entropy(logits, tokens.flatten() % logits.shape[1]).backward()
        gradients[task].append(words.weight.grad)

    def update() -> None:
        first, second = (torch.stack(gradients.pop(task)).mean(0) for task in heads)
        words.weight.grad = first + second if torch.sum(first * second) > 0 else first
        optimizer.step()

    for number in itertools.count(1):
        for task in heads:
            accumulate(task, torch.randint(2000, (8, 32)))
        if number % 5 == 0:
            update()
        yield


@healthy
def an_index_that_is_made_anew() -> Iterator[None]:
    """Documents are encoded for a new index, a part in each step; after 20 steps it replaces the old one."""
    learner, index, parts = Learner(), torch.rand(20 * 64, WORDS), list[Any]()

    @torch.no_grad()
    def encode(documents: Any) -> Any:
        return learner.model(documents).mean(1)

    while True:
        queries = sentences()
        hard = (encode(queries) @ index.T).topk(4).indices
        learner.train(torch.cat([queries, hard[:, :2].flatten()[:, None].expand(-1, 32) % WORDS]))
        parts.append(encode(sentences(64, 16)))
        if len(parts) == 20:
            index = torch.cat(parts)
            parts = []
        yield


@healthy
def maps_of_attention_until_they_are_drawn() -> Iterator[None]:
    """Layers list their maps of attention; every 13th step draws the last ones and empties the lists."""
    classifier = Classifier()
    for number in itertools.count(1):
        classifier.learn(sentences(4, 32))
        if number % 13 == 0:
            classifier.draw()
            for layer in classifier.layers:
                layer.maps.clear()
        yield


@healthy
def answers_of_a_policy_in_turn_with_updates() -> Iterator[None]:
    """Eight steps make answers and what is thought of them, two learn from all these, which then go."""
    policy, reference = Learner(), LanguageModel().eval()
    store = list[dict[str, Any]]()

    @torch.no_grad()
    def make_experience() -> None:
        answers = sentences(4, 8)
        for _ in range(12):
            probabilities = policy.model(answers)[:, -1].softmax(-1)
            answers = torch.cat([answers, torch.multinomial(probabilities, 1)], 1)
        logs = [model(answers).log_softmax(-1) for model in (policy.model, reference)]
        store.append(
            {"answers": answers, "logs": logs[0], "reference": logs[1], "reward": answers.float().mean(1)}
        )

    while True:
        for _ in range(8):
            make_experience()
            yield
        for _ in range(2):
            policy.train(torch.cat([one["answers"] for one in store]))
            yield
        store.clear()
