"""The one validator before every store: what it takes comes back equal, everything else is refused by name."""

import enum
import json
import math
from collections import OrderedDict
from hashlib import sha256
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidValue, PayloadTooLarge
from holdfast.model.payloads import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_ERROR,
    admit,
    admit_object,
    blob_ref,
    pack,
    ref_in,
    shorten_error,
)

TEXT = st.text()  # hypothesis leaves surrogates out
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5), max_leaves=25
)


def same(one, other):
    """Equal, and of the same types all the way down: 1, 1.0 and True are three values."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return one == other


def unpack(raw):
    return json.loads(bytes(raw))


@given(VALUES)
def test_what_is_packed_comes_back_equal(value):
    assert same(unpack(pack(value)), value)


@given(VALUES, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_text_from_outside_comes_back_equal_however_it_was_written(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    kept = admit(text)
    assert same(unpack(kept), value)
    assert admit(kept) == kept  # compact already
    assert kept == pack(value)


@given(st.binary(max_size=200))
def test_any_bytes_are_taken_or_refused_with_a_typed_error(blob):
    try:
        kept = admit(blob)
    except InvalidValue:
        return
    assert unpack(kept) == json.loads(blob)


@given(st.text(alphabet='{}[]":,\\ue019.- tfn\x00\ud800', max_size=40))
def test_almost_json_is_taken_or_refused_with_a_typed_error(text):
    blob = text.encode("utf-8", "surrogatepass")
    try:
        kept = admit(blob)
    except InvalidValue:
        return
    assert unpack(kept) == json.loads(blob)


# V1 … V8 of the reliability checklist


@pytest.mark.parametrize("text", [b'{"a":1,"a":1}', b'{"a":1,"\\u0061":2}', b'[{"x":{"a":null,"a":null}}]'])
def test_v1_a_name_that_occurs_twice_is_refused(text):
    with pytest.raises(InvalidValue, match="twice"):
        admit(text)


@pytest.mark.parametrize("value", [{1: "a"}, {"1": "a", 1: "b"}, {None: 1}, {True: 1}, {b"a": 1}, {"a": {2: 1}}])
def test_v1_names_that_are_no_text_are_refused(value):
    with pytest.raises(InvalidValue, match="not text"):
        pack(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [math.nan], {"a": math.inf}])
def test_v2_not_a_number_and_infinities_are_refused_on_the_way_in(value):
    with pytest.raises(InvalidValue, match="is not JSON"):
        pack(value)


@pytest.mark.parametrize("text", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"[NaN]", b'{"a":1e400}'])
def test_v2_not_a_number_and_infinities_are_refused_as_text(text):
    with pytest.raises(InvalidValue, match="is not JSON"):
        admit(text)


@pytest.mark.parametrize("value", ["\ud800", "a\udfff", ["\ud83d"], {"\ud800": 1}, {"a": "\udc00\ud800"}])
def test_v3_lone_surrogates_are_refused(value):
    with pytest.raises(InvalidValue, match="lone surrogate"):
        pack(value)
    with pytest.raises(InvalidValue, match="lone surrogate"):
        admit(json.dumps(value).encode())
    with pytest.raises(InvalidValue):
        admit(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def test_v3_a_surrogate_pair_is_one_character_and_nul_is_kept():
    assert unpack(admit(b'"\\ud83d\\ude42"')) == "🙂"
    assert unpack(admit(b'"a\\u0000b"')) == unpack(pack("a\0b")) == "a\0b"


PLACES = {
    "": lambda value: value,
    ".a": lambda value: {"b": 1, "a": value},
    "[1]": lambda value: [0, value],
    ".a[2].b": lambda value: {"a": [1, {}, {"b": value}]},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("field", ["params", "result"])
@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, 1 << 64, math.inf, math.nan, 1e308 * 10])
def test_v4_number_that_cannot_be_kept_is_named_with_its_place(place, field, value):
    made = PLACES[place](value)
    expected = f"{field}{place}: the integer {value} is outside the 64 bits that are kept, -2**63 to 2**63 - 1."
    if isinstance(value, float):
        expected = f"{field}{place}: {value} is not JSON; only finite numbers are."
    with pytest.raises(InvalidValue) as refused:
        pack(made, field)
    assert refused.value.message == f"{expected} Nothing was stored."
    assert (refused.value.facts["field"], refused.value.facts["path"]) == (field, f"{field}{place}")
    if isinstance(value, int) or math.isinf(value):
        text = json.dumps(made).replace("Infinity", "1e400")
        with pytest.raises(InvalidValue) as refused:
            admit(text.encode(), field)
        assert refused.value.message == f"{expected} Nothing was stored."


def test_v4_place_is_named_below_levels_that_lie_around_a_payload():
    with pytest.raises(InvalidValue, match=r"^item\.a: the integer"):
        pack({"a": 1 << 63}, "item", around=2)


def test_v4_place_that_is_named_is_short_and_storable():
    with pytest.raises(InvalidValue) as refused:
        pack({"n" * 100_000: 1 << 63})
    assert len(refused.value.message) < 500
    with pytest.raises(InvalidValue) as refused:
        pack({"\ud800": 1 << 63})
    assert refused.value.message.encode()


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, (1 << 64) - 1, 10**400, -(10**400)], ids=range(5))
def test_v4_integers_beyond_64_bits_are_refused(value):
    with pytest.raises(InvalidValue, match="64 bits"):
        pack({"a": value})
    with pytest.raises(InvalidValue, match="64 bits"):
        admit(b'{"a":%d}' % value)


def test_v4_an_integer_of_ten_thousand_digits_is_refused():
    with pytest.raises(InvalidValue):
        admit(b"1" * 10_000)


@pytest.mark.parametrize("value", [(1 << 63) - 1, -(1 << 63)])
def test_v4_the_whole_range_of_64_bits_is_kept(value):
    assert unpack(pack(value)) == unpack(admit(str(value).encode())) == value


def nested(levels, inner=b"1"):
    return b"[" * levels + inner + b"]" * levels


@pytest.mark.parametrize("inner", [b"", b"1", b" 1 "])
def test_v5_as_many_levels_as_stated_are_taken_in_every_way_of_writing(inner):
    kept = admit(nested(MAX_DEPTH, inner))
    assert pack(unpack(kept)) == kept


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 1_000, 10_000, 400_000])
@pytest.mark.parametrize("inner", [b"", b" 1 "])
def test_v5_deeper_nesting_is_refused_before_parsing(levels, inner):
    with pytest.raises(InvalidValue, match="deeper"):
        admit(nested(levels, inner))


def test_v5_deeper_nesting_is_refused_as_a_value():
    value = []
    for _ in range(MAX_DEPTH):
        value = [value]
    with pytest.raises(InvalidValue, match="deeper"):
        pack(value)
    with pytest.raises(InvalidValue, match="deeper"):
        pack({"a": value})


def test_v5_a_parser_that_runs_out_of_stack_is_no_crash(monkeypatch):
    def deep(*_args, **_kwargs):
        raise RecursionError

    monkeypatch.setattr(json, "loads", deep)
    with pytest.raises(InvalidValue, match="deeper"):
        admit(b" [1]")


def test_v5_a_value_that_contains_itself_is_refused():
    value = []
    value.append(value)
    with pytest.raises(InvalidValue, match="deeper"):
        pack(value)


@pytest.mark.parametrize("text", [b'"' + b"[" * 500 + b'"', b'"\\"' + b"[{" * 500 + b'"', b"[" + b"[]," * 500 + b"[]]"])
def test_v5_brackets_in_text_or_side_by_side_are_no_levels(text):
    assert bytes(admit(text)) == text


def test_v5_an_unclosed_text_full_of_brackets_is_no_json():
    with pytest.raises(InvalidValue, match="not JSON"):
        admit(b'"' + b"[" * 500)


class Count(int):
    pass


class Word(str):
    __slots__ = ()


class Plain(enum.Enum):
    A = 1


@pytest.mark.parametrize(
    "value",
    [
        {1},
        b"x",
        (1, 2),
        object(),
        1j,
        Plain.A,
        Count(1),
        Word("a"),
        MappingProxyType({"a": 1}),
        [Count(1)],
        bytearray(b"x"),
        range(3),
    ],
)
def test_v6_what_would_not_come_back_as_it_was_is_refused(value):
    with pytest.raises(InvalidValue, match="cannot be encoded as JSON"):
        pack(value)


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


@pytest.mark.parametrize("value", [Colour.RED, Size.BIG, OrderedDict(b=1, a=2), [Colour.RED], {Colour.RED: Size.BIG}])
def test_v6_what_equals_its_plain_form_is_taken(value):
    assert unpack(pack(value)) == value


def test_v7_text_is_kept_compact_and_line_separators_pass():
    assert bytes(admit(b' { "a" : [ 1 , 2.50 ] }\r\n')) == b'{"a":[1,2.5]}'
    assert bytes(admit('"\u2028"'.encode())) == '"\u2028"'.encode()
    assert b"\n" not in bytes(admit(b'"a\\nb"'))


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        "{}".encode("utf-32"),
        b'"\xff"',
        b'"\xc3"',
        b"",
        b" ",
        b"\0",
        b'"\0"',
        b"{}{}",
        b"[1,]",
    ],
)
def test_v8_marks_of_order_other_encodings_and_broken_text_are_refused(text):
    with pytest.raises(InvalidValue, match="not JSON"):
        admit(text)


# size and shape


def test_a_payload_too_large_is_refused_both_ways():
    with pytest.raises(PayloadTooLarge) as caught:
        pack("x" * 1000, "result", 1000)
    assert caught.value.facts == {"field": "result"}
    with pytest.raises(PayloadTooLarge, match=r"1,002 bytes are more than the 1,000"):
        admit(b'"' + b"x" * 1000 + b'"', "params", 1000)
    assert len(bytes(admit(b'"' + b"x" * 998 + b'"', "params", 1000))) == 1000
    with pytest.raises(PayloadTooLarge):
        admit(bytes(MAX_BYTES + 1))


# references


def test_a_reference_is_read_as_it_was_written():
    digest = sha256(b"content").hexdigest()
    for size in (0, 65_537, MAX_BYTES):
        assert ref_in(blob_ref(digest, size)) == (digest, size)
        assert admit(blob_ref(digest, size)) == blob_ref(digest, size)


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b'{"$blob":"%s"}' % (b"a" * 64),
        b'{"$blob":"%s","size":7 }' % (b"a" * 64),
        b'{"$blob":"%s","size":-7}' % (b"a" * 64),
        b'{"$blob":"%s","size":7}' % (b"A" * 64),
        b'{"$blob":"%s","size":7}' % (b"a" * 63),
        b'{"$blob":"%s","size":7,"a":1}' % (b"a" * 64),
        b'{"a":{"$blob":"%s","size":7}}' % (b"a" * 64),
        b'{"size":7,"$blob":"%s"}' % (b"a" * 64),
        b'{"$blob":"%s","size":7}\n' % (b"a" * 64),
    ],
)
def test_what_only_looks_like_a_reference_is_content(text):
    assert ref_in(msgspec.Raw(text)) is None


def test_params_must_be_an_object():
    assert admit_object(msgspec.Raw(b' {"a":1}')) == msgspec.Raw(b'{"a":1}')
    for text in (b"[]", b"1", b'"{"', b"null"):
        with pytest.raises(InvalidValue, match="JSON object"):
            admit_object(text)


# error texts


def test_a_short_error_stays_as_it_is():
    assert shorten_error("boom") == "boom"
    assert shorten_error("x" * MAX_ERROR) == "x" * MAX_ERROR


@given(st.text(alphabet=st.sampled_from("aé€🙂\n\ud800"), min_size=1), st.integers(1, 20_000))
def test_a_long_error_loses_its_middle_and_fits(piece, times):
    text = (piece * times)[: 3 * MAX_ERROR]
    short = shorten_error(text)
    assert len(short.encode()) <= MAX_ERROR
    whole = text.encode("utf-8", "backslashreplace").decode()
    if len(whole.encode()) <= MAX_ERROR:
        assert short == whole
    else:
        head, tail = short.split("\n… ")[0], short.rsplit(" cut …\n", 1)[1]
        assert whole.startswith(head)
        assert whole.endswith(tail)
        assert "bytes cut" in short


def test_lone_surrogates_in_an_error_are_escaped():
    assert shorten_error("a\ud800b") == "a\\ud800b"
