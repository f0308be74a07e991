"""No output has a credential of the file that it is about, whatever reader it came through."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tb_gpudiag.cli.annotations import github_annotations
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.digest_files import to_bytes
from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.jobs.compare.comparison_view import comparison_document
from tb_gpudiag.jobs.history.history_view import history_document
from tb_gpudiag.jobs.history.run_history import histories
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.jobs.report.job_view import job_document
from tb_gpudiag.report.annotate import annotate
from tb_gpudiag.report.arrow.sql_query import TABLES
from tb_gpudiag.report.arrow.trace_tables import Tables
from tb_gpudiag.report.dispute import dispute
from tb_gpudiag.report.slices.embedded import embedded
from tb_gpudiag.report.table_files import tables_zip
from tb_gpudiag.report.views.compose import compose
from tb_gpudiag.report.views.document import Document
from tb_gpudiag.report.views.html import document_html
from tb_gpudiag.report.views.markdown import document_markdown
from tb_gpudiag.report.views.text import document_text
from tb_gpudiag.report.wire import to_json
from tb_gpudiag.service.analyses.diagnoses import Diagnosis, diagnose_trace
from tb_gpudiag.trace.files.find import TraceFile, find_traces
from tests.trace.credentials.planted_files import FILES, SECRET, with_trace

pytestmark = pytest.mark.slow

REMOVED = b"[removed]"


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("kind", FILES)
def test_no_output_has_a_credential(kind: str, tmp_path: Path) -> None:
    with_trace(kind, tmp_path)
    found = find_traces(str(tmp_path))
    [file] = found.files or found.folders
    made = diagnose_trace(file)
    outputs = dict(_outputs(file, made))
    assert [name for name, content in outputs.items() if SECRET.encode() in content] == []
    assert REMOVED in outputs["json"], "nothing of the file is shown"


def _outputs(file: TraceFile, made: Diagnosis) -> Iterator[tuple[str, bytes]]:
    report, arrays, digest = made.report, made.arrays, made.digest
    yield from _views("", compose([report]))
    yield "json", to_json(report).encode()
    yield "github", github_annotations(report.findings).encode()
    yield "row of the table of runs", repr(made.entry.summary).encode()
    yield "arrays of the page", b"".join(array.tobytes() for array in arrays.values())
    yield from _of_digests(digest)
    if file.kind in ("hang", "clock"):
        return
    yield "page", document_html(compose([report]), embedded(report, arrays, 1, 1)).encode()
    yield "tables", _unpacked(tables_zip(report, arrays))
    tables = Tables([file])
    for name in TABLES:
        yield f"SQL {name}", repr(tables[name].to_pylist()).encode()
    with suppress(GpudiagError):  # of other recorders' traces, there is none
        annotate(report, arrays, file.path, (copy := io.BytesIO()).write, pack=False)
        yield "annotated copy", copy.getvalue()
    with suppress(GpudiagError):
        yield "dispute", _unpacked(dispute(report, file, 0))


def _of_digests(digest: Digest) -> Iterator[tuple[str, bytes]]:
    yield "digest", gzip.decompress(to_bytes(digest))
    other = replace(digest, about=replace(digest.about, id="1" * 32, rank=1))
    comparison, found, jobs = (
        compare([digest], [other]),
        histories([digest, other]),
        build_jobs([digest, other]),
    )
    yield "comparison as JSON", to_json(comparison).encode()
    yield from _views("comparison as ", comparison_document(comparison))
    yield "history as JSON", b"".join(to_json(each).encode() for each in found)
    yield from _views("history as ", history_document(found))
    yield "job as JSON", b"".join(to_json(each).encode() for each in jobs.reports)
    yield from _views("job as ", job_document(jobs.reports))


def _views(name: str, document: Document) -> Iterator[tuple[str, bytes]]:
    for format, view in (("text", document_text), ("markdown", document_markdown), ("html", document_html)):
        yield name + format, view(document).encode()


def _unpacked(content: bytes) -> bytes:
    """The files of an archive, and what is packed in them."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = [archive.read(name) for name in archive.namelist()]
    return b"".join(gzip.decompress(one) if one.startswith(b"\x1f\x8b") else one for one in files)
