"""What counts as a decision, and that more of them are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import tb_gpudiag
from tests.with_each import with_each
from tools import decisions
from tools.decisions import count, fractions, numbers


@with_each(
    ("source", "decisions"),
    [
        ("if a: pass\nelif b: pass\nelse: pass", 2),
        ("x = a if b else c", 1),
        ("while a and b or c: pass", 3),
        ("assert a", 1),
        ("[x for x in y if x if a and b]", 3),
        ("for x in y: pass", 0),
        ("x = a & b | ~c", 0),
    ],
)
def test_each_branch_and_each_filter_counts(source: str, decisions: int) -> None:
    assert count(source) == decisions


def test_one_more_is_refused_with_the_files_that_have_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "FOLDERS", ["rules"])
    monkeypatch.setattr(decisions, "MOST", 1)
    monkeypatch.setattr(tb_gpudiag, "__file__", str(tmp_path / "__init__.py"))
    (tmp_path / "rules").mkdir()
    rule = tmp_path / "rules" / "rule.py"
    rule.write_text("if a: pass")
    decisions.main()
    rule.write_text("if a and b: pass")
    with pytest.raises(SystemExit, match=r"2 decisions .* 1 more than .*\n +2 .*rule\.py"):
        decisions.main()


def test_a_named_fraction_counts_and_a_level_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "A = 0.3\nB: Final = 0.5\nC, D = 2, 0.1\nE = levels.HALF\nF = 1.5\nG = table(0.1)"
    assert fractions(source) == ["A", "B: Final", "C, D"]
    monkeypatch.setattr(decisions, "FOLDERS", ["rules"])
    monkeypatch.setattr(decisions, "MOST_FRACTIONS", 2)
    monkeypatch.setattr(tb_gpudiag, "__file__", str(tmp_path / "__init__.py"))
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "rule.py").write_text(source)
    with pytest.raises(SystemExit, match="3 named fractions"):
        decisions.main()


def test_numbers_are_a_rules_and_no_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "A = 3\nB: Final = 0.5\nC = levels.HALF\nD = np.array([1])\nE = 'a'"
    assert numbers(source) == ["A", "B: Final", "C"]
    monkeypatch.setattr(decisions, "FOLDERS", ["rules", "facts"])
    monkeypatch.setattr(decisions, "MOST_NUMBERS", 2)
    monkeypatch.setattr(tb_gpudiag, "__file__", str(tmp_path / "__init__.py"))
    for folder in ("rules", "facts"):
        (tmp_path / folder).mkdir()
    (tmp_path / "rules" / "rule.py").write_text(source)
    decisions.main()
    (tmp_path / "facts" / "fact.py").write_text(source)
    with pytest.raises(SystemExit, match="3 named numbers in facts"):
        decisions.main()
