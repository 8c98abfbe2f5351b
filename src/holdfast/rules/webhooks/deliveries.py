"""Deliveries: owed in the commit that ends a run, claimed by whoever sends them, tried four times.

At least once: a claim that lapses makes the delivery due again, since nobody knows whether it was sent. A claim's end
also names it, so that the result of a try that took too long does not count for the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from holdfast.errors import DeliveryNotFound, IdReused, InvalidOperation, LeaseLost
from holdfast.model.commands import ClaimDeliveries, EndDelivery, ProbeWebhook, Redeliver
from holdfast.model.events import (
    DeliveryClaimed,
    DeliveryCreated,
    DeliveryEnded,
    Event,
    JobCancelled,
    JobCompleted,
    JobCreated,
    JobDead,
    JobFailed,
    JobSkipped,
    JobSnoozed,
    LeaseExpired,
    LeaseReleased,
)
from holdfast.model.ids import RunId, uuid5
from holdfast.model.jobs import Job, RunStatus
from holdfast.model.outcomes import Claim, Claimed, Done
from holdfast.model.payloads import shorten_error
from holdfast.model.times import Timestamp, later
from holdfast.model.webhooks import TEST_EVENT, Delivery, DeliveryStatus, Webhook
from holdfast.rules.decision import Decision, answer, deny
from holdfast.rules.state import Lane, State
from holdfast.rules.webhooks.commands import missing

#: Seconds from one try to the next; after the last of them there is no other.
WAITS_S = (5.0, 15.0, 45.0)
#: Seconds that whoever claims a delivery has for sending it.
CLAIM_S = 60.0
#: The receiver is gone for good.
GONE = 410
#: Deliveries that one claim may end because nobody wants them any more.
UNWANTED = 500
#: Deliveries of one webhook on their way at once before those of others come first.
SHARE = 2
#: Due deliveries looked at for those of others.
LOOKED_AT = 2_000

#: How the run ended that an event ends; of some, only if there was a lease.
_ENDS: dict[type[Event], RunStatus] = {
    JobCompleted: RunStatus.COMPLETED,
    JobFailed: RunStatus.FAILED,
    JobSnoozed: RunStatus.SKIPPED,
    JobSkipped: RunStatus.SKIPPED,
    JobCancelled: RunStatus.CANCELLED,
    JobDead: RunStatus.CANCELLED,
    LeaseReleased: RunStatus.CANCELLED,
    LeaseExpired: RunStatus.LOST,
}


# --- what is owed -----------------------------------------------------------------------------------------------------


def owed(state: State, events: Sequence[Event]) -> list[Event]:
    """Give one delivery for each run that these events end and each webhook that wants to know of it."""
    return [debt for event in events if type(event) in _ENDS for debt in _owed(state, event, events)]


def _owed(state: State, event: Event, events: Sequence[Event]) -> Iterator[Event]:
    # Every kind in `_ENDS` names its job.
    job_id = event.job_id  # type: ignore[union-attr]
    job = state.get(Job, job_id)
    if job is None:
        # Made and skipped by one command.
        job = next(made.job for made in events if isinstance(made, JobCreated) and made.job.job_id == job_id)
    webhooks = state.webhooks(job.namespace)
    if not webhooks:
        return
    made_for_it = event.run_id if isinstance(event, JobSkipped | LeaseExpired) else None
    run_id = made_for_it or _run_under_lease(state, job)
    if run_id is None:
        return
    name = f"job.run.{_ENDS[type(event)].lower()}"
    for webhook in webhooks:
        if _wants(webhook, name, job.queue):
            yield DeliveryCreated(
                delivery_id=uuid5(webhook.webhook_id, run_id, name),
                webhook_id=webhook.webhook_id,
                run_id=run_id,
                event=name,
                cmd=event.cmd,
            )


def _run_under_lease(state: State, job: Job) -> RunId | None:
    run = None if job.token is None else state.last_run(job.job_id)
    return None if run is None else run.run_id


def _wants(webhook: Webhook, name: str, queue: str) -> bool:
    return (not webhook.events or name in webhook.events) and (webhook.queues is None or queue in webhook.queues)


# --- sending ----------------------------------------------------------------------------------------------------------


def decide_claim(state: State, command: ClaimDeliveries, now: Timestamp) -> Decision:
    """Give what is due to whoever asks, for a minute. What nobody wants any more ends here."""
    until = later(now, CLAIM_S)
    events: list[Event] = []
    wanted: list[Delivery] = []
    spare: list[Delivery] = []
    taken = Counter(command.under_way)
    for delivery in islice(state.due(Lane.DELIVERY, now), LOOKED_AT):
        assert isinstance(delivery, Delivery)
        unwanted = _unwanted(state, delivery)
        if unwanted is not None:
            events.append(_end(delivery, DeliveryStatus.FAILED, command, error=unwanted, attempts=delivery.attempts))
        elif taken[delivery.webhook_id] < SHARE:
            taken[delivery.webhook_id] += 1
            wanted.append(delivery)
        elif len(spare) < command.limit:
            spare.append(delivery)
        if len(wanted) >= command.limit or len(events) >= UNWANTED:
            break
    # A receiver that is slow, and is owed much, gets what hands the others leave.
    chosen = (wanted + spare)[: command.limit]
    events += [DeliveryClaimed(delivery_id=one.delivery_id, claimed_until=until, cmd=command.cmd) for one in chosen]
    claims = tuple(Claim(one.delivery_id, until, one.webhook_id) for one in chosen)
    return answer(Claimed(claims=claims), *events)


def _unwanted(state: State, delivery: Delivery) -> str | None:
    """Say why a delivery is not sent, or None if it is."""
    webhook = state.get(Webhook, delivery.webhook_id)
    if webhook is None:
        return "the webhook was removed"
    return None if webhook.enabled else "the webhook is disabled"


def decide_end_delivery(state: State, command: EndDelivery, now: Timestamp) -> Decision:
    """Record a try: delivered, to be tried again, or failed for good. For the holder of the claim only."""
    delivery = state.get(Delivery, command.delivery_id)
    if delivery is None:
        return _no_delivery(command.delivery_id)
    if delivery.claimed_until != command.claimed_until:
        message = f"the claim on delivery {delivery.delivery_id} is over. Nothing was changed."
        return deny(LeaseLost, message, delivery_id=delivery.delivery_id)
    tries = delivery.attempts + 1
    if command.status is not None and 200 <= command.status < 300:
        return answer(Done(), _end(delivery, DeliveryStatus.DELIVERED, command, attempts=tries, status=command.status))
    is_last = tries > len(WAITS_S) or command.status == GONE or delivery.event == TEST_EVENT
    error = command.error if command.status is None else _meaning(command.status)
    event = _end(
        delivery,
        DeliveryStatus.FAILED if is_last else DeliveryStatus.PENDING,
        command,
        attempts=tries,
        next_at=None if is_last else later(now, WAITS_S[tries - 1]),
        status=command.status,
        error=shorten_error(error or "no answer"),
    )
    return answer(Done(), event)


def _meaning(status: int) -> str:
    if status == GONE:
        return f"the receiver answered {status}: it is gone"
    if 300 <= status < 400:
        return f"the receiver answered {status}: redirects are not followed"
    return f"the receiver answered {status}"


def _end(
    delivery: Delivery,
    to: DeliveryStatus,
    command: ClaimDeliveries | EndDelivery | Redeliver,
    *,
    attempts: int,
    next_at: Timestamp | None = None,
    status: int | None = None,
    error: str | None = None,
) -> DeliveryEnded:
    return DeliveryEnded(
        delivery_id=delivery.delivery_id,
        to=to,
        attempts=attempts,
        next_attempt_at=next_at,
        last_status=status,
        last_error=error,
        cmd=command.cmd,
        actor=command.actor,
    )


# --- by a person's wish -----------------------------------------------------------------------------------------------


def decide_redeliver(state: State, command: Redeliver, now: Timestamp) -> Decision:
    """Make a delivery due now, with all its tries; its body is the same."""
    delivery = state.get(Delivery, command.delivery_id)
    if delivery is None:
        return _no_delivery(command.delivery_id)
    unwanted = _unwanted(state, delivery)
    if unwanted is not None:
        message = f"delivery {delivery.delivery_id} is not sent again: {unwanted}. Nothing was changed."
        return deny(InvalidOperation, message, delivery_id=delivery.delivery_id, webhook_id=delivery.webhook_id)
    if delivery.claimed_until is not None and delivery.claimed_until > now:
        message = f"delivery {delivery.delivery_id} is being sent. Nothing was changed."
        hint = f"Wait until {delivery.claimed_until}."
        return deny(InvalidOperation, message, hint=hint, delivery_id=delivery.delivery_id)
    again = _end(
        delivery,
        DeliveryStatus.PENDING,
        command,
        attempts=0,
        next_at=now,
        status=delivery.last_status,
        error=delivery.last_error,
    )
    return answer(Done(), again)


def _no_delivery(delivery_id: str) -> Decision:
    message = f"there is no delivery {delivery_id}. Nothing was changed."
    return deny(DeliveryNotFound, message, delivery_id=delivery_id)


def decide_probe(state: State, command: ProbeWebhook, now: Timestamp) -> Decision:
    """Make a delivery that only shows whether it arrives, in the hands of whoever asks for it."""
    webhook = state.get(Webhook, command.webhook_id)
    if webhook is None:
        return missing(command.webhook_id)
    found = state.get(Delivery, command.delivery_id)
    if found is not None:
        if (found.webhook_id, found.event) == (webhook.webhook_id, TEST_EVENT):  # sent again
            until = found.claimed_until
            held = () if until is None else (Claim(found.delivery_id, until, found.webhook_id),)
            return answer(Claimed(claims=held))
        message = f"delivery {command.delivery_id} exists already. Nothing was changed."
        return deny(IdReused, message, delivery_id=command.delivery_id)
    until = later(now, CLAIM_S)
    made = DeliveryCreated(
        delivery_id=command.delivery_id,
        webhook_id=webhook.webhook_id,
        run_id=RunId(command.delivery_id),
        event=TEST_EVENT,
        cmd=command.cmd,
        actor=command.actor,
    )
    claimed = DeliveryClaimed(delivery_id=command.delivery_id, claimed_until=until, cmd=command.cmd)
    return answer(Claimed(claims=(Claim(command.delivery_id, until, webhook.webhook_id),)), made, claimed)
