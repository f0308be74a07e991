"""The handler in the training loops of other libraries, where these are installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag import DiagnosisHandler
from tests.training.stage import Diagnosed, handler

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.slow

STEPS, ACTIVE = 8, 3


class Stage:
    """A handler, what it diagnosed, and options of the profiler that record steps 2 to 4."""

    def __init__(self, made: DiagnosisHandler, got: Diagnosed, folder: Path) -> None:
        self.handler, self.got, self.folder = made, got, folder
        self.options = {
            "activities": [torch.profiler.ProfilerActivity.CPU],
            "schedule": torch.profiler.schedule(wait=1, warmup=1, active=ACTIVE, repeat=1),
        }

    def check(self) -> None:
        (report,) = self.got.expect(1)
        assert [step.name for step in report.steps] == [f"ProfilerStep#{2 + i}" for i in range(ACTIVE)]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    got = Diagnosed()
    with handler(tmp_path / "log", on_diagnosis=got) as made:
        yield Stage(made, got, tmp_path)


def batches() -> Any:
    return torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.rand(STEPS, 4), torch.rand(STEPS, 1)), batch_size=1
    )


def test_lightning(stage: Stage) -> None:
    lightning = pytest.importorskip("pytorch_lightning")
    from tb_gpudiag.training.lightning_callback import DiagnosisCallback

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _number: int) -> Any:
            return (self.layer(batch[0]) - batch[1]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[DiagnosisCallback(stage.handler, **stage.options)],
    )
    trainer.fit(Module(), batches())
    stage.check()


def test_transformers(stage: Stage) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from tb_gpudiag.training.transformers_callback import DiagnosisCallback

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, values: Any, labels: Any) -> dict[str, Any]:
            return {"loss": (self.layer(values) - labels).square().mean()}

    arguments = transformers.TrainingArguments(
        str(stage.folder / "out"),
        max_steps=STEPS,
        per_device_train_batch_size=1,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    rows = [{"values": torch.rand(4), "labels": torch.rand(1)} for _ in range(STEPS)]
    transformers.Trainer(
        Model(),
        arguments,
        train_dataset=rows,
        callbacks=[DiagnosisCallback(stage.handler, **stage.options)],
    ).train()
    stage.check()


def test_accelerate(stage: Stage) -> None:
    accelerate = pytest.importorskip("accelerate")
    options = accelerate.ProfileKwargs(
        activities=["cpu"],
        schedule_option={"wait": 1, "warmup": 1, "active": ACTIVE, "repeat": 1, "skip_first": 0},
        on_trace_ready=stage.handler,
    )
    accelerator = accelerate.Accelerator(cpu=True, kwargs_handlers=[options])
    layer = accelerator.prepare(torch.nn.Linear(4, 1))
    with accelerator.profile() as profiler:
        for values, labels in batches():
            accelerator.backward((layer(values) - labels).square().mean())
            profiler.step()
    stage.check()
