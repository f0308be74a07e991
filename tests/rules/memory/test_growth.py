"""Growth as a probability, and the fit that it is from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.rules.memory.host_memory_leak import RULE as HOST
from tb_gpudiag.rules.memory.memory_leak import RULE as GPU
from tb_gpudiag.rules.shared.growth import FEATURES, Growth, growth_of
from tests.rules.memory_stage import MIB, job, only
from tests.rules.noted_stage import check_noted, noted
from tests.rules.stage import facts_of, is_clear
from tests.truth import fit_growth
from tests.truth.growth import read


def growth(kept: list[int], folder: Path, *, device: int | None = 0) -> Growth:
    memory = next(
        m for m in facts_of(job(kept, device=device), folder).memory if m.is_cpu == (device is None)
    )
    found = growth_of(memory)
    assert found is not None
    return found


def test_growth_to_the_end_is_more_likely_a_leak_than_growth_that_stopped(tmp_path: Path) -> None:
    stopped = growth([MIB] * 6 + [0] * 6, tmp_path / "stopped").probability
    assert stopped < 0.5 < growth([MIB] * 12, tmp_path / "goes on").probability


def test_growth_is_less_sure_where_older_frees_are_not_recorded(tmp_path: Path) -> None:
    plain = growth([MIB] * 12, tmp_path / "plain", device=None)
    assert 0.5 < plain.probability < growth([MIB] * 12, tmp_path / "all").probability
    assert "full buffer" in plain.doubt


def test_what_was_noted_decides(tmp_path: Path) -> None:
    stays = only(check_noted([MIB] * 12, noted({MIB: 12}, {}), tmp_path / "stays"))
    assert stays.sure
    assert not isinstance(check_noted([MIB] * 12, noted({MIB: 12}, {MIB: 12}), tmp_path / "full"), list)


def test_a_level_floor_is_clear(tmp_path: Path) -> None:
    assert is_clear(GPU.check(facts_of(job([0] * 8), tmp_path / "gpu")))
    assert is_clear(HOST.check(facts_of(job([0] * 8, device=None), tmp_path / "host")))


def test_weights_are_those_of_the_table() -> None:
    written = json.loads(fit_growth.WEIGHTS.read_text(encoding="utf-8"))
    fitted = fit_growth.fit_each(read())
    assert written.keys() == fitted.keys()
    for shows, model in fitted.items():
        assert model["weights"] == pytest.approx(written[shows]["weights"], abs=0.02)
        assert model["weights"].keys() == FEATURES.keys()


def test_a_fit_tells_apart_what_its_figures_tell_apart() -> None:
    leaks = np.arange(40) % 2 == 0
    figures = np.c_[leaks, np.ones(40)].astype(float)
    weights = fit_growth.fit(figures, leaks)
    likely = 1 / (1 + np.exp(-(weights[0] + figures @ weights[1:])))
    assert likely[leaks].min() > 0.9
    assert likely[~leaks].max() < 0.1
