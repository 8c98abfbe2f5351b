"""Ids and names from callers; time-ordered ids from values."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.ids import is_id, is_name, uuid7

MS = st.integers(0, (1 << 48) - 1)
ORDER = st.integers(0, 0xFFF)
CHANCE = st.integers(0, (1 << 64) - 1)


@pytest.mark.parametrize(
    "text", ["a", "é", "a b", "../x", "/etc/passwd", ".", "CON", "x" * 200, "\u2028".join("ab"), "🙂"]
)
def test_ids_are_any_printable_text(text):
    assert is_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        " a",
        "a ",
        "\u00a0a",
        "a\u2028",
        "x" * 201,
        "a\nb",
        "a\n",
        "a\0",
        "\x7f",
        "a\x85b",
        "\ud800",
        "a\udfffb",
        "\t",
    ],
)
def test_controls_surrogates_outer_blanks_and_long_texts_are_no_ids(text):
    assert not is_id(text)


@pytest.mark.parametrize("text", ["a", "mail.send", "a_b-c:d/e", "0", "x" * 128, "..", "-"])
def test_names_are_letters_digits_and_five_marks(text):
    assert is_name(text)


@pytest.mark.parametrize("text", ["", " ", "a b", "é", "a\n", "x" * 129, "a\0", "a*", "٣", "\ud800"])
def test_everything_else_is_no_name(text):
    assert not is_name(text)


@given(MS, ORDER, CHANCE)
def test_a_made_id_is_a_uuid_of_version_7_that_begins_with_its_time(ms, order, chance):
    made = uuid.UUID(uuid7(ms, order, chance))
    assert str(made) == uuid7(ms, order, chance)
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == ms
    assert made.int >> 64 & 0xFFF == order
    assert is_id(str(made))


@given(MS, ORDER, CHANCE, MS, ORDER, CHANCE)
def test_ids_sort_by_time_then_by_order(ms1, order1, chance1, ms2, order2, chance2):
    if (ms1, order1) < (ms2, order2):
        assert uuid7(ms1, order1, chance1) < uuid7(ms2, order2, chance2)
