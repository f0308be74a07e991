"""The glossary: complete, linked, and short enough for tooltips."""

from __future__ import annotations

import re

import pytest

from tb_gpudiag.wording import vocabulary
from tb_gpudiag.wording.vocabulary import COLUMNS
from tests.conftest import REPOSITORY
from tools.docs.glossary_page import glossary_page
from tools.words import first_sentence

# A tooltip of more characters is a paragraph.
LONGEST_TOOLTIP = 160


def test_a_concept_has_a_paragraph_and_a_tooltip() -> None:
    for entry in vocabulary.concepts():
        assert re.fullmatch(r"[A-Z].*[.]", entry.text), entry.name
        tooltip = first_sentence(entry.text)
        assert re.fullmatch(r"[A-Z].*[.]", tooltip), entry.name
        assert entry.text.startswith(tooltip), entry.name
        assert len(tooltip) <= LONGEST_TOOLTIP, entry.name


def test_what_to_see_also_is_in_the_glossary() -> None:
    concepts = {entry.name.lower() for entry in vocabulary.concepts()}
    for entry in vocabulary.concepts():
        assert {name.lower() for name in entry.see_also} <= concepts - {entry.name.lower()}, entry.name


def test_concepts_are_in_alphabetical_order() -> None:
    names = [entry.name.lower() for entry in vocabulary.concepts()]
    assert names == sorted(set(names))


def test_the_page_about_a_term() -> None:
    (found,) = [entry for entry in vocabulary.find("sync") if entry.what == "bottleneck"]
    assert found.page == (
        "# Synchronization (bottleneck `sync`)\n\n"
        "The host waits for the GPU, and the GPU then waits for new work.\n"
    )
    (concept,) = vocabulary.find("GPU span")
    assert concept.page.endswith("See also: step window.\n")


def test_every_link_of_the_generated_page_has_a_target() -> None:
    page = glossary_page()
    titles = re.findall(r"^## (.+)$", page, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") for title in titles}
    links = re.findall(r"\]\(#([^)]+)\)", page)
    assert links
    assert set(links) <= anchors


def test_the_page_explains_only_what_is_in_the_glossary() -> None:
    views = REPOSITORY / "frontend" / "src" / "views"
    if not views.is_dir():
        pytest.skip("an installed package has no frontend")
    text = "".join(path.read_text(encoding="utf-8") for path in views.rglob("*.tsx"))
    names = {entry.name.lower() for entry in vocabulary.concepts()}
    about = set(re.findall(r'about="([^"]+)"', text))
    assert about
    assert about <= names
    columns = set(re.findall(r'<NumberTitle column="([^"]+)"', text))
    assert columns <= set(COLUMNS)
