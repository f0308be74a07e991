"""Language models, translation and search in texts."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing.job import BATCH, MIB, Block, Language, failing, loss_of, texts
from tests.truth.gpu_snapshot import Gpu


@failing(Gpu(1500 * MIB, scale=16), "attention giant checkpoint", "shard others expandable")
def attention_without_a_fused_kernel() -> None:
    """Scores of 1,024 by 1,024 are kept in each layer."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(64, 192)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(x).chunk(3, -1)
            return x + torch.softmax(q @ k.transpose(1, 2) / 8, -1) @ v

    model = nn.Sequential(*(Attention() for _ in range(6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 1024, 64)).square().mean().backward()
        optimizer.step()


@failing(Gpu(380 * MIB, scale=64), "cache larger", "shard checkpoint others giant")
def cache_of_keys() -> None:
    """A generation concatenates its keys and values with each token."""
    model = Language(2).eval()
    keys = torch.zeros(4, 0, 64)
    with torch.no_grad():
        for _ in range(400):
            model(texts(4, 8))
            keys = torch.cat([keys, torch.randn(4, 8, 64)], 1)


@failing(Gpu(400 * MIB, scale=64), "inference", "shard checkpoint others expandable giant")
def inference_of_a_large_batch() -> None:
    """A batch of texts without gradients does not fit."""
    model = Language(4).eval()
    with torch.no_grad():
        for rows in (4, 8, 64):
            model(texts(rows))


@failing(Gpu(700 * MIB, scale=32), "graph hooks inference other", "shard others expandable giant")
def evaluation_with_a_graph() -> None:
    """After some steps, an evaluation keeps its predictions, with autograd on."""
    model = Language(2)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model, texts(4)).backward()
        optimizer.step()
    predictions = []
    for _ in range(32):
        predictions.append(model(texts(4)))


class Attention(nn.Module):
    """Written out: scores, mask, softmax, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.drop = nn.Linear(64, 192), nn.Linear(64, 64), nn.Dropout(0.1)

    def forward(self, x: Any) -> Any:
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (width // 4) ** -0.5
        later = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        weights = self.drop(torch.softmax(scores.masked_fill(later, float("-inf")), -1))
        return x + self.out((weights @ v).transpose(1, 2).reshape(rows, length, width))


@failing(Gpu(1200 * MIB, scale=16), "attention checkpoint", "shard others expandable inference graph")
def one_long_text_with_written_attention() -> None:
    """A single text is four times as long as those before; a smaller batch does not exist."""
    words, head = nn.Embedding(256, 64), nn.Linear(64, 256)
    model = nn.Sequential(words, *(Attention() for _ in range(4)), head)
    optimizer = torch.optim.AdamW(model.parameters())
    for length in (256, 256, 1024):
        optimizer.zero_grad()
        loss_of(model, texts(1, length)).backward()
        optimizer.step()


@failing(Gpu(1152 * MIB, scale=32), BATCH, "shard others inference graph")
def one_very_long_sentence() -> None:
    """Sentences have 20 to 40 tokens; then one of 320 is among them, and all are padded to its length."""
    model = Language(3)
    optimizer = torch.optim.Adam(model.parameters())
    longest = [24, 31, 40, 28, 36, 320, 30]
    for length in longest:
        sentences = [texts(1, int(n))[0] for n in torch.randint(length // 2, length, (7,))]
        batch = nn.utils.rnn.pad_sequence([*sentences, texts(1, length)[0]], batch_first=True)
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()


@failing(Gpu(800 * MIB, scale=4), "giant", "shard checkpoint others graph")
def one_hot_of_a_large_vocabulary() -> None:
    """Targets become one-hot over all words and positions."""
    model = Language(1)
    found = model(texts(8))
    wanted = functional.one_hot(torch.randint(0, 30_000, (8 * 256,)), 30_000)
    (found.sum() * wanted.sum()).backward()


@failing(Gpu(420 * MIB, scale=16), BATCH, "shard others expandable giant inference graph")
def long_sequence_of_an_lstm() -> None:
    """Two steps with short sequences fit, one with a long one does not."""
    model, head = nn.LSTM(32, 128, 2, batch_first=True), nn.Linear(128, 4)
    optimizer = torch.optim.RMSprop([*model.parameters(), *head.parameters()])
    for length in (10, 10, 100):
        optimizer.zero_grad()
        head(model(torch.randn(16, length, 32))[0]).square().mean().backward()
        optimizer.step()


@failing(Gpu(420 * MIB, scale=32), "inference", "shard checkpoint others expandable giant graph")
def larger_batches_in_validation() -> None:
    """Training fits; validation without gradients takes batches sixteen times as large."""
    model = Language(2)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model, texts(4)).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        loss_of(model, texts(96))


@failing(Gpu(280 * MIB, scale=64), "cache larger inference", "shard checkpoint others giant graph")
def beams_with_their_keys() -> None:
    """A search with beams reorders and extends the keys of each layer at every token."""
    layers = nn.ModuleList(nn.Linear(64, 128) for _ in range(2))
    keys = [torch.zeros(8, 0, 128) for _ in layers]
    with torch.inference_mode():
        for _ in range(300):
            x, order = torch.randn(8, 1, 64), torch.randint(0, 8, (8,))
            for number, layer in enumerate(layers):
                keys[number] = torch.cat([keys[number].index_select(0, order), layer(x)], 1)


@failing(Gpu(1400 * MIB, scale=128), "graph", "shard others expandable pad giant inference")
def a_novel_read_with_retain_graph() -> None:
    """An LSTM's state goes from window to window with its graph, and retain_graph=True hides the error."""
    embed, reads, head = nn.Embedding(128, 64), nn.LSTM(64, 64, batch_first=True), nn.Linear(64, 128)
    weights = [*embed.parameters(), *reads.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(weights)
    for _ in range(2):
        chapter = torch.randint(0, 128, (16, 12 * 24 + 1))
        state = torch.zeros(1, 16, 64), torch.zeros(1, 16, 64)
        for begin in range(0, 12 * 24, 24):
            window = chapter[:, begin : begin + 25]
            read, state = reads(embed(window[:, :-1]), state)
            loss = functional.cross_entropy(head(read).flatten(0, 1), window[:, 1:].flatten())
            loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()


@failing(Gpu(800 * MIB, scale=64), "expandable", "shard others checkpoint accumulate")
def a_service_that_answers_documents_of_any_length() -> None:
    """Documents of all lengths; what a session may ask about next is kept for the last sessions only."""
    read, answer = nn.Linear(64, 512), nn.Linear(512, 64)
    sessions: dict[int, Any] = {}
    lengths = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for request in range(60):
            length = int(torch.randint(200, 1600, (), generator=lengths))
            hidden = functional.gelu(read(torch.randn(length, 64)))
            sessions[request] = answer(hidden)
            sessions.pop(request - 12, None)
            del hidden


@failing(Gpu(700 * MIB, scale=32), "inference graph", "shard checkpoint accumulate others expandable giant")
def text_sampled_with_autograd() -> None:
    """A character model writes text, and each hidden state has the graph of all before it."""
    embed, cell, head = nn.Embedding(96, 128), nn.GRUCell(128, 256), nn.Linear(256, 96)
    character, hidden = torch.zeros(32, dtype=torch.long), torch.zeros(32, 256)
    written = []
    for _ in range(200):
        hidden = cell(embed(character), hidden)
        chances = torch.softmax(head(hidden) / 0.8, -1)
        character = torch.multinomial(chances, 1).squeeze(1)
        written.append(character)
    torch.stack(written, 1)


@failing(
    Gpu(700 * MIB, scale=16),
    "other hooks inference",
    "shard checkpoint accumulate others expandable giant graph",
)
def last_tokens_that_keep_their_batch() -> None:
    """Answers are embedded for a reward model; the last token of each is a view of all its tokens."""
    encoder = nn.Sequential(nn.Embedding(256, 64), Block(), Block()).eval()
    embeddings = []
    with torch.no_grad():
        for _ in range(48):
            hidden = encoder(texts(32, 128))
            embeddings.append(hidden[:, -1])
        torch.cat(embeddings)


@failing(
    Gpu(700 * MIB, scale=16),
    "giant inference",
    "shard checkpoint accumulate others expandable graph other",
)
def every_word_of_a_question_with_every_word_of_the_texts() -> None:
    """A late interaction scores all words of all questions against all words of all passages."""
    embed = nn.EmbeddingBag(1000, 64)
    with torch.inference_mode():
        passages = functional.normalize(embed(torch.randint(0, 1000, (200 * 64, 3))), dim=1)
        for questions in (2, 4, 32):
            words = functional.normalize(embed(torch.randint(0, 1000, (questions * 32, 3))), dim=1)
            scores = torch.einsum("qid,pjd->qpij", words.view(questions, 32, 64), passages.view(200, 64, 64))
            scores.amax(3).sum(2).topk(10)


@failing(
    Gpu(850 * MIB, scale=64),
    "larger cache other inference",
    "shard checkpoint accumulate attention others giant",
)
def an_index_joined_with_each_shard() -> None:
    """A search index is built on the GPU: embeddings of each shard of documents are joined to all before."""
    model = Language(2).eval()
    model.head = nn.Linear(64, 64)
    index = torch.zeros(0, 64)
    with torch.no_grad():
        for _ in range(60):
            embedded = functional.normalize(model(texts(16, 32)).flatten(0, 1), dim=-1)
            index = torch.cat([index, embedded])


class Adapter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(256, 128, bias=False), nn.Linear(128, 256, bias=False)

    def forward(self, x: Any) -> Any:
        return self.up(self.down(x))


class Service:
    """One base model, and an adapter for each customer, which is loaded at the first request."""

    def __init__(self) -> None:
        self.read, self.write = nn.Linear(64, 256), nn.Linear(256, 64)
        self.adapters: dict[int, Adapter] = {}

    def answer(self, customer: int, request: Any) -> Any:
        hidden = functional.gelu(self.read(request))
        if customer not in self.adapters:
            self.adapters[customer] = Adapter()
        return self.write(hidden + self.adapters[customer](hidden))


@failing(Gpu(1090 * MIB, scale=64), "expandable pad", "shard checkpoint others giant graph")
def adapters_loaded_between_requests() -> None:
    """Requests of many lengths leave blocks that the adapters of new customers take small parts of."""
    service = Service()
    with torch.no_grad():
        for number in range(16):
            service.answer(number, torch.randn(200 + 150 * number, 64))
        service.answer(0, torch.randn(3000, 64))
