"""The generated pages of the documentation. `make lint` builds the site, which checks the links."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tb_gpudiag.cli.demo import LOG
from tb_gpudiag.cli.main import COMMANDS
from tb_gpudiag.jobs.rules.every_rule import EVERY_RULE
from tb_gpudiag.plugin import GpudiagPlugin
from tb_gpudiag.report import report_pb2
from tb_gpudiag.report.slices.slice_table import SLICES
from tests.conftest import REPOSITORY
from tools.docs.__main__ import write
from tools.docs.pages import run_gpudiag
from tools.docs.recorded import PUBLISHED, stale


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("docs") / "out"
    write(out)
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, str]:
    """Text of all pages, by path."""
    return {page.relative_to(site).as_posix(): page.read_text() for page in site.rglob("*.md")}


@pytest.fixture(scope="module")
def pictures(site: Path) -> dict[str, str]:
    """Text of the rules' pictures, by name."""
    return {picture.name: picture.read_text() for picture in (site / "rules").glob("*.svg")}


@pytest.mark.slow
def test_every_rule_has_a_page_and_a_link_to_it(pages: dict[str, str]) -> None:
    for rule in EVERY_RULE:
        assert pages[f"rules/{rule.name}.md"].startswith(rule.page)
        assert f"| {rule.id} | [{rule.name}]({rule.name}.md) |" in pages["rules/index.md"]


@pytest.mark.slow
def test_rules_have_examples_that_say_where_they_come_from(
    pages: dict[str, str], pictures: dict[str, str]
) -> None:
    assert len(pictures) > 45  # a new rule may have none yet
    for name, picture in pictures.items():
        rule = next(one for one in EVERY_RULE if f"{one.name}.svg" == name)
        example = pages[f"rules/{rule.name}.md"].split("\n## Example\n")[1]
        assert re.match(r"\n(A real recording|Recorded|Simulated|Not recorded)", example)
        assert f" {rule.id}: " in example
        assert f"]({name})" in example
        assert ElementTree.fromstring(picture).tag.endswith("svg")


@pytest.mark.parametrize("folder", [recording.folder for recording in PUBLISHED])
def test_an_example_from_a_real_recording_is_what_is_said_today(folder: str, shared_traces: Path) -> None:
    (recording,) = (one for one in PUBLISHED if one.folder == folder)
    changed = list(stale(recording, shared_traces))
    if os.environ.get("GPUDIAG_WRITE_GOLDEN"):
        for page, content in changed:
            page.write_text(content, encoding="utf-8")
    assert [page.name for page, _ in changed] == [], "run this test with GPUDIAG_WRITE_GOLDEN=1"


@pytest.mark.slow
def test_an_examples_place_is_a_preposition_and_code(pages: dict[str, str]) -> None:
    places = re.findall(r"^- (in|at) `(.*)`$", "\n".join(pages.values()), re.MULTILINE)
    assert len(places) > 30
    assert not [place for _, place in places if place.startswith(("in ", "at "))]


@pytest.mark.slow
def test_no_link_leaves_the_site(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        for target in re.findall(r"\]\((?![a-z]+://|#)([^)#]+)", text):
            assert Path("/site", name).parent.joinpath(target).resolve().is_relative_to("/site"), (
                name,
                target,
            )


@pytest.mark.slow
def test_the_command_line_page_has_every_command_and_option(pages: dict[str, str]) -> None:
    for command in COMMANDS:
        assert f"usage: gpudiag {command}" in pages["cli.md"]
    assert "--fail-on" in pages["cli.md"]


@pytest.mark.slow
def test_the_json_page_has_every_message_and_field(pages: dict[str, str]) -> None:
    for message in report_pb2.DESCRIPTOR.message_types_by_name.values():
        section = pages["json.md"].split(f"\n## {message.name}\n")[1].split("\n## ")[0]
        assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [
            field.name for field in message.fields
        ]


def assert_shown(page: Path, printed: str, below: str = "prints:") -> None:
    """Compare the block below a line that ends so with what the command prints."""
    text = page.read_text(encoding="utf-8")
    before, fence, rest = text.partition(f"{below}\n\n```\n")
    assert fence
    current = f"{before}{fence}{printed}```{rest.partition('```')[2]}"
    if os.environ.get("GPUDIAG_WRITE_GOLDEN"):
        page.write_text(current, encoding="utf-8")
        text = current
    assert text == current, "run this test with GPUDIAG_WRITE_GOLDEN=1"


@pytest.mark.slow
def test_the_tutorial_shows_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(LOG / "simulated" / "input_pipeline", tmp_path / "log" / "input_pipeline")
    assert_shown(REPOSITORY / "docs" / "tutorial.md", run_gpudiag("diagnose", "log", "--quiet"))


@pytest.mark.slow
def test_the_readme_shows_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortened: up to the first finding, and the answer to whether it is faster."""
    monkeypatch.chdir(REPOSITORY)
    readme, recorded = REPOSITORY / "README.md", "demo/recorded/input_pipeline"
    first, _, _ = run_gpudiag("diagnose", f"{recorded}/before", "--quiet").partition("\n\n2.")
    assert_shown(readme, f"{first}\n...\n")
    said = run_gpudiag("compare", f"{recorded}/before", f"{recorded}/after", "--quiet")
    answer = next(part for part in said.split("\n\n") if " per step instead of " in part)
    assert_shown(readme, f"{answer}\n...\n", below="says:")
    assert len(readme.read_text(encoding="utf-8").splitlines()) < 120


def test_every_link_to_a_file_leads_somewhere_in_a_checkout() -> None:
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")]
    assert len(pages) > 10
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_http_page_has_every_route() -> None:
    routes = re.findall(
        r'"(/[\w*/]+)": self\.', Path(GpudiagPlugin.get_plugin_apps.__code__.co_filename).read_text()
    )
    assert len(routes) > 5
    routes += [f"/{kind}" for kind in SLICES]
    page = (REPOSITORY / "docs" / "http.md").read_text()
    assert sorted(re.findall(r"^\| `(/[\w*/]+)`", page, re.MULTILINE)) == sorted(routes)
