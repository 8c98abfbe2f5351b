"""Webhooks: addresses that are told when a run ends, and the deliveries owed to them. Records only."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.model.ids import JobId, RunId
from holdfast.model.times import Timestamp

#: How a run's end is called in a delivery, by the status of the run in lower case.
RUN_EVENTS = tuple(f"job.run.{word}" for word in ("completed", "failed", "skipped", "cancelled", "lost"))
#: What a delivery is called that somebody asked for to see whether it arrives.
TEST_EVENT = "webhook.test"


def _shown(struct: msgspec.Struct) -> str:
    """Write a struct for people and logs, without its secrets."""
    fields = ((name, getattr(struct, name)) for name in struct.__struct_fields__)
    told = (f"{name}={'…' if 'secret' in name else repr(value)}" for name, value in fields)
    return f"{type(struct).__name__}({', '.join(told)})"


class DeliveryStatus(StrEnum):
    """What became of a delivery."""

    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"


class Webhook(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An address that wants to know of ended runs."""

    webhook_id: str
    url: str
    created_at: Timestamp
    namespace: str = ""
    #: Names of the events it wants; all, if empty.
    events: tuple[str, ...] = ()
    #: Queues whose runs it wants; None for all.
    queues: tuple[str, ...] | None = None
    #: One, or two while they are changed, the newest first. Never shown again.
    secrets: tuple[str, ...] = ()
    enabled: bool = True

    __repr__ = _shown


class NewWebhook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a webhook is asked to be."""

    url: str
    namespace: str = ""
    events: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    #: None leaves those it has.
    secrets: tuple[str, ...] | None = None
    #: What it gets if it has none: it is new, and none was given.
    made_secret: str | None = None

    __repr__ = _shown


class WebhookChanges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """New values for fields of a webhook. What is unset stays."""

    url: str | msgspec.UnsetType = msgspec.UNSET
    events: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    queues: tuple[str, ...] | msgspec.UnsetType | None = msgspec.UNSET
    secrets: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    enabled: bool | msgspec.UnsetType = msgspec.UNSET

    __repr__ = _shown

    def given(self) -> dict[str, object]:
        """Give the fields that are set, by name."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in fields.items() if value is not msgspec.UNSET}


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One message owed to one webhook about one ended run. Its body never changes."""

    delivery_id: str
    webhook_id: str
    run_id: RunId
    job_id: JobId
    #: job.run.completed, failed, skipped, cancelled or lost.
    event: str
    body: str
    created_at: Timestamp
    #: When it is to be tried next.
    next_attempt_at: Timestamp
    namespace: str = ""
    status: DeliveryStatus = DeliveryStatus.PENDING
    #: Tries that were recorded since it was made, or made due anew.
    attempts: int = 0
    #: Somebody is sending it until then; afterwards it is due again.
    claimed_until: Timestamp | None = None
    #: The last answer, as an HTTP status, or what went wrong before there was one.
    last_status: int | None = None
    last_error: str | None = None
    finished_at: Timestamp | None = None
