"""Places in the code as text."""

from __future__ import annotations

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.vocabulary.frames import Frame, LineKind


def code_place(where: pb.Place) -> str:
    """The function with its file and line, as much of it as is known."""
    return str(_frame(where))


def full_place(where: pb.Place) -> str:
    """The function, operator, module, `record_function` and caller, as much of it as is known."""
    return _place_text(_frame(where), where, code_place(where.caller))


def short_place(where: pb.Place) -> str:
    """The same without the folders of files, except for the innermost one."""
    return _place_text(_short(_frame(where)), where, str(_short(_frame(where.caller))))


def _place_text(frame: Frame, where: pb.Place, caller: str) -> str:
    spot = str(frame)
    if where.operator:
        spot = f"{spot} ({where.operator})" if spot else where.operator
    parts = [
        spot,
        f"module {where.module}" if where.module else "",
        f"range {where.range}" if where.range else "",
        f"called from {caller}" if where.HasField("caller") else "",
        _candidates(where),
    ]
    return ", ".join(filter(None, parts))


def _short(frame: Frame) -> Frame:
    folders = frame.file.split("/")
    return frame._replace(file="/".join(["…", *folders[-2:]])) if len(folders) > 2 else frame


def _candidates(where: pb.Place) -> str:
    """`probably line 45: x = resize(x)`, or the lines to choose from."""
    lines = where.caller.candidates or where.candidates
    word = "probably" if len(lines) == 1 else "one of"
    return f"{word} {'; '.join(f'line {one.line}: {one.text}' for one in lines)}" if lines else ""


def preposition(where: pb.Place) -> str:
    """`at` a line that ran, `in` a function."""
    return _frame(where).preposition


def _frame(where: pb.Place) -> Frame:
    return Frame(where.file, where.line, where.function, LineKind(where.line_kind))
