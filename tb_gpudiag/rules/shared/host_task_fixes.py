"""Names and fixes of host tasks, such as logging and garbage collection, for the rules that find them."""

from __future__ import annotations

from typing import NamedTuple

from tb_gpudiag.facts.waiting.host_tasks import HostTask
from tb_gpudiag.facts.waiting.job_kind import JobKind
from tb_gpudiag.rules.rule import Fix


class HostTaskFix(NamedTuple):
    """What to call a host task, and how to fix it."""

    noun: str  # completes "... keeps the GPU idle"
    activity: str  # completes "the host was busy ..."
    fix: Fix
    least_removed: float  # share of the time that the fix removes at least

    @property
    def label(self) -> str:
        """The noun with a capital letter."""
        return self.noun[0].upper() + self.noun[1:]


# Running a task every hundredth time, or in parallel with training, removes nearly all of it. Batching or a
# faster library removes at least half.
_RARELY = 0.9
_FASTER = 0.5

HOST_TASK_FIXES = {
    HostTask.GARBAGE: HostTaskFix(
        "garbage collection",
        "collecting garbage",
        Fix(
            "Collect garbage at fixed intervals instead of in every step.",
            """# Exempt the objects that exist now, and never collect in the middle of a step:
gc.freeze()
gc.disable()
for step, batch in enumerate(loader):
    train_step(batch)
    if step % 500 == 0:
        gc.collect()""",
            "https://docs.python.org/3/library/gc.html",
        ),
        _RARELY,
    ),
    HostTask.LOGGING: HostTaskFix(
        "logging",
        "writing logs",
        Fix(
            "Log every N steps, and write from another thread.",
            """if step % 100 == 0:                              # not in every step
    writer.add_scalar("loss", loss, step)

# Send log lines to a queue that a thread writes:
records = queue.SimpleQueue()
logging.getLogger().handlers = [logging.handlers.QueueHandler(records)]
logging.handlers.QueueListener(records, logging.FileHandler("train.log")).start()

for batch in tqdm(loader, mininterval=5): ...    # redraw the progress bar every 5 s""",
            "https://docs.python.org/3/library/logging.handlers.html#queuehandler",
        ),
        _RARELY,
    ),
    HostTask.SAVING: HostTaskFix(
        "saving files",
        "saving a file",
        Fix(
            "Save less often, and from another thread.",
            """# Copy right away, and write the copy while the next steps run.
state = {k: v.to("cpu") for k, v in model.state_dict().items()}
saver.submit(torch.save, state, path)            # concurrent.futures.ThreadPoolExecutor(1)""",
            "https://docs.pytorch.org/docs/stable/distributed.checkpoint.html",
        ),
        _RARELY,
    ),
    HostTask.SLEEPING: HostTaskFix(
        "sleeping",
        "sleeping",
        Fix(
            "Remove the sleep from the step. To wait for something, wait for it itself, in another thread.",
            """ready = threading.Event()                        # set by the thread that has what you wait for
ready.wait()                                     # not: while not done(): time.sleep(0.1)""",
            "https://docs.python.org/3/library/threading.html#event-objects",
        ),
        _RARELY,
    ),
    HostTask.TOKENIZING: HostTaskFix(
        "tokenizing text",
        "tokenizing text",
        Fix(
            "Tokenize once before training, or whole batches in the loader's workers.",
            """dataset = dataset.map(lambda rows: tokenizer(rows["text"]), batched=True)   # once, and cached

tokenizer = AutoTokenizer.from_pretrained(name, use_fast=True)
inputs = tokenizer(texts, padding=True, return_tensors="pt")   # not: [tokenizer(t) for t in texts]""",
            "https://huggingface.co/docs/transformers/main_classes/tokenizer",
        ),
        _FASTER,
    ),
    HostTask.PREPARING: HostTaskFix(
        "preparing images, audio or video",
        "preparing images, audio or video",
        Fix(
            "Prepare the next batch in the loader's workers, on the GPU, or once before training.",
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

_IMAGES_URL = "https://docs.pytorch.org/vision/stable/transforms.html"
_PIPELINE_URL = "https://huggingface.co/docs/transformers/pipeline_tutorial"

_ON_GPU = """# On the GPU, for the whole batch:
transform = torchvision.transforms.v2.Compose([v2.Resize((224, 224)), v2.Normalize(mean, std)])
x = transform(frames.to("cuda", non_blocking=True))
processor = AutoImageProcessor.from_pretrained(name, use_fast=True)   # tensors instead of PIL images
inputs = processor(frames, device="cuda", return_tensors="pt")

# Prepare an input that is used several times once."""

PIPELINE_FIX = Fix(
    "Let the pipeline's worker processes prepare items: pass num_workers= and batch_size=.",
    """# A pipeline makes its own DataLoader, without workers unless it is told:
for output in pipe(dataset, num_workers=8, batch_size=16): ...   # not: [pipe(item) for item in dataset]

# A processor that works on tensors and whole batches:
pipe = pipeline(task, model=name, use_fast=True)""",
    _PIPELINE_URL,
)

_WITHOUT_LOADER = {
    HostTask.TOKENIZING: Fix(
        "Tokenize whole batches with a fast tokenizer, while the GPU works on the previous batch.",
        """tokenizer = AutoTokenizer.from_pretrained(name, use_fast=True)
inputs = tokenizer(texts, padding=True, return_tensors="pt")   # not: [tokenizer(t) for t in texts]""",
        "https://huggingface.co/docs/transformers/main_classes/tokenizer",
    ),
    HostTask.PREPARING: Fix(
        "Prepare inputs on the GPU, or in another process while the GPU works on the previous ones.",
        _ON_GPU,
        _IMAGES_URL,
    ),
}


def host_task_fix(task: HostTask, job: JobKind) -> Fix:
    """Return the fix of a host task that fits what feeds the job: a pipeline, a DataLoader or neither."""
    if task in _WITHOUT_LOADER and job.pipeline:
        return PIPELINE_FIX
    once = task is HostTask.TOKENIZING and job.training is not False  # a data set can be tokenized in advance
    if task in _WITHOUT_LOADER and not job.loader and not once:
        return _WITHOUT_LOADER[task]
    return HOST_TASK_FIXES[task].fix
