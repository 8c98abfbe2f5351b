"""`/schedules`: what runs by the clock. By id, or by name."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from holdfast.engine.views.schedules import (
    FireToCome,
    FullSchedule,
    ScheduleRow,
    fire_to_come,
    full_schedule,
    schedule_row,
)
from holdfast.errors import InvalidValue
from holdfast.model.commands import (
    Backfill,
    Command,
    DeleteSchedule,
    PauseSchedule,
    PutSchedule,
    ResetSchedule,
    ResumeSchedule,
    Trigger,
    UpdateSchedule,
)
from holdfast.model.ids import JobId
from holdfast.model.outcomes import Backfilled, Submitted
from holdfast.model.schedules import NewSchedule, Schedule, ScheduleChanges
from holdfast.model.times import Timestamp, parse_timestamp
from holdfast.rules.access.roles import may_read
from holdfast.rules.schedules.fire import backfill_size
from holdfast.rules.schedules.next_fire import preview
from holdfast.rules.schedules.overlaps import latest_instance
from holdfast.rules.schedules.validation import fault_in_itself
from holdfast.stores.protocol import View
from holdfast.web.api.bodies import Empty, ReasonBody, as_model, changes_of, object_or_null, strict
from holdfast.web.api.endpoint import Ask, Endpoint, Settled, done, gone, told
from holdfast.web.api.jobs import submitted
from holdfast.web.api.lookup import found_named, id_to_delete, list_named
from holdfast.web.api.paging import NoNamespace, Page, PageQuery, Query
from holdfast.web.api.templates import Stored, Use, stored

#: Fires that are shown with a schedule; and that a preview shows at most.
SHOWN, MOST = 5, 1000

ScheduleBody = strict(NewSchedule, without=("namespace", "source"), beside={"schedule_id": (str | None, None)})
ChangesBody = strict(ScheduleChanges, without=("source",))
Count = Annotated[int, msgspec.Meta(ge=1, le=MOST)]


class TimesBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a schedule would fire that is not made yet."""

    cron_expression: str | None = None
    interval_s: float | None = None
    run_at: Timestamp | None = None
    timezone: str = "UTC"
    start_at: Timestamp | None = None
    end_at: Timestamp | None = None
    n: Count = 10
    after: Timestamp | None = None


class PreviewQuery(Query, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many fires, and after when."""

    n: Count = 10
    after: str | None = None


class BackfillBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nominal times in [since, until). The same `backfill_id` again adds nothing."""

    since: Timestamp
    until: Timestamp
    backfill_id: str | None = None


class Fires(msgspec.Struct, frozen=True):
    """Fires to come, in order."""

    items: list[FireToCome]


class BackfillMade(msgspec.Struct, frozen=True):
    """How many jobs or instances were new, of how many fires."""

    backfill_id: str
    count: int
    fires: int


async def list_schedules(ask: Ask[PageQuery, None]) -> Response:
    """List schedules by name."""
    return await list_named(ask, Schedule, schedule_row)


async def create(ask: Ask[Query, Any]) -> Response:
    """Make a schedule."""
    body = ask.body
    overrides = object_or_null(body.param_overrides, "param_overrides")
    new = as_model(body, namespace=ask.namespace, param_overrides=overrides)
    chosen = ask.id_of(body.schedule_id, "schedule")
    return stored(await ask.order(PutSchedule(schedule_id=chosen, schedule=new, cmd=ask.cmd)))


async def get(ask: Ask[Query, None]) -> Response:
    """Give a schedule whole, with its next fires."""

    def whole(view: View) -> tuple[Any, int]:
        found = _found(ask, view)
        latest = None if found.workflow is None else latest_instance(view, found)
        try:
            fires = preview(found, ask.now, SHOWN) if found.enabled else []
        except InvalidValue:  # of a zone that is not known here
            fires = []
        return full_schedule(found, latest, fires), found.version

    record, version = await ask.look(whole)
    return told(record, version=version)


async def update(ask: Ask[Query, Any]) -> Response:
    """Change a schedule."""
    version = ask.version()
    overrides = object_or_null(ask.body.param_overrides, "param_overrides")
    changes: ScheduleChanges = changes_of(ask.body, param_overrides=overrides)
    schedule_id = await _id(ask)
    command = UpdateSchedule(schedule_id=schedule_id, changes=changes, version=version, cmd=ask.cmd)
    return stored(await ask.order(command))


async def delete(ask: Ask[Query, None]) -> Response:
    """Remove a schedule; its jobs stay."""
    schedule_id = await id_to_delete(ask, Schedule, ask.path["schedule_id"])
    await ask.order(DeleteSchedule(schedule_id=schedule_id, cmd=ask.cmd, request=ask.digest))
    return gone()


async def pause(ask: Ask[Query, ReasonBody]) -> Response:
    """Fire no more."""
    return await _done(ask, PauseSchedule(schedule_id=await _id(ask), reason=ask.body.reason, cmd=ask.cmd))


async def resume(ask: Ask[Query, Empty]) -> Response:
    """Fire again, from now on."""
    return await _done(ask, ResumeSchedule(schedule_id=await _id(ask), cmd=ask.cmd))


async def reset(ask: Ask[Query, Empty]) -> Response:
    """Plan the next fire from now on."""
    return await _done(ask, ResetSchedule(schedule_id=await _id(ask), cmd=ask.cmd))


async def trigger(ask: Ask[Query, Use]) -> Response:
    """Make a job of a schedule now, or begin an instance."""
    job_id, params = JobId(ask.id_of(ask.body.job_id, "job", "0")), object_or_null(ask.body.params)
    command = Trigger(schedule_id=await _id(ask), job_id=job_id, params=params, cmd=ask.cmd, request=ask.digest)
    return submitted(await ask.order(command))


async def backfill(ask: Ask[Query, BackfillBody]) -> Response:
    """Make the jobs of nominal times of the past; `backfill_id` makes it repeatable."""
    body = ask.body
    since, until = parse_timestamp(body.since, "since"), parse_timestamp(body.until, "until")
    # It stands in no path, and may be anything.
    chosen = ask.new_id("backfill") if body.backfill_id is None else body.backfill_id
    found = await ask.look(lambda view: _found(ask, view))
    fires = await ask.coordinator.in_thread(lambda: backfill_size(found, since, until))
    count, at = 0, since
    # The first one speaks for all: those behind it are the same whenever it is.
    keyed: Any = {"cmd": ask.cmd, "request": ask.digest}
    while at is not None:
        command = Backfill(schedule_id=found.schedule_id, backfill_id=chosen, since=at, until=until, **keyed)
        outcome, keyed = await ask.order(command), {}
        assert isinstance(outcome, Backfilled)
        count, at = count + outcome.count, outcome.next_since  # type: ignore[assignment]  # None ends it
    return told(BackfillMade(chosen, count, fires))


async def preview_new(ask: Ask[NoNamespace, TimesBody]) -> Response:
    """Show the fires of a schedule that is not made yet."""
    body, now = ask.body, ask.now
    if not may_read(ask.access):  # it is about nothing there is: in whatever namespaces
        raise ask.forbidden()
    times = {name: getattr(body, name) for name in ("run_at", "start_at", "end_at", "after")}
    moments = {name: None if text is None else parse_timestamp(text, name) for name, text in times.items()}
    after = moments.pop("after")
    plan = Schedule(
        schedule_id="new",
        name="new",
        created_at=now,
        job_type="x",
        cron_expression=body.cron_expression,
        interval_s=body.interval_s,
        timezone=body.timezone,
        **moments,  # type: ignore[arg-type]  # these three are times
    )
    return told(await ask.coordinator.in_thread(lambda: _fires(plan, now, body.n, after)))


async def preview_there(ask: Ask[PreviewQuery, None]) -> Response:
    """Show the next fires of a schedule."""
    query = ask.query
    after = None if query.after is None else parse_timestamp(query.after, "after")
    return told(await ask.look(lambda view: _fires(_found(ask, view), ask.now, query.n, after)))


def _fires(schedule: Schedule, now: Timestamp, n: int, after: Timestamp | None) -> Fires:
    fault = fault_in_itself(schedule)
    if fault is not None:
        raise fault.error()
    return Fires([fire_to_come(fire) for fire in preview(schedule, now, n, after)])


def _found(ask: Ask[Any, Any], view: View) -> Schedule:
    return found_named(ask, view, Schedule, ask.path["schedule_id"])


async def _id(ask: Ask[Any, Any]) -> str:
    return await ask.look(lambda view: _found(ask, view).schedule_id)


async def _done(ask: Ask[Any, Any], command: Command) -> Response:
    await ask.order(command)
    return done(ask.path["schedule_id"])


def _verb(name: str, summary: str, handler: Any, sends: type, body: Any = Empty) -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"/schedules/{{schedule_id}}/{name}",
        summary=summary,
        handler=handler,
        body=body,
        answers={200: Settled},
        refuses=(409,),
        sends=sends,
    )


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/schedules",
        summary="List schedules by name.",
        handler=list_schedules,
        query=PageQuery,
        answers={200: Page[ScheduleRow]},  # type: ignore[valid-type]  # made of the record
    ),
    Endpoint(
        method="POST",
        path="/schedules",
        summary="Make a schedule of a task, a template or a workflow.",
        handler=create,
        body=ScheduleBody,
        answers={201: Stored},
        refuses=(404, 409),
        sends=PutSchedule,
        has_version=True,
    ),
    Endpoint(
        method="POST",
        path="/schedules/preview",
        summary="Show the fires of a schedule that is not made yet.",
        handler=preview_new,
        query=NoNamespace,
        body=TimesBody,
        answers={200: Fires},
    ),
    Endpoint(
        method="GET",
        path="/schedules/{schedule_id}",
        summary="Give a schedule whole, with its next fires; by its id or its name.",
        handler=get,
        answers={200: FullSchedule},
        has_version=True,
    ),
    Endpoint(
        method="GET",
        path="/schedules/{schedule_id}/preview",
        summary="Show the next fires of a schedule.",
        handler=preview_there,
        query=PreviewQuery,
        answers={200: Fires},
    ),
    Endpoint(
        method="PATCH",
        path="/schedules/{schedule_id}",
        summary="Change a schedule; other times count from now.",
        handler=update,
        body=ChangesBody,
        answers={200: Stored},
        refuses=(409, 412),
        sends=UpdateSchedule,
        headers=("If-Match",),
        has_version=True,
    ),
    Endpoint(
        method="DELETE",
        path="/schedules/{schedule_id}",
        summary="Remove a schedule; its jobs stay.",
        handler=delete,
        answers={204: None},
        refuses=(409,),
        sends=DeleteSchedule,
    ),
    _verb("pause", "Fire no more; jobs that were made go on.", pause, PauseSchedule, ReasonBody),
    _verb("resume", "Fire again, from now on.", resume, ResumeSchedule),
    _verb("reset", "Plan the next fire from now on, after a clock that had run ahead.", reset, ResetSchedule),
    Endpoint(
        method="POST",
        path="/schedules/{schedule_id}/trigger",
        summary="Make a job of a schedule now, or begin an instance, beside its timetable.",
        handler=trigger,
        body=Use,
        answers={201: Submitted, 200: Submitted},
        refuses=(409,),
        sends=Trigger,
    ),
    Endpoint(
        method="POST",
        path="/schedules/{schedule_id}/backfill",
        summary="Make the jobs, or begin the instances, of nominal times in [since, until), oldest first.",
        handler=backfill,
        body=BackfillBody,
        answers={200: BackfillMade},
        refuses=(409,),
        sends=Backfill,
    ),
)
