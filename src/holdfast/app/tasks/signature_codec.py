"""Typed payloads: a function's arguments and result as JSON, checked against its annotations.

Annotated values may be anything msgspec knows (dataclasses, structs, datetime, UUID, Decimal, bytes, enums, sets …) or
a pydantic model; they come back as what they were. Values without annotation must be plain JSON, because nothing says
what they should become again. Arguments are checked when they are enqueued, so that a wrong call fails at its caller.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import msgspec

from holdfast.errors import InvalidArguments, InvalidValue
from holdfast.json_decoders import reader_of
from holdfast.model.json_values import members_of, plain_of
from holdfast.model.payloads import MAX_DEPTH, cannot_be_encoded, pack, path_step, ref_in, refused_at

#: What is the same in JSON.
_SIMPLE = (str, int, float, bool, type(None))
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class SignatureCodec:
    """Packs and unpacks the calls of one function."""

    def __init__(self, function: Callable[..., Any], result: Any = None) -> None:
        """Read its annotations; `result` is what its jobs result in, if that is not what it returns."""
        self._name = getattr(function, "__qualname__", str(function))
        self._signature = inspect.signature(function)
        hints = _hints(function)
        self._types = {name: _type_of(parameter, hints) for name, parameter in self._signature.parameters.items()}
        self._result: Any = hints.get("return", Any) if result is None else result
        required = inspect.Parameter.empty
        fields: list[Any] = [
            (name, self._types[name])
            if parameter.default is required and parameter.kind not in _REST
            else (name, self._types[name] | msgspec.UnsetType, msgspec.UNSET)
            for name, parameter in self._signature.parameters.items()
        ]
        self._call = msgspec.defstruct("Call", fields, kw_only=True, forbid_unknown_fields=True)
        try:
            self._decoder = reader_of(self._call, _from_json)
            self._results = reader_of(self._result, _from_json)
        except TypeError as problem:
            raise InvalidValue(f"the annotations of {self._name} cannot be told apart in JSON: {problem}.") from None

    def pack(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> msgspec.Raw:
        """Bind a call to the signature and give its arguments as JSON.

        Raises InvalidArguments if they do not fit, InvalidValue or PayloadTooLarge if they cannot be kept.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as problem:
            raise InvalidArguments(f"{self._name}: {problem}. Nothing was stored.") from None
        plain = {name: _plain(value, self._types[name], name) for name, value in bound.arguments.items()}
        params = _content(pack(plain), "params")
        call = self._decode(params)
        for name, value in bound.arguments.items():
            if not _comes_back(value, getattr(call, name)):
                raise InvalidArguments(
                    f"{self._name}: {name}: a {type(value).__name__} would not come back as it was. "
                    "Nothing was stored.",
                    hint="Pass what the annotation says, or annotate what is passed.",
                )
        return params

    def pack_some(self, values: Mapping[str, Any]) -> msgspec.Raw:
        """Give some of the arguments as JSON; the others come from elsewhere. Raises InvalidArguments, InvalidValue."""
        plain: dict[str, Any] = {}
        for name, value in values.items():
            if name not in self._types:
                known = ", ".join(self._types) or "none"
                raise InvalidArguments(
                    f"{self._name}: there is no parameter {name!r}. Nothing was stored.", hint=f"There are: {known}."
                )
            plain[name] = _plain(value, self._types[name], name)
        return _content(pack(plain), "params")

    def check(self, params: msgspec.Raw) -> None:
        """Demand that the function can be called with these. Raises InvalidArguments."""
        self._decode(params)

    def unpack(self, params: msgspec.Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the arguments for the function. Raises InvalidArguments if they no longer fit it."""
        call = self._decode(params)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in self._signature.parameters.items():
            value = getattr(call, name)
            if value is msgspec.UNSET:
                continue
            match parameter.kind:
                case inspect.Parameter.POSITIONAL_ONLY:
                    args.append(value)
                case inspect.Parameter.VAR_POSITIONAL:
                    # What stands before it must be given by position, too.
                    args = [getattr(call, before) for before in self._before(name)] + list(value)
                    kwargs = {}
                case inspect.Parameter.VAR_KEYWORD:
                    kwargs.update(value)
                case _:
                    kwargs[name] = value
        return tuple(args), kwargs

    def _before(self, name: str) -> list[str]:
        names = list(self._signature.parameters)
        return names[: names.index(name)]

    def _decode(self, params: msgspec.Raw) -> Any:
        try:
            return self._decoder.decode(params)
        except (msgspec.ValidationError, ValueError, TypeError, NotImplementedError) as problem:
            raise InvalidArguments(f"{self._name}: {problem}. The handler was not called.") from None

    def pack_result(self, value: Any) -> msgspec.Raw:
        """Give a result as JSON. Raises InvalidValue if it cannot be kept."""
        plain = _plain(value, self._result, "result", after="")
        payload = _content(pack(plain, "result"), "result")
        if self._result is not Any:
            back = self.unpack_result(payload)
            if not _comes_back(value, back):
                path, changed = _changed(value, back)
                problem = refused_at("result", path, f"a {type(changed).__name__} would not come back as it was")
                problem.hint = "Return what the annotation says, or annotate what is returned."
                raise problem
        return payload

    def unpack_result(self, result: msgspec.Raw) -> Any:
        """Give a result as the function's annotation says. Raises InvalidValue if it does not fit."""
        if self._result is Any:
            return msgspec.json.decode(result)
        try:
            return self._results.decode(result)
        except (msgspec.ValidationError, ValueError, TypeError, NotImplementedError) as problem:
            raise InvalidValue(f"the result of {self._name} does not fit its annotation: {problem}.") from None


def _content(payload: msgspec.Raw, field: str) -> msgspec.Raw:
    """Refuse content that looks as the store's own references do: it would come back as something else."""
    if ref_in(payload) is not None:
        raise InvalidValue(f'{field}: exactly {{"$blob": …, "size": …}} is a reference, not content.', field=field)
    return payload


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        found = get_type_hints(function, include_extras=True)
    except (NameError, AttributeError, TypeError) as problem:
        raise InvalidValue(
            f"the annotations of {getattr(function, '__qualname__', function)} cannot be read: {problem}.",
            hint="Import the types where the task is defined, not under TYPE_CHECKING.",
        ) from None
    return {name: Any if hint is object else hint for name, hint in found.items()}


def _type_of(parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    hint = hints.get(parameter.name, Any)
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL:
            return list if hint is Any else list[hint]  # type: ignore[valid-type]  # made at run time
        case inspect.Parameter.VAR_KEYWORD:
            return dict if hint is Any else dict[str, hint]  # type: ignore[valid-type]  # made at run time
        case _:
            return hint


def _plain(value: Any, kind: Any, name: str, after: str = " Nothing was stored.") -> Any:
    """Turn an annotated value into plain JSON values; leave others alone, to be refused if they are not plain."""
    if type(value) in _SIMPLE:
        return value
    if kind in (Any, dict):
        return value
    try:
        return list(value) if kind is list else _listed(plain_of(value, _to_json, str_keys=True))
    except (TypeError, ValueError, NotImplementedError, RecursionError) as problem:
        path, why = _unencodable(value, problem)
        raise refused_at(name, path, str(why), after) from None


def _unencodable(value: Any, problem: Exception, depth: int = 0) -> tuple[str, Exception]:
    """Give the path to what has no form in JSON inside an annotated value, and what its encoding raised. Slow."""
    if depth < MAX_DEPTH:
        for step, inner in members_of(value):
            try:
                plain_of(inner, _to_json, str_keys=True)
            except Exception as found:  # noqa: BLE001 - the user's own code, as above
                path, problem = _unencodable(inner, found, depth + 1)
                return path_step(step) + path, problem
    return "", problem


def _changed(given: Any, back: Any, depth: int = 0) -> tuple[str, Any]:
    """Give the path to what came back as something else, and the value there. Slow."""
    if depth < MAX_DEPTH:
        after = dict(members_of(back))
        for step, inner in members_of(given):
            if step in after and not _comes_back(inner, after[step]):
                path, found = _changed(inner, after[step], depth + 1)
                return path_step(step) + path, found
    return "", given


def _comes_back(given: Any, back: Any) -> bool:
    """Tell whether a value survived: nothing of it dropped, as of a subclass, and no text made of bytes or a time."""
    if type(given) in _SIMPLE:
        return type(given) is type(back) or _same_leaves(given, back)
    try:
        return _same_leaves(given, back) and bool(_fixed(given) == _fixed(back))
    except NotImplementedError:  # it only looked like a list, as an iterator does
        return False


def _same_leaves(given: Any, back: Any) -> bool:
    if isinstance(given, Mapping) and isinstance(back, Mapping):
        return all(map(_same_leaves, given.values(), back.values()))
    if isinstance(given, list | tuple) and isinstance(back, list | tuple):
        return all(map(_same_leaves, given, back))
    return isinstance(given, str) == isinstance(back, str) or isinstance(back, enum.Enum)


def _fixed(value: Any) -> Any:
    """Give a value's plain form, with sets in order."""
    return _listed(msgspec.to_builtins(value, enc_hook=_to_json, str_keys=True, order="deterministic"))


def _listed(value: Any) -> Any:
    """Write tuples as the lists they are in JSON; the annotation makes tuples of them again."""
    if isinstance(value, dict):
        return {name: _listed(inner) for name, inner in value.items()}
    return [_listed(inner) for inner in value] if isinstance(value, list | tuple) else value


def _to_json(value: Any) -> Any:
    """Encode what msgspec does not know: pydantic models, by their own rules."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(cannot_be_encoded(value))
    # Under the names and in the forms that it takes itself when it is made from JSON.
    plain = dump(mode="json", by_alias=True, round_trip=True)
    # Secrets are dumped as stars, for one.
    if _from_json(type(value), plain).model_dump() != dump():
        raise ValueError(f"a {type(value).__name__} would not come back from JSON as it was")
    return plain


def _from_json(kind: type, value: Any) -> Any:
    """Decode what msgspec does not know: pydantic models, by their own rules for JSON."""
    validate = getattr(kind, "model_validate_json", None)
    if validate is None:
        raise NotImplementedError(f"a {kind.__name__} cannot be made from JSON")
    try:
        return validate(msgspec.json.encode(value))
    except ValueError as problem:
        # Its own text repeats the values, which belong into no log.
        faults = problem.errors(include_input=False, include_url=False) if hasattr(problem, "errors") else ()
        said = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)
        raise ValueError(f"{kind.__name__}: {said or problem}") from None
