"""What workers say beside their reports: that they live, what they work on, what their runs print."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.engine.views.workers import WorkerRow, running, staff, worker_row
from holdfast.errors import Forbidden, InvalidValue, PayloadTooLarge, RunNotFound, WorkerNotFound
from holdfast.model.access import Access
from holdfast.model.commands import Extend
from holdfast.model.ids import RunId
from holdfast.model.jobs import Run
from holdfast.model.logs import LogLine, admissible
from holdfast.model.workers import Wish
from holdfast.rules.access.roles import may_direct, may_read_all, may_work
from holdfast.rules.access.visibility import may_hear, may_meet, may_speak
from holdfast.stores.http.wire import MOST_LEASES, Beat, Heartbeat, Lines, RunLines, encode
from holdfast.web.bodies import answer, asks, decoded, whole
from holdfast.web.coordinator.coordinator import Coordinator, coordinator_of
from holdfast.web.middleware.auth import access_of


class Registry(msgspec.Struct, frozen=True):
    """The workers there are."""

    workers: list[WorkerRow]  # type: ignore[valid-type]  # made of the record


@asks()
async def post_heartbeat(request: Request) -> Response:
    """Extend all leases of a worker; hear of its progress; tell what is asked of it."""
    _demand(may_work(access_of(request)), request)
    worker_id, beat = request.path_params["worker"], await decoded(request, Heartbeat)
    if len(beat.leases) > MOST_LEASES:
        raise PayloadTooLarge(f"{len(beat.leases):,} leases are more than {MOST_LEASES:,}. Nothing was done.")
    if beat.worker is not None and beat.worker.worker_id != worker_id:
        raise InvalidValue("worker: it is another one than the path names. Nothing was done.", field="worker")
    coordinator = coordinator_of(request)
    engine, muster = coordinator.engine, coordinator.muster
    if beat.worker is not None and (size := len(encode(beat.worker))) > coordinator.limits.note:
        raise PayloadTooLarge(f"worker: it says {size:,} bytes of itself. Nothing was done.", field="worker")
    access = access_of(request)
    # Before anything is done: what is refused has done nothing.
    said = [(run_id, admissible(line)) for run_id, line in beat.lines]
    if beat.worker is not None and not may_meet(access, beat.worker):
        raise Forbidden(f"{access.name} does not work for namespace {beat.worker.namespace!r}. Nothing was done.")
    is_other = False
    if access.namespaces is not None:
        is_other = await coordinator.in_thread(lambda: _is_other(coordinator, access, worker_id))
    if said:
        await coordinator.in_thread(lambda: _demand_voice(coordinator, access, said))
    extensions = [Extend(job_id=one.job_id, token=one.token, lease_s=one.lease_s) for one in beat.leases]
    outcomes = await coordinator.decide(access, extensions) if extensions else []

    def tell() -> Wish | None:
        if said:
            _keep(coordinator, said)
        now = engine.look().now
        if beat.worker is not None:
            # By the coordinator's clock, and of no opening of its store.
            muster.note(msgspec.structs.replace(beat.worker, last_seen=now, session_id=None))
        elif is_other:  # nothing on the roster is about this one
            return None
        else:
            muster.stir(worker_id, now)
        return engine.store.workers.wish(worker_id)

    return answer(Beat(outcomes=outcomes, wish=await coordinator.in_thread(tell)))


@asks()
async def delete_worker(request: Request) -> Response:
    """Take a worker off the roster; its leases stay until they are released."""
    _demand(may_work(access_of(request)), request)
    coordinator, worker_id = coordinator_of(request), request.path_params["worker"]

    def drop() -> None:
        _demand_known(coordinator, access_of(request), worker_id)
        coordinator.muster.drop(worker_id)

    await coordinator.in_thread(drop)
    return Response(status_code=204)


@asks()
async def get_workers(request: Request) -> Response:
    """List the workers."""
    # A worker looks whether its name is taken.
    access = access_of(request)
    _demand(may_read_all(access) or may_work(access), request)
    engine = coordinator_of(request).engine

    def look() -> Registry:
        found = [worker for worker in engine.store.workers.all() if may_meet(access, worker)]
        if not may_read_all(access):
            return Registry([worker_row(worker, None) for worker in found])
        with engine.read() as view:
            return Registry([worker_row(one.worker, one) for one in staff(running(view), found)])

    return answer(await coordinator_of(request).in_thread(look))


@asks()
async def post_wish(request: Request) -> Response:
    """Ask a worker to be quiet, or to stop."""
    _demand(may_direct(access_of(request)), request)
    coordinator, worker_id = coordinator_of(request), request.path_params["worker"]
    wish = Wish(request.url.path.rpartition("/")[2])
    if not await coordinator.in_thread(lambda: coordinator.engine.store.workers.ask(worker_id, wish)):
        raise WorkerNotFound(f"there is no worker {worker_id!r:.200}. Nobody was asked.", worker_id=worker_id[:200])
    return Response(status_code=204)


@asks()
async def post_lines(request: Request) -> Response:
    """Keep what runs say."""
    _demand(may_work(access_of(request)), request)
    access, coordinator = access_of(request), coordinator_of(request)
    lines = [(run_id, admissible(line)) for run_id, line in (await decoded(request, Lines)).lines]

    def keep() -> bool:
        _demand_voice(coordinator, access, lines)
        return _keep(coordinator, lines)

    if lines and not await coordinator.in_thread(keep):
        raise RunNotFound(f"there is no run {lines[0][0]!r:.100}. Nothing was kept.", run_id=lines[0][0][:100])
    return Response(status_code=204)


@asks("run", "after", "limit")
async def get_lines(request: Request) -> Response:
    """Give what a run has said."""
    run_id = RunId(request.query_params.get("run", ""))
    after, limit = whole(request, "after", 0, 2**62), whole(request, "limit", 1000, 1000)
    coordinator = coordinator_of(request)

    def read() -> RunLines:
        with coordinator.engine.read() as view:
            _demand(may_hear(access_of(request), run_id, view), request)
        return RunLines(coordinator.transcripts.page(run_id, after, limit))

    return answer(await coordinator.in_thread(read))


def _demand_known(coordinator: Coordinator, access: Access, worker_id: str) -> None:
    """Refuse who speaks for a worker of namespaces that are not theirs."""
    if not _may_know(coordinator, access, worker_id):
        raise Forbidden(f"{access.name} may not speak for this worker. Nothing was done.")


def _may_know(coordinator: Coordinator, access: Access, worker_id: str) -> bool:
    """Tell whether who is known by that name, if anybody is, is there for them."""
    known = (worker for worker in coordinator.engine.store.workers.all() if worker.worker_id == worker_id)
    return all(may_meet(access, worker) for worker in known)


def _is_other(coordinator: Coordinator, access: Access, worker_id: str) -> bool:
    """Tell whether who is known by that name is another worker, of namespaces that are not theirs.

    Raises Forbidden if that one speaks for itself. A worker of few words has not chosen to be known by its name: two
    scripts of that name, in two namespaces, must not get in each other's way.
    """
    if coordinator.muster.is_terse(worker_id):
        return not _may_know(coordinator, access, worker_id)
    _demand_known(coordinator, access, worker_id)
    return False


def _demand_voice(coordinator: Coordinator, access: Access, lines: Sequence[tuple[RunId, LogLine]]) -> None:
    """Demand that they may say what these runs say. Raises Forbidden if one of them is none of theirs."""
    with coordinator.engine.read() as view:
        if not may_speak(access, {run_id for run_id, _ in lines}, view):
            raise Forbidden(f"{access.name} may not speak for these runs. Nothing was done.")


def _keep(coordinator: Coordinator, lines: Sequence[tuple[RunId, LogLine]]) -> bool:
    """Keep the lines of runs that are there; tell whether one is."""
    with coordinator.engine.read() as view:
        known = {run_id for run_id in {run_id for run_id, _ in lines} if view.get(Run, run_id) is not None}
    coordinator.transcripts.keep([(run_id, line) for run_id, line in lines if run_id in known])
    return bool(known)


def _demand(allowed: bool, request: Request) -> None:  # noqa: FBT001 - reads as a sentence where it is called
    if not allowed:
        raise Forbidden(f"{access_of(request).name} has no role for that. Nothing was done.")
