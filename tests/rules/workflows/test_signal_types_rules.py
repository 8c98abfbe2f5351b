"""Data of signals against the schemas that workers publish: nothing is refused that the workflow could decode."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.times import Timestamp
from holdfast.model.workers import WorkerInfo, WorkerState
from holdfast.rules.workflows import signal_types
from holdfast.rules.workflows.signal_types import find_signal_mismatches, schema_problem

Meta = msgspec.Meta


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    name: str = "Rex"


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Row(msgspec.Struct, array_like=True):
    key: str
    count: int = 0


class Loose(TypedDict):
    a: int
    b: NotRequired[list[str]]


@dataclass
class Tree:
    value: int
    below: list[Tree]
    parent: Tree | None = None


TYPES: list[Any] = [
    Any,
    None,
    bool,
    int,
    float,
    str,
    bytes,
    Decimal,
    datetime,
    uuid.UUID,
    Color,
    Cat,
    Dog,
    Cat | Dog,
    Cat | None,
    Point,
    Row,
    Loose,
    Tree,
    list[int],
    set[str],
    tuple[int, str],
    tuple[int, ...],
    dict[str, int],
    dict[int, str],
    int | str | None,
    Literal["a", 1] | None,
    list[Cat | Dog],
    dict[str, Tree],
    Annotated[int, Meta(ge=0, lt=5)],
    Annotated[str, Meta(max_length=2)],
    Annotated[list[int], Meta(min_length=1)],
    Annotated[dict[str, int], Meta(max_length=1)],
    Annotated[bytes, Meta(min_length=2)],
    Annotated[float, Meta(gt=0)],
    Annotated[str, Meta(pattern="^a")],
]
NAMES = st.sampled_from(["a", "b", "type", "lives", "name", "value", "below", "parent", "1", "z"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.sampled_from([0.0, 1.0, 2.5])
    | st.sampled_from(["", "a", "abc", "red", "Cat", "Dog", "YWI", "YWI=", "1.5", "2026-01-01T00:00:00Z"])
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)


def schema(kind):
    return msgspec.Raw(msgspec.json.encode(msgspec.json.schema(kind)))


SCHEMAS = [schema(kind) for kind in TYPES]


@given(VALUES, st.integers(0, len(TYPES) - 1))
def test_nothing_is_refused_that_the_type_takes(value, number):
    problem = schema_problem(SCHEMAS[number], value)
    if problem is not None:
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(msgspec.json.encode(value), type=TYPES[number])


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (int, "x", "Expected `int`, got `str`"),
        (int, True, "Expected `int`, got `bool`"),
        (int, 1.0, "Expected `int`, got `float`"),
        (float, None, "Expected `float`, got `null`"),
        (int | None, "x", "Expected `int | null`, got `str`"),
        (list[int], [1, {}], "Expected `int`, got `object` - at `$[1]`"),
        (dict[str, int], {"a": []}, "Expected `int`, got `array` - at `$.a`"),
        (tuple[int, str], [1, 2], "Expected `str`, got `int` - at `$[1]`"),
        (tuple[int, str], [1], "Expected length >= 2"),
        (tuple[int, str], [1, "a", 3], "Expected length <= 2"),
        (Tree, {"value": 1}, "Object missing required field `below`"),
        (
            Tree,
            {"value": 1, "below": [{"value": "x", "below": []}]},
            "Expected `int`, got `str` - at `$.below[0].value`",
        ),
        (Tree | None, {"value": 1, "below": 2}, "Expected `array`, got `int` - at `$.below`"),
        (Cat | Dog, {"type": "Cat", "lives": "x"}, "Expected `int`, got `str` - at `$.lives`"),
        (Dog, {"color": 1}, "Object contains unknown field `color`"),
        (Color, "green", "Expected one of"),
        (Literal["a", "b"], "c", "Expected one of"),
        (Annotated[int, Meta(ge=0)], -1, "Expected value >= 0"),
        (Annotated[str, Meta(max_length=2)], "abc", "Expected length <= 2"),
    ],
)
def test_wrong_data_is_told_with_its_path(kind, value, said):
    problem = schema_problem(schema(kind), value)
    assert problem is not None
    assert problem.startswith(said) if said.endswith("of") else problem == said


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b"3",
        b"{",
        b'{"type": "odd"}',
        b'{"type": 3}',
        b'{"$ref": "#/$defs/A"}',
        b'{"anyOf": 3}',
        b'{"enum": 3}',
        b'{"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}',
        b'{"minimum": []}',
        b'{"anyOf": [{"$ref": "#/$defs/A"}], "discriminator": 3, "$defs": {"A": 7}}',
    ],
)
def test_schema_that_leads_nowhere_refuses_nothing(text):
    for value in (1, "x", [1], {"a": 1}, None):
        assert schema_problem(msgspec.Raw(text), value) is None


def test_check_of_a_hostile_schema_ends(monkeypatch):
    monkeypatch.setattr(signal_types, "MAX_CHECKS", 1000)
    both = {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]}}
    value: Any = 1
    for _ in range(40):
        value = [value]
    text = msgspec.json.encode({"$ref": "#/$defs/A", "$defs": {"A": both}})
    assert schema_problem(msgspec.Raw(text), value) is None


# --- which workers judge ----------------------------------------------------------------------------------------------

AT = Timestamp("2026-01-01T00:00:00.000000Z")


def worker(**declared):
    """A worker whose workflow `order` has these versions, each with the type of its signal `paid`, or None."""
    codes = {f"order {version.replace('_', '.')[1:]}": kind for version, kind in declared.items()}
    return WorkerInfo(
        worker_id="w",
        name="w",
        host="h",
        pid=1,
        version="0.1.0",
        started_at=AT,
        last_seen=AT,
        workflows=tuple(codes),
        signals={code: {"paid": schema(kind)} for code, kind in codes.items() if kind is not None},
    )


def found(*workers, data="1"):
    return {one.version for one in find_signal_mismatches(workers, "paid", data)}


def test_signal_is_refused_by_version_and_for_the_newest():
    assert found(worker(v1_0_0=str, v1_1_0=int)) == {"1.0.0"}
    assert found(worker(v1_0_0=int, v1_1_0=str)) == {"1.1.0", None}
    assert found(worker(v1_0_0=str, v1_1_0=None)) == {"1.0.0"}


def test_signal_is_refused_only_if_all_live_workers_refuse_it():
    refuses, takes, silent = worker(v1_0_0=str), worker(v1_0_0=int), worker(v1_0_0=None)
    assert found(refuses, refuses) == {"1.0.0", None}
    assert found(refuses, takes) == set()
    assert found(silent, refuses) == set()
    lost = msgspec.structs.replace(takes, state=WorkerState.LOST)
    assert found(refuses, lost) == {"1.0.0", None}
    assert found(msgspec.structs.replace(refuses, state=WorkerState.LOST)) == set()
    assert found(msgspec.structs.replace(refuses, namespace="shop")) == set()


def test_data_that_is_no_json_is_left_to_the_workflow():
    assert found(worker(v1_0_0=str), data="{") == set()
