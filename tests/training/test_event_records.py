"""Records and figures in event files are what both of TensorBoard's data servers read."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard import context

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.training.diagnosing import figures_of, record_of
from tb_gpudiag.training.event_records import SCHEMA, TAG, append_to
from tests.report.reports import report_of, slow_loader
from tests.service.helpers import eventually
from tests.training.data_servers import PROVIDERS, fast_provider, slow_provider
from tests.training.stage import Diagnosed, FakeProfiler, content_of, handler

pytestmark = pytest.mark.slow


def read(provider: Any) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Return the records and the busy shares, by run."""
    request: dict[str, Any] = {"experiment_id": "", "downsample": 100}
    ctx = context.RequestContext()
    tensors = provider.read_tensors(ctx, plugin_name="gpudiag", **request)
    scalars = provider.read_scalars(ctx, plugin_name="scalars", **request)
    return (
        {run: tags[TAG] for run, tags in tensors.items() if TAG in tags},
        {run: tags["gpudiag/busy_share"] for run, tags in scalars.items() if "gpudiag/busy_share" in tags},
    )


def expect(provider: Any, run: str, steps: list[int]) -> list[pb.Report]:
    """Wait until the run has records at these steps, and return them."""

    def there() -> tuple[list[Any], list[Any]] | None:
        records, shares = (found.get(run, []) for found in read(provider))
        at = [[one.step for one in records], [one.step for one in shares]]
        return (records, shares) if at == [steps, steps] else None

    records, shares = eventually(there, f"records of {run} at {steps}")
    assert [share.value for share in shares] == pytest.approx([0.32] * len(steps))
    return [pb.Report.FromString(one.numpy.item()) for one in records]


@PROVIDERS
def test_both_data_servers_read_appended_records(tmp_path: Path, provider: Callable[[Path], Any]) -> None:
    report = report_of(slow_loader(), tmp_path)
    log = tmp_path / "log"
    path = log / "train" / "events.out.tfevents.1700000000.host.1"
    for step in (6, 12, 18):
        append_to(str(path), record_of(report, report.steps), figures_of(report), step)
    opened = provider(log)
    found = expect(opened, "train", [6, 12, 18])
    assert [one.verdict.limiter for one in found] == [pb.Verdict.input] * 3
    listed = opened.list_tensors(context.RequestContext(), experiment_id="", plugin_name="gpudiag")
    assert listed["train"][TAG].plugin_content == SCHEMA


@pytest.mark.usefixtures("diagnosed_in_process")
@PROVIDERS
def test_a_handler_writes_into_a_directory_of_its_own(
    tmp_path: Path, provider: Callable[[Path], Any]
) -> None:
    got, log = Diagnosed(), tmp_path / "log"
    profiler = FakeProfiler(content_of(slow_loader(), tmp_path))
    with handler(log, worker_name="rank0", on_diagnosis=got, writer=log / "run") as made:
        for step in (10, 20, 20):  # TensorBoard would keep one of those at the same step
            profiler.step_num = step
            made(profiler)
            got.expect(len(got.reports) + 1)
    assert os.listdir(log / "run" / "gpudiag") == ["rank0"]
    expect(provider(log), "run/gpudiag/rank0", [10, 20, 21])


@pytest.mark.usefixtures("torch")
def test_a_summary_writer_of_torch_keeps_its_own_scalars(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    log = tmp_path / "log"
    profiler = FakeProfiler(content_of(slow_loader(), tmp_path))
    writer = SummaryWriter(str(log / "run"))
    with handler(log / "run", writer=writer) as made:
        for step in (1, 2):
            writer.add_scalar("loss", 1 / step, step)
            profiler.step_num = step
            made(profiler)
    writer.close()
    assert len(list((log / "run").glob("*tfevents*"))) == 1
    for provider in (slow_provider, fast_provider):
        opened = provider(log)
        expect(opened, "run", [1, 2])
        scalars = opened.read_scalars(
            context.RequestContext(), experiment_id="", plugin_name="scalars", downsample=10
        )
        assert [one.value for one in scalars["run"]["loss"]] == [1.0, 0.5]


def test_a_full_disk_leaves_whole_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log" / "run" / "events.out.tfevents.1700000000.host.1"
    append_to(str(path), b"a", {"gpudiag/busy_share": 0.32}, 1)
    whole = path.read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, content: write(fd, content[:20]))
    with pytest.raises(OSError, match="full"):
        append_to(str(path), b"b", {}, 2)
    assert path.read_bytes() == whole


@pytest.mark.usefixtures("diagnosed_in_process")
def test_records_that_cannot_be_written_do_not_cost_the_verdict(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    got = Diagnosed()
    (tmp_path / "file").touch()

    class Broken:
        def _get_file_writer(self) -> Any:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    profiler = FakeProfiler(content_of(slow_loader(), tmp_path))
    for count, writer in enumerate((tmp_path / "file", Broken()), 1):
        with handler(tmp_path / "log", on_diagnosis=got, writer=writer) as made:
            made(profiler)
            got.expect(count)
    said = [record.getMessage() for record in caplog.records]
    failed = [message.split(": ")[-1] for message in said if "no record was written" in message]
    assert failed == ["Not a directory", "[Errno 28] No space left on device"]
