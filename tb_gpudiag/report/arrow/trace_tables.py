"""All tables of one or several traces, each made when it is first used."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tb_gpudiag.errors import GpudiagError, NothingToRead, UsageError
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.arrow.arrow_columns import Names, coded, texts, written
from tb_gpudiag.report.arrow.fact_rows import ROWS, Columns
from tb_gpudiag.report.arrow.sql_query import TABLES, TEXT, checked, run_sql
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.diagnosis import Progress, read_facts
from tb_gpudiag.trace.files.find import TraceFile, find_traces

_NS_PER_US = 1000


class Tables:
    """Arrow tables of traces, by name (sql_query.TABLES): `tables.gaps` and `tables["gaps"]`.

    The facts of one trace stay in memory. Of several, each call of `load` reads every trace once and keeps
    the tables, so that memory grows with the tables that are used and not with the traces.
    """

    def __init__(self, files: Sequence[TraceFile]) -> None:
        self.files = list(files)
        self.problems: list[GpudiagError] = []
        self._facts: Facts | None = None
        self._made: dict[str, pa.Table] = {}

    def __getitem__(self, name: str) -> pa.Table:
        if name not in TABLES:
            raise UsageError(f"There is no table {name!r}.", remedy=f"The tables are: {', '.join(TABLES)}.")
        self.load([name])
        return self._made[name]

    def made(self, name: str) -> pa.Table:
        """Return a table as far as it was loaded; else it has no rows."""
        return self._made.get(name, TABLES[name].empty_table())

    def sql(self, query: str, most_rows: int = 1_000_000) -> pa.Table:
        """Run one SELECT over the tables, and return at most `most_rows` rows, with a warning if there are
        more.

        Raises UsageError: DuckDB is not installed (`pip install 'tb-gpudiag[sql]'`), or refuses the query.
        Raises LimitReached: it takes too much memory or time.
        """
        wanted = checked(query)
        self.load(wanted.tables)
        answer = run_sql(wanted, self.made, most_rows)
        if answer.cut:
            warnings.warn(answer.note, stacklevel=2)
        return answer.table

    def __getattr__(self, name: str) -> pa.Table:
        if name not in TABLES:
            raise AttributeError(f"{type(self).__name__} has no table {name!r}: there is {', '.join(TABLES)}")
        return self[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *TABLES]

    def load(self, names: Iterable[str], progress: Progress | None = None) -> None:
        """Make these tables, where they are not made yet. Files that cannot be read are left out, and are in
        `problems`. Raises the first of these errors if no file can be read."""
        wanted = [name for name in names if name not in self._made]
        if not wanted:
            return
        parts: dict[str, list[pa.Table]] = {name: [] for name in wanted}
        problems = []
        for number, file in enumerate(self.files):
            try:
                facts = self._read(file, number, progress)
                made = _tables(wanted, facts, file, number)
            except GpudiagError as error:
                problems.append(error)
                continue
            for name, part in made.items():
                parts[name].append(part)
        if problems and len(problems) == len(self.files):
            raise problems[0]
        self.problems += [each for each in problems if str(each) not in map(str, self.problems)]
        self._made.update({name: pa.concat_tables(found) for name, found in parts.items()})

    def _read(self, file: TraceFile, number: int, progress: Progress | None) -> Facts:
        if self._facts is not None:
            return self._facts
        count = len(self.files)

        def said(share: float, stage: str) -> None:
            if progress is not None:
                progress((number + share) / count, stage)

        facts = read_facts(file, said)
        if count == 1:
            self._facts = facts
        return facts


def _tables(names: Iterable[str], facts: Facts, file: TraceFile, number: int) -> dict[str, pa.Table]:
    """Make tables of one trace. number: in the column `trace`."""
    dictionaries = Names(facts.host)
    made = {}
    for name in names:
        if name == "traces":
            device, window, metadata = facts.device, facts.window, facts.trace.metadata
            rank = metadata.distributed.get("rank")
            row = {
                "file": file.path,
                "host": metadata.host_name,
                "rank": rank if isinstance(rank, int) else None,
                "gpu": device.name if device is not None else "",
                "device": device.id if device is not None else None,
                "window_start_ns": window.start_ns,
                "window_ns": window.duration_ns,
                "steps": len(facts.steps),
                "step_ns": round(facts.step_time.median) if len(facts.steps) else None,
            }
            parts = [_of_rows("traces", [row])]
        elif name == "findings":
            parts = _findings(facts, file)
        else:
            parts = ROWS[name](facts, dictionaries)
        rows = [_table(name, part, file, number) for part in parts]
        made[name] = pa.concat_tables(rows or [TABLES[name].empty_table()])
    return made


def _table(name: str, columns: Columns, file: TraceFile, number: int) -> pa.Table:
    schema = TABLES[name]
    count = len(next(iter(columns.values())))
    same = np.zeros(count, np.int32)
    found: dict[str, pa.Array] = {
        "trace": pa.array(same + np.int32(number)),
        "run": coded(same, texts([file.run])),
        "worker": coded(same, texts([file.worker])),
        **columns,
    }
    arrays = [found[field.name] if field.name in found else pa.nulls(count, field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _findings(facts: Facts, file: TraceFile) -> list[Columns]:
    found = build_report(facts, file).findings
    rows = [{"finding": number, **_finding(finding)} for number, finding in enumerate(found)]
    return [_of_rows("findings", rows)] if rows else []


def _finding(finding: pb.Finding) -> dict[str, object]:
    place = finding.places[0] if finding.places else pb.Place()
    saving = finding.saving if finding.HasField("saving") else None
    return {
        "rule": finding.rule,
        "name": finding.name,
        "severity": pb.Finding.Severity.Name(finding.severity),
        "title": finding.title,
        "summary": finding.summary,
        "cost_ns": _ns(finding.cost_us),
        "saving_low_ns": _ns(saving.low_us) if saving else None,
        "saving_high_ns": _ns(saving.high_us) if saving else None,
        "basis": saving.basis if saving else "",
        "file": place.file,
        "line": place.line or None,
        "function": place.function,
    }


def _of_rows(name: str, rows: list[dict[str, Any]]) -> Columns:
    """Return the columns of a few rows, with the types that are described."""
    columns = {}
    for field in TABLES[name]:
        if field.name in rows[0]:
            values = [row[field.name] for row in rows]
            columns[field.name] = written(values) if field.type == TEXT else pa.array(values, field.type)
    return columns


def _ns(us: float) -> int:
    return round(us * _NS_PER_US)


def tables_at(path: str) -> Tables:
    """Return the tables of the traces at a path. Raises NothingToRead: there is none."""
    found = find_traces(path)
    if not found.files:
        raise next(iter(found.problems), None) or NothingToRead("no trace was found", where=path)
    made = Tables(found.files)
    made.problems += found.problems
    return made
