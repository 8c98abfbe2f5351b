"""Retention: how long ended work is kept, and how much of it. A value that people give; what follows is the rules'."""

from __future__ import annotations

import msgspec

#: Seconds: a hundred years, as good as for ever.
FOR_EVER_S = 36_525 * 86_400.0


class Retention(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long ended work is kept, in seconds, and how much. What is None is decided above: by the store, or built in.

    Given to a queue, it says how its jobs are kept. Given to `Holdfast`, it says so for all queues that say nothing
    themselves, and how everything else is kept, which is the store's as a whole.
    """

    #: COMPLETED and CANCELLED jobs, with their runs. Built in: 7 days.
    done_s: float | None = None
    #: FAILED and DEAD ones. Built in: 30 days.
    failed_s: float | None = None
    #: At most so many of each in a queue, the newest. Built in: any number.
    done_max: int | None = None
    failed_max: int | None = None
    #: Lines of runs, deliveries and reservations that are over. Built in: 7 days each.
    logs_s: float | None = None
    deliveries_s: float | None = None
    reservations_s: float | None = None
    #: Workflow instances that are over, with their whole trees, where their workflow says nothing. Built in: 30 days.
    workflows_s: float | None = None
    #: Executions of an instance that continues as new, the newest. Built in: 10.
    executions_max: int | None = None
    #: Events of the feed, and at most so many. Built in: 7 days, any number.
    feed_s: float | None = None
    feed_max: int | None = None


#: What only the store as a whole can say.
OF_THE_STORE = ("logs_s", "deliveries_s", "reservations_s", "workflows_s", "executions_max", "feed_s", "feed_max")
