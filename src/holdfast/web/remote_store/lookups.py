"""Look-ups of the store's state, for `http:` stores."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import Forbidden
from holdfast.model.records import TABLES
from holdfast.rules.access.roles import what_it_takes
from holdfast.rules.access.visibility import Sight, shown, sight_of
from holdfast.rules.state import Lane
from holdfast.stores.http.lookups import look_up
from holdfast.stores.http.wire import LONGEST_WAIT_S, Changes, Facing, Look, Seen
from holdfast.version import __version__
from holdfast.web.bodies import answer, asks, decoded, seconds, whole
from holdfast.web.coordinator.coordinator import coordinator_of
from holdfast.web.field_validation import demand_fields
from holdfast.web.middleware.auth import access_of


@asks()
async def post_look(request: Request) -> Response:
    """Do one look-up."""
    look = await decoded(request, Look)
    coordinator, access = coordinator_of(request), access_of(request)
    what = look_up(look.look)
    given = what.given(look)
    demand_fields(bytes(look.given), what.arguments)
    if sight_of(access, what.name, given) is Sight.NOTHING:
        raise Forbidden(
            f"{access.name} may not look up {_words(what.name, given)} there.", hint=what_it_takes(access, None)
        )

    def see() -> Seen:
        with coordinator.engine.read() as view:
            found = shown(access, what.name, given, view, partial(what.find, view))
            return what.seen(view, found, look.skip)

    return answer(await coordinator.in_thread(see))


def _words(look: str, given: Mapping[str, Any]) -> str:
    """Say what a look-up is about: its own name is for programs where it says nothing of that."""
    if isinstance(kind := given.get("kind"), type):
        return next(name for name, one in TABLES.items() if one is kind)
    if isinstance(lane := given.get("lane"), Lane):
        return f"what is due ({lane.value})"
    return look


@asks("after", "wait")
async def get_changes(request: Request) -> Response:
    """Wait for an event above `after`; say up to where events go."""
    after, wait_s = whole(request, "after", 0, 2**62), seconds(request, "wait", LONGEST_WAIT_S)
    coordinator = coordinator_of(request)
    if wait_s:
        return answer(Changes(await coordinator.bell.wait(after, wait_s)))

    def newest() -> int:
        if not coordinator.engine.store.wait(after, 0):
            return after
        with coordinator.engine.read() as view:
            return view.seq

    return answer(Changes(await coordinator.in_thread(newest)))


@asks()
async def get_facing(request: Request) -> Response:
    """Say who answers, and what its acknowledgements survive."""
    engine = coordinator_of(request).engine
    durability = engine.store.promises.durability
    seq = coordinator_of(request).bell.seq
    return answer(Facing(version=__version__, durability=durability, seq=seq, now=engine.look().now))
