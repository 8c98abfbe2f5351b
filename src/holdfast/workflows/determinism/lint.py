"""A small linter of workflow functions: clocks, randomness, I/O and iteration over sets, by the text of the function.

It sees names, not types, and one function at a time: what it does not find may still be there. Its findings are notes.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

_CLOCKS = {"time.time", "time.time_ns", "time.monotonic", "time.perf_counter", "datetime.now", "datetime.utcnow"}
_CLOCKS |= {"datetime.datetime.now", "datetime.datetime.utcnow", "date.today", "datetime.date.today", "time.localtime"}
_CHANCE_ROOTS = {"random", "secrets"}
_CHANCE = {"uuid.uuid1", "uuid.uuid4", "uuid4", "os.urandom"}
_IO_ROOTS = {"requests", "httpx", "httpx2", "socket", "subprocess", "urllib", "shutil", "aiohttp"}
_IO = {"open", "print", "input", "time.sleep", "os.system", "os.remove", "os.rename", "os.environ.get", "os.getenv"}


def lint(function: Callable[..., Any]) -> list[str]:
    """Give what a function does that no replay repeats, with file and line; nothing for one without source."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
        first = function.__code__.co_firstlineno
        file = inspect.getsourcefile(function) or "?"
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError, AttributeError):
        return []
    return [f"{file}:{first + line - 1}: {text}" for line, text in sorted(set(_found(tree)))]


def _found(tree: ast.AST) -> Iterator[tuple[int, str]]:
    steps = {id(arg) for call in ast.walk(tree) if _is_step(call) for arg in ast.walk(call) if arg is not call}
    for node in ast.walk(tree):
        if id(node) in steps:  # inside hf.step(…) anything may be done
            continue
        if isinstance(node, ast.Call):
            text = _about_call(_dotted(node.func))
            if text is not None:
                yield node.lineno, text
            if _dotted(node.func) in {"list", "tuple", "enumerate"} and node.args and _is_set(node.args[0]):
                yield node.lineno, _SETS
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) and _is_set(node.iter):
            yield node.iter.lineno, _SETS


_SETS = "iterates over a set, whose order differs between processes: use sorted(…)"


def _is_step(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    inner = node.func.func if isinstance(node.func, ast.Call) else node.func  # hf.step.options(…)(fn)
    name = _dotted(inner)
    return name.endswith((".step", ".step.options")) or name == "step"


def _about_call(name: str) -> str | None:
    root = name.partition(".")[0]
    if name in _CLOCKS:
        return f"{name}() reads a clock: use hf.now()"
    if name in _CHANCE or (root in _CHANCE_ROOTS and "." in name):
        return f"{name}() draws what no replay repeats: use hf.uuid(), hf.random() or hf.rng()"
    if name in _IO or (root in _IO_ROOTS and "." in name):
        return f"{name}() reaches outside: use hf.step, or a task"
    return None


def _is_set(node: ast.AST) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    return isinstance(node, ast.Call) and _dotted(node.func) in {"set", "frozenset"}


def _dotted(node: ast.AST) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            inner = _dotted(node.value)
            return f"{inner}.{node.attr}" if inner else ""
        case _:
            return ""
