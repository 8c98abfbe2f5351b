"""Commands and leases: what changes anything."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import InvalidValue, PayloadTooLarge
from holdfast.model.commands import Lease
from holdfast.model.outcomes import Refusal
from holdfast.rules.validation import problem_with
from holdfast.stores.http.wire import LONGEST_WAIT_S, MOST_COMMANDS, Commands, LeaseWish, Outcomes
from holdfast.web.bodies import answer, asks, decoded
from holdfast.web.coordinator.coordinator import Coordinator, coordinator_of
from holdfast.web.middleware.auth import access_of
from holdfast.web.middleware.disconnect import while_there


@asks()
async def post_commands(request: Request) -> Response:
    """Decide a batch: each command atomic alone, answered in order, durable together."""
    batch = (await decoded(request, Commands)).commands
    if len(batch) > MOST_COMMANDS:
        raise PayloadTooLarge(f"{len(batch):,} commands are more than {MOST_COMMANDS}. Nothing was done.")
    return answer(Outcomes(await coordinator_of(request).decide(access_of(request), batch)))


@asks()
async def post_lease(request: Request) -> Response:
    """Lease, and wait for work if there is none."""
    wish = await decoded(request, LeaseWish)
    if not 0 <= wish.wait_s <= LONGEST_WAIT_S:
        raise InvalidValue(f"wait_s: {wish.wait_s} is not from 0 to {LONGEST_WAIT_S:g}.", field="wait_s")
    coordinator, access = coordinator_of(request), access_of(request)
    # By its id a lease that waited finds what was granted to it meanwhile.
    lease = wish.lease if wish.lease.cmd else msgspec.structs.replace(wish.lease, cmd=coordinator.engine.new_id())
    command = coordinator.admit(access, lease)
    if isinstance(command, Refusal):
        raise command.error()
    assert isinstance(command, Lease)
    if problem_with(command) is None:  # what will be refused has done nothing
        await _meet(coordinator, command)
    # What is granted to who has gone would stand still until the lease is over.
    leasing = coordinator.lobby.lease(command, wish.wait_s)
    outcome = await (while_there(request, leasing) if wish.wait_s else leasing)
    if isinstance(outcome, Refusal):
        raise outcome.error()
    return answer(outcome)


async def _meet(coordinator: Coordinator, lease: Lease) -> None:
    """Have it known who asks for work, if that says nothing of itself."""
    muster = coordinator.muster
    worker = muster.meet(lease, coordinator.engine.look().now)
    if worker is not None:
        await coordinator.in_thread(lambda: muster.know(worker))
