"""A view of a coordinator's state: every look-up is a request of its own.

Each alone is consistent; two of them may see different states. `seq` is therefore the number of the oldest state any of
them saw: whoever looks, then waits for events above it, misses none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.stores.http.lookups import LOOK_UPS, LookUp
from holdfast.stores.http.wire import Look, Seen

#: Sends one look-up and gives what was seen.
Ask = Callable[[Look], Seen]


class HttpView:
    """The look-ups of `View`, made from its protocol."""

    def __init__(self, ask: Ask, newest: Callable[[], int]) -> None:
        """Look by `ask`; `newest` gives the number of the last event."""
        self._ask = ask
        self._newest = newest
        self._seq: int | None = None

    @property
    def seq(self) -> int:
        """Number of the last event of the oldest state that was seen."""
        if self._seq is None:
            self._seq = self._newest()
        return self._seq

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Give a look-up."""
        found = LOOK_UPS.get(name)
        if found is None:
            raise AttributeError(name)
        return lambda *args, **kwargs: self._look(found, args, kwargs)

    def _look(self, what: LookUp, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        look = Look(look=what.name, given=what.ask(args, kwargs))
        return self._walk(what, look) if what.is_walk else what.read(self._see(look).found)

    def _walk(self, what: LookUp, look: Look) -> Iterator[Any]:
        more = True
        skip = 0
        while more:
            seen = self._see(Look(look=look.look, given=look.given, skip=skip))
            page = what.read(seen.found)
            yield from page
            skip, more = skip + len(page), seen.more

    def _see(self, look: Look) -> Seen:
        seen = self._ask(look)
        if self._seq is None or seen.seq < self._seq:
            self._seq = seen.seq
        return seen
