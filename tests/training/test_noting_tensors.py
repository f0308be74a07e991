"""Notes in a trace about the tensors that came and went during the recording."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag import NotingTensors
from tb_gpudiag.trace.kineto.kineto import TENSORS
from tb_gpudiag.training.noting_tensors import KEY, malloc_bytes, note_from_now_on

KIB, MIB = 2**10, 2**20


def test_reading_and_writing_have_one_key() -> None:
    assert KEY == TENSORS


def notes(
    torch: Any, folder: Path, step: Callable[[], object], *, wait: int = 1, active: int = 4
) -> list[dict[str, Any]]:
    """What each of two recordings notes of a job."""
    profiler, files = torch.profiler, list[Path]()

    def save(recording: Any) -> None:
        files.append(folder / f"{len(files)}.json")
        recording.export_chrome_trace(str(files[-1]))

    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        schedule=NotingTensors(profiler.schedule(wait=wait, warmup=1, active=active, repeat=2)),
        on_trace_ready=save,
        with_stack=True,
    ) as recording:
        for _ in range(2 * (wait + 1 + active)):
            step()
            recording.step()
    return [json.loads(file.read_text())[KEY] for file in files]


def test_it_notes_what_came_went_and_is_there(tmp_path: Path, torch: Any) -> None:
    kept, ring = [], [torch.zeros(512) for _ in range(3)]

    def step() -> None:
        kept.append(torch.zeros(KIB))  # 4 KiB
        ring.append(torch.zeros(512)[:100])  # half of it, as a view
        del ring[0]

    first, second = notes(torch, tmp_path, step)
    for found in (first, second):
        assert found["came"]["4096"] == 4
        assert "4096" not in found["went"]
        assert found["came"]["2048"] == found["went"]["2048"]


def test_it_notes_memory_from_the_jobs_beginning_on(tmp_path: Path, torch: Any) -> None:
    kept = list[Any]()
    first, second = notes(torch, tmp_path, lambda: kept.append(torch.zeros(KIB)), active=5)
    assert [step for step, _ in first["history"]] == [2, 7]  # 4 is in the recording
    assert [step for step, _ in second["history"]] == [2, 7, 8, 9, 14]
    sizes = dict(second["history"])
    assert sizes[14] - sizes[8] == 6 * 4 * KIB


def test_it_notes_what_malloc_gave_out_until_a_recording_began(tmp_path: Path, torch: Any) -> None:
    if malloc_bytes() is None:
        pytest.skip("tensors are not allocated by a glibc that has mallinfo2")
    kept = list[Any]()

    def step() -> None:
        kept.append(bytes(MIB))

    first, second = notes(torch, tmp_path, step, wait=13)
    assert [step for step, _ in first["malloc"]] == [4, 8, 12, 13]
    assert [step for step, _ in first["warm_up"]] == [13]
    assert [step for step, _ in first["history"]] == [4, 8, 12, 14, 18]  # one more would be too close to 12
    sizes = dict(first["malloc"])
    assert sizes[8] - sizes[4] == pytest.approx(4 * MIB, rel=0.2)
    assert second["malloc"] == first["malloc"]  # a profiler takes and leaves some memory


def test_it_notes_which_tensors_have_a_graph_and_how_large_graphs_are(tmp_path: Path, torch: Any) -> None:
    weight, kept = torch.ones(512, requires_grad=True), list[Any]()
    last = list[Any]()

    def step() -> None:
        last[:] = [(weight * torch.ones(512)).sum()]  # before and after
        kept.append((weight * torch.ones(KIB // 2)).exp())
        kept.append(torch.ones(KIB))
        kept.append(torch.ones(2 * KIB, requires_grad=True))

    for found in notes(torch, tmp_path, step):
        assert (found["attached"], found["leaves"]) == ({"2048": 4}, {str(8 * KIB): 4})
        (_, before), (_, after) = found["nodes"][-2:]
        assert after - before == 4 * 2
        assert [step for step, _ in found["nodes"]] == [step for step, _ in found["history"]]


@pytest.mark.parametrize("listed", [True, False])
def test_it_notes_what_holds_a_graph_that_grows(listed: bool, tmp_path: Path, torch: Any) -> None:
    weight, kept, latest = torch.ones(512, requires_grad=True), [torch.zeros(())], list[Any]()

    def collect() -> None:
        kept[:] = [*kept, latest[0]] if listed else [kept[0] + latest[0]]

    def step() -> None:
        latest[:] = [(weight * 2).sum()]
        latest[0].backward()
        collect()

    for found in notes(torch, tmp_path, step):
        (root,) = found["roots"]
        assert f"{__file__}({collect.__code__.co_firstlineno}): collect" in root["functions"][0]
        assert not found["holders"]  # they are small


def test_nodes_that_python_holds_count_without_their_tensor(tmp_path: Path, torch: Any) -> None:
    weight, kept = torch.ones(512, requires_grad=True), list[Any]()
    for found in notes(torch, tmp_path, lambda: kept.append((weight * 2).grad_fn)):
        (_, before), (_, after) = found["nodes"][-2:]
        assert after - before == 4


def test_tensors_are_noted_where_it_is_not_known_which_have_a_graph(
    tmp_path: Path, torch: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> int:
        raise RuntimeError("no")

    monkeypatch.setattr("tb_gpudiag.training.noting_tensors.graph_nodes", fail)
    kept = list[Any]()
    for found in notes(torch, tmp_path, lambda: kept.append(torch.zeros(KIB))):
        assert (found["came"]["4096"], found["nodes"]) == (4, [])
    assert "which tensors have a graph" in caplog.text


def test_storages_without_tensors_are_noted_with_their_holder(tmp_path: Path, torch: Any) -> None:
    kept = list[Any]()

    def step() -> None:
        kept.append(torch.zeros(KIB).untyped_storage())

    for found in notes(torch, tmp_path, step):
        assert found["came"]["4096"] == 4
        assert f"{__file__}({step.__code__.co_firstlineno}): step" in found["holders"][0]["functions"][0]


@pytest.mark.parametrize("optimizers", [True, False])
def test_it_notes_whether_the_job_has_an_optimizer(optimizers: bool, tmp_path: Path, torch: Any) -> None:
    gc.collect()
    gc.freeze()  # those of other tests
    weight = torch.nn.Parameter(torch.zeros(1))
    _optimizer = torch.optim.SGD([weight], lr=0.1) if optimizers else None
    assert notes(torch, tmp_path, lambda: weight * 2)[0]["optimizers"] == optimizers


def test_it_notes_what_holds_the_tensors_of_which_there_are_more(tmp_path: Path, torch: Any) -> None:
    kept, ring = [], [torch.zeros(2 * KIB) for _ in range(3)]

    def step() -> None:
        kept.append(torch.zeros(KIB))
        ring.append(torch.zeros(2 * KIB))
        del ring[0]

    (found,) = notes(torch, tmp_path, step)[0]["holders"]
    assert found["bytes"] == 4 * KIB
    assert f"{__file__}({step.__code__.co_firstlineno}): step" in found["functions"][0]


@pytest.mark.parametrize("memory", [True, False])
def test_later_recordings_of_memory_can_be_noted(memory: bool, tmp_path: Path, torch: Any) -> None:
    profiler, texts = torch.profiler, list[str]()

    def save(recording: Any) -> None:
        recording.export_chrome_trace(str(tmp_path / "trace.json"))
        texts.append((tmp_path / "trace.json").read_text())
        note_from_now_on(recording)

    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        schedule=profiler.schedule(wait=1, warmup=1, active=2, repeat=3),
        on_trace_ready=save,
        profile_memory=memory,
    ) as recording:
        for _ in range(12):
            torch.zeros(KIB)
            recording.step()
    assert [KEY in text for text in texts] == [False, memory, memory]


def test_a_tensor_at_the_address_of_one_that_went_has_come(tmp_path: Path, torch: Any) -> None:
    one = [torch.zeros(KIB)]

    def step() -> None:
        one[:] = []
        one[:] = [torch.zeros(KIB)]

    for found in notes(torch, tmp_path, step):
        assert found["came"]["4096"] == found["went"]["4096"] == 1


def test_tensors_without_storage_are_left_out(tmp_path: Path, torch: Any) -> None:
    kept = list[Any]()
    for found in notes(torch, tmp_path, lambda: kept.append(torch.zeros(KIB, device="meta"))):
        assert "4096" not in found["came"]


@pytest.mark.parametrize("transform", ["vmap", "grad"])
def test_what_escapes_from_a_transform_is_left_out(transform: str, tmp_path: Path, torch: Any) -> None:
    kept, change = list[Any](), getattr(torch.func, transform)

    def total(value: Any) -> Any:
        kept.append(value)
        return value.sum()

    def step() -> None:
        change(total)(torch.ones(2))
        kept.append(torch.zeros(KIB))

    for found in notes(torch, tmp_path, step):
        assert found["came"]["4096"] == 4


def test_sparse_tensors_have_indices_and_values(tmp_path: Path, torch: Any) -> None:
    kept = list[Any]()
    for found in notes(torch, tmp_path, lambda: kept.append(torch.ones(700).to_sparse())):
        assert (found["came"]["5600"], found["came"]["2800"]) == (4, 4)


def test_a_sparse_gradient_that_becomes_larger_is_noted(tmp_path: Path, torch: Any) -> None:
    embedding = torch.nn.Embedding(4, 256, sparse=True)

    def step() -> None:
        embedding(torch.tensor([1])).sum().backward()
        assert embedding.weight.grad.is_sparse  # as optimizers look at it

    for found in notes(torch, tmp_path, step):
        rows = found["steps"]
        assert found["came"][str(rows * 256 * 4)] == found["went"][str((rows - 4) * 256 * 4)] == 1


def test_a_failure_is_logged_and_the_job_goes_on(
    tmp_path: Path, torch: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise OSError("no")

    monkeypatch.setattr("tb_gpudiag.training.noting_tensors._changes", fail)
    with pytest.raises(KeyError):
        notes(torch, tmp_path, lambda: None)
    assert "does not say which tensors" in caplog.text
