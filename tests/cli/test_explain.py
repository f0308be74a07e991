from __future__ import annotations

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.rules.all import RULES, find_rule


@pytest.mark.parametrize("key", ["GD101", "gd101", "input_pipeline", "INPUT_PIPELINE", "input-pipeline"])
def test_a_rule_by_id_or_name_in_any_case(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    rule = find_rule("GD101")
    assert rule is not None
    assert main(["explain", key]) == 0
    assert capsys.readouterr().out == rule.page


def test_without_a_rule_the_list_by_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == sorted([rule.id, rule.name] for rule in RULES)


@pytest.mark.parametrize(
    ("key", "close"), [("gd1O1", "GD101 input_pipeline"), ("imput_pipeline", "GD101 input_pipeline")]
)
def test_an_unknown_rule_exits_with_2_and_lists_close_matches(
    key: str, close: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", key]) == 2
    shown = capsys.readouterr()
    assert close in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def test_nothing_like_a_rule_points_to_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "zzzzzzzz"]) == 2
    assert "gpudiag explain" in capsys.readouterr().err


def test_on_a_terminal_the_page_is_rendered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["explain", "GD301"]) == 0
    shown = capsys.readouterr().out
    assert "## Threshold" not in shown
    assert "Threshold" in shown
