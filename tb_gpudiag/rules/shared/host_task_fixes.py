"""What the host did beside the model, in words, and what helps: for the rules that find it."""

from __future__ import annotations

from typing import NamedTuple

from tb_gpudiag.facts.waiting.host_tasks import Chore
from tb_gpudiag.rules.rule import Fix


class ChoreWords(NamedTuple):
    """`removed` is the least share of the time that the fix takes away."""

    what: str  # ends "the GPU waits for"
    doing: str  # ends "the host was busy"
    fix: Fix
    removed: float


# Done every hundredth time, or beside the training, next to nothing is left of it; batching or a faster
# library takes half of it at least.
_SELDOM = 0.9
_FASTER = 0.5

CHORES = {
    Chore.GARBAGE: ChoreWords(
        "garbage collection",
        "collecting garbage",
        Fix(
            "Collect garbage when it suits the job, and not in every step.",
            """# What is alive now is not looked at again, and nothing is collected in the middle of a step:
gc.freeze()
gc.disable()
for step, batch in enumerate(loader):
    train_step(batch)
    if step % 500 == 0:
        gc.collect()""",
            "https://docs.python.org/3/library/gc.html",
        ),
        _SELDOM,
    ),
    Chore.LOGGING: ChoreWords(
        "logging",
        "writing logs",
        Fix(
            "Log every N steps, and let another thread write.",
            """if step % 100 == 0:                              # not in every step
    writer.add_scalar("loss", loss, step)

# Log lines go to a queue, and a thread writes them:
records = queue.SimpleQueue()
logging.getLogger().handlers = [logging.handlers.QueueHandler(records)]
logging.handlers.QueueListener(records, logging.FileHandler("train.log")).start()

for batch in tqdm(loader, mininterval=5): ...    # a progress bar that is drawn every 5 s""",
            "https://docs.python.org/3/library/logging.handlers.html#queuehandler",
        ),
        _SELDOM,
    ),
    Chore.SAVING: ChoreWords(
        "saving",
        "saving a file",
        Fix(
            "Save seldom, and from another thread.",
            """# The copy is made at once; writing it runs beside the next steps.
state = {k: v.to("cpu") for k, v in model.state_dict().items()}
saver.submit(torch.save, state, path)            # concurrent.futures.ThreadPoolExecutor(1)""",
            "https://docs.pytorch.org/docs/stable/distributed.checkpoint.html",
        ),
        _SELDOM,
    ),
    Chore.TOKENIZING: ChoreWords(
        "tokenizing text",
        "tokenizing text",
        Fix(
            "Tokenize once before the training, or whole batches in the loader's workers.",
            """dataset = dataset.map(lambda rows: tokenizer(rows["text"]), batched=True)   # once, and kept

tokenizer = AutoTokenizer.from_pretrained(name, use_fast=True)
inputs = tokenizer(texts, padding=True, return_tensors="pt")   # not: [tokenizer(t) for t in texts]""",
            "https://huggingface.co/docs/transformers/main_classes/tokenizer",
        ),
        _FASTER,
    ),
    Chore.PREPARING: ChoreWords(
        "preparing images, sound or video",
        "preparing images, sound or video",
        Fix(
            "Prepare the next batch in the loader's workers, on the GPU, or once before the training.",
            """# In worker processes, while the GPU computes:
loader = DataLoader(dataset, batch_size=64, num_workers=8, pin_memory=True)   # dataset[i] prepares item i

# On the GPU, for the whole batch:
transform = torchvision.transforms.v2.Compose([v2.Resize((224, 224)), v2.Normalize(mean, std)])
x = transform(frames.to("cuda", non_blocking=True))
processor = AutoImageProcessor.from_pretrained(name, use_fast=True)   # tensors instead of PIL images
inputs = processor(frames, device="cuda", return_tensors="pt")""",
            "https://docs.pytorch.org/vision/stable/transforms.html",
        ),
        _FASTER,
    ),
}
