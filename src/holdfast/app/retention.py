"""How long a store keeps what has ended, as its people say it: checked before anything is opened."""

from __future__ import annotations

from holdfast.errors import InvalidValue
from holdfast.model.commands import Prune, Retention
from holdfast.model.type_check import misfit
from holdfast.rules.validation import problem_with


def checked(retention: Retention) -> Retention:
    """Give it, if it is one. Raises InvalidValue: a worker would find out only when it first looks for what is old."""
    sweep = Prune(retention=retention)
    field = misfit(sweep)
    if field is not None:
        raise InvalidValue(f"retention: {field} is not of the type this field takes.", field=field)
    refusal = problem_with(sweep)
    if refusal is not None:
        raise refusal.error()
    return retention
