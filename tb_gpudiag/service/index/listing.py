"""What has changed in the list of traces since a page last asked, in parts of bounded size.

Every change gets the next number. A page sends the last number that it knows, and gets the changes after it.
So answers stay short, however many files the log directory has and however many pages are open.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

# How many removed ids are remembered. A page that missed more removals gets the whole list.
MOST_REMOVED = 10_000


class ListChanges(NamedTuple):
    """Changes since a number: ids that are new or have changed, and ids that are gone.

    number: what the page knows after these changes. whole: the page must forget what it had.
    more: the page must ask again at once.
    """

    changed: list[str]
    removed: list[str]
    number: int
    whole: bool
    more: bool


class Listing:
    """The number of the last change of each id. Not thread-safe: the caller locks."""

    def __init__(self) -> None:
        # Before all changes. Random, so that no number of a page from before a restart is one of ours.
        self.first = self.number = secrets.randbelow(2**31)
        self._of_id: dict[str, int] = {}
        self._removed: OrderedDict[str, int] = OrderedDict()
        self._forgotten = self.first  # removals up to this number may be forgotten
        # All changes in the order of their numbers, including those that a later one of the same id replaced.
        self._numbers: list[int] = []
        self._ids: list[str] = []

    def change(self, ids: Iterable[str]) -> None:
        """Note that these ids are new or have changed."""
        for id_ in ids:
            self.number += 1
            self._of_id[id_] = self.number
            self._removed.pop(id_, None)
            self._numbers.append(self.number)
            self._ids.append(id_)
        if len(self._ids) > 2 * len(self._of_id) + MOST_REMOVED:
            self._compact()

    def remove(self, ids: Iterable[str]) -> None:
        """Note that these ids are gone."""
        for id_ in ids:
            self.number += 1
            self._of_id.pop(id_, None)
            self._removed[id_] = self.number
            if len(self._removed) > MOST_REMOVED:
                self._forgotten = self._removed.popitem(last=False)[1]

    def has_removed(self, id_: str) -> bool:
        """Return whether this id was removed, and not too long ago."""
        return id_ in self._removed

    def touch(self) -> None:
        """Note that something other than ids has changed."""
        self.number += 1

    def since(self, known: int | None, most: int) -> ListChanges:
        """Return at most `most` of the changes since `known`, in their order.

        If `known` is None or no number of this listing, return the changes since the beginning.
        """
        whole = known is None or not self._forgotten <= known <= self.number
        after = self.first if whole or known is None else known
        removed = [] if whole else [id_ for id_, number in self._removed.items() if number > after]
        changed: list[str] = []
        for at in range(bisect_right(self._numbers, after), len(self._numbers)):
            if self._of_id.get(self._ids[at]) != self._numbers[at]:
                continue
            if len(changed) == most:
                return ListChanges(changed, removed, self._of_id[changed[-1]], whole, more=True)
            changed.append(self._ids[at])
        return ListChanges(changed, removed, self.number, whole, more=False)

    def _compact(self) -> None:
        kept = [at for at, id_ in enumerate(self._ids) if self._of_id.get(id_) == self._numbers[at]]
        self._numbers = [self._numbers[at] for at in kept]
        self._ids = [self._ids[at] for at in kept]
