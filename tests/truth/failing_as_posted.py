"""Jobs that run out of a GPU's memory as people post them: six trainings, six scripts around one."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, Block, failing
from tests.truth.gpu_snapshot import Gpu

LARGE = "others expandable inference"


def _conv(before: int, after: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)
    )


@failing(
    Gpu(1150 * MIB, scale=32),
    "set_to_none gradients before",
    f"shard attention {LARGE} giant",
)
def gradients_left_on_a_frozen_backbone() -> None:
    """After the classifier's training, its backbone is frozen, and keeps the gradients of the last step."""
    backbone = nn.Sequential(_conv(3, 64, 2), _conv(64, 256, 2), *(_conv(256, 256) for _ in range(5)))
    classifier = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD([*backbone.parameters(), *classifier.parameters()], lr=0.05)
    for _ in range(3):
        images, labels = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
        optimizer.zero_grad()
        loss = functional.cross_entropy(classifier(backbone(images)), labels)
        loss.backward()
        optimizer.step()

    for parameter in backbone.parameters():
        parameter.requires_grad = False
    backbone.eval()
    head = nn.Sequential(
        nn.Upsample(scale_factor=2),
        _conv(256, 64),
        nn.Upsample(scale_factor=2),
        _conv(64, 32),
        nn.Conv2d(32, 8, 1),
    )
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    for _ in range(3):
        images, masks = torch.randn(12, 3, 32, 32), torch.randint(0, 8, (12, 32, 32))
        optimizer.zero_grad()
        loss = functional.cross_entropy(head(backbone(images)), masks)
        loss.backward()
        optimizer.step()


class _MultipleChoice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(500, 64), nn.Embedding(128, 64)
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.score = nn.Linear(64, 1)

    def forward(self, input_ids: Any) -> Any:
        rows, choices, length = input_ids.shape
        x = self.embed(input_ids.view(-1, length)) + self.position(torch.arange(length))
        for layer in self.layers:
            x = layer(x)
        return self.score(x[:, 0]).view(rows, choices)


@failing(Gpu(1050 * MIB, scale=16), BATCH, f"shard giant pad {LARGE}")
def four_answers_to_every_question() -> None:
    """Sixteen questions of a reading test are 64 texts, since each goes in with its four answers."""
    model = _MultipleChoice()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    for _ in range(3):
        questions, answers = torch.randint(0, 500, (16, 4, 96)), torch.randint(0, 4, (16,))
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(questions), answers)
        loss.backward()
        optimizer.step()


class _Transducer(nn.Module):
    def __init__(self, words: int = 128, width: int = 64) -> None:
        super().__init__()
        self.encoder = nn.GRU(40, width, batch_first=True)
        self.embed, self.predictor = nn.Embedding(words, width), nn.GRU(width, width, batch_first=True)
        self.joint = nn.Linear(width, words)

    def forward(self, audio: Any, text: Any) -> Any:
        heard, _ = self.encoder(audio)
        said, _ = self.predictor(self.embed(functional.pad(text, (1, 0))))
        return self.joint(torch.tanh(heard.unsqueeze(2) + said.unsqueeze(1)))


def _transducer_loss(logits: Any, text: Any) -> Any:
    scores = logits.log_softmax(-1)
    blank = scores[..., 0]
    wanted = text[:, None, :, None].expand(-1, scores.shape[1], -1, 1)
    emitted = scores[:, :, :-1].gather(3, wanted).squeeze(3).cumsum(2)
    emitted = functional.pad(emitted, (1, 0))
    alpha = emitted[:, 0]
    for frame in range(1, scores.shape[1]):
        stays = alpha + blank[:, frame - 1] - emitted[:, frame]
        alpha = emitted[:, frame] + stays.logcumsumexp(1)
    return -(alpha[:, -1] + blank[:, -1, -1]).mean()


@failing(Gpu(880 * MIB, scale=64), f"giant {BATCH}", f"shard pad {LARGE}")
def joint_of_a_speech_transducer() -> None:
    """Logits for each frame of the speech, with each letter of its text, and each letter that may follow."""
    model = _Transducer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for frames, letters in ((24, 8), (32, 12), (48, 24)):
        audio, text = torch.randn(6, frames, 40), torch.randint(1, 128, (6, letters))
        optimizer.zero_grad()
        loss = _transducer_loss(model(audio, text), text)
        loss.backward()
        optimizer.step()


class _Members(nn.Module):
    """A linear layer for each member of an ensemble."""

    def __init__(self, members: int, before: int, after: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(members, before, after) / before**0.5)
        self.bias = nn.Parameter(torch.zeros(members, 1, after))

    def forward(self, x: Any) -> Any:
        return torch.baddbmm(self.bias, x, self.weight)


class _Ensemble(nn.Module):
    def __init__(self, members: int = 16) -> None:
        super().__init__()
        self.members = members
        self.layers = nn.ModuleList(
            nn.Sequential(_Members(members, before, 96), nn.ReLU(), nn.Dropout(0.1))
            for before in (24, 96, 96)
        )
        self.out = _Members(members, 96, 1)

    def forward(self, x: Any) -> Any:
        x = x.expand(self.members, *x.shape)
        for layer in self.layers:
            x = layer(x)
        return self.out(x).squeeze(-1)


@failing(Gpu(1600 * MIB, scale=32), BATCH, f"shard giant attention {LARGE}")
def members_of_an_ensemble_in_one_pass() -> None:
    """Sixteen perceptrons for a table are trained together, and each keeps its activations of the batch."""
    rows, prices = torch.randn(4096, 24), torch.randn(4096)
    model = _Ensemble()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    for begin in range(0, 4096, 1024):
        x, y = rows[begin : begin + 1024], prices[begin : begin + 1024]
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y.expand(16, -1))
        loss.backward()
        optimizer.step()


@failing(Gpu(1200 * MIB, scale=64), "giant", f"shard checkpoint accumulate {LARGE}")
def an_adjacency_matrix_made_dense() -> None:
    """A citation graph's adjacency matrix, normalized as in the paper, has a number for every two nodes."""
    nodes, edges = 1200, torch.randint(0, 1200, (2, 6000))
    features, labels = torch.randn(nodes, 32), torch.randint(0, 7, (nodes,))
    adjacency = torch.zeros(nodes, nodes)
    adjacency[edges[0], edges[1]] = 1.0
    adjacency += torch.eye(nodes)
    degree = torch.diag(adjacency.sum(1).rsqrt())
    adjacency = degree @ adjacency @ degree

    first, second = nn.Linear(32, 16), nn.Linear(16, 7)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        hidden = torch.relu(adjacency @ first(features))
        loss = functional.cross_entropy(adjacency @ second(hidden), labels)
        loss.backward()
        optimizer.step()


class _Tagger(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.embed = nn.Embedding(2000, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(2))
        self.tags = nn.Linear(width, 9)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.tags(x)


@failing(
    Gpu(1420 * MIB, scale=32),
    "gradients shard",
    f"checkpoint accumulate attention {LARGE}",
)
def gradients_joined_for_the_log() -> None:
    """All gradients of a tagger are joined in one vector in each step, to log their norm and maximum."""
    model = _Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)
    log = []
    for step in range(4):
        tokens, tags = torch.randint(0, 2000, (4, 32)), torch.randint(0, 9, (4, 32))
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(tokens).flatten(0, 1), tags.flatten())
        loss.backward()
        gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        log.append({"step": step, "norm": gradient.norm().item(), "largest": gradient.abs().max().item()})
        optimizer.step()


@failing(
    Gpu(1400 * MIB, scale=32), "inference precision", "shard checkpoint accumulate pad others expandable"
)
def ten_crops_of_every_photo() -> None:
    """A test with TenCrop, as its documentation shows it, on the batch size of the validation."""
    model = nn.Sequential(
        _conv(3, 32),
        _conv(32, 32, 2),
        _conv(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    ).eval()
    right = torch.zeros(())
    with torch.no_grad():
        for _ in range(3):  # one view of each
            photos, labels = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
            right += (model(photos).argmax(1) == labels).sum()
        for _ in range(3):
            photos, labels = torch.randn(32, 10, 3, 28, 28), torch.randint(0, 10, (32,))
            rows, crops, *image = photos.shape
            scores = model(photos.view(-1, *image)).view(rows, crops, -1).mean(1)
            right += (scores.argmax(1) == labels).sum()


@failing(Gpu(650 * MIB, scale=32), "before", f"shard giant attention {LARGE}")
def a_cell_run_again_after_an_error() -> None:
    """A notebook's training stopped with an error, whose traceback holds the activations of that step."""
    model = nn.Sequential(_conv(3, 16), _conv(16, 32), _conv(32, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model.append(nn.Linear(32, 5))
    optimizer = torch.optim.Adam(model.parameters())

    def train(batches: list[tuple[Any, Any]]) -> None:
        for images, labels in batches:
            optimizer.zero_grad()
            output = model(images)
            loss = functional.cross_entropy(output, labels)
            loss.backward()
            optimizer.step()

    last_value = None  # IPython keeps the last error in sys.last_value
    try:
        train([(torch.randn(16, 3, 32, 32), torch.randint(0, 5, (rows,))) for rows in (16, 16, 15)])
    except ValueError as error:
        last_value = error
    train([(torch.randn(16, 3, 32, 32), torch.randint(0, 5, (16,))) for _ in range(3)])
    print(last_value)


class _Causal(nn.Module):
    def __init__(self, words: int = 2048) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, 64)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.lm_head = nn.Linear(64, words, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


@failing(Gpu(1300 * MIB, scale=64), "inference giant", "shard checkpoint accumulate others expandable pad")
def perplexity_of_many_windows() -> None:
    """The loss of eight windows of a book needs their logits, a shifted copy, and log-probabilities."""
    model, book = _Causal().eval(), torch.randint(0, 2048, (4096,))
    losses = []
    for windows in book.view(-1, 8, 128):
        with torch.no_grad():
            logits = model(windows)
            shifted = logits[:, :-1].contiguous().view(-1, 2048)
            losses.append(functional.cross_entropy(shifted, windows[:, 1:].flatten()).item())
    print(torch.tensor(losses).mean().exp())


@failing(Gpu(900 * MIB, scale=64), "inputs giant", f"shard checkpoint accumulate {LARGE}")
def windows_of_a_series_made_at_once() -> None:
    """A series is cut into all its windows of 96 hours on the GPU, then divided to train and to test."""

    def sequences(series: Any, length: int) -> tuple[Any, Any]:
        begins = range(len(series) - length)
        return torch.stack([series[i : i + length] for i in begins]), series[length:, 0]

    x, y = sequences(torch.randn(1500, 16), 96)
    order = torch.randperm(len(x))
    train, test = order[:1100], order[1100:]
    train_x, train_y, test_x, test_y = x[train], y[train], x[test], y[test]

    model = nn.Sequential(nn.Flatten(), nn.Linear(96 * 16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for begin in range(0, len(train_x), 64):
        optimizer.zero_grad()
        found = model(train_x[begin : begin + 64]).squeeze(1)
        functional.mse_loss(found, train_y[begin : begin + 64]).backward()
        optimizer.step()
    with torch.no_grad():
        print(functional.mse_loss(model(test_x).squeeze(1), test_y))


@failing(Gpu(700 * MIB, scale=64), "load models other", f"shard checkpoint accumulate giant {LARGE}")
def checkpoints_averaged_after_training() -> None:
    """The weights of the last eight epochs are loaded on the GPU, all at once, to average them."""
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    files = []
    for _ in range(8):
        for _ in range(2):
            optimizer.zero_grad()
            scores = model(torch.randn(32, 64))
            functional.cross_entropy(scores, torch.randint(0, 4, (32,))).backward()
            optimizer.step()
        files.append(io.BytesIO())
        torch.save(model.state_dict(), files[-1])
        files[-1].seek(0)

    states = [torch.load(file) for file in files]
    average = {name: sum(state[name] for state in states) / len(states) for name in states[0]}
    model.load_state_dict(average)


@failing(
    Gpu(1000 * MIB, scale=32),
    "giant inference precision",
    "shard checkpoint accumulate others expandable pad",
)
def classes_at_the_size_of_the_photo() -> None:
    """To compare it with the labels, the scores of 64 classes are enlarged to the size of a large photo."""
    model = nn.Sequential(_conv(3, 16, 2), _conv(16, 32, 2), _conv(32, 32, 2), nn.Conv2d(32, 64, 1)).eval()
    right = 0
    for height, width in ((96, 128), (128, 128), (128, 160), (240, 320)):
        photo, labels = torch.randn(1, 3, height, width), torch.randint(0, 64, (1, height, width))
        with torch.no_grad():
            scores = model(photo)
            scores = functional.interpolate(scores, (height, width), mode="bilinear")
            found = scores.softmax(1).argmax(1)
        right += int((found == labels).sum())
    print(right)
