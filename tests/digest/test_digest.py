"""How the time of a step was spent."""

from __future__ import annotations

import pytest

from tb_gpudiag.digest.digest import WORK, time_parts
from tests.digest.made import digest, parts


@pytest.mark.parametrize("devices", [0, 1])
def test_operators_compute_only_where_there_is_no_gpu(devices: int) -> None:
    step = {"name": "1", "start_ns": 0, "end_ns": 10, "steady": True}
    made = digest(
        steps=[step | {"idle_ns": parts(dispatch=3), "host_ns": parts(dispatch=7, input=2)}], devices=devices
    )
    causes = ["input", "dispatch"]
    spent = time_parts(made.steps, made.about, causes, on_gpu=devices > 0)[0].tolist()
    expected = {"dispatch": 3} if devices else {"computing": 7, "input": 2}
    assert dict(zip((*WORK, *causes), spent, strict=True)) == dict.fromkeys((*WORK, *causes), 0) | expected
