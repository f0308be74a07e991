"""Say why a job hangs, by what its ranks' flight recorders have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.facts.hanging.who_waits import Hang, HangReason, find_hang
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.trace_message import report_on_file
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.trace.flight_recorder.read_dump import FlightDump, Guard, Operation, read_dumps, unguarded
from tb_gpudiag.vocabulary.collective_kinds import operation as operation_of
from tb_gpudiag.vocabulary.frames import Frame
from tb_gpudiag.wording.format import count, in_quotes, numbers_text, one_line, ranks_text
from tb_gpudiag.wording.vocabulary import collective

# Of a job of thousands of ranks that all do something else, nobody reads more.
_MOST_ROWS: Final = 200
_MOST_RANKS: Final = 4_096
_MOST_ERRORS: Final = 8
_MOST_PARTS: Final = 8  # of a sentence

_ADVICE: Final = {
    HangReason.CANNOT_TELL: "Write a dump of every rank at the same moment.",
    HangReason.NO_HANG: (
        "If the job stands still, the reason is no collective: see where each rank is, with `py-spy "
        "dump --pid PID`."
    ),
    HangReason.NOT_CALLED: (
        "See where they are now, with `py-spy dump --pid PID`, and read their logs: a rank that waits "
        "for data, evaluates, saves or has failed never comes to the call."
    ),
    HangReason.MISMATCH: (
        "All ranks of a group have to call the same collectives in the same order and with the same "
        "sizes. Look for a condition that differs between ranks: a rank number, a batch that is "
        "missing, a model that is built from data."
    ),
    HangReason.CYCLE: "Call the collectives of these groups in the same order on all of their ranks.",
    HangReason.NOT_BEGUN: (
        "Their GPU is still busy with earlier work, or waits in another stream: look for a kernel "
        "that does not end, and for a collective of another group before it."
    ),
    HangReason.TRANSFER: (
        "Look at the network and the links: NCCL_DEBUG=INFO, `nvidia-smi topo -m`, and the health of "
        "the hosts."
    ),
    HangReason.NO_DUMP: "Read the logs of these ranks: a process that was killed writes no dump.",
    HangReason.EMPTY: (
        "Write the dumps while the job stands still, each to its end, and from the recorder of its backend: "
        "`_dump_fr_trace` has gloo's operations, which `_dump_nccl_trace` has not."
    ),
}


def diagnose_hang(
    paths: Sequence[str], folder: str = "", guard: Guard = unguarded
) -> tuple[pb.HangReport | None, list[GpudiagError]]:
    """Read the dumps at these paths and report on them, if one can be read. Also return what went wrong.

    folder: see open_local. guard: of each dump. Raises NothingToRead and UsageError: see read_dumps.
    """
    dumps, errors = read_dumps(paths, folder, guard)
    return build_hang_report(dumps) if dumps else None, errors


def report_on_dumps(
    file: TraceFile, found: pb.HangReport | None, errors: Sequence[GpudiagError]
) -> pb.Report:
    """Build the report about the dumps in a folder, which is all that it has. found, errors: what
    diagnose_hang returned. Raises GpudiagError: none can be read."""
    if found is None:
        raise errors[0]
    found.notes.extend(one_line(f"Not read: {error}.") for error in errors[:_MOST_ERRORS])
    verdict = pb.Verdict(sentence=found.sentence, headline=_headline(found))
    return report_on_file(file, verdict, hang=found)


def _headline(found: pb.HangReport) -> str:
    """What holds up the job in a few words."""
    ranks = ranks_text(found.culprits).capitalize() if found.culprits else ""
    one = len(found.culprits) == 1
    return {
        "NOT_CALLED": f"{ranks} {'holds' if one else 'hold'} up the job",
        "MISMATCH": "Ranks call different collectives",
        "CYCLE": "Ranks wait for each other",
        "NOT_BEGUN": "A collective does not begin on the GPU",
        "TRANSFER": "A collective does not end",
        "NO_DUMP": f"{ranks} left no dump",
        "NO_HANG": "No rank waits",
        "EMPTY": "The dumps are empty",
        "CANNOT_TELL": "It is unknown which rank holds up the job",
    }[pb.HangReport.Why.Name(found.why)]


def build_hang_report(dumps: Sequence[FlightDump]) -> pb.HangReport:
    """Build the report about the dumps of a job, one of each rank."""
    hang = find_hang(dumps)
    notes = []
    absent = sorted(set(hang.ranks) - {dump.rank for dump in dumps})
    if absent:
        notes.append(f"No dump: {ranks_text(absent)}.")
    if hang.empty and hang.last:
        notes.append(f"The dumps of {ranks_text(sorted(hang.empty))} have no operation.")
    without_stacks = [
        dump.rank for dump in dumps if dump.operations and all(o.frame is None for o in dump.operations)
    ]
    if without_stacks:
        notes.append(f"Stacks are missing on {ranks_text(without_stacks)}: dumps in JSON have none.")
    report = pb.HangReport(
        why=hang.why.name,
        sentence=_SENTENCES[hang.why](hang),
        advice=_ADVICE[hang.why],
        culprits=hang.culprits[:_MOST_RANKS],
        notes=notes,
    )
    places: dict[_Place, list[int]] = {}
    culprits = frozenset(hang.culprits)
    for rank in (*hang.culprits, *(rank for rank in hang.ranks if rank not in culprits)):
        places.setdefault(_place(hang, rank, is_culprit=rank in culprits), []).append(rank)
    report.ranks.extend(_row(place, ranks) for place, ranks in islice(places.items(), _MOST_ROWS))
    if len(places) > _MOST_ROWS:
        report.notes.append(
            f"{count(len(places) - _MOST_ROWS, 'row')} of ranks that do something else are left out."
        )
    return report


class _Place(NamedTuple):
    """Where a rank is."""

    state: str
    operation: str = ""
    sequence: int = 0
    group: str = ""
    frame: Frame | None = None
    waits_for: frozenset[int] = frozenset()


def _place(hang: Hang, rank: int, *, is_culprit: bool) -> _Place:
    waiting = hang.waiting.get(rank)
    operation = waiting.operation if waiting else hang.last.get(rank)
    if operation is None:
        return _Place("EMPTY" if rank in hang.empty else "NO_DUMP")
    if waiting is None:
        state = "ENDED"
    else:
        state = "QUEUED" if hang.why is HangReason.NOT_BEGUN and is_culprit else "WAITS"
    return _Place(
        state,
        _kind(operation),
        max(operation.sequence, 0),
        hang.group_of(rank, operation).description,
        operation.frame,
        waiting.waits_for if waiting else frozenset(),
    )


def _row(at: _Place, ranks: Sequence[int]) -> pb.HangingRanks:
    awaited = sorted(at.waits_for)
    return pb.HangingRanks(
        state=at.state,
        ranks=ranks[:_MOST_RANKS],
        ranks_text=numbers_text(ranks),
        operation=at.operation,
        sequence=at.sequence,
        group=one_line(at.group),
        place=at.frame
        and pb.Place(
            file=one_line(at.frame.file),
            line=at.frame.line,
            line_kind="RUNNING",
            function=one_line(at.frame.function),
        ),
        waits_for=awaited[:_MOST_RANKS],
        waits_for_text=numbers_text(awaited) if awaited else "",
    )


def _kind(operation: Operation) -> str:
    name = operation.signature.kind
    return one_line(collective(operation_of(name) or name).noun)


def _called(operation: Operation) -> str:
    """`all-reduce 11`, which counts the collectives of its group."""
    number = f" {operation.sequence:,}" if operation.is_collective else ""
    return f"{_kind(operation)}{number}"


def _at(operation: Operation) -> str:
    return f", called at {one_line(str(operation.frame))}" if operation.frame else ""


def _waited_in(hang: Hang) -> str:
    """Who waits in what, of the operation that most ranks wait in."""
    by_operation: dict[tuple[str, int], list[int]] = {}
    culprits = frozenset(hang.culprits)
    for rank, found in hang.waiting.items():
        if not culprits.isdisjoint(found.waits_for):
            by_operation.setdefault((found.group.name, found.operation.sequence), []).append(rank)
    ranks = max(by_operation.values(), key=len)
    found = hang.waiting[min(ranks)]
    verb = "waits" if len(ranks) == 1 else "wait"
    return (
        f"{ranks_text(ranks).capitalize()} {verb} in {_called(found.operation)} of "
        f"{in_quotes(found.group.description)}{_at(found.operation)}"
    )


def _not_called(hang: Hang) -> str:
    one = len(hang.culprits) == 1
    said = f"{_waited_in(hang)}, which {ranks_text(hang.culprits)} {'has' if one else 'have'} not called."
    last = hang.last.get(hang.culprits[0])
    if last is None:
        return said
    whose = "Its" if one else f"Rank {hang.culprits[0]}'s"
    return (
        f"{said} {whose} last operation was {_called(last)}{_at(last)}; it has ended, so the rank is in code "
        "of its own after it."
    )


def _mismatch(hang: Hang) -> str:
    assert hang.mismatch is not None
    parts: dict[str, list[int]] = {}
    for rank, operation in sorted(hang.mismatch.called.items()):
        signature = operation.signature
        size = f" of {count(signature.elements, 'value')}" if signature.elements >= 0 else ""
        called = f"{_kind(operation)}{size} ({one_line(signature.data_type)}){_at(operation)}"
        parts.setdefault(called, []).append(rank)
    said = _joined((f"{what} on {ranks_text(ranks)}" for what, ranks in parts.items()), len(parts))
    group = in_quotes(hang.mismatch.group.description)
    return f"Ranks disagree on collective {hang.mismatch.sequence:,} of {group}: {said}."


def _cycle(hang: Hang) -> str:
    each = (
        f"rank {rank} waits for {ranks_text(sorted(found.waits_for))} in {_called(found.operation)} of "
        f"{in_quotes(found.group.description)}{_at(found.operation)}"
        for rank in hang.culprits
        if (found := hang.waiting[rank])
    )
    return f"Ranks wait for each other: {_joined(each, len(hang.culprits))}."


def _joined(parts: Iterable[str], total: int) -> str:
    more = [f"{total - _MOST_PARTS:,} more"] if total > _MOST_PARTS else []
    return "; ".join([*islice(parts, _MOST_PARTS), *more])


def _not_begun(hang: Hang) -> str:
    found = hang.waiting[hang.culprits[0]]
    return (
        f"All ranks have called {_called(found.operation)} of {in_quotes(found.group.description)}"
        f"{_at(found.operation)}, but on {ranks_text(hang.culprits)} it has not begun on the GPU."
    )


def _transfer(hang: Hang) -> str:
    found = hang.waiting[hang.culprits[0]]
    return (
        f"All ranks have called {_called(found.operation)} of {in_quotes(found.group.description)}"
        f"{_at(found.operation)}, and it does not end."
    )


def _no_dump(hang: Hang) -> str:
    one = len(hang.culprits) == 1
    return (
        f"{_waited_in(hang)}. There is no dump of {ranks_text(hang.culprits)}, which "
        f"{'belongs' if one else 'belong'} to the group."
    )


_SENTENCES: Final = {
    HangReason.CANNOT_TELL: lambda _: (
        "Ranks wait in process groups whose other members no dump names, so it is unknown "
        "which rank they wait for."
    ),
    HangReason.NO_HANG: lambda _: "No rank waits in a collective: each operation of each dump has ended.",
    HangReason.EMPTY: lambda hang: (
        f"The dumps of {ranks_text(sorted(hang.empty))} have no operation, so they do not say who waits."
    ),
    HangReason.NOT_CALLED: _not_called,
    HangReason.MISMATCH: _mismatch,
    HangReason.CYCLE: _cycle,
    HangReason.NOT_BEGUN: _not_begun,
    HangReason.TRANSFER: _transfer,
    HangReason.NO_DUMP: _no_dump,
}
