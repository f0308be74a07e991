"""Synchronizations by call site: their kind, and the idle time after them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.sync_sites import SyncKind, SyncSite, sync_sites
from tests.builder import HostThread
from tests.rules.stage import facts_of, healthy, one_gap

Wait = Callable[[HostThread], object]


def _sites(wait: Wait, folder: Path) -> list[SyncSite]:
    """Return the sites of a job whose host waits from 200 to 300 µs, and whose GPU is then idle for 46 µs."""
    facts = facts_of(one_gap(lambda main, at, us: wait(main), 40), folder)
    return _all_sites(facts)


def _all_sites(facts: Facts) -> list[SyncSite]:
    windows = facts.window, facts.host_window
    return sync_sites(facts.host, facts.transfers, facts.host_time.blocking, facts.gpu.time, *windows)


def _in_operators(*operators: str) -> Wait:
    def wait(main: HostThread) -> None:
        for depth, operator in enumerate(operators):
            main.op(operator, at=200 + depth, us=110 - 2 * depth)
        main.sync(at=204, us=96)

    return wait


def _printed(main: HostThread) -> None:
    main.frame("torch/_tensor_str.py(700): _str", at=200, us=110)
    _in_operators("aten::masked_select", "aten::nonzero")(main)


def _in_copy(main: HostThread) -> None:
    main.op("aten::copy_", at=200, us=110)
    main.copy("DtoH", at=201, us=5, runs_at=230, runs_us=2, bytes=4, stream=20)
    main.sync(at=207, us=93)


@pytest.mark.parametrize(
    ("wait", "kind"),
    [
        (_in_operators("aten::item", "aten::_local_scalar_dense"), SyncKind.ITEM),
        (
            _in_operators("aten::is_nonzero", "aten::item", "aten::_local_scalar_dense"),
            SyncKind.CONDITION,
        ),
        (_in_operators("aten::index", "aten::nonzero"), SyncKind.SIZE),
        (_printed, SyncKind.PRINT),
        (_in_copy, SyncKind.COPY_TO_HOST),
        (lambda main: main.sync("cudaDeviceSynchronize", at=200, us=100), SyncKind.DEVICE),
        (lambda main: main.sync("hipEventSynchronize", at=200, us=100), SyncKind.EVENT),
        (lambda main: main.sync("cuStreamSynchronize", at=200, us=100), SyncKind.STREAM),
    ],
)
def test_frames_and_operators_determine_the_kind_of_a_wait(
    wait: Wait, kind: SyncKind, tmp_path: Path
) -> None:
    (site,) = _sites(wait, tmp_path)
    assert site.kind == kind
    assert site.count == 1
    assert 93_000 <= site.held_ns <= 100_000
    assert 40_000 <= site.refill_ns <= 46_000
    (start,), (end,), (device,) = site.ranges
    assert 200_000 <= start <= 207_000
    assert (end, device) == (300_000, 0)


def test_a_wait_that_drains_nothing_has_no_refill(tmp_path: Path) -> None:
    trace = healthy()
    HostThread(trace, trace.recording.host[0].thread).sync("cudaEventSynchronize", at=400, us=200)
    (site,) = _all_sites(facts_of(trace, tmp_path))
    assert (site.held_ns, site.refill_ns) == (200_000, 0)


def test_sites_that_cost_most_come_first(tmp_path: Path) -> None:
    def twice(main: HostThread) -> None:
        main.sync("cudaEventSynchronize", at=150, us=20)
        _in_operators("aten::item")(main)

    assert [site.kind for site in _sites(twice, tmp_path)] == [SyncKind.ITEM, SyncKind.EVENT]
