"""`gpudiag completion SHELL`: print the script with which a shell completes commands, options and rules."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import Final

from tb_gpudiag.cli.main import COMMANDS
from tb_gpudiag.jobs.rules.every_rule import EVERY_RULE

SHELLS: Final = ("bash", "zsh", "fish")

_BASH: Final = """\
_gpudiag() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=
    case ${{COMP_WORDS[1]}}:$before:$word in
{cases}
    esac
    [ "$COMP_CWORD" -eq 1 ] && words="{commands}"
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _gpudiag gpudiag
"""

_ZSH: Final = "autoload -U +X bashcompinit && bashcompinit\n"


def run(arguments: Sequence[str]) -> int:
    """Print the script."""
    parsed = parser().parse_args(arguments)
    options = {command: _options(command) for command in COMMANDS}
    if parsed.shell == "fish":
        print("\n".join(_fish(options)))
    else:
        print((_ZSH if parsed.shell == "zsh" else "") + _bash(options), end="")
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag completion",
        description="Print a script that makes a shell complete commands, options, rules and severities. "
        'For bash and zsh, add `eval "$(gpudiag completion bash)"` to ~/.bashrc, or the same with zsh to '
        "~/.zshrc. For fish: gpudiag completion fish > ~/.config/fish/completions/gpudiag.fish",
    )
    made.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    return made


def _options(command: str) -> dict[str, list[str]]:
    """The words that may follow each option of a command; "" stands for the command itself."""
    found: dict[str, list[str]] = {}
    names = [name for rule in EVERY_RULE for name in (rule.id, rule.name)]
    # argparse has no other way to list what a parser takes.
    for action in importlib.import_module(f"tb_gpudiag.cli.{command}").parser()._actions:
        words = [str(choice) for choice in action.choices or ()]
        if action.dest == "fail_on":
            words = ["info", "warning", "error", *(rule.id for rule in EVERY_RULE)]
        elif (command, action.dest) == ("explain", "name"):
            words = names
        for option in action.option_strings or ([""] if words else []):
            found[option] = words
    return found


def _bash(options: dict[str, dict[str, list[str]]]) -> str:
    cases = []
    for command, words_of in options.items():
        named = [(option, words) for option, words in words_of.items() if option and words]
        cases += [f'    {command}:{option}:*) words="{" ".join(words)}" ;;' for option, words in named]
        every = " ".join(option for option in words_of if option)
        cases.append(f'    {command}:*:-*) words="{every}" ;;')
        if own := words_of.get(""):
            cases.append(f'    {command}:*) words="{" ".join(own)}" ;;')
    return _BASH.format(cases="\n".join(cases), commands=" ".join(options))


def _fish(options: dict[str, dict[str, list[str]]]) -> list[str]:
    lines = []
    for command in options:
        about = COMMANDS[command].replace("'", "’")
        lines.append(f"complete -c gpudiag -n __fish_use_subcommand -a {command} -d '{about}'")
    for command, words_of in options.items():
        inside = f"complete -c gpudiag -n '__fish_seen_subcommand_from {command}'"
        for option, words in words_of.items():
            kind = f" -l {option[2:]}" if option.startswith("--") else f" -s {option[1:]}" if option else ""
            values = f" -xa '{' '.join(words)}'" if words else ""
            lines.append(f"{inside}{kind}{values}")
    return lines
