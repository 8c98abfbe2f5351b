"""An ordered set in chunks does what a sorted list does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.stores.memory.indexes import sorted_set
from holdfast.stores.memory.indexes.sorted_set import OrderedSet

KEYS = st.tuples(st.integers(0, 6), st.integers(0, 9))
STARTS = KEYS | st.tuples(st.integers(-1, 7)) | st.just(())


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(sorted_set, "CHUNK", 4)


def same(found, model):
    assert list(found) == model
    assert len(found) == len(model)
    assert all(found._chunks)
    assert [chunk[0] for chunk in found._chunks] == list(found._firsts)


@given(st.sets(KEYS), st.lists(st.tuples(st.booleans(), KEYS), max_size=80))
def test_any_row_of_changes_leaves_what_a_sorted_list_has(first, changes):
    found, model = OrderedSet(first), set(first)
    for adds, key in changes:
        if adds and key not in model:
            found.add(key)
            model.add(key)
        elif not adds:
            assert found.discard(key) == (key in model)
            model.discard(key)
        same(found, sorted(model))


@given(st.sets(KEYS, max_size=40), STARTS)
def test_walking_starts_at_the_first_key_not_below_and_backwards_at_the_last_below(keys, start):
    found = OrderedSet(keys)
    assert list(found.walk(start)) == sorted(key for key in keys if key >= start)
    assert list(found.walk(start, backwards=True)) == sorted((key for key in keys if key < start), reverse=True)


def test_an_empty_set_walks_nowhere():
    found = OrderedSet()
    assert (list(found), len(found), found.discard((1,)), list(found.walk((1,), backwards=True))) == ([], 0, False, [])


def test_walking_is_lazy():
    found = OrderedSet((number,) for number in range(10_000))
    assert next(found.walk((5000,))) == (5000,)
    assert next(found.walk((5000,), backwards=True)) == (4999,)


def test_chunks_split_when_they_grow_and_vanish_when_they_are_empty():
    found = OrderedSet()
    for number in range(100):
        found.add((number,))
    assert len(found._chunks) > 5
    for number in range(100):
        assert found.discard((number,))
    same(found, [])
    assert found._chunks == []
