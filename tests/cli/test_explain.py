from __future__ import annotations

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.jobs.rules.every_rule import EVERY_RULE, find_any_rule
from tb_gpudiag.wording import vocabulary


@pytest.mark.parametrize("key", ["GD101", "gd101", "input_pipeline", "INPUT_PIPELINE", "input-pipeline"])
def test_a_rule_by_id_or_name_in_any_case(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    rule = find_any_rule("GD101")
    assert rule is not None
    assert main(["explain", key]) == 0
    assert capsys.readouterr().out == rule.page


def test_without_a_rule_the_list_by_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    rules, _, terms = capsys.readouterr().out.partition("\n\n")
    assert [line.split()[:2] for line in rules.splitlines()] == sorted(
        [rule.id, rule.name] for rule in EVERY_RULE
    )
    assert "Step window" in terms


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


@pytest.mark.parametrize("key", ["step window", "Step-Window", "step_window"])
def test_a_term_however_it_is_written(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", key]) == 0
    assert capsys.readouterr().out.startswith("# Step window\n\nThe steady steps, ")


@pytest.mark.parametrize(
    ("word", "title"),
    [
        ("headroom", "# Free memory"),
        ("step windows", "# Step window"),
        ("launch api", "# Launch API (column"),
    ],
)
def test_other_words_for_a_term(word: str, title: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    assert capsys.readouterr().out.startswith(title)


@pytest.mark.slow
def test_every_term_and_every_other_word_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    for entry in vocabulary.entries():
        for word in filter(None, (entry.name, entry.id, *entry.also)):
            assert main(["explain", word]) == 0, word
            assert capsys.readouterr().err == ""


def test_an_id_that_stands_for_several_things(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "input"]) == 0
    shown = capsys.readouterr().out
    for title in (
        "# Data loading (idle cause `input`)",
        "# Data loading (bottleneck `input`)",
        "# Inputs (kind",
    ):
        assert title in shown


def test_a_close_term(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "arithmetic intensty"]) == 2
    assert "did you mean Arithmetic intensity" in capsys.readouterr().err


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
