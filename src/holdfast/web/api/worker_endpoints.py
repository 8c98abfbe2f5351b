"""The endpoints of remote workers and `http:` stores, described: they are served in `web.routes`.

What a look-up takes and gives follows from the name of the look-up, so its content is any JSON.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.model.commands import Lease
from holdfast.model.outcomes import Leased
from holdfast.stores.http.wire import (
    LONGEST_WAIT_S,
    Beat,
    Changes,
    Commands,
    Facing,
    FeedPage,
    Heartbeat,
    LeaseWish,
    Lines,
    Look,
    Outcomes,
    RunLines,
    Seen,
)
from holdfast.web.api.endpoint import BYTES, EVENTS, Endpoint
from holdfast.web.remote_store.workers import Registry

Seq = Annotated[int, msgspec.Meta(ge=0)]
WORKS, DIRECTS = "worker, admin", "operator, admin"


class NoQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing."""


class ChangesQuery(NoQuery, frozen=True, kw_only=True):
    """After which event, and how long to wait for one."""

    after: Seq = 0
    wait: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT_S)] = 0


class FeedQuery(NoQuery, frozen=True, kw_only=True):
    """After which event."""

    after: Seq = 0


class LinesQuery(NoQuery, frozen=True, kw_only=True):
    """Of which run, after which line, how many."""

    run: str = ""
    after: Seq = 0
    limit: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1000


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/commands",
        summary="Decide up to 256 commands, in order, each atomic alone, durable together.",
        handler=None,
        query=NoQuery,
        body=Commands,
        answers={200: Outcomes},
        roles="as each command",
    ),
    Endpoint(
        method="POST",
        path="/lease",
        summary="Lease jobs, and wait for some if there are none.",
        handler=None,
        query=NoQuery,
        body=LeaseWish,
        answers={200: Leased},
        refuses=(409,),
        sends=Lease,
    ),
    Endpoint(
        method="POST",
        path="/look",
        summary="Do one look-up of a store.",
        handler=None,
        query=NoQuery,
        body=Look,
        answers={200: Seen},
        refuses=(404,),
        roles="as each look-up",
    ),
    Endpoint(
        method="GET",
        path="/changes",
        summary="Wait for an event; say up to where events go.",
        handler=None,
        query=ChangesQuery,
        answers={200: Changes},
        roles="any",
    ),
    Endpoint(
        method="GET",
        path="/facing",
        summary="Say who answers, and what its acknowledgements survive.",
        handler=None,
        query=NoQuery,
        answers={200: Facing},
        roles="any",
    ),
    Endpoint(
        method="GET",
        path="/feed",
        summary="Give every event in order: as a stream, or with Accept: application/json in pages.",
        handler=None,
        query=FeedQuery,
        answers={200: (EVENTS, FeedPage)},
        refuses=(410,),
        headers=("Last-Event-ID",),
    ),
    Endpoint(
        method="PUT",
        path="/blobs/{sha256}",
        summary="Keep content under the hash it has.",
        handler=None,
        query=NoQuery,
        body=BYTES,
        answers={204: None},
        refuses=(415,),
        roles="client, worker, operator, admin",
    ),
    Endpoint(
        method="GET",
        path="/blobs/{sha256}",
        summary="Give content by its hash.",
        handler=None,
        query=NoQuery,
        answers={200: BYTES},
        roles="any",
    ),
    Endpoint(
        method="POST",
        path="/lines",
        summary="Keep what runs say.",
        handler=None,
        query=NoQuery,
        body=Lines,
        answers={204: None},
        refuses=(404,),
        roles=WORKS,
    ),
    Endpoint(
        method="GET",
        path="/lines",
        summary="Give what a run has said.",
        handler=None,
        query=LinesQuery,
        answers={200: RunLines},
    ),
    Endpoint(
        method="GET",
        path="/workers",
        summary="List the workers.",
        handler=None,
        query=NoQuery,
        answers={200: Registry},
        roles="reader, worker, operator, admin",
    ),
    Endpoint(
        method="POST",
        path="/workers/{worker}/heartbeat",
        summary="Extend all leases of a worker; hear of its progress; tell what is asked of it.",
        handler=None,
        query=NoQuery,
        body=Heartbeat,
        answers={200: Beat},
        roles=WORKS,
    ),
    Endpoint(
        method="POST",
        path="/workers/{worker}/quiet",
        summary="Ask a worker to take no new jobs.",
        handler=None,
        query=NoQuery,
        answers={204: None},
        roles=DIRECTS,
    ),
    Endpoint(
        method="POST",
        path="/workers/{worker}/stop",
        summary="Ask a worker to stop.",
        handler=None,
        query=NoQuery,
        answers={204: None},
        roles=DIRECTS,
    ),
    Endpoint(
        method="DELETE",
        path="/workers/{worker}",
        summary="Take a worker off the roster; its leases stay until they are released.",
        handler=None,
        query=NoQuery,
        answers={204: None},
        roles=WORKS,
    ),
)
