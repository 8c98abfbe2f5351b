"""Sets of ids by name: an id is in the sets it was put into, and a set without ids is not there."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.stores.memory.indexes.id_sets import IdSets


@given(st.lists(st.tuples(st.sampled_from("nm"), st.sampled_from("abc"), st.sampled_from([1, -1])), max_size=30))
def test_after_any_changes_each_set_has_what_was_put_in_and_not_taken_out_and_none_is_empty(changes):
    sets, there = IdSets(), set()
    for name, one, by in changes:
        sets.note(name, one, by)
        (there.add if by > 0 else there.discard)((name, one))
        assert {(name, one) for name, ids in sets.items() for one in ids} == there
        assert all(sets.values())


def test_what_is_put_in_twice_goes_at_once_and_what_was_never_there_makes_no_set():
    sets = IdSets()
    sets.note("n", "a", -1)
    assert not sets
    sets.note("n", "a", 1)
    sets.note("n", "a", 1)
    sets.note("m", "a", 1)
    sets.note("n", "a", -1)
    assert sets == {"m": {"a"}}
