"""A page that applies the parts that it gets always ends with the list as it is."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.service.index import runs
from tb_gpudiag.service.index.runs import Listing


class Page:
    """What a page knows of a list."""

    def __init__(self) -> None:
        self.known: int | None = None
        self.ids: dict[str, int] = {}

    def ask(self, source: Listing, truth: dict[str, int], most: int) -> None:
        more = True
        while more:
            part = source.since(self.known, most)
            assert len(part.changed) <= most
            if part.whole:
                self.ids = {}
            for id_ in part.removed:
                self.ids.pop(id_, None)
            self.ids.update({id_: truth[id_] for id_ in part.changed})
            self.known, more = part.number, part.more


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4)),
        st.tuples(st.just("remove"), st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4)),
        st.tuples(st.just("ask"), st.just([])),
        st.tuples(st.just("touch"), st.just([])),
    ),
    max_size=40,
)


@given(changes=CHANGES, most=st.integers(1, 5))
def test_every_page_ends_with_the_list_as_it_is(changes: list[tuple[str, list[str]]], most: int) -> None:
    source, early, late = Listing(), Page(), Page()
    truth: dict[str, int] = {}
    for version, (what, ids) in enumerate(changes):
        if what == "change":
            truth.update(dict.fromkeys(ids, version))
            source.change(ids)
        elif what == "remove":
            gone = [id_ for id_ in dict.fromkeys(ids) if id_ in truth]
            for id_ in gone:
                del truth[id_]
            source.remove(gone)
        elif what == "touch":
            source.touch()
        else:
            early.ask(source, truth, most)
            assert early.ids == truth
    for page in (early, late):
        page.ask(source, truth, most)
        assert page.ids == truth
        assert page.known == source.number


def test_what_has_not_changed_is_not_sent_again() -> None:
    source = Listing()
    source.change("abc")
    known = source.number
    assert source.since(known, 10) == ([], [], known, False, False)
    source.change("b")
    assert source.since(known, 10) == (["b"], [], known + 1, False, False)


def test_a_page_from_before_a_restart_gets_everything() -> None:
    source = Listing()
    source.change("abc")
    for known in (-1, source.first - 1, source.number + 1, 2**32 - 1):
        part = source.since(known, 10)
        assert (part.whole, part.changed) == (True, ["a", "b", "c"])


def test_a_page_that_has_missed_forgotten_removals_gets_everything() -> None:
    source = Listing()
    source.change(["kept"])
    known = source.number
    for number in range(runs.MOST_REMOVED + 1):
        source.change([str(number)])
        source.remove([str(number)])
    part = source.since(known, 10)
    assert (part.whole, part.changed, part.removed) == (True, ["kept"], [])


@pytest.mark.slow
def test_the_memory_of_changes_is_bounded() -> None:
    source = Listing()
    tracemalloc.start()
    for _ in range(20_000):
        source.change("ab")
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept_bytes < 1 << 20
    assert set(source.since(None, 10).changed) == {"a", "b"}
