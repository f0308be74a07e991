"""Match the operations of all ranks: by process group and sequence number, else by their order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Final, NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.channels import Channels
from tb_gpudiag.jobs.ranks.operations import RankOperations, row_groups
from tb_gpudiag.wording.format import in_quotes

# Kinds whose message has the same size on all ranks.
SAME_BYTES: Final = frozenset(
    {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "barrier"}
)

# Ranks that start to record at different times differ by some steps, each of some hundred collectives.
_MOST_SHIFT: Final = 512
# Longer sequences that differ somewhere in the middle are compared up to here.
_MOST_ALIGNED: Final = 3_000

# A receive that is posted early is in the step before its send's. So where up to this share fewer operations
# have steps of one name, the ends decide: those of one collective differ by the clocks, equally each time,
# and at a wrong place they scatter this many times as much.
_MOST_EARLY: Final = 0.25
_TIMES_SCATTER: Final = 4.0

# Where ranks call the same kinds, and most have the same sizes, the others are wrong sizes of the same ones.
_MOST_OTHER_SIZES: Final = 0.5

# If ranks have the same operations in this share of the steps, those of the other steps differ.
_MOST_STEPS: Final = 0.5

MISMATCHES_KEPT: Final = 200


@dataclass(frozen=True)
class Mismatch:
    """Operations that should be one collective and are not.

    what: kind, bytes (one collective, but the ranks differ in it), missing (a rank lacks it although it has
    the collectives before and after), order (ranks call collectives in different order), apart (no common
    operation), ambiguous (several ways to match). members: those that differ from the others.
    """

    what: str
    group: str
    sequence: int
    members: tuple[int, ...]
    values: tuple[str, str] = ("", "")  # of the others, and of the first of those members
    count: int = 1
    step: str = ""  # the first one that lacks it, where steps tell

    @property
    def where(self) -> str:
        """Of which group it is, and its number or step, as far as that is known."""
        parts = [f"group {in_quotes(self.group, 40)}" if self.group else "the world"]
        parts += [f"number {self.sequence}"] * (self.sequence >= 0)
        return ", ".join([*parts, *([f"step {self.step}"] * bool(self.step))])


@dataclass(frozen=True, eq=False)
class Matching:
    """Which operations are one collective.

    collective: of each operation, or NONE; shape (n,). All members of its channel take part in a matched
    collective. channel: of each collective, shape (collectives,).
    """

    collective: Int32
    channel: Int32
    mismatches: list[Mismatch]

    def __len__(self) -> int:
        return len(self.channel)


def match_operations(operations: RankOperations, channels: Channels) -> Matching:
    matcher = _Matcher(operations, channels)
    numbers = matcher.numbers()
    return matcher.checked(numbers)


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Operations with one number in one channel, which should be one collective.

    row, candidate: of the numbered operations, shape (m,) each. first: the first row of each candidate, shape
    (c,). channel, number: of each candidate, shape (c,) each.
    """

    row: Int64
    candidate: Int64
    first: Int64
    channel: Int64
    number: Int64


class _WithinSteps(NamedTuple):
    """The place of each operation in the reference, or NONE; and in which steps there are more or fewer."""

    place: Int64
    mismatches: list[Mismatch]


class _Matcher:
    """Matches the operations, and collects the mismatches."""

    def __init__(self, operations: RankOperations, channels: Channels) -> None:
        self._operations, self._channels = operations, channels
        self._mismatches: list[Mismatch] = []
        # Columns that agree on all ranks of a collective. A sender and a receiver differ in the kind.
        pair = channels.is_pair[channels.of] if channels.channels else np.zeros(len(operations), np.bool_)
        same_size = (operations.of_kinds(SAME_BYTES) | pair) & (operations.bytes != NONE)
        self._kind = np.where(pair, 0, operations.kind.code).astype(np.int64)
        self._bytes = np.where(same_size, operations.bytes, 0)

    def numbers(self) -> Int64:
        """Number the operations of each channel, so that those of one collective have the same number; NONE
        where that is not known. Shape (n,)."""
        operations, of = self._operations, self._channels.of
        number = np.full(len(operations), NONE, np.int64)
        order = np.lexsort((operations.called_ns, operations.member, of))
        order = order[of[order] != NONE]
        bounds = np.flatnonzero(np.diff(of[order], prepend=-2, append=-2))
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            rows = order[begin:end]
            channel = self._channels.channels[int(of[rows[0]])]
            if len(channel.members) < 2:
                continue
            if channel.pair is None and (operations.sequence[rows] != NONE).all():
                number[rows] = self._by_sequence(rows)
            else:
                number[rows] = self._by_order(rows, channel.group)
        return number

    def _by_sequence(self, rows: Int64) -> Int64:
        """Number operations by their sequence number, and those with the same one by their order.

        A group of sends and receives that start together has one number.
        """
        sequence, member = self._operations.sequence[rows], self._operations.member[rows]
        order = np.lexsort((np.arange(len(rows)), sequence, member))
        s, m = sequence[order], member[order]
        new = np.r_[True, (np.diff(s) != 0) | (np.diff(m) != 0)]
        first = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))
        repeat = np.empty(len(rows), np.int64)
        repeat[order] = np.arange(len(rows)) - first
        most = int(repeat.max(initial=0)) + 1
        return sequence * most + repeat

    def _by_order(self, rows: Int64, group: str) -> Int64:
        """Number operations by their place in the order that most ranks have."""
        tokens = row_groups(self._kind[rows], self._bytes[rows])[1]
        member = self._operations.member[rows]
        bounds = np.flatnonzero(np.diff(member, prepend=-1, append=-1))
        own = [slice(b, e) for b, e in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
        usual = Counter(tokens[part].tobytes() for part in own).most_common(1)[0][0]
        reference = next(part for part in own if tokens[part].tobytes() == usual)
        wanted = tokens[reference]
        numbers = np.full(len(rows), NONE, np.int64)
        step = self._operations.step.code[rows]
        for part in own:
            if np.array_equal(tokens[part], wanted) and np.array_equal(step[part], step[reference]):
                numbers[part] = np.arange(len(wanted))
                continue
            odd = (int(member[part.start]),)
            by_step = self._within_steps(rows[reference], wanted, rows[part], tokens[part])
            numbers[part], what = self._aligned(rows[reference], wanted, rows[part], tokens[part])
            if by_step is not None and (by_step.mismatches or what):
                numbers[part] = by_step.place
                self._mismatches += [replace(one, group=group, members=odd) for one in by_step.mismatches]
            elif what:
                lacking = max(1, int((numbers[part] == NONE).sum()))
                self._mismatches.append(Mismatch(what, group, NONE, odd, count=lacking))
        return numbers

    def _within_steps(self, reference: Int64, wanted: Int64, rows: Int64, have: Int64) -> _WithinSteps | None:
        """Place one rank's operations by their order in steps of the same name; None where most of these
        steps differ, or the operations of one: then they are of other steps, or begin in the next one.

        Steps at the ends of a recording may be there in part: they are no mismatch.
        """
        names = self._operations.step.texts
        theirs, ours = self._operations.step.code[reference], self._operations.step.code[rows]
        lacking = np.bincount(theirs, minlength=len(names)) - np.bincount(ours, minlength=len(names))
        common = np.isin(np.arange(len(names)), theirs) & np.isin(np.arange(len(names)), ours)
        common &= np.array(names) != ""
        same = common & (lacking == 0)
        keys, own = (_in_step(codes) * len(names) + codes for codes in (theirs, ours))
        order = np.argsort(keys)
        place = order[np.minimum(np.searchsorted(keys, own, sorter=order), len(order) - 1)]
        known = same[ours] & (keys[place] == own)
        borders = (lacking[common] > 0).any() and (lacking[common] < 0).any()
        differ = (have[known] != wanted[place[known]]).any()
        if not same.any() or same.sum() < _MOST_STEPS * common.sum() or borders or differ:
            return None
        inner = common & ~np.isin(np.arange(len(names)), [theirs[0], theirs[-1], ours[0], ours[-1]])
        steps = np.flatnonzero(inner & (lacking != 0))
        times = int(lacking[steps].sum())
        first = [names[step] for step in steps.tolist()[:1]]
        what, kind = "missing" if times > 0 else "order", self._operations.kind[int(reference[0])]
        found = [Mismatch(what, "", NONE, (), (kind, ""), abs(times), name) for name in first]
        return _WithinSteps(np.where(known, place, NONE), found)

    def _aligned(self, reference: Int64, wanted: Int64, rows: Int64, have: Int64) -> tuple[Int64, str]:
        """Place one rank's operations in the reference's order. Return the places, and what does not fit."""
        places = np.full(len(have), NONE, np.int64)
        shifts = _fitting_shifts(wanted, have)
        if shifts:
            shift = shifts[0] if len(shifts) == 1 else self._by_step(reference, rows, shifts)
            if shift is None:
                return places, "ambiguous"
            # Where the last operation is another one, only other parts fit, which ran at other times.
            if max((shift, 0), key=lambda by: self._fit(reference, rows, by)) == shift:
                return _shifted(len(have), shift, len(wanted)), ""
        elif (found := self._but_for_sizes(reference, wanted, rows, have)) is not None:
            return found, ""
        if not np.isin(have, wanted).any():
            return places, "apart"
        if max(len(have), len(wanted)) <= _MOST_ALIGNED:
            blocks = SequenceMatcher(None, wanted.tolist(), have.tolist(), autojunk=False)
            for _, at, to, own, end in blocks.get_opcodes():
                if to - at == end - own:  # the same, or others in their place
                    places[own:end] = np.arange(at, to)
        return places, "" if len(have) == len(wanted) and (places != NONE).all() else "order"

    def _but_for_sizes(self, reference: Int64, wanted: Int64, rows: Int64, have: Int64) -> Int64 | None:
        """Return the places if the kinds are those of the reference, and the sizes but for some that the
        reference lacks; else None."""
        shifts = _fitting_shifts(self._kind[reference], self._kind[rows])
        shift = self._by_step(reference, rows, shifts) if shifts else None
        if shift is None:
            return None
        places = _shifted(len(have), shift, len(wanted))
        inside = places != NONE
        other = have[inside] != wanted[places[inside]]
        in_another_order = np.isin(have[inside][other], wanted).any()
        return None if in_another_order or other.mean() > _MOST_OTHER_SIZES else places

    def _by_step(self, reference: Int64, rows: Int64, shifts: list[int]) -> int | None:
        """Choose the shift at which operations have steps of the same name and end together, else none for
        equal sequences, else the one at which they overlap in time; None if several are as good."""
        operations = self._operations
        fits, scatter = [], []
        for shift in shifts:
            ours, theirs = _facing(reference, rows, shift)
            share, together = self._fit(reference, rows, shift)
            fits.append((round(share * len(ours)), together))
            apart_ns = operations.end_ns[ours] - operations.end_ns[theirs]
            scatter.append(max(1.0, float(np.abs(apart_ns - np.median(apart_ns)).mean())))
        best = max(fits)
        near = [i for i, (names, _) in enumerate(fits) if names and names >= (1 - _MOST_EARLY) * best[0]]
        near.sort(key=scatter.__getitem__)
        if len(near) > 1 and _TIMES_SCATTER * scatter[near[0]] <= scatter[near[1]]:
            return shifts[near[0]]
        if not best[0] and 0 in shifts and len(reference) == len(rows):
            return 0
        return shifts[fits.index(best)] if fits.count(best) == 1 and best > (0, 0) else None

    def _fit(self, reference: Int64, rows: Int64, shift: int) -> tuple[float, int]:
        """Return the share of operations that have steps of the same name as those that they face, and how
        many overlap them in time."""
        operations, (ours, theirs) = self._operations, _facing(reference, rows, shift)
        together = (operations.start_ns[ours] < operations.end_ns[theirs]) & (
            operations.start_ns[theirs] < operations.end_ns[ours]
        )
        names = operations.step.code[ours] == operations.step.code[theirs]
        return float(names.sum()) / max(1, len(names)), int(together.sum())

    def checked(self, number: Int64) -> Matching:
        """Keep the collectives that all members of the channel have, and that agree in kind and size."""
        row = np.flatnonzero(number != NONE)
        first, candidate = row_groups(self._channels.of[row].astype(np.int64), number[row])
        first = row[first]
        some = _Candidates(row, candidate, first, self._channels.of[first].astype(np.int64), number[first])
        members = np.array([len(channel.members) for channel in self._channels.channels], np.int64)
        whole = np.bincount(candidate, minlength=len(first)) == members[some.channel]
        # Mask of candidates whose ranks differ in kind or size, shape (c,). Says which ranks do.
        differs = np.zeros(len(some.first), np.bool_)
        for what, column in (("kind", self._kind), ("bytes", self._bytes)):
            value = column[some.row]
            low, high = _extremes(value, some.candidate, len(some.first))
            odd = (low != high) & ~differs
            differs |= odd
            for one in np.flatnonzero(odd)[:MISMATCHES_KEPT].tolist():
                own = some.candidate == one
                self._add_different(what, some.row[own], value[own])
        self._find_missing(some, whole)
        kept = np.flatnonzero(whole & ~differs)
        place = np.full(len(first) + 1, NONE, np.int32)
        place[kept] = np.arange(len(kept), dtype=np.int32)
        collective = np.full(len(self._operations), NONE, np.int32)
        collective[row] = place[candidate]
        channel = some.channel[kept].astype(np.int32)
        return Matching(collective, channel, self._mismatches[:MISMATCHES_KEPT])

    def _add_different(self, what: str, rows: Int64, value: Int64) -> None:
        operations = self._operations
        usual = Counter(value.tolist()).most_common(1)[0][0]
        odd = np.flatnonzero(value != usual)
        like, unlike = int(rows[value == usual][0]), int(rows[odd[0]])
        if what == "kind":
            values = (operations.kind[like], operations.kind[unlike])
        else:
            values = (str(operations.bytes[like]), str(operations.bytes[unlike]))
        sequence, members = int(operations.sequence[like]), tuple(operations.member[rows[odd]].tolist())
        self._mismatches.append(Mismatch(what, operations.group[like], sequence, members, values))

    def _find_missing(self, some: _Candidates, whole: Bool) -> None:
        """Say which ranks lack a collective between two that they have. Ranks start and stop recording at
        different times, so what is missing at the ends is not a mismatch. whole: mask of the candidates that
        all members have."""
        operations = self._operations
        bounds = self._bounds(some)
        for c in np.setdiff1d(np.unique(some.channel), some.channel[whole]).tolist():
            self._add_apart(c, bounds)
        partial = np.flatnonzero(~whole & (operations.sequence[some.first] != NONE))
        order = np.argsort(some.candidate, kind="stable")
        starts = np.searchsorted(some.candidate[order], np.arange(len(some.first) + 1))
        for one in partial[:MISMATCHES_KEPT].tolist():
            have = set(operations.member[some.row[order[starts[one] : starts[one + 1]]]].tolist())
            c, number, row = int(some.channel[one]), some.number[one], int(some.first[one])
            channel = self._channels.channels[c]
            lacking = tuple(
                m
                for m in channel.members
                if m not in have and (b := bounds.get((c, m))) and b[0] < number < b[1]
            )
            if lacking:
                sequence, values = int(operations.sequence[row]), (operations.kind[row], "")
                self._mismatches.append(Mismatch("missing", channel.group, sequence, lacking, values))

    def _bounds(self, some: _Candidates) -> dict[tuple[int, int], tuple[int, int]]:
        """Return the first and the last number of each channel and member."""
        channel = some.channel[some.candidate]
        member = self._operations.member[some.row].astype(np.int64)
        first, group = row_groups(channel, member)
        ends = zip(*_extremes(some.number[some.candidate], group, len(first)), strict=True)
        owners = zip(channel[first].tolist(), member[first].tolist(), strict=True)
        return {owner: (int(low), int(high)) for owner, (low, high) in zip(owners, ends, strict=True)}

    def _add_apart(self, c: int, bounds: dict[tuple[int, int], tuple[int, int]]) -> None:
        """Say which members of a channel have nothing in common with the others, if there are some."""
        channel = self._channels.channels[c]
        own = {m: bounds[c, m] for m in channel.members if (c, m) in bounds}
        away = tuple(m for m in channel.members if m not in own) or _away(own)
        if away:
            self._mismatches.append(Mismatch("apart", channel.group, NONE, away))


def _in_step(codes: Int32) -> Int64:
    """Return how many earlier operations have the same step, shape of codes."""
    order = np.argsort(codes, kind="stable")
    new = np.diff(codes[order], prepend=-1) != 0
    at = np.arange(len(codes))
    found = np.empty(len(codes), np.int64)
    found[order] = at - np.maximum.accumulate(np.where(new, at, 0))
    return found


def _facing(reference: Int64, rows: Int64, shift: int) -> tuple[Int64, Int64]:
    low, high = max(0, shift), min(len(reference), len(rows) + shift)
    return rows[low - shift : high - shift], reference[low:high]


def _fitting_shifts(wanted: Int64, have: Int64) -> list[int]:
    """Shifts at which all overlapping operations agree, over most of the shorter sequence; longest first."""
    least = max(1, min(len(wanted), len(have)) // 2)
    found = []
    for shift in range(-min(_MOST_SHIFT, len(have) - 1), min(_MOST_SHIFT, len(wanted) - 1) + 1):
        low, high = max(0, shift), min(len(wanted), len(have) + shift)
        if high - low >= least and np.array_equal(wanted[low:high], have[low - shift : high - shift]):
            found.append((high - low, shift))
    return [shift for _, shift in sorted(found, key=lambda one: (-one[0], abs(one[1])))]


def _shifted(count: int, shift: int, places: int) -> Int64:
    """Return the places of `count` operations that begin at place `shift`, or NONE."""
    found = np.arange(count) + shift
    return np.where((found >= 0) & (found < places), found, NONE)


def _extremes(value: Int64, group: Int64, count: int) -> tuple[Int64, Int64]:
    low = np.full(count, np.iinfo(np.int64).max)
    high = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(low, group, value)
    np.maximum.at(high, group, value)
    return low, high


def _away(own: dict[int, tuple[int, int]]) -> tuple[int, ...]:
    """Return the members whose operations begin after the others' end; none if all have some in common.

    own: first and last operation of each member.
    """
    lows, highs = zip(*own.values(), strict=True)
    if max(lows) <= min(highs):
        return ()
    low, high = sorted(lows)[len(lows) // 2], sorted(highs)[len(highs) // 2]
    away = tuple(m for m, (first, last) in own.items() if last < low or first > high)
    return away or (max(own),)
