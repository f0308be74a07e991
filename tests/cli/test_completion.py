"""What a shell offers after Tab."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tb_gpudiag.cli.main import COMMANDS, main

pytestmark = pytest.mark.slow  # each test imports every command


@pytest.fixture(scope="module")
def bash() -> str:
    found = shutil.which("bash")
    if found is None:
        pytest.skip("needs bash")
    return found


def offered(bash: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The words that bash offers for the last one of these."""
    assert main(["completion", "bash"]) == 0
    quoted = " ".join(f"'{word}'" for word in ["gpudiag", *words])
    ask = f'COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _gpudiag; echo "${{COMPREPLY[@]}}"'
    script = f"{capsys.readouterr().out}\n{ask}"
    done = subprocess.run(
        [bash, "--norc", "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["dia"], ["diagnose"]),
        (["diagnose", "--fu"], ["--full"]),
        (["diagnose", "log", "--format", "m"], ["markdown"]),
        (["diagnose", "--fail-on", "GD10"], ["GD101", "GD102", "GD103", "GD104", "GD105", "GD106", "GD107"]),
        (["diagnose", "--fail-on", "w"], ["warning"]),
        (["explain", "input_"], ["input_pipeline"]),
        (["completion", "z"], ["zsh"]),
        (["diagnose", "lo"], []),  # a path: bash completes it by itself
    ],
)
def test_bash_offers(
    bash: str, words: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert sorted(offered(bash, words, capsys)) == expected


def test_bash_offers_every_command(bash: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert offered(bash, [""], capsys) == list(COMMANDS)


def test_fish_gets_every_command_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 0
    shown = capsys.readouterr().out
    for command in COMMANDS:
        assert f"-a {command} -d '" in shown
    assert "'__fish_seen_subcommand_from diagnose' -l full" in shown
    assert shown.count("'") % 2 == 0
