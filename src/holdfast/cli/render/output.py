"""Records in the form that was asked for: `-o table|json|jsonl|ids`. stdout is data; an empty list is `[]`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click
import msgspec

from holdfast.cli.render.terminal import Screen, put, safe, screen

F = TypeVar("F", bound=Callable[..., Any])

#: JSON escapes what is below U+0020 by itself. These can steer a terminal too; they occur inside texts only.
_STEERING = re.compile("[\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
_WIDE = re.compile(r"[^\x00-\x7f]")

Record = dict[str, Any]


class Output(NamedTuple):
    """How a command writes its records."""

    form: str
    screen: Screen

    def records(self, records: Sequence[Record], table: Callable[[], list[str]], key: str = "job_id") -> None:
        """Write a list."""
        match self.form:
            case "json":
                put(encoded(records))
            case "jsonl":
                for record in records:
                    put(encoded(record))
            case "ids":
                for record in records:
                    # A program gets them as they are, to give them back.
                    put(safe(str(record[key])) if self.screen.is_terminal else str(record[key]))
            case _:
                for line in table():
                    put(line)

    def record(self, record: Record, table: Callable[[], list[str]], key: str = "job_id") -> None:
        """Write one record."""
        if self.form == "json":
            put(encoded(record))
        else:
            self.records([record], table, key)


def encoded(value: Any) -> str:
    """Write a value as one line of JSON that is safe to show."""
    text = _STEERING.sub(_escaped, msgspec.json.encode(value).decode())
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return text if is_utf8 else _WIDE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def output_options(*forms: str) -> Callable[[F], F]:
    """Give a command `-o` and `--color`; it receives them as `output`."""

    def add(command: F) -> F:
        form = click.option(
            "-o", "--output", "output", type=click.Choice(forms), default=forms[0], show_default=True, help="The form."
        )
        color = click.option(
            "--color",
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            help="When to use colour; auto heeds NO_COLOR, FORCE_COLOR and TERM=dumb.",
            expose_value=False,
            is_eager=True,
            callback=_keep_color,
        )
        return form(color(command))

    return add


def _keep_color(ctx: click.Context, param: click.Parameter, value: str) -> None:
    del param
    ctx.meta["holdfast.color"] = value


def output_for(form: str) -> Output:
    """Give how the running command writes."""
    return Output(form, screen(click.get_current_context().meta.get("holdfast.color", "auto")))


LIST_FORMS = ("table", "json", "jsonl", "ids")
