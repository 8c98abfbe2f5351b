"""Signals whose data has the wrong type: judged by the JSON schemas that live workers publish, before anything is sent.

A schema is what msgspec makes of a type. Only what is certain is refused: keywords that are not known here, a schema
that cannot be followed and a value that is too large to check count as fitting. The workflow decodes the data itself
and sets aside what it cannot use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import InvalidValue
from holdfast.model.outcomes import Refusal, refuse
from holdfast.model.payloads import path_step
from holdfast.model.workers import WorkerInfo, WorkerState
from holdfast.model.workflows.commands import SignalMismatch

#: Values inside a value that are compared with a schema; also bounds what a hostile schema may cost.
MAX_CHECKS = 100_000
#: Characters kept of what is wrong with the data.
MAX_PROBLEM = 1000

#: Schema type → what msgspec calls it, and the Python classes of such a value. A bool is no int here.
_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "null": ("null", (type(None),)),
    "boolean": ("bool", (bool,)),
    "integer": ("int", (int,)),
    "number": ("float", (int, float)),
    "string": ("str", (str,)),
    "array": ("array", (list,)),
    "object": ("object", (dict,)),
}
_NAMES = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str", list: "array", dict: "object"}
#: Keyword → how a value, or its length, must compare with the bound, and how that is told.
_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (lambda value, bound: value >= bound, "value >= {}"),
    "maximum": (lambda value, bound: value <= bound, "value <= {}"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "value > {}"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "value < {}"),
    "minLength": (lambda value, bound: len(value) >= bound, "length >= {}"),
    "maxLength": (lambda value, bound: len(value) <= bound, "length <= {}"),
    "minItems": (lambda value, bound: len(value) >= bound, "length >= {}"),
    "maxItems": (lambda value, bound: len(value) <= bound, "length <= {}"),
    "minProperties": (lambda value, bound: len(value) >= bound, "length >= {}"),
    "maxProperties": (lambda value, bound: len(value) <= bound, "length <= {}"),
}


# --- who refuses a signal ---------------------------------------------------------------------------------------------


def find_signal_mismatches(workers: Iterable[WorkerInfo], name: str, data: str) -> tuple[SignalMismatch, ...]:
    """Name the workflows whose live workers all refuse these data for the signal `name`.

    With `version=None` for an instance that no version has begun yet: each worker would begin it with its newest.
    """
    # Workflows belong to no namespace: a worker of one runs none, and does not judge them.
    live = [one for one in workers if one.state is not WorkerState.LOST and not one.namespace]
    if not any(name in signals for one in live for signals in one.signals.values()):
        return ()
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return ()
    verdicts: dict[tuple[str, str | None], list[str | None]] = {}
    for worker in live:
        for key, problem in _verdicts(worker, name, value).items():
            verdicts.setdefault(key, []).append(problem)
    return tuple(
        SignalMismatch(workflow=workflow, version=version, signal=name, problem=problems[0][:MAX_PROBLEM])
        for (workflow, version), problems in verdicts.items()
        if problems[0] is not None and None not in problems
    )


def _verdicts(worker: WorkerInfo, name: str, value: Any) -> dict[tuple[str, str | None], str | None]:
    """Give what is wrong with a value for each workflow of a worker; None where it fits or no type is declared."""
    found: dict[tuple[str, str | None], str | None] = {}
    for code in worker.workflows:  # oldest version first: the newest stays
        workflow, _, version = code.rpartition(" ")
        schema = worker.signals.get(code, {}).get(name)
        found[workflow, version] = found[workflow, None] = None if schema is None else schema_problem(schema, value)
    return found


def refused(mismatch: SignalMismatch, instance_id: str, undone: str = "Nothing was sent.") -> Refusal:
    """Build the refusal of a signal."""
    return refuse(
        InvalidValue,
        f"signal {mismatch.signal!r} to instance {instance_id!r}: workflow {mismatch.workflow!r} does not take this: "
        f"{mismatch.problem}. {undone}",
        hint="Send data of the type that the workflow declares for this signal.",
        field="data",
        instance=instance_id,
        signal=mismatch.signal,
        workflow=mismatch.workflow,
    )


# --- a value and a schema ---------------------------------------------------------------------------------------------


def schema_problem(schema: msgspec.Raw, value: Any) -> str | None:
    """Say where a decoded JSON value differs from a JSON schema, as msgspec would; None if it fits, as far as known."""
    try:
        read = msgspec.json.decode(schema)
        problem = _Check(read.get("$defs", {})).problem(read, value, "$")
    # A worker's own words: a schema that leads nowhere, or round in circles, refuses nothing.
    except (msgspec.DecodeError, RecursionError, AttributeError, KeyError, TypeError, ValueError):
        return None
    return None if problem is None else problem.text


class _Problem(NamedTuple):
    """Where a value differs from a schema."""

    path: str
    what: str
    #: The type that was expected, where the type is what differs.
    expected: str = ""

    @property
    def text(self) -> str:
        return self.what if self.path == "$" else f"{self.what} - at `{self.path}`"


class _Check:
    """Compares one value with one schema."""

    def __init__(self, defs: Mapping[str, Any]) -> None:
        self._defs = defs
        self._left = MAX_CHECKS

    def problem(self, schema: Mapping[str, Any], value: Any, path: str) -> _Problem | None:
        """Give the first problem, or None."""
        self._left -= 1
        if self._left < 0:
            raise RecursionError
        if "$ref" in schema:
            return self.problem(self._defs[schema["$ref"].removeprefix("#/$defs/")], value, path)
        if "anyOf" in schema:
            return self._of_union(schema, value, path)
        if "enum" in schema:
            known = schema["enum"]
            return None if value in known else _Problem(path, f"Expected one of {known!r:.200}")
        return self._of_type(schema, value, path) or self._of_bounds(schema, value, path)

    def _of_union(self, schema: Mapping[str, Any], value: Any, path: str) -> _Problem | None:
        told_by = schema.get("discriminator")
        if told_by is not None and isinstance(value, dict):
            ref = told_by["mapping"].get(value.get(told_by["propertyName"]))
            if ref is not None:
                return self.problem({"$ref": ref}, value, path)
        problems: list[_Problem] = []
        for one in schema["anyOf"]:
            problem = self.problem(one, value, path)
            if problem is None:
                return None
            problems.append(problem)
        deepest = max(problems, key=lambda one: len(one.path))
        if deepest.path != path or not all(one.expected for one in problems):
            return deepest
        return _unexpected(" | ".join(one.expected for one in problems), value, path)

    def _of_type(self, schema: Mapping[str, Any], value: Any, path: str) -> _Problem | None:
        kind = schema.get("type")
        if kind is None:
            return None
        expected, classes = _KINDS[kind]
        if type(value) not in classes:
            # A Decimal is text by its schema; msgspec reads it from numbers, too.
            if schema.get("format") == "decimal" and type(value) in (int, float):
                return None
            return _unexpected(expected, value, path)
        if kind == "object":
            return self._of_object(schema, value, path)
        return self._of_array(schema, value, path) if kind == "array" else None

    def _of_object(self, schema: Mapping[str, Any], value: dict[str, Any], path: str) -> _Problem | None:
        known = schema.get("properties", {})
        for name in schema.get("required", ()):
            # A tag may be left out where there is but one struct to choose.
            if name not in value and len(known.get(name, {}).get("enum", ())) != 1:
                return _Problem(path, f"Object missing required field `{name}`")
        others = schema.get("additionalProperties", True)
        for name, inner in value.items():
            of = known.get(name, others)
            if of is False:
                return _Problem(path, f"Object contains unknown field `{name:.80}`")
            if of is not True and (problem := self.problem(of, inner, path + path_step(name))) is not None:
                return problem
        return None

    def _of_array(self, schema: Mapping[str, Any], value: list[Any], path: str) -> _Problem | None:
        first, others = schema.get("prefixItems", ()), schema.get("items", True)
        for index, inner in enumerate(value):
            of = first[index] if index < len(first) else others
            # How many there may be is said by `maxItems`.
            if not isinstance(of, bool) and (problem := self.problem(of, inner, f"{path}[{index}]")) is not None:
                return problem
        return None

    def _of_bounds(self, schema: Mapping[str, Any], value: Any, path: str) -> _Problem | None:
        if "contentEncoding" in schema:  # the bounds are those of the text, with its padding
            return None
        for keyword, bound in schema.items():
            if keyword in _BOUNDS:
                fits, told = _BOUNDS[keyword]
                if not fits(value, bound):
                    return _Problem(path, f"Expected {told.format(bound)}")
        return None


def _unexpected(expected: str, value: Any, path: str) -> _Problem:
    return _Problem(path, f"Expected `{expected}`, got `{_NAMES[type(value)]}`", expected)
