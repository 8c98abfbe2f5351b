"""`holdfast decisions review`: the open questions, one after the other, to a person at a terminal.

Each is asked for again before it is shown: others may answer meanwhile. Nothing is sent but what the person says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from holdfast.app.workflows.decisions import DecisionState, state_of
from holdfast.app.workflows.state import state_of as instance_state
from holdfast.cli.commands.decision_answer import answer
from holdfast.cli.render import workflow_rows
from holdfast.cli.render.output import output_for
from holdfast.cli.render.terminal import put, safe, say
from holdfast.cli.store_access.target import Target, target
from holdfast.errors import DecisionClosed, UsageError, WorkflowNotFound
from holdfast.model.workflows.decisions import Decision

#: What is typed instead of an answer; with a colon also where it is one of the options.
SKIP, QUIT = "s", "q"


def review(instance: str | None) -> None:
    """Go through what is open, oldest first. Raises UsageError where nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "review asks a person, and there is no terminal here. Nothing was changed.",
            hint="Use `holdfast decisions ls` and `holdfast decisions resolve ID`.",
        )
    place = target()
    answered = skipped = 0
    for question in _open(place, instance):
        _show(place, question)
        chosen = _choice(question)
        if chosen is None:
            break
        if not chosen:
            skipped += 1
            continue
        comment = _typed("Comment, if any") or ""
        try:
            answer(question.id, *_parts(question, chosen, comment))
        except DecisionClosed as problem:
            say(safe(problem.message))
            continue
        answered += 1
    say(f"{answered} answered, {skipped} skipped")


def _open(place: Target, instance: str | None) -> Iterator[DecisionState]:
    with place.look() as view:
        having = list(view.all(Decision) if instance is None else view.decisions(instance))
    waiting = sorted((one for one in map(state_of, having) if one.is_open), key=lambda one: (one.created_at, one.id))
    for question in waiting:
        with place.look() as view:
            found = view.get(Decision, question.id)
        if found is not None and state_of(found).is_open:
            yield question


def _show(place: Target, question: DecisionState) -> None:
    """Show a question, and how the instance is that asks it."""
    screen = output_for("table").screen
    put("\n".join(["", *workflow_rows.decision_page(question, screen)]))
    with place.reading() as reader, reader.look() as view:
        try:
            asking = instance_state(view, reader.store.blobs, question.instance)
        except WorkflowNotFound:
            return
    said = "" if asking.custom_status is None else f", says {asking.custom_status}"
    put(f"  {'workflow':<8}  {safe(f'{asking.workflow} {asking.version or str()}{said}')}")
    for number, label in enumerate(question.options or (), 1):
        put(f"  {number:>8}  {safe(label)}")


def _choice(question: DecisionState) -> str | None:
    """Give the answer; an empty one skips, None quits."""
    labels = question.options or ()
    ask = f"Answer: 1-{len(labels)}, a label" if labels else "Answer, any text"
    while True:
        typed = _typed(f"{ask}; {SKIP if labels else f':{SKIP}'} skips, {QUIT if labels else f':{QUIT}'} quits")
        if typed is None or typed == f":{QUIT}" or (labels and typed == QUIT and QUIT not in labels):
            return None
        if typed in ("", f":{SKIP}") or (labels and typed == SKIP and SKIP not in labels):
            return ""
        if not labels or typed in labels:
            return typed
        if typed.isascii() and typed.isdigit() and 1 <= int(typed) <= len(labels):
            return labels[int(typed) - 1]
        say(f"{safe(typed)} is none of them.")


def _parts(question: DecisionState, chosen: str, comment: str) -> tuple[str | None, str | None]:
    """Give the choice and the words beside it; of a question without options the words are the answer."""
    if question.options is not None:
        return chosen, comment or None
    return None, f"{chosen}\n{comment}" if comment else chosen


def _typed(prompt: str) -> str | None:
    """Read a line; None at the end of what is typed."""
    try:
        text: str = click.prompt(prompt, default="", show_default=False, prompt_suffix=": ", err=True)
    except click.Abort:
        return None
    return text.strip()
