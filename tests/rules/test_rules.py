"""Checks on every rule: one name for its module, page and tests; a complete page; an id of its own."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.jobs.rules.every_rule import EVERY_RULE, find_any_rule
from tb_gpudiag.jobs.rules.job_registry import JOB_RULES
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import CannotTell, Clear, Finding, Severity
from tb_gpudiag.rules.rule import FAMILIES, PAGE_HEADINGS, AnyRule, Rule, fix_code
from tests.conftest import REPOSITORY
from tests.rules.stage import facts_of, healthy, without_gpu

EVERY_ID = Path(__file__).parent / "ids.txt"
"""Every id ever used, with its name, one per line. Users name ids in --fail-on and in issues, so a new rule
adds a line, and no line is ever changed or removed. `make rule` refuses what is in it."""

MOST_WORDS = 1_000
"""Of a rule's page, beside code."""

SOURCES = "".join(
    path.read_text(encoding="utf-8")
    for folder in ("rules", "jobs/rules")
    for path in sorted((REPOSITORY / "tb_gpudiag" / folder).rglob("*.py"))
)

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)

# What these need is not in the healthy job: shapes, peaks of the GPU, memory events, several steps.
NEED_MORE = {
    *("low_bandwidth", "slow_gpu", "slow_matmul", "step_variance", "warmup_recorded"),
    *("host_memory_leak", "memory_fragmentation", "memory_leak", "memory_peak"),
}
# Rules that need no GPU, and those that find something where there is none.
ABOUT_THE_HOST = {
    *("anomaly_mode", "compilation_in_step", "data_movement", "evaluation_in_step", "exposed_communication"),
    "forward_as_training",
    *("host_bound", "input_pipeline", "no_steps", "partial_file", "secrets_recorded"),
}
FIND_NO_GPU = {"cpu_computing", "no_gpu", "no_stacks"}


@pytest.fixture(scope="module")
def healthy_job(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return facts_of(healthy(), tmp_path_factory.mktemp("healthy"))


@pytest.fixture(scope="module")
def job_without_gpu(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return facts_of(without_gpu(), tmp_path_factory.mktemp("cpu"))


@each_rule
def test_a_rule_finds_nothing_in_a_healthy_job(rule: Rule, healthy_job: Facts) -> None:
    assert isinstance(rule.check(healthy_job), CannotTell if rule.name in NEED_MORE else Clear), (
        f"a healthy job got a finding, or lacks what the rule reads: then add {rule.name} to NEED_MORE here"
    )


@each_rule
def test_a_rule_cannot_tell_without_a_gpu(rule: Rule, job_without_gpu: Facts) -> None:
    usual = Clear if rule.name in ABOUT_THE_HOST else CannotTell
    expected = Finding if rule.name in FIND_NO_GPU else usual
    answer = rule.check(job_without_gpu)
    assert isinstance(answer[0] if isinstance(answer, list) else answer, expected), (
        f"a job without a GPU should get {expected.__name__}: if the rule judges the host, add {rule.name} "
        "to ABOUT_THE_HOST here, else make it a GpuRule"
    )


def test_ids_are_unique_and_never_reused() -> None:
    known = dict(line.split() for line in EVERY_ID.read_text(encoding="utf-8").splitlines())
    assert len({rule.id for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"GD\d{3}", rule.id)
        assert known.get(rule.id) == rule.name, (
            f"tests/rules/ids.txt says {rule.id} is {known.get(rule.id, 'unused')}: add the line "
            f'"{rule.id} {rule.name}" for a new rule, and never change a line, because users rely on ids'
        )
    assert len(set(known.values())) == len(known) == len(EVERY_ID.read_text(encoding="utf-8").split()) / 2


def test_a_rule_is_known_by_its_id_only_to_itself() -> None:
    """Words may send a reader to another rule. Whatever decides by a rule asks for its topic or family."""
    own = {f"{rule.package.replace('.', '/')}/{rule.name}.py": rule.id for rule in RULES}
    own["tb_gpudiag/jobs/rules/job_registry.py"] = "|".join(rule.id for rule in JOB_RULES)
    for path in sorted((REPOSITORY / "tb_gpudiag").rglob("*.py")):
        where = path.relative_to(REPOSITORY).as_posix()
        written = set(re.findall(r"""["'](GD\d*)["']""", path.read_text(encoding="utf-8")))
        assert written <= set(own.get(where, "").split("|")), (
            f"{where} knows a rule by its id, or by how that begins: ask for its family, or give it a topic, "
            "see tb_gpudiag/rules/rule.py, and ask for that"
        )


def test_every_page_and_module_belongs_to_a_listed_rule() -> None:
    names = {rule.name for rule in RULES}
    for family in FAMILIES.values():
        for file in (REPOSITORY / "tb_gpudiag" / "rules" / family).glob("*.[mp][dy]"):
            assert file.stem in {"__init__", *names}, (
                f"{file} is not in RULES of tb_gpudiag/rules/all.py: add it"
            )


@each_rule
def test_a_rule_has_its_module_and_its_tests(rule: Rule) -> None:
    assert importlib.import_module(f"tb_gpudiag.rules.{rule.family}.{rule.name}").RULE is rule
    path = _tests_of(rule)
    assert (REPOSITORY / path).exists(), f"add {path}: every rule has tests"
    found = len(re.findall(r"^def test_", _text(path), re.MULTILINE))
    assert found >= 2, (
        f"{path} has {found} tests: add at least that the rule fires, and that it is clear just under its "
        "threshold"
    )


@each_rule
def test_a_rule_is_finished(rule: Rule) -> None:
    for path in (_module_of(rule), _page_of(rule), _tests_of(rule)):
        for number, line in enumerate(_text(path).splitlines(), 1):
            assert "TODO" not in line, f"{path}:{number} is still to be written: {line.strip()}"


@each_rule
def test_a_page_has_the_fixed_headings_in_order(rule: Rule) -> None:
    where = _page_of(rule)
    assert rule.page.startswith(f"# {rule.id} {rule.name}: "), (
        f'{where}: begin with "# {rule.id} {rule.name}: " and what it finds'
    )
    headings = re.findall(r"^## (.+)$", rule.page, re.MULTILINE)
    assert headings == list(PAGE_HEADINGS), f"{where}: `gpudiag explain` shows these headings, in this order"
    for heading, body in zip(headings, re.split(r"^## .+$", rule.page, flags=re.MULTILINE)[1:], strict=True):
        assert body.strip(), f'{where}: write something under "{heading}"'


@each_rule
def test_a_page_names_every_threshold_that_the_rule_has(rule: Rule) -> None:
    module = importlib.import_module(f"tb_gpudiag.rules.{rule.family}.{rule.name}")
    shares = {name: value for name, value in vars(module).items() if name.endswith("_SHARE")}
    if rule.error_share is not None:
        shares["error_share"] = rule.error_share
    threshold = rule.page.split("## Threshold")[1].split("## ")[0]
    for name, value in shares.items():
        assert f"{value * 100:g}%" in threshold, (
            f'{_page_of(rule)}: "Threshold" does not mention {value * 100:g}% ({name} of '
            f"{_module_of(rule)}): users read there why a rule fires"
        )


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.name)
def test_a_page_is_read_in_a_few_minutes(rule: AnyRule) -> None:
    words = re.sub(r"```.*?```", "", rule.page, flags=re.DOTALL).split()
    assert len(words) <= MOST_WORDS, "fixes of many cases stand on a page of their own, in rules/shared"


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.name)
def test_code_on_a_page_is_python(rule: AnyRule) -> None:
    for code in re.findall(r"```python\n(.*?)```", rule.page, re.DOTALL):
        whole = re.sub(r",\s*\.\.\.(?=\s*\))", "", code)  # "..." stands for other arguments
        compile(whole, f"{rule.name}.md", "exec")


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.name)
def test_the_code_of_a_fix_stands_on_its_page_alone(rule: AnyRule) -> None:
    folder = REPOSITORY / rule.package.replace(".", "/")
    names = re.findall(
        r"^```\w+ (\w+)(?: \+ \w+)?$", (folder / f"{rule.name}.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    codes = fix_code(f"{rule.package}.{rule.name}")
    assert sorted(codes) == sorted(names), f"{rule.name}.md: two blocks have one name"
    for name, code in codes.items():
        assert re.search(rf"""["']{name}["']""", SOURCES), f'{rule.name}.md: no rule uses the block "{name}"'
        for line in code.splitlines():
            assert len(line) < 40 or line.strip() not in SOURCES, (
                f"a module repeats a line of {rule.name}.md: take it from there with fix_code(): {line}"
            )


def test_a_rule_is_found_by_id_and_by_name_in_any_case() -> None:
    for rule in RULES:
        for key in (rule.id, rule.id.lower(), rule.name, rule.name.upper(), rule.name.replace("_", "-")):
            assert find_any_rule(key) is rule
    assert find_any_rule("GD1") is None
    assert find_any_rule("") is None


def test_severities_are_numbered_as_on_the_wire() -> None:
    from tb_gpudiag.report import report_pb2

    assert {severity.name: severity.value for severity in Severity} == dict(
        report_pb2.Finding.Severity.items()
    )


def _module_of(rule: Rule) -> str:
    """Path of the rule's module from the checkout's root, as an editor opens it."""
    return f"tb_gpudiag/rules/{rule.family}/{rule.name}.py"


def _page_of(rule: Rule) -> str:
    return f"tb_gpudiag/rules/{rule.family}/{rule.name}.md"


def _tests_of(rule: Rule) -> str:
    return f"tests/rules/{rule.family}/test_{rule.name}.py"


def _text(path: str) -> str:
    return (REPOSITORY / path).read_text(encoding="utf-8")
