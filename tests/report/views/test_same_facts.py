"""Every format shows every section, and every cell of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.compose import compose
from tb_gpudiag.report.views.document import Account, Document, Findings, Lines, Section, Table
from tests.report.reports import hostile, report_at
from tests.report.views.formats import FORMATS, one_space, words_in
from tests.simulator import simulate


def texts(section: Section) -> Iterator[str]:
    """Every text of a section."""
    yield section.title
    match section:
        case Table():
            yield from (word for column in section.columns for word in column.title.split())
            yield from (str(cell) for row in section.rows for cell in row)
        case Lines():
            yield from (text for item in section.items for text in (item.label, item.text))
        case Account():
            yield from (text for row in section.rows for text in (row.label, row.time, row.share))
            yield section.total
        case Findings():
            for card in section.cards:
                yield from (f"{card.number}.", card.severity, card.rule, card.name, card.title, card.summary)
                yield from (text for fact in card.facts for text in (fact.label, fact.text))
                yield from (text for place in card.places for text in (place.short, place.cost))
                yield from (card.fix, card.code, card.url)


def all_texts(document: Document) -> Iterator[str]:
    if document.overview:
        yield from texts(document.overview)
    for report in document.reports:
        yield from (report.heading, report.path, report.about, report.headline, report.verdict)
        for section in report.sections:
            yield from texts(section)
    yield from (text for command in document.commands for text in command)


@pytest.fixture(
    scope="module",
    params=[
        "hostile",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("input_pipeline", "two reports")),
        "leak_kept_graph",
    ],
)
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[pb.Report]:
    folder = tmp_path_factory.mktemp("reports")
    if request.param == "hostile":
        return [hostile(folder)]
    names = ["host_bound", "fragmented"] if request.param == "two reports" else [request.param]
    return [report_at(simulate(name, seed=0).write(folder / name), folder / name) for name in names]


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_shows_every_text_in_the_same_order(format: str, reports: list[pb.Report]) -> None:
    shown = words_in(format, *reports)
    document = compose(reports)
    assert {section.id for report in document.reports for section in report.sections} >= {"findings", "gpu0"}
    missing = [text for text in all_texts(document) if one_space(text) not in shown]
    assert not missing
    position = 0
    for report in document.reports:
        position = shown.index(one_space(report.path), position)
        for section in report.sections:
            found = shown.find(one_space(section.title), position)
            assert found > position, section.title
            position = found
