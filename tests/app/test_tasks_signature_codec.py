"""Whatever an annotation can say comes back as what it was; whatever does not fit is refused at its caller."""

import dataclasses
import enum
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.errors import HoldfastError, InvalidArguments, InvalidValue, PayloadTooLarge


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: float
    tags: tuple[str, ...] = ()


class Box(msgspec.Struct, frozen=True):
    at: Point
    colour: Colour
    when: datetime | None = None


class Pair(NamedTuple):
    left: int
    right: str


class Shape(TypedDict):
    name: str
    sides: int


class Model(pydantic.BaseModel):
    name: str


NOW = datetime(2026, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)
VALUES = [
    (int, 5),
    (int, -(2**63)),
    (float, 1.5),
    (bool, True),
    (str, "ä\u2028\0"),
    (type(None), None),
    (bytes, b"\0\xff"),
    (bytearray, bytearray(b"ab")),
    (datetime, NOW),
    (date, date(2026, 2, 28)),
    (time, time(23, 59, 59)),
    (timedelta, timedelta(days=2, seconds=3, microseconds=4)),
    (uuid.UUID, uuid.UUID(int=7)),
    (Decimal, Decimal("1.10")),
    (Colour, Colour.BLUE),
    (Level, Level.HIGH),
    (Literal["a", 1], "a"),
    (list[int], [1, 2]),
    (tuple[int, str], (1, "x")),
    (tuple[int, ...], (1, 2, 3)),
    (set[str], {"a", "b"}),
    (frozenset[int], frozenset({1, 2})),
    (dict[str, Decimal], {"a": Decimal("0.5")}),
    (dict[int, str], {1: "a", 2: "b"}),
    (dict[uuid.UUID, int], {uuid.UUID(int=1): 1}),
    (Point, Point(1, 2.0, ("a",))),
    (Box, Box(Point(1, 2.0), Colour.RED, NOW)),
    (Pair, Pair(1, "x")),
    (Shape, {"name": "square", "sides": 4}),
    (Model, Model(name="m")),
    (list[Model], [Model(name="m"), Model(name="n")]),
    (Point | None, None),
    (Point | None, Point(1, 2.0)),
    (int | str, "x"),
    (list[Box | None], [Box(Point(1, 2.0), Colour.RED), None]),
    (Any, {"a": [1, None, "x"], "b": True}),
    (object, {"a": 1}),
    (dict, {"a": 1}),
    (list, [1, "x"]),
]


def of(kind):
    """Make the codec of a function with one argument of a type, that returns it."""

    def echo(value):
        return value

    echo.__annotations__ = {"value": kind, "return": kind}
    return SignatureCodec(echo)


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_a_typed_value_comes_back_as_it_was(kind, value):
    codec = of(kind)
    args, kwargs = codec.unpack(codec.pack((value,), {}))
    assert (args, kwargs) == ((), {"value": value})
    assert type(kwargs["value"]) is type(value)
    back = codec.unpack_result(codec.pack_result(value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, "5"),
        (int, 1.5),
        (int, None),
        (str, 5),
        (str, b"x"),
        (str, uuid.UUID(int=1)),
        (str, NOW),
        (datetime, "yesterday"),
        (uuid.UUID, "nonsense"),
        (Colour, "green"),
        (list[int], ["x"]),
        (tuple[int, str], (1,)),
        (Point, {"x": 1}),
        (Box, Point(1, 2.0)),
        (Model, {"nom": 1}),
        (Literal["a"], "b"),
        (float, float("nan")),
        (Any, object()),
        (Any, {1: 2}),
        (Any, {"x": {1, 2}}),
        (Any, "\ud800"),
        (Any, 2**64),
        (Any, b"x"),
        (int, 2**64),
        (complex, 1j),
    ],
)
def test_a_value_that_does_not_fit_is_refused_when_it_is_packed(kind, value):
    codec = of(kind)
    with pytest.raises((InvalidArguments, InvalidValue)):
        codec.pack((value,), {})
    with pytest.raises(InvalidValue):
        codec.pack_result(value)


def test_a_payload_too_large_is_refused():
    with pytest.raises(PayloadTooLarge):
        of(str).pack(("x" * (257 << 20),), {})


def everything(first: int, /, second: int, *rest: int, third: int, fourth: int = 4, **more: int) -> list[Any]:
    return [first, second, rest, third, fourth, more]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1, 2), {"third": 3}),
        ((1, 2, 30, 31), {"third": 3, "fourth": 40}),
        ((1,), {"second": 2, "third": 3, "fifth": 5}),
        ((1, 2, 30), {"third": 3, "fifth": 5}),
    ],
)
def test_every_kind_of_parameter_reaches_the_function_as_it_was_given(args, kwargs):
    codec = SignatureCodec(everything)
    got_args, got_kwargs = codec.unpack(codec.pack(args, kwargs))
    assert everything(*got_args, **got_kwargs) == everything(*args, **kwargs)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1,), {"third": 3}), ((1, 2), {}), ((1, 2, "x"), {"third": 3}), ((1, 2), {"third": 3, "x": "y"})],
)
def test_a_wrong_call_is_refused_and_names_the_function(args, kwargs):
    with pytest.raises(InvalidArguments, match="everything"):
        SignatureCodec(everything).pack(args, kwargs)


def test_a_default_is_the_functions_own_when_the_job_runs():
    def before(n: int, times: int = 1) -> int:
        return n * times

    def after(n: int, times: int = 10) -> int:
        return n * times

    params = SignatureCodec(before).pack((2,), {})
    args, kwargs = SignatureCodec(after).unpack(params)
    assert after(*args, **kwargs) == 20


@pytest.mark.parametrize("params", [b"{}", b'{"n":"x"}', b'{"n":1,"m":2}', b"[1]", b"{", b"null"])
def test_stored_arguments_that_no_longer_fit_are_refused_when_they_are_unpacked(params):
    def task(n: int) -> None:
        return None

    with pytest.raises(InvalidArguments, match="task"):
        SignatureCodec(task).unpack(msgspec.Raw(params))


def test_annotations_that_cannot_be_read_are_refused_when_the_task_is_registered():
    def task(n: "Missing") -> None:  # noqa: F821 - that is the point
        return None

    with pytest.raises(InvalidValue, match="Missing"):
        SignatureCodec(task)


def test_a_result_that_does_not_fit_its_annotation_is_refused():
    with pytest.raises(InvalidValue, match="result"):
        of(int).pack_result("x")
    with pytest.raises(InvalidValue, match="result"):
        of(int).unpack_result(msgspec.Raw(b'"x"'))


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_any_plain_json_comes_back_unchanged_or_is_refused_for_a_reason(value):
    codec = of(Any)
    try:
        params = codec.pack((value,), {})
    except HoldfastError as problem:
        assert problem.message  # noqa: PT017 - lone surrogates, say
        return
    assert codec.unpack(params) == ((), {"value": value})
