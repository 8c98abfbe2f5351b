"""Plain values: as msgspec makes them, but for sets, which have one order in every process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest

from holdfast.model.json_values import plain_of

LETTERS = frozenset("qwertzuiop")
ORDERED = sorted(LETTERS)


class Tagged(msgspec.Struct, frozen=True, tag=True, rename="camel"):
    some_letters: frozenset[str] = LETTERS
    n: int = 1


class Row(msgspec.Struct, frozen=True, array_like=True):
    n: int
    letters: frozenset[str] = LETTERS


class TaggedRow(Row, frozen=True, tag="r"):
    pass


class Pair(NamedTuple):
    letters: frozenset[str]
    n: int


@dataclass(frozen=True)
class Data:
    letters: frozenset[str]
    inner: Any = None


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (set(LETTERS), ORDERED),
        ({"b": LETTERS, "a": 1}, {"b": ORDERED, "a": 1}),
        ([LETTERS, (LETTERS, 1)], [ORDERED, (ORDERED, 1)]),
        ({3, 1, 20}, [1, 20, 3]),
        (Tagged(), {"type": "Tagged", "someLetters": ORDERED, "n": 1}),
        (Row(1), [1, ORDERED]),
        (TaggedRow(1), ["r", 1, ORDERED]),
        (Pair(LETTERS, 1), (ORDERED, 1)),
        (Data(LETTERS, [{"x": LETTERS}]), {"letters": ORDERED, "inner": [{"x": ORDERED}]}),
        ({frozenset("ba"), frozenset("ca")}, [["a", "b"], ["a", "c"]]),
        ({Data(frozenset("ba")), Data(frozenset("a"))}, None),
        (["b", "a", {"y": 1, "x": 2}], ["b", "a", {"y": 1, "x": 2}]),
        ("text", "text"),
    ],
)
def test_sets_stand_in_one_order_and_all_else_as_it_is(value, plain):
    found = plain_of(value)
    if plain is None:
        plain = [{"letters": ["a", "b"], "inner": None}, {"letters": ["a"], "inner": None}]
    assert found == plain
    assert json.dumps(found) == json.dumps(plain), "dicts keep their order"


def test_it_is_the_order_of_every_process():
    program = (
        "import json; from holdfast.model.json_values import plain_of; print(json.dumps(plain_of({'a': set('qwert')})))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert told == {'{"a": ["e", "q", "r", "t", "w"]}\n'}


def test_what_a_hook_makes_is_left_as_it_made_it():
    assert plain_of({"a": object()}, lambda _value: ["b", "a"]) == {"a": ["b", "a"]}
