"""Errors as people and programs meet them: one sentence, or with `-o json` one object, on stderr; and the exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

import holdfast
from holdfast.cli.render.terminal import safe, say
from holdfast.errors import HoldfastError

#: Still going when the time was up; the store cannot be reached; a bug of ours; interrupted.
TIMED_OUT, UNREACHABLE, BUG, INTERRUPTED = 5, 7, 70, 130


def wants_json(args: Sequence[str]) -> bool:
    """Tell whether a command line asks for JSON. Looked at as written, for a line that could not be parsed."""
    for at, arg in enumerate(args):
        value = args[at + 1] if at + 1 < len(args) and arg in ("-o", "--output") else ""
        if value in ("json", "jsonl") or arg in ("-ojson", "-ojsonl", "--output=json", "--output=jsonl"):
            return True
    return False


def tell(error: BaseException, args: Sequence[str]) -> int:
    """Say what happened; give the exit code."""
    match error:
        case HoldfastError():
            _tell(args, error.code, error.message, error.hint, error.facts)
            return error.exit_code
        case click.UsageError() if wants_json(args):
            _tell(args, "usage_error", error.format_message(), "", {})
            return error.exit_code
        case click.ClickException():
            error.show()
            return error.exit_code
        case TimeoutError():
            _tell(args, "timeout", str(error), "", {})
            return TIMED_OUT
        case KeyboardInterrupt() | click.Abort():
            say("holdfast: interrupted")
            return INTERRUPTED
        case BrokenPipeError():
            # The reader of our output has left; there is nobody to tell.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        case OSError():
            _tell(args, "os_error", f"{error}.", "Check the path and who may use it.", {})
            return UNREACHABLE
        case _:
            trace = "".join(traceback.format_exception(error))
            hint = "Please report it with the lines above."
            facts: dict[str, object] = {"version": holdfast.__version__, "traceback": trace}
            if not wants_json(args):
                say("\n".join(safe(line) for line in trace.splitlines()))
            _tell(args, "bug", f"this is a bug of Holdfast {holdfast.__version__}: {error!r}", hint, facts)
            return BUG


def _tell(args: Sequence[str], code: str, message: str, hint: str, facts: dict[str, object]) -> None:
    if wants_json(args):
        from holdfast.cli.render.output import encoded  # noqa: PLC0415 - `--help` starts without msgspec

        known = {name: fact if isinstance(fact, int | float | list) else str(fact) for name, fact in facts.items()}
        say(encoded({**known, "code": code, "message": message, "hint": hint}))
    else:
        say(f"holdfast: {safe(f'{message} {hint}'.rstrip())}")
