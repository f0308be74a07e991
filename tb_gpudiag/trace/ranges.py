"""What other recorders than torch's have: ranges that a program marks (NVTX, ROCTx), which are operators (of
`emit_nvtx`), annotations and their steps; and the place of a process in its job, as torchrun, Slurm and
MPI say it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import NONE, Int64, UInt8
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.trace_parts import TracePart, encoded, host_part
from tb_gpudiag.vocabulary.marks import STEP
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.vocabulary.recorded import Category

# torch.autograd.profiler.emit_nvtx writes `aten::mul, seq = 3, op_id = 12, sizes = [[2, 3]]`.
_EMITTED: Final = (
    r"(?s)^(?P<name>.*?)(?:, seq = (?P<sequence>\d{1,18}))?(?:, op_id = (?P<operator>\d{1,18}))?"
    r"(?:, sizes = (?P<sizes>\[.*?\]))?(?:, input_op_ids = .*)?$"
)
_OPERATOR: Final = r"^[A-Za-z_][\w.]*::[^\s,]+$|^autograd::engine::evaluate_function: "
# Shapes of an operator's few inputs are shorter.
_LONGEST_SHAPES: Final = 400
# Names of ranges around one step, without their number: the first that a thread has twice.
_STEPS: Final = (
    lazy_re(r"(?i)profiler ?step"),
    lazy_re(r"(?i)((train|training|global|optimization|inference|test|eval|my)[ _.-]?)?step"),
    lazy_re(r"(?i)((train|training|run|benchmark|inference|test|eval)[ _.-]?)?iter(ation)?"),
    lazy_re(r"(?i)((train|training|mini|inference|test|eval)[ _.-]?)?batch"),
    lazy_re(r"(?i)forward([ _.-]?pass)?"),
)
_NUMBER: Final = lazy_re(r"[\s_#:=.,/-]*\[?(\d+)\]?\s*\Z")
# More than this many different names are not names of steps.
_MOST_NAMES: Final = 100_000


@dataclass(frozen=True, eq=False)
class _Marks:
    """Ranges that may be steps, shape (k,) each."""

    thread: Int64
    start: Int64
    end: Int64
    name: list[str]


class StepRanges:
    """Ranges that may be steps. `note` says which are. kind: what the recorder calls its ranges."""

    def __init__(self, kind: str) -> None:
        self.note = ""
        self._of = kind
        self._marks: list[_Marks] = []

    def collect(self, thread: Int64, start: Int64, end: Int64, name: pa.DictionaryArray, chosen: Any) -> None:
        """Keep the ranges among these that have the name of a step. chosen: mask of those that may be one."""
        texts = name.dictionary.to_pylist()
        if len(texts) > _MOST_NAMES:
            return
        step = np.array([_kind(text)[0] != NONE for text in texts] or [False], np.bool_)
        rows = np.flatnonzero(chosen & step[name.indices.to_numpy()])
        if len(rows):
            shown = [texts[i] for i in name.indices.to_numpy()[rows].tolist()]
            self._marks.append(_Marks(thread[rows], start[rows], end[rows], shown))

    def _has_steps(self) -> bool:
        return any(STEP.fullmatch(name) for marks in self._marks for name in marks.name)

    def parts(self) -> Iterator[TracePart]:
        """Yield a step for each range of the first kind that repeats, on the thread with most of them."""
        if not self._marks or self._has_steps():
            return
        columns = ("thread", "start", "end")
        thread, start, end = (np.concatenate([getattr(one, key) for one in self._marks]) for key in columns)
        names = [name for marks in self._marks for name in marks.name]
        kind = np.array([_kind(name)[0] for name in names], np.int64)
        for each in np.unique(kind):
            threads, count = np.unique(thread[kind == each], return_counts=True)
            rows = np.flatnonzero((kind == each) & (thread == threads[count.argmax()]))
            rows = _outermost(rows[np.argsort(start[rows], kind="stable")], start, end)
            if len(rows) < 2:
                continue
            numbers = _step_numbers([names[i] for i in rows.tolist()])
            base = _NUMBER.sub("", names[rows[0]]) or names[rows[0]]
            self.note = f'steps are the {len(rows):,} {self._of} ranges named "{base}"'
            name = encoded(np.arange(len(rows), dtype=np.int32), [f"ProfilerStep#{n}" for n in numbers])
            own = {"globalTid": thread[rows], "start": start[rows], "end": end[rows]}
            yield host_part(Category.USER_ANNOTATION, name, own)
            return


def _step_numbers(names: list[str]) -> list[int]:
    """Return the numbers in the names, or the places in the list if those are no numbering."""
    numbers = [_kind(name)[1] for name in names]
    return list(range(len(names))) if NONE in numbers or len(set(numbers)) < len(numbers) else numbers


def _outermost(rows: Int64, start: Int64, end: Int64) -> Int64:
    """Drop ranges that begin before an earlier one ends. `rows` are in order of start."""
    before = np.maximum.accumulate(np.r_[np.iinfo(np.int64).min, end[rows][:-1]])
    return rows[start[rows] >= before]


def _kind(name: str) -> tuple[int, int]:
    """Return which of `_STEPS` a name is, or NONE, and the number in it, or NONE."""
    found = _NUMBER.search(name[-30:]) if len(name) < 100 else None
    base = name[: -len(found[0])] if found else name
    fits = (i for i, pattern in enumerate(_STEPS) if len(base) < 60 and pattern.fullmatch(base))
    return next(fits, NONE), int(found[1][:9]) if found else NONE


class Parsed(NamedTuple):
    """What the texts of ranges say, shape (n,) each."""

    name: pa.DictionaryArray  # without what `emit_nvtx` adds
    category: UInt8
    sequence: Int64
    shapes: pa.DictionaryArray


def parsed_ranges(texts: pa.Array) -> Parsed:
    found = pc.extract_regex(texts, _EMITTED)
    text, sequence, operator, sizes = (pc.fill_null(pc.struct_field(found, [i]), "") for i in range(4))
    name = text.dictionary_encode()
    is_operator = pc.or_(pc.not_equal(sequence, ""), pc.not_equal(operator, ""))
    is_operator = pc.or_(is_operator, pc.match_substring_regex(text, _OPERATOR))
    category = pc.if_else(is_operator, int(Category.CPU_OP), int(Category.USER_ANNOTATION))
    number = pc.cast(pc.if_else(pc.equal(sequence, ""), str(NONE), sequence), pa.int64())
    short = pc.less_equal(pc.binary_length(sizes), _LONGEST_SHAPES)
    return Parsed(
        name,
        np.asarray(category.to_numpy(zero_copy_only=False), np.uint8),
        np.asarray(number.to_numpy(), np.int64),
        pc.if_else(short, sizes, "").dictionary_encode(),
    )


RANK: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
WORLD_SIZE: Final = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def distributed(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return what Kineto calls `distributedInfo`; empty if it is not known."""
    rank, size = (_first_number(variables, names) for names in (RANK, WORLD_SIZE))
    return {} if rank is None or size is None else {"rank": rank, "world_size": size}


def _first_number(variables: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        if re.fullmatch(r"\d{1,6}", variables.get(name, "")):
            return int(variables[name])
    return None
