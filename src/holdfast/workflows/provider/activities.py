"""The provider's worker side: activities, which are jobs with an owner."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from holdfast.errors import HoldfastError
from holdfast.model.ids import JobId
from holdfast.model.outcomes import Done, Extended, Leased, Reported, Swept
from holdfast.model.workflows.commands import (
    AbandonActivity,
    AckActivity,
    CleanSessions,
    FetchActivity,
    NewActivity,
    RenewActivity,
    RenewSessions,
    StartActivity,
)
from holdfast.model.workflows.work_items import ActivityCompleted, ActivityFailed, WorkItem
from holdfast.rules.field_checks import shown
from holdfast.rules.state import Lane
from holdfast.workflows.provider.calls import (
    Asking,
    each,
    encoded,
    maybe_seconds,
    message_of,
    refuse,
    seconds,
    struct_of,
    text,
    token_of,
    told,
    typed,
)
from holdfast.workflows.provider.filters import SessionFetchConfig, TagFilter
from holdfast.workflows.provider.payloads import activity_of

#: Who holds the leases that were fetched here.
WORKER = "provider"
#: Sessions removed in one commit.
SWEEP = 500


class Working(Asking):
    """Fetch, end and give back activities."""

    @told
    def enqueue_for_worker(self, item: WorkItem) -> None:
        """Create the job of an activity."""
        operation = "enqueue_for_worker"
        activity = NewActivity(job_id=JobId(self.engine.new_id()), item=encoded(operation, "item", item, WorkItem))
        self._ask(operation, StartActivity(activity=activity), Done)

    @told
    def fetch_work_item(
        self,
        lock_timeout: float,
        poll_timeout: float = 0.0,
        *,
        tag_filter: TagFilter | None = None,
        session: SessionFetchConfig | None = None,
    ) -> tuple[WorkItem, str, int] | None:
        """Take the first activity that waits; give it, the token, and how often it was delivered."""
        operation = "fetch_work_item"
        wanted = TagFilter.default_only() if tag_filter is None else tag_filter
        queues = struct_of(operation, "tag_filter", wanted, TagFilter, "tag_filter.").queues
        if session is not None:
            struct_of(operation, "session", session, SessionFetchConfig, "session.")
        command = FetchActivity(
            worker_id=WORKER,
            lease_s=seconds(operation, "lock_timeout", lock_timeout),
            queues=None if queues is None else tuple(queues),
            session_id=self.engine.session_id,
            affinity_owner=None if session is None else session.owner_id,
            affinity_s=0.0 if session is None else session.lock_timeout,
        )
        if command.queues == ():
            return None
        for _ in self._polls(operation, poll_timeout, (Lane.DELAYED, Lane.LEASE, Lane.AFFINITY)):
            for grant in self._ask(operation, command, Leased).grants:
                try:
                    return activity_of(self._blobs, grant.job), str(grant.token), grant.job.deliveries
                except HoldfastError:
                    # An error means that nothing is held; for as long as the lease, others come first.
                    self._ask(operation, AbandonActivity(token=grant.token, delay_s=lock_timeout), Reported)
                    raise
        return None

    @told
    def ack_work_item(self, token: str, completion: WorkItem | None = None) -> None:
        """End an activity and send its completion to whom that names; None: it is cancelled, and nobody hears of it."""
        operation = "ack_work_item"
        if completion is not None and not isinstance(completion, ActivityCompleted | ActivityFailed):
            refuse(operation, "completion must be ActivityCompleted or ActivityFailed")
        message = None if completion is None else message_of(operation, "completion", completion)
        self._ask(operation, AckActivity(token=token_of(token), completion=message), Reported)

    @told
    def abandon_work_item(self, token: str, delay: float | None = None, ignore_attempt: bool = False) -> None:  # noqa: FBT001, FBT002 - the order is the contract's
        """Give an activity back at its place, to be fetched again now or after `delay`."""
        operation = "abandon_work_item"
        command = AbandonActivity(
            token=token_of(token),
            delay_s=maybe_seconds(operation, "delay", delay),
            given_back=typed(operation, "ignore_attempt", ignore_attempt, bool),
        )
        self._ask(operation, command, Reported)

    @told
    def renew_work_item_lock(self, token: str, extend_for: float) -> None:
        """Keep an activity for `extend_for` seconds from now. That it fails is how a worker learns of cancellation."""
        operation = "renew_work_item_lock"
        command = RenewActivity(token=token_of(token), lease_s=seconds(operation, "extend_for", extend_for))
        self._ask(operation, command, Extended)

    @told
    def renew_session_lock(self, owner_ids: Sequence[str], extend_for: float, idle_timeout: float) -> int:
        """Keep the sessions of these owners that live and were at work within `idle_timeout`; give how many."""
        operation = "renew_session_lock"
        command = RenewSessions(
            owner_ids=tuple(text(operation, "owner_ids", one) for one in each(operation, "owner_ids", owner_ids)),
            lock_s=seconds(operation, "extend_for", extend_for),
            idle_s=seconds(operation, "idle_timeout", idle_timeout),
        )
        return self._ask(operation, command, Swept).count

    @told
    def cleanup_orphaned_sessions(self, idle_timeout: float) -> int:
        """Forget lapsed sessions that no waiting or running job names; give how many. A lapsed one is idle."""
        operation = "cleanup_orphaned_sessions"
        if not 0 <= seconds(operation, "idle_timeout", idle_timeout) <= sys.float_info.max:
            refuse(operation, f"idle_timeout must be a finite number of seconds, 0 or more, got {shown(idle_timeout)}")
        total = 0
        while True:
            swept = self._ask(operation, CleanSessions(limit=SWEEP), Swept)
            total += swept.count
            if not swept.more or not swept.count:
                return total
