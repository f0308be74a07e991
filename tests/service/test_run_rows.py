"""Rows of the table of runs."""

from __future__ import annotations

from collections.abc import Mapping

from tb_gpudiag.service.index.run_rows import WORK_CODES, run_row
from tests.digest.made import digest


def _work(spent_ns: Mapping[tuple[str, str], int]) -> list[int]:
    kernels = [
        {"name": "k", "operator": operator, "shapes": shapes, "time_ns": time_ns}
        for (operator, shapes), time_ns in spent_ns.items()
    ]
    return list(run_row(digest(kernels=kernels)).work)


def test_a_row_has_a_code_for_each_of_the_costliest_operators_with_their_shapes() -> None:
    own = _work({("aten::mm", "[8, 8]"): 90, ("aten::add", "[8]"): 5})
    assert len(own) == 2
    assert _work({("aten::add", "[8]"): 70, ("aten::mm", "[8, 8]"): 60}) == own
    assert len({*own, *_work({("aten::mm", "[16, 8]"): 90, ("aten::add", "[8]"): 5})}) == 3
    assert len(_work({("aten::mm", f"[{size}]"): size for size in range(20)})) == WORK_CODES


def test_without_shapes_nothing_is_said_about_the_work() -> None:
    assert _work({("aten::mm", ""): 90, ("", "[8]"): 5, ("aten::add", "[]"): 3}) == []
