"""An answer to a question of a workflow, as one command."""

from __future__ import annotations

from holdfast.app.workflows.decisions import answer_command
from holdfast.cli.param_types import new_id
from holdfast.cli.render.terminal import safe
from holdfast.cli.store_access.mutations import actor, send
from holdfast.cli.store_access.target import target
from holdfast.errors import AmbiguousId, DecisionNotFound
from holdfast.model.workflows.decisions import Decision
from holdfast.stores.protocol import View


def find(view: View, word: str) -> Decision:
    """Find a question by its id, or an unambiguous beginning. Raises DecisionNotFound or AmbiguousId."""
    found = [one for one in view.all(Decision) if word and one.decision_id.startswith(word)]
    if len(found) > 1:
        ids = sorted(one.decision_id for one in found)
        message = f"{word} begins more than one id: {', '.join(ids[:10])}. Nothing was changed."
        raise AmbiguousId(message, hint="Give more of it.", candidates=ids[:10])
    if not found:
        message = f"there is no decision {word}. Nothing was changed."
        raise DecisionNotFound(message, hint="See `holdfast decisions ls`.", decision=word)
    return found[0]


def answer(word: str, chosen: str | None, message: str | None, *, dry_run: bool = False) -> None:
    """Answer the question of that id. Raises what refuses it."""
    with target().look() as view:
        record = find(view, word)
    command = answer_command(record, chosen, message, by=actor(), cmd=new_id())
    send(command, f"decision {safe(record.decision_id)} is answered", dry_run=dry_run)
