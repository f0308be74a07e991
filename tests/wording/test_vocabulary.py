"""Every id has a word, and no word is without an id."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import get_args

import pytest

from tb_gpudiag.facts.core.causes import Cause, Trigger
from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.stepping.inferred import StepEvidence
from tb_gpudiag.facts.waiting.sync_sites import SyncKind
from tb_gpudiag.jobs.compare.comparison import MEMORY_FIGURES
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.time_messages import KINDS as HOST_KINDS
from tb_gpudiag.report.slices.timeline_lanes import COLLECTIVE_KIND
from tb_gpudiag.rules.shared.growth import FloorState
from tb_gpudiag.rules.shared.lost_time import WindowParts
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.vocabulary.recorded import Category, FileKind
from tb_gpudiag.vocabulary.written import PHASES as CLOCK_PHASES
from tb_gpudiag.wording import vocabulary
from tb_gpudiag.wording.vocabulary import TABLES, Terms, collective, term
from tests.conftest import REPOSITORY
from tests.with_each import with_each
from tools.words import GENERATED

PARTS_OF_WINDOW = WindowParts(*[0] * len(fields(WindowParts)))

LIMITERS = {"compute", "mixed", "evaluation", *PARTS_OF_WINDOW.host} | set(PARTS_OF_WINDOW.by_limiter) - {
    "host",
    "nodes",
}
"""As rules/verdict.py names them: "host" is what the host does most, and "nodes" is "launch"."""

ENUMS: dict[str, tuple[Terms, set[str]]] = {
    "causes": (vocabulary.CAUSES, {cause.label for cause in Cause}),
    "triggers": (TABLES["TRIGGERS"], {trigger.label for trigger in Trigger}),
    "limiters": (vocabulary.LIMITERS, LIMITERS),
    "severities": (TABLES["SEVERITIES"], set(pb.Finding.Severity.keys())),
    "families": (vocabulary.FAMILIES, {family.label for family in Family}),
    "memory kinds": (vocabulary.MEMORY_KINDS, {kind.value for kind in MemoryKind}),
    "sync kinds": (vocabulary.SYNC_KINDS, {kind.label for kind in SyncKind}),
    "host kinds": (vocabulary.HOST_KINDS, set(HOST_KINDS)),
    "step signs": (vocabulary.STEP_SIGNS, {evidence.value for evidence in StepEvidence}),
    "phases": (vocabulary.PHASES, {phase.label for phase in Phase} - {""}),
    "trend states": (vocabulary.TREND_STATES, set(get_args(FloorState))),
    "saving bases": (TABLES["SAVING_BASES"], {"at most", "estimate", "replayed"}),  # rules/answer.py, Saving
    "file kinds": (vocabulary.FILE_KINDS, {*get_args(FileKind), "record"}),
    "ranks that hang": (vocabulary.HANG_STATES, set(pb.HangingRanks.State.keys())),
    "clock phases": (vocabulary.CLOCK_PHASES, set(CLOCK_PHASES)),
    "memory figures": (vocabulary.MEMORY_FIGURES, set(MEMORY_FIGURES)),
}


WIRE: dict[str, set[str]] = {
    "causes": set(pb.CauseTime.Cause.keys()) - {"other", *vocabulary.WORK_PARTS},
    "triggers": set(pb.TriggerTime.Trigger.keys()),
    "limiters": set(pb.Verdict.Limiter.keys()),
    "families": set(pb.KernelRow.Family.keys()),
    "memory kinds": set(pb.MemoryKind.Kind.keys()),
    "step signs": set(pb.InferredSteps.Sign.keys()),
    "file kinds": set(pb.TraceInfo.Kind.keys()) - {"job"},
}


@with_each("name", WIRE)
def test_the_wire_has_the_ids_of_the_enums(name: str) -> None:
    assert WIRE[name] == ENUMS[name][1]


@with_each("name", ENUMS)
def test_the_vocabulary_has_the_ids_of_the_enums(name: str) -> None:
    table, ids = ENUMS[name]
    assert set(table) == ids


def test_kinds_of_events_are_in_the_order_of_their_numbers() -> None:
    numbers = {category.name.lower(): int(category) for category in Category}
    numbers["communication"] = COLLECTIVE_KIND
    assert {id: number for number, id in enumerate(TABLES["EVENT_KINDS"])} == numbers


@with_each(
    ("name", "word"),
    [
        ("AllReduce", "All-reduce"),
        ("all_gather", "All-gather"),
        ("ReduceScatter", "Reduce-scatter"),
        ("AllToAll", "All-to-all"),
        ("SendRecv", "Send and receive"),
        ("cross_device_reduce", "Custom all-reduce"),
        ("my_kernel", "“my_kernel”"),
    ],
)
def test_a_collective_is_known_however_it_is_written(name: str, word: str) -> None:
    assert collective(name).word == word


@with_each("name", TABLES)
def test_words_and_explanations_are_complete(name: str) -> None:
    table = TABLES[name]
    if name != "COLUMNS":  # those of different tables may have one name
        assert len({each.word for each in table.values()}) == len(table)
    for id, each in table.items():
        assert each.id == id
        assert each.word
        assert not re.search(r"[.:]$", each.word)
        assert re.search(r"^[A-Z.].*[.]$", each.explanation), each.explanation


def test_a_noun_fits_into_a_sentence() -> None:
    assert vocabulary.CAUSES["input"].noun == "data loading"
    assert vocabulary.CAUSES["dispatch"].noun == "CPU operator overhead"
    assert vocabulary.LIMITERS["python"].noun == "Python and operator overhead"


def test_an_unknown_id_is_shown_as_it_is() -> None:
    found = term(vocabulary.CAUSES, "Gremlins")
    assert (found.word, found.noun, found.explanation) == ("Gremlins", "Gremlins", "")


@pytest.mark.parametrize("path", GENERATED)
def test_generated_files_are_current(path: str) -> None:
    if not (REPOSITORY / "frontend").is_dir():
        pytest.skip("an installed package has no frontend")
    assert (REPOSITORY / path).read_text(encoding="utf-8") == GENERATED[path](), "run `make wire`"
