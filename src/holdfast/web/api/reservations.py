"""`/reservations` and `/direct`: a queue held by a caller, and a job that it runs there alone, itself.

A wait lasts at most half a minute; then the caller asks again. Nobody holds a place in between: the first commit wins.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from holdfast.engine.views.reservations import ReservationRow, active, direct_job, newest, reservation_row
from holdfast.errors import ReservationConflict, ReservationTimeout, ShuttingDown
from holdfast.failpoints import reach
from holdfast.model.commands import Command, ReleaseReservation, RenewReservation, Reserve, StartDirect
from holdfast.model.ids import RunId, Token
from holdfast.model.jobs import Job
from holdfast.model.outcomes import Leased, Outcome, Reserved
from holdfast.model.reservations import Reservation, ReservationStatus
from holdfast.model.times import Timestamp
from holdfast.stores.http.wire import LONGEST_WAIT_S
from holdfast.stores.protocol import View
from holdfast.web.api.bodies import Empty
from holdfast.web.api.endpoint import Ask, Endpoint, told
from holdfast.web.api.jobs import JobBody, new_job
from holdfast.web.api.lookup import id_within
from holdfast.web.api.paging import Page, PageQuery, Query, sliced
from holdfast.web.middleware.disconnect import while_there

#: Seconds between two tries when nothing happens: reservations end by time alone.
NAP_S = 1.0
#: Seconds between two tries at least.
REST_S = 0.05

Wait = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT_S)]


class ReservationsQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Those that have not ended, or all; newest first."""

    all: bool = False


class ReserveBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queue, by whom, for how long, and how long to wait for it."""

    queue: str
    reservation_id: str | None = None
    #: In words for people; by default the name of the access token.
    reserved_by: str | None = None
    ttl_s: float = 60.0
    wait_s: Wait = 0.0


class RenewBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For how long from now on."""

    ttl_s: float = 60.0


class DirectBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The job to be run by the caller, alone on the queue that it holds; and how long to wait for what runs there."""

    reservation_id: str
    job: JobBody  # type: ignore[valid-type]  # made of the model's
    worker_id: str
    wait_s: Wait = 0.0


class Held(msgspec.Struct, frozen=True):
    """How a reservation stands, and the seconds it has left."""

    reservation_id: str
    status: ReservationStatus
    expires_at: Timestamp
    left_s: float


class Granted(msgspec.Struct, frozen=True):
    """The right to run one job: to be extended and reported as any other lease. None if that job has ended before."""

    job: Job | None
    run_id: RunId | None
    token: Token | None
    lease_s: float | None


async def list_reservations(ask: Ask[ReservationsQuery, None]) -> Response:
    """List reservations, newest first."""
    ask.demand_list(namespace=ask.namespace)
    start = ask.place(tuple[Timestamp, str])

    def rows(view: View) -> Any:
        listed = newest(view) if ask.query.all else list(active(view))
        mine = [one for one in listed if one.namespace == ask.namespace]
        kept, at = sliced(
            mine, lambda one: (one.reserved_at, one.reservation_id), start, ask.query.limit, newest_first=True
        )
        now = ask.now
        return [reservation_row(one, direct_job(view, one), now) for one in kept], at

    return await ask.page(rows)


async def reserve(ask: Ask[Query, ReserveBody]) -> Response:
    """Hold a queue."""
    body = ask.body
    command = Reserve(
        reservation_id=ask.id_of(body.reservation_id, "reservation"),
        queue=body.queue,
        reserved_by=body.reserved_by or ask.access.name or "somebody of this machine",
        ttl_s=body.ttl_s,
        namespace=ask.namespace,
        cmd=ask.cmd,
    )
    return _held(await while_there(ask.request, _patiently(ask, command, body.wait_s)), 201)


async def renew(ask: Ask[Query, RenewBody]) -> Response:
    """Hold a queue for longer."""
    command = RenewReservation(reservation_id=await _id(ask), ttl_s=ask.body.ttl_s, cmd=ask.cmd)
    return _held(await ask.order(command))


async def release(ask: Ask[Query, Empty]) -> Response:
    """Give a queue back."""
    return _held(await ask.order(ReleaseReservation(reservation_id=await _id(ask), cmd=ask.cmd)))


async def _id(ask: Ask[Any, Any]) -> str:
    return await id_within(ask, Reservation, ask.path["reservation_id"])


async def start_direct(ask: Ask[Query, DirectBody]) -> Response:
    """Create a job and lease it to the caller, who holds its queue and runs it."""
    body = ask.body
    command = StartDirect(
        reservation_id=body.reservation_id, job=new_job(ask, body.job), worker_id=body.worker_id, cmd=ask.cmd
    )
    outcome = await while_there(ask.request, _patiently(ask, command, body.wait_s))
    assert isinstance(outcome, Leased)
    if not outcome.grants:
        return told(Granted(None, None, None, None))
    (one,) = outcome.grants
    return told(Granted(one.job, one.run_id, one.token, one.lease_s), 201)


async def _patiently(ask: Ask[Any, Any], command: Command, wait_s: float) -> Outcome:
    """Try, and try again whenever something happened, until it is granted or the time is over.

    Raises ReservationConflict at once if nobody is to wait, ReservationTimeout after the wait, ShuttingDown when the
    coordinator stops before.
    """
    loop, bell = asyncio.get_running_loop(), ask.coordinator.bell
    deadline = loop.time() + wait_s
    while True:
        seen = bell.seq
        try:
            return await ask.order(command)
        except ReservationConflict as conflict:
            left = deadline - loop.time()
            if not wait_s:
                raise
            if bell.is_closed:  # it may be free by the time somebody serves again
                raise ShuttingDown(
                    f"the coordinator stops. {conflict.message}", hint="Send the same again.", **conflict.facts
                ) from conflict
            if left <= 0:
                raise ReservationTimeout(
                    f"{conflict.message} That was waited for, for {wait_s:g} s.", hint="Ask again.", **conflict.facts
                ) from conflict
        reach("reservation.waiting")
        # A store where much happens wakes everyone all the time; a few tries a second are enough.
        await asyncio.gather(bell.wait(seen, min(left, NAP_S)), asyncio.sleep(min(left, REST_S)))


def _held(outcome: Outcome, status: int = 200) -> Response:
    assert isinstance(outcome, Reserved)
    held = Held(outcome.reservation_id, outcome.status, outcome.expires_at, outcome.left_s)
    return told(held, status)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/reservations",
        summary="List reservations, newest first.",
        handler=list_reservations,
        query=ReservationsQuery,
        answers={200: Page[ReservationRow]},  # type: ignore[valid-type]  # made of the record
    ),
    Endpoint(
        method="POST",
        path="/reservations",
        summary="Hold a queue: nothing of it is dispatched until it is given back or the time is over.",
        handler=reserve,
        body=ReserveBody,
        answers={201: Held},
        refuses=(408, 409),
        sends=Reserve,
    ),
    Endpoint(
        method="POST",
        path="/reservations/{reservation_id}/renew",
        summary="Hold a queue for longer.",
        handler=renew,
        body=RenewBody,
        answers={200: Held},
        refuses=(409,),
        sends=RenewReservation,
    ),
    Endpoint(
        method="POST",
        path="/reservations/{reservation_id}/release",
        summary="Give a queue back.",
        handler=release,
        body=Empty,
        answers={200: Held},
        refuses=(409,),
        sends=ReleaseReservation,
    ),
    Endpoint(
        method="POST",
        path="/direct",
        summary="Create a job and lease it to the caller, who holds its queue and runs it alone there.",
        handler=start_direct,
        body=DirectBody,
        answers={201: Granted, 200: Granted},
        refuses=(404, 408, 409),
        sends=StartDirect,
    ),
)
