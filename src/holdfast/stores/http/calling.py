"""Calling a coordinator: one pool of connections, and the rules for answers that do not come.

On a connection error, a timeout, 429, 502, 503 or 504 the same bytes are sent again, after 0.2 s · 2ⁿ, at most 5 s,
with jitter, and never before a Retry-After has passed. That is safe because commands carry their ids. Any other answer
is final. Whoever runs out of patience learns whether the request may have arrived.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import httpx2
import msgspec

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, NotFound, StoreBusy, StoreClosed, StoreFailed
from holdfast.points import reach
from holdfast.stores.http.hearsay import Hearsay
from holdfast.stores.http.wire import NOW_HEADER, ROOT, Problem
from holdfast.version import __version__

#: First pause before sending again, and the longest, in seconds.
FIRST_S, LONGEST_S = 0.2, 5.0
#: Seconds for connecting; for an answer, beyond what a long poll is asked to wait.
CONNECT_S, ANSWER_S = 5.0, 40.0
#: Connections of one process at a time.
CONNECTIONS = 64
_AGAIN = {429, 502, 503, 504}
#: Nothing of the request has left.
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class Request(NamedTuple):
    """What is asked. The bytes stay the same however often they are sent."""

    method: str
    #: Below `ROOT`.
    path: str
    body: bytes | None = None
    params: Mapping[str, str] = {}
    #: Seconds the coordinator is asked to wait before it answers.
    wait_s: float = 0.0
    #: Whether the same may be asked anew, under other ids, without harm.
    is_repeatable: bool = True


class Line:
    """The line to one coordinator. For any thread."""

    def __init__(self, url: str, access_token: str | None, clock: Clock, patience_s: float) -> None:
        """Speak to the coordinator at `url`; give up on a request after `patience_s` seconds without an answer."""
        # Whoever accepts JSON gets the feed in pages, not as a stream.
        headers = {
            "User-Agent": f"holdfast/{__version__}",
            "Accept": "application/json",
            "Content-Type": "application/json",
        }
        if access_token:
            headers["Authorization"] = f"Bearer {access_token}"
        self.url = url
        self.time = Hearsay(clock)
        self._patience_s = patience_s
        self._closed = threading.Event()
        # No redirects, no proxies of the environment: an access token goes where the URL says and nowhere else.
        self._client = httpx2.Client(
            base_url=url.rstrip("/") + ROOT,
            headers=headers,
            limits=httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
            follow_redirects=False,
            trust_env=False,
        )

    def send(self, request: Request) -> bytes:
        """Send until there is an answer, and give its body.

        Raises the error the coordinator answered with; StoreBusy if nothing was done, or if it does no harm to ask
        anew; StoreFailed if the outcome is unknown.
        """
        ends_at = self.time.monotonic() + self._patience_s
        arrived, pause_s = False, FIRST_S
        while True:
            if self._closed.is_set():
                raise StoreClosed(f"the line to {self.url} was closed; the request was not sent.")
            retry_after_s = 0.0
            try:
                answer = self._once(request)
            except _UNSENT as problem:
                why = _words(problem)
            except httpx2.TransportError as problem:
                arrived, why = True, _words(problem)
            else:
                if answer.is_success:
                    return answer.content
                error = _error_of(answer)
                if answer.status_code not in _AGAIN:
                    raise error
                arrived = arrived or answer.status_code != 429
                why = error.message
                retry_after_s = _retry_after(answer)
            left_s = ends_at - self.time.monotonic()
            if left_s <= 0:
                raise self._unanswered(request, why, arrived=arrived)
            reach("http.again")
            jittered = pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads callers, it protects nothing
            self._closed.wait(min(max(jittered, retry_after_s), left_s))
            pause_s = min(LONGEST_S, 2 * pause_s)

    def _once(self, request: Request) -> httpx2.Response:
        reach("http.sending")
        answer = self._client.request(
            request.method,
            request.path,
            content=request.body,
            params=request.params,
            timeout=httpx2.Timeout(ANSWER_S + request.wait_s, connect=CONNECT_S),
        )
        reach("http.answered")
        if (now := answer.headers.get(NOW_HEADER)) is not None:
            self.time.hear(datetime.fromisoformat(now))
        return answer

    def _unanswered(self, request: Request, why: str, *, arrived: bool) -> HoldfastError:
        if arrived and not request.is_repeatable:
            return StoreFailed(
                f"{self.url} did not answer for {self._patience_s:g} s: {why}. Whether the request was carried out is "
                "not known.",
                hint="Send the same again, with the same ids: that settles it.",
                url=self.url,
            )
        return StoreBusy(
            f"{self.url} did not answer for {self._patience_s:g} s: {why}. Nothing was acknowledged.",
            hint="Is `holdfast serve` running there?",
            url=self.url,
        )

    def close(self) -> None:
        """Hang up; whoever waits to send again learns of it at once."""
        self._closed.set()
        self._client.close()


def _words(problem: Exception) -> str:
    return str(problem) or type(problem).__name__


def _error_of(answer: httpx2.Response) -> HoldfastError:
    if answer.status_code == 404 and not answer.content:  # the answer to a HEAD
        return NotFound("there is no such thing.")
    try:
        return msgspec.json.decode(answer.content, type=Problem).error()
    except (msgspec.DecodeError, TypeError):  # somebody else answered: a proxy, or no coordinator at all
        return StoreFailed(f"it answered {answer.status_code}, which is no answer of a coordinator", hint="")


def _retry_after(answer: httpx2.Response) -> float:
    try:
        return min(60.0, max(0.0, float(answer.headers.get("Retry-After", 0))))
    except ValueError:  # a date; the pauses are as good
        return 0.0
