"""What is said of a feed whose first events are forgotten, alike on all stores."""

from __future__ import annotations

from holdfast.errors import InvalidValue


def forgotten(last: int, why: str = "have been forgotten") -> InvalidValue:
    """Refuse to give events of which some are gone, up to number `last`; say where to begin."""
    return InvalidValue(
        f"after: events up to {last} {why}.",
        hint=f"after={last} begins with the first event that is kept.",
        field="after",
        trimmed=last,
    )
