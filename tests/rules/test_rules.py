"""What holds for every rule: one name for its module, page and tests; an id that is never used again."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tb_gpudiag import rules
from tb_gpudiag.rules.all import RULES, find_rule
from tb_gpudiag.rules.rule import PAGE_HEADINGS, Rule, Severity

PACKAGE = Path(rules.__file__).parent
TESTS = Path(__file__).parent

EVERY_ID_EVER = {
    "GD101": "input_pipeline",
    "GD102": "host_bound",
    "GD103": "allocator_in_step",
    "GD104": "compilation_in_step",
    "GD105": "queued_not_visible",
    "GD106": "step_variance",
    "GD201": "launch_bound",
    "GD202": "small_kernels",
    "GD301": "host_sync",
    "GD302": "pageable_copies",
    "GD303": "copy_patterns",
    "GD304": "exposed_copies",
    "GD401": "memory_leak",
    "GD402": "memory_peak",
    "GD403": "memory_fragmentation",
    "GD405": "host_memory_leak",
    "GD501": "fp32_matmul",
    "GD502": "unaligned_matmul",
    "GD503": "unfused_attention",
    "GD504": "small_grids",
    "GD505": "memory_bound_kernels",
    "GD506": "data_movement",
    "GD507": "slow_matmul",
    "GD508": "occupancy",
    "GD601": "exposed_communication",
    "GD901": "no_steps",
    "GD902": "warmup_recorded",
    "GD903": "no_stacks",
    "GD904": "unlinked_kernels",
    "GD905": "no_gpu",
    "GD906": "partial_file",
}
"""Users name ids in --fail-on and in issues: a line is added for a new rule, and none is ever changed or
removed."""

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


def test_ids_are_unique_and_never_reused() -> None:
    assert len({rule.id for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES)
    assert {rule.id: rule.name for rule in RULES}.items() <= EVERY_ID_EVER.items()
    assert all(re.fullmatch(r"GD\d{3}", rule.id) for rule in RULES)


def test_a_page_without_its_rule_is_an_oversight() -> None:
    assert {page.stem for page in PACKAGE.rglob("*.md")} == {rule.name for rule in RULES}


@each_rule
def test_a_rule_has_its_module_and_its_tests(rule: Rule) -> None:
    assert importlib.import_module(f"tb_gpudiag.rules.{rule.family}.{rule.name}").RULE is rule
    tests = (TESTS / rule.family / f"test_{rule.name}.py").read_text(encoding="utf-8")
    assert len(re.findall(r"^def test_", tests, re.MULTILINE)) >= 3, (
        "fires, just under the threshold, healthy"
    )


@each_rule
def test_a_page_has_the_fixed_headings_in_order(rule: Rule) -> None:
    assert rule.page.startswith(f"# {rule.id} {rule.name}: ")
    assert re.findall(r"^## (.+)$", rule.page, re.MULTILINE) == list(PAGE_HEADINGS)
    bodies = re.split(r"^## .+$", rule.page, flags=re.MULTILINE)[1:]
    assert all(body.strip() for body in bodies)


@each_rule
def test_a_page_names_every_threshold_that_the_rule_has(rule: Rule) -> None:
    """A share as a percentage; other constants by themselves. In "Threshold", or where it is measured."""
    module = importlib.import_module(f"tb_gpudiag.rules.{rule.family}.{rule.name}")
    shares = [value for name, value in vars(module).items() if name.endswith("_SHARE")]
    if rule.error_share is not None:
        shares.append(rule.error_share)
    threshold = rule.page.split("## Threshold")[1].split("## ")[0]
    for value in shares:
        assert f"{value * 100:g} %" in threshold


@each_rule
def test_code_on_a_page_is_python(rule: Rule) -> None:
    for code in re.findall(r"```python\n(.*?)```", rule.page, re.DOTALL):
        compile(code, f"{rule.name}.md", "exec")


def test_a_rule_is_found_by_id_and_by_name_in_any_case() -> None:
    for rule in RULES:
        for key in (rule.id, rule.id.lower(), rule.name, rule.name.upper(), rule.name.replace("_", "-")):
            assert find_rule(key) is rule
    assert find_rule("GD1") is None
    assert find_rule("") is None


def test_severities_are_numbered_as_on_the_wire() -> None:
    from tb_gpudiag.report import report_pb2

    assert {severity.name: severity.value for severity in Severity} == dict(
        report_pb2.Finding.Severity.items()
    )
