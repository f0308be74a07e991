"""Match the operations of all ranks: by process group and sequence number, else by their order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64
from tb_gpudiag.jobs.ranks.channels import Channels, is_pair
from tb_gpudiag.jobs.ranks.operations import RankOperations
from tb_gpudiag.jobs.ranks.row_groups import row_groups

# Kinds whose message has the same size on all ranks.
SAME_BYTES: Final = frozenset(
    {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "barrier"}
)

# Ranks that start to record at different times differ by some steps, each of some hundred collectives.
_MOST_SHIFT: Final = 512
# Longer sequences that differ somewhere in the middle are compared up to here.
_MOST_ALIGNED: Final = 3_000

MISMATCHES_KEPT: Final = 200


@dataclass(frozen=True)
class Mismatch:
    """Operations that should be one and are not.

    what: kind, bytes (one collective, but the ranks differ in it), missing (a rank lacks it although it has
    those before and after), order (ranks call collectives in different order), apart (no common operation),
    ambiguous (several ways to match). members: those that differ from the others.
    """

    what: str
    group: str
    sequence: int
    members: tuple[int, ...]
    values: tuple[str, str] = ("", "")  # of the others, and of the first of those members
    count: int = 1


@dataclass(frozen=True)
class Matching:
    """collective: of each operation, or NONE; shape (n,). A collective that is matched is on all members of
    its channel. channel: of each collective, shape (collectives,)."""

    collective: Int32
    channel: Int32
    mismatches: list[Mismatch]

    def __len__(self) -> int:
        return len(self.channel)


def match_operations(operations: RankOperations, channels: Channels) -> Matching:
    """Match operations of all ranks."""
    pair = is_pair(channels)
    number = np.full(len(operations), NONE, np.int64)
    mismatches: list[Mismatch] = []
    chosen = channels.of != NONE
    order = np.lexsort((operations.called_ns, operations.member, channels.of))
    order = order[chosen[order]]
    bounds = np.flatnonzero(np.diff(channels.of[order], prepend=-2, append=-2))
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = order[begin:end]
        channel = int(channels.of[rows[0]])
        if len(channels.channels[channel].members) < 2:
            continue
        if not pair[channel] and (operations.sequence[rows] != NONE).all():
            number[rows] = _by_sequence(operations, rows)
        else:
            number[rows] = _by_order(operations, rows, channels, channel, mismatches)
    return _checked(operations, channels, number, mismatches)


def _by_sequence(operations: RankOperations, rows: Int64) -> Int64:
    """Number operations by their sequence number, and those with the same one by their order.

    A group of sends and receives that start together has one number.
    """
    sequence, member = operations.sequence[rows], operations.member[rows]
    order = np.lexsort((np.arange(len(rows)), sequence, member))
    s, m = sequence[order], member[order]
    new = np.r_[True, (np.diff(s) != 0) | (np.diff(m) != 0)]
    first = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))
    repeat = np.empty(len(rows), np.int64)
    repeat[order] = np.arange(len(rows)) - first
    most = int(repeat.max(initial=0)) + 1
    numbers: Int64 = sequence * most + repeat
    return numbers


def _by_order(
    operations: RankOperations, rows: Int64, channels: Channels, channel: int, mismatches: list[Mismatch]
) -> Int64:
    """Number operations by their place in the order that most ranks have."""
    tokens = _tokens(operations, rows, pair=channels.channels[channel].pair is not None)
    member = operations.member[rows]
    bounds = np.flatnonzero(np.diff(member, prepend=-1, append=-1))
    own = [slice(b, e) for b, e in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
    usual = Counter(tokens[part].tobytes() for part in own).most_common(1)[0][0]
    reference = next(part for part in own if tokens[part].tobytes() == usual)
    wanted = tokens[reference]
    numbers = np.full(len(rows), NONE, np.int64)
    group = channels.channels[channel].group
    for part in own:
        have = tokens[part]
        if np.array_equal(have, wanted):
            numbers[part] = np.arange(len(wanted))
            continue
        found, what = _aligned(operations, rows[reference], wanted, rows[part], have)
        numbers[part] = found
        if what:
            lacking = max(1, int((found == NONE).sum()))
            mismatches.append(Mismatch(what, group, NONE, (int(member[part.start]),), count=lacking))
    return numbers


def _tokens(operations: RankOperations, rows: Int64, *, pair: bool) -> Int64:
    """One number per kind and size."""
    kind = operations.kind.code[rows].astype(np.int64)
    symmetric = np.array([pair or name in SAME_BYTES for name in operations.kind.texts] or [False], np.bool_)
    size = np.where(symmetric[kind], operations.bytes[rows], 0)
    return row_groups(np.zeros_like(kind) if pair else kind, size)[1]


def _aligned(
    operations: RankOperations, reference: Int64, wanted: Int64, rows: Int64, have: Int64
) -> tuple[Int64, str]:
    """Place one rank's operations in the reference's order. Return the places, and what does not fit."""
    shifts = _fitting_shifts(wanted, have)
    if shifts:
        shift = shifts[0] if len(shifts) == 1 else _by_step(operations, reference, rows, shifts)
        if shift is None:
            return np.full(len(have), NONE, np.int64), "ambiguous"
        places = np.arange(len(have)) + shift
        return np.where((places >= 0) & (places < len(wanted)), places, NONE), ""
    places = np.full(len(have), NONE, np.int64)
    if not np.isin(have, wanted).any():
        return places, "apart"
    if max(len(have), len(wanted)) > _MOST_ALIGNED:
        return places, "order"
    blocks = SequenceMatcher(None, wanted.tolist(), have.tolist(), autojunk=False).get_matching_blocks()
    for at, own, length in blocks:
        places[own : own + length] = np.arange(at, at + length)
    return places, "order"


def _fitting_shifts(wanted: Int64, have: Int64) -> list[int]:
    """Shifts at which all overlapping operations agree, over most of the shorter sequence; longest first."""
    least = max(1, min(len(wanted), len(have)) // 2)
    found = []
    for shift in range(-min(_MOST_SHIFT, len(have) - 1), min(_MOST_SHIFT, len(wanted) - 1) + 1):
        low, high = max(0, shift), min(len(wanted), len(have) + shift)
        if high - low >= least and np.array_equal(wanted[low:high], have[low - shift : high - shift]):
            found.append((high - low, shift))
    return [shift for _, shift in sorted(found, key=lambda one: (-one[0], abs(one[1])))]


def _by_step(operations: RankOperations, reference: Int64, rows: Int64, shifts: list[int]) -> int | None:
    """Choose the shift at which operations have steps of the same name, else the one at which they overlap
    in time; None if several are as good."""
    fits = []
    for shift in shifts:
        low, high = max(0, shift), min(len(reference), len(rows) + shift)
        ours, theirs = rows[low - shift : high - shift], reference[low:high]
        names = operations.step.code[ours] == operations.step.code[theirs]
        together = (operations.start_ns[ours] < operations.end_ns[theirs]) & (
            operations.start_ns[theirs] < operations.end_ns[ours]
        )
        fits.append((int(names.sum()), int(together.sum())))
    best = max(fits)
    return shifts[fits.index(best)] if fits.count(best) == 1 and best > (0, 0) else None


def _checked(
    operations: RankOperations, channels: Channels, number: Int64, mismatches: list[Mismatch]
) -> Matching:
    """Keep the collectives that all members of the channel have, and that agree in kind and size."""
    rows = np.flatnonzero(number != NONE)
    first, collective = row_groups(channels.of[rows].astype(np.int64), number[rows])
    members = np.array([len(channel.members) for channel in channels.channels], np.int64)
    channel = channels.of[rows[first]].astype(np.int64)
    present = np.bincount(collective, minlength=len(first))
    whole = present == members[channel] if len(first) else np.zeros(0, np.bool_)
    differs = _differing(operations, channels, rows, collective, len(first), mismatches)
    _find_missing(operations, channels, rows, collective, channel, number[rows[first]], whole, mismatches)
    kept = np.flatnonzero(whole & ~differs)
    place = np.full(len(first) + 1, NONE, np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    of = np.full(len(operations), NONE, np.int32)
    of[rows] = place[collective]
    return Matching(of, channel[kept].astype(np.int32), mismatches[:MISMATCHES_KEPT])


def _differing(
    operations: RankOperations,
    channels: Channels,
    rows: Int64,
    collective: Int64,
    count: int,
    mismatches: list[Mismatch],
) -> Bool:
    """Mask of collectives whose ranks differ in kind or size, shape (count,). Says which ranks do."""
    pair = is_pair(channels)[channels.of[rows]] if len(rows) else np.zeros(0, np.bool_)
    kind = np.where(pair, 0, operations.kind.code[rows])
    symmetric = np.array([name in SAME_BYTES for name in operations.kind.texts] or [False], np.bool_)
    same_size = symmetric[operations.kind.code[rows]] | pair
    size = np.where(same_size & (operations.bytes[rows] != NONE), operations.bytes[rows], 0)
    wrong = np.zeros(count, np.bool_)
    for what, value in (("kind", kind.astype(np.int64)), ("bytes", size)):
        low, high = _extremes(value, collective, count)
        odd = (low != high) & ~wrong
        wrong |= odd
        for one in np.flatnonzero(odd)[:MISMATCHES_KEPT].tolist():
            own = rows[collective == one]
            mismatches.append(_mismatch(operations, what, own, value[collective == one]))
    return wrong


def _extremes(value: Int64, group: Int64, count: int) -> tuple[Int64, Int64]:
    low = np.full(count, np.iinfo(np.int64).max)
    high = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(low, group, value)
    np.maximum.at(high, group, value)
    return low, high


def _mismatch(operations: RankOperations, what: str, rows: Int64, value: Int64) -> Mismatch:
    usual = Counter(value.tolist()).most_common(1)[0][0]
    odd = np.flatnonzero(value != usual)
    like, unlike = int(rows[value == usual][0]), int(rows[odd[0]])
    if what == "kind":
        values = (operations.kind[like], operations.kind[unlike])
    else:
        values = (str(operations.bytes[like]), str(operations.bytes[unlike]))
    return Mismatch(
        what,
        operations.group[like],
        int(operations.sequence[like]),
        tuple(operations.member[rows[odd]].tolist()),
        values,
    )


def _find_missing(
    operations: RankOperations,
    channels: Channels,
    rows: Int64,
    collective: Int64,
    channel: Int64,
    number: Int64,
    whole: Bool,
    mismatches: list[Mismatch],
) -> None:
    """Say which ranks lack a collective between two that they have. Ranks start and stop recording at
    different times, so what is missing at the ends is not a mismatch."""
    numbered = operations.sequence[rows[_firsts(collective, len(channel))]] != NONE if len(rows) else whole
    partial = np.flatnonzero(~whole & numbered)
    member = operations.member[rows]
    bounds: dict[tuple[int, int], tuple[int, int]] = {}
    first, own_channel = row_groups(channel[collective], member.astype(np.int64))
    low, high = _extremes(number[collective], own_channel, len(first))
    owners = zip(channel[collective[first]].tolist(), member[first].tolist(), strict=True)
    for owner, *ends in zip(owners, low.tolist(), high.tolist(), strict=True):
        bounds[owner] = (ends[0], ends[1])
    _say_apart(operations, channels, channel, whole, bounds, mismatches)
    by_collective = np.argsort(collective, kind="stable")
    starts = np.searchsorted(collective[by_collective], np.arange(len(channel) + 1))
    for one in partial[:MISMATCHES_KEPT].tolist():
        own = by_collective[starts[one] : starts[one + 1]]
        have = set(member[own].tolist())
        of = channels.channels[int(channel[one])]
        lacking = [
            m
            for m in of.members
            if m not in have and (b := bounds.get((int(channel[one]), m))) and b[0] < number[one] < b[1]
        ]
        if lacking:
            row = int(rows[own[0]])
            mismatches.append(
                Mismatch(
                    "missing",
                    of.group,
                    int(operations.sequence[row]),
                    tuple(lacking),
                    (operations.kind[row], ""),
                )
            )


def _firsts(group: Int64, count: int) -> Int64:
    """Return the first row of each group, shape (count,)."""
    found = np.zeros(count, np.int64)
    found[group[::-1]] = np.arange(len(group))[::-1]
    return found


def _say_apart(
    operations: RankOperations,
    channels: Channels,
    channel: Int64,
    whole: Bool,
    bounds: dict[tuple[int, int], tuple[int, int]],
    mismatches: list[Mismatch],
) -> None:
    """Say which channels have no collective that all of their members have."""
    for c in np.setdiff1d(np.unique(channel), channel[whole]).tolist():
        of = channels.channels[c]
        own = {m: bounds[c, m] for m in of.members if (c, m) in bounds}
        absent = [m for m in of.members if m not in own]
        if absent:
            mismatches.append(Mismatch("apart", of.group, NONE, tuple(absent)))
            continue
        away = _away(own)
        if away:
            mismatches.append(Mismatch("apart", of.group, NONE, away))


def _away(own: dict[int, tuple[int, int]]) -> tuple[int, ...]:
    """Return the members whose operations begin after others' end; none if all have some in common.

    own: first and last operation of each member.
    """
    lows, highs = zip(*own.values(), strict=True)
    if max(lows) <= min(highs):
        return ()
    low, high = sorted(lows)[len(lows) // 2], sorted(highs)[len(highs) // 2]
    away = tuple(m for m, (first, last) in own.items() if last < low or first > high)
    return away or (max(own),)
