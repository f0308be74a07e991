"""The handler in the training loops of other libraries, where these are installed."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag import DiagnosisHandler
from tb_gpudiag.service.processes.process_setup import worker_environment
from tests.patience import HANGS_S
from tests.training.stage import Diagnosed, handler

pytestmark = pytest.mark.slow

STEPS, ACTIVE = 8, 3


class Stage:
    """A handler, what it diagnosed, and options of the profiler that record steps 2 to 4."""

    def __init__(self, torch: Any, made: DiagnosisHandler, got: Diagnosed, folder: Path) -> None:
        self.handler, self.got, self.folder = made, got, folder
        self.options = {
            "activities": [torch.profiler.ProfilerActivity.CPU],
            "schedule": torch.profiler.schedule(wait=1, warmup=1, active=ACTIVE, repeat=1),
        }

    def check(self) -> None:
        (report,) = self.got.expect(1)
        assert [step.name for step in report.steps] == [f"ProfilerStep#{2 + i}" for i in range(ACTIVE)]


@pytest.fixture
def stage(torch: Any, tmp_path: Path) -> Iterator[Stage]:
    got = Diagnosed()
    with handler(tmp_path / "log", on_diagnosis=got) as made:
        yield Stage(torch, made, got, tmp_path)


def batches(torch: Any) -> Any:
    return torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.rand(STEPS, 4), torch.rand(STEPS, 1)), batch_size=1
    )


def test_lightning(torch: Any, stage: Stage) -> None:
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
    trainer.fit(Module(), batches(torch))
    stage.check()


def test_transformers(torch: Any, stage: Stage) -> None:
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


@pytest.mark.parametrize("ranks", [1, 2])
def test_accelerate(torch: Any, tmp_path: Path, ranks: int) -> None:
    pytest.importorskip("accelerate")
    if ranks > 1 and not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("torch without Gloo")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    processes = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("accelerate_job.py"))],
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={
                **worker_environment(),
                "ACCELERATE_USE_CPU": "true",
                **({**job, "RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else {}),
            },
        )
        for rank in range(ranks)
    ]
    said = [process.communicate(timeout=HANGS_S)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks, said
    names = [path.name for path in (tmp_path / "log" / "my_run").iterdir()]
    assert len(names) == ranks
    for name in names:
        assert sum(f"gpudiag: {name}: " in text for text in said) == 1
    assert ["gpudiag: Job 2 ranks: " in text for text in said] == ([False] if ranks == 1 else [True, False])
