"""What models of text, speech, items, graphs and series keep for good, as people report it of their own code.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.leak_loop import GRADIENTS, GRAPH, GROWING, METRICS, NO_USUAL, OUTPUTS, leaks
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


@leaks("prediction_step nested_concat", cause=GROWING)
def logits_joined_over_all_evaluations() -> Iterator[None]:
    """Each second step evaluates a batch, whose logits are joined with those of all evaluations before."""
    learner, predictions = Learner(), None

    @torch.no_grad()
    def prediction_step(tokens: Any) -> None:
        nonlocal predictions
        predictions = nested_concat(predictions, learner.model(tokens))

    for number in itertools.count():
        learner.train()
        if number % 2:
            prediction_step(sentences(2, 24 + number % 7))
        yield


class Tokenizer:
    """Knows the tokens of each text that it has seen."""

    def __init__(self) -> None:
        self.known = dict[str, Any]()

    def encode(self, text: str) -> Any:
        if text not in self.known:
            self.known[text] = torch.tensor([ord(letter) % WORDS for letter in text[:128].ljust(128)])
        return self.known[text]


@leaks("encode", cause=METRICS | NO_USUAL)
def tokens_of_every_text_of_a_stream() -> Iterator[None]:
    """A tokenizer caches the tokens of each text, and a stream never says the same twice."""
    learner, tokenizer = Learner(), Tokenizer()
    for number in itertools.count():
        texts = [f"message {number} of user {row} says " * 4 for row in range(8)]
        learner.train(torch.stack([tokenizer.encode(text) for text in texts])[:, :48])
        yield


@leaks("transcribe forward", cause=GROWING | OUTPUTS | NO_USUAL)
def caches_of_streams_that_have_ended() -> Iterator[None]:
    """When a stream of speech ends after five chunks, its text is taken out, its keys and frames are not."""
    recognizer = Recognizer()
    for number in itertools.count():
        recognizer.transcribe(number // 5, torch.rand(1, 40, 64))
        if number % 5 == 4:
            recognizer.finish(number // 5)
        yield


@leaks("train_step remember", cause=GRAPH | OUTPUTS)
def items_that_a_user_has_liked() -> Iterator[None]:
    """Vectors of items go to a list for each user, as they come from the tower, to recommend others."""
    towers, liked = TwoTowers(), defaultdict[int, list[Any]](list)
    optimizer = torch.optim.Adam(towers.parameters(), lr=0.01)

    def remember(users: Any, items: Any) -> None:
        for user, item in zip(users.tolist(), items, strict=True):
            liked[user].append(item)

    def train_step() -> None:
        users, numbers = torch.randint(500, (64,)), torch.randint(2000, (64,))
        items = towers.items(numbers)
        scores = towers.users(users) @ items.T
        optimizer.zero_grad()
        functional.cross_entropy(scores, torch.arange(64)).backward()
        optimizer.step()
        remember(users, items)

    while True:
        train_step()
        yield


class NeighborSampler:
    """Takes eight neighbors of each node, and knows what it took for the nodes of a batch."""

    def __init__(self, nodes: int = 5000) -> None:
        self.features, self.neighbors = torch.rand(nodes, 32), torch.randint(nodes, (nodes, 20))
        self.cache = dict[tuple[int, ...], tuple[Any, Any]]()

    def sample(self, seeds: Any) -> tuple[Any, Any]:
        key = tuple(seeds.tolist())
        if key not in self.cache:
            nodes = self.neighbors[seeds][:, torch.randperm(20)[:8]]
            self.cache[key] = nodes, self.features[nodes]
        return self.cache[key]


@leaks("sample", cause=NO_USUAL)
def neighborhoods_by_their_seeds() -> Iterator[None]:
    """A sampler of neighbors caches what it took for the nodes of a batch, and they are shuffled."""
    sampler, network = NeighborSampler(), GraphNetwork()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    while True:
        seeds = torch.randperm(5000)[:48]
        _, others = sampler.sample(seeds)
        optimizer.zero_grad()
        functional.cross_entropy(network(sampler.features[seeds], others), seeds % 7).backward()
        optimizer.step()
        yield


@leaks("observe", cause=METRICS | NO_USUAL)
def errors_of_all_forecasts_by_hour() -> Iterator[None]:
    """Intervals of a forecast need the last ten errors for each hour, and the lists have all of them."""
    forecaster = Forecaster()
    while True:
        past, future = series()
        forecaster.observe(forecaster.fit(past, future), future)
        forecaster.interval(12)
        yield


@leaks("prompt_save", cause=NO_USUAL)
def states_of_prompts_to_go_on_from() -> Iterator[None]:
    """A request takes three steps, then its state is saved for one that begins alike: up to 8192 of them."""
    slot, saved = Slot(), list[tuple[list[int], Any]]()

    def prompt_save() -> None:
        if len(saved) < 8192:
            saved.append((slot.tokens, slot.state[:, :, : len(slot.tokens)].clone()))
        slot.tokens = []

    def prompt_load(tokens: list[int]) -> None:
        for known, state in saved:
            if known == tokens[: len(known)]:
                slot.tokens = known
                slot.state[:, :, : len(known)] = state

    for number in itertools.count():
        if number % 3 == 0:
            prompt = torch.randint(WORDS, (150 + number % 60,)).tolist()
            prompt_load(prompt)
            slot.decode(prompt[len(slot.tokens) :])
        else:
            slot.decode([number % WORDS])
        if number % 3 == 2:
            prompt_save()
        yield


@leaks("capture run forward", cause=OUTPUTS)
def layers_of_the_teacher() -> Iterator[None]:
    """Hooks list what each layer of teacher and student gives, and only the student's lists are emptied."""
    distillation = Distillation()
    while True:
        distillation.run(torch.rand(8, 32, 64))
        distillation.learn()
        distillation.of_student.clear()
        yield


@dataclass
class Trial:
    """A width that was tried, and how well it did."""

    width: int
    value: Any


@leaks("evaluate suggest loss forward __init__", cause=GRAPH)
def trials_and_their_values() -> Iterator[None]:
    """A search tries another width every five steps, and the value of a trial is a loss with its graph."""
    trials = list[Trial]()

    def suggest(number: int) -> Learner:
        return Learner(width=32 + number * 16 % 80)

    def evaluate(learner: Learner) -> None:
        value = learner.model.loss(sentences())
        trials.append(Trial(learner.model.head.in_features, value))

    for number in itertools.count():
        learner = suggest(number)
        for _ in range(5):
            learner.train()
            yield
        evaluate(learner)


class Fit:
    """Trains, validates now and then, and tells its callbacks."""

    def __init__(self) -> None:
        self.learner, self.metrics = Learner(), dict[str, Any]()

    def training_step(self) -> None:
        self.learner.train()

    @torch.no_grad()
    def validate(self) -> None:
        tokens = sentences()
        guesses = self.learner.model(tokens[:, :-1]).argmax(-1).flatten()
        pairs = torch.stack([guesses // 4, tokens[:, 1:].flatten() // 4])
        confusion = torch.zeros(64, 64).index_put_(tuple(pairs), torch.ones(()), accumulate=True)
        self.metrics["val_confusion"] = confusion
        self.metrics["val_recall"] = confusion.diagonal() / confusion.sum(0).clamp(min=1)
        self.metrics["val_precision"] = confusion.diagonal() / confusion.sum(1).clamp(min=1)
        self.metrics["val_loss"] = self.learner.model.loss(tokens)


class MetricsHistory:
    """A callback that has the metrics of each validation."""

    def __init__(self) -> None:
        self.history = list[dict[str, Any]]()

    def on_validation_epoch_end(self, fit: Fit) -> None:
        self.history.append(copy.deepcopy(fit.metrics))


@leaks("on_validation_epoch_end __deepcopy__", cause=METRICS | NO_USUAL)
def copies_of_a_trainers_metrics() -> Iterator[None]:
    """Each fourth step validates, and a callback lists deep copies of all metrics, a confusion matrix too."""
    fit, callback = Fit(), MetricsHistory()
    for number in itertools.count():
        fit.training_step()
        if number % 4 == 3:
            fit.validate()
            callback.on_validation_epoch_end(fit)
        yield


@leaks("translate", cause=NO_USUAL)
def translations_until_the_score() -> Iterator[None]:
    """Each second step translates two texts; all hypotheses wait for a score at the end of the training."""
    translation, hypotheses = Translation(), list[Hypothesis]()
    for number in itertools.count():
        translation.train()
        if number % 2:
            hypotheses += [translation.model.translate(sentences(1, 96)) for _ in range(2)]
        yield


@leaks("gradients_of", cause=GRADIENTS)
def gradients_of_two_tasks() -> Iterator[None]:
    """Gradients of two tasks are compared before they are added up, and lists have those of all steps."""
    words, tagger, chunker = nn.Embedding(2000, 96), nn.Linear(96, 17), nn.Linear(96, 5)
    shared = [words.weight]
    optimizer = torch.optim.SGD([*shared, *tagger.parameters(), *chunker.parameters()], lr=0.01)
    gradients = defaultdict[str, list[Any]](list)

    def gradients_of(task: str, head: Any, tokens: Any) -> Any:
        words.weight.grad = None
        logits = head(words(tokens)).flatten(0, 1)
        functional.cross_entropy(logits, tokens.flatten() % logits.shape[1]).backward()
        gradients[task].append(words.weight.grad)
        return words.weight.grad

    def train_step() -> None:
        optimizer.zero_grad()
        tokens = torch.randint(2000, (8, 32))
        first, second = gradients_of("tags", tagger, tokens), gradients_of("chunks", chunker, tokens)
        agree = torch.sum(first * second) > 0
        words.weight.grad = first + second if agree else first.clone()
        optimizer.step()

    while True:
        train_step()
        yield


_VECTORS = dict[str, Any]()


def embed(model: LanguageModel, texts: Sequence[str]) -> Any:
    """Vectors of texts; of those that are not new, from the cache."""
    new = [text for text in texts if text not in _VECTORS]
    if new:
        tokens = torch.tensor([[ord(letter) % WORDS for letter in text[:24].ljust(24)] for text in new])
        with torch.inference_mode():
            vectors = model.head(model.network(model.embedding(tokens))[0].mean(1))
        _VECTORS.update(zip(new, vectors, strict=True))
    return torch.stack([_VECTORS[text] for text in texts])


@leaks("embed", cause=OUTPUTS | NO_USUAL)
def vectors_of_all_texts_in_a_global() -> Iterator[None]:
    """A search service has vectors of all texts in a global dict, also those of queries, which are new."""
    model = LanguageModel(32).eval()
    documents = [f"about {number}" for number in range(40)]
    try:
        for number in itertools.count():
            queries = [f"{number} and {row}?" for row in range(48)]
            (embed(model, queries) @ embed(model, documents).T).topk(3)
            yield
    finally:
        _VECTORS.clear()


@leaks("forward", cause=GRAPH | OUTPUTS)
def maps_of_attention_of_all_steps() -> Iterator[None]:
    """Layers list their maps of attention, of which every tenth step draws the last."""
    classifier = Classifier()
    for number in itertools.count():
        classifier.learn(sentences(4, 32))
        if number % 10 == 9:
            classifier.draw()
        yield


class Utterances:
    """A hundred thousand recordings of speech. What is asked for is a spectrogram."""

    def __len__(self) -> int:
        return 100_000

    @functools.cache  # noqa: B019
    def __getitem__(self, number: int) -> Any:
        wave = torch.rand(16000)
        spectrum = torch.stft(wave, 256, 128, window=torch.hann_window(256), return_complex=True)
        return spectrum.abs().clamp(min=1e-5).log()


@leaks("__getitem__", cause=NO_USUAL)
def spectrograms_of_a_whole_corpus() -> Iterator[None]:
    """lru_cache without a size is around a data set's __getitem__, and the corpus is large."""
    utterances, network = Utterances(), nn.Sequential(nn.Conv1d(129, 32, 5), nn.ReLU(), nn.Conv1d(32, 20, 5))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.001)
    while True:
        numbers = torch.randint(len(utterances), (12,)).tolist()
        optimizer.zero_grad()
        network(torch.stack([utterances[number] for number in numbers])).square().mean().backward()
        optimizer.step()
        yield
