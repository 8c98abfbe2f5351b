"""Calling a coordinator: one pool of connections, and the rules for answers that do not come.

On a connection error, a timeout, 429, 502, 503 or 504 the same bytes are sent again, after 0.2 s · 2ⁿ, at most 5 s,
with jitter, and never before a Retry-After has passed. That is safe because commands carry their ids. So is whatever is
no answer of a coordinator: somebody in between spoke. Any other answer is final. Whoever runs out of patience learns
whether the request may have arrived. Whoever has better things to do than to wait asks for one attempt alone; whoever
waits for a limited time (`stores.deadline`) is told when that is over, whatever patience there would be.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2
import msgspec

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, NotFound, StoreBusy, StoreClosed, StoreFailed
from holdfast.failpoints import reach
from holdfast.rules.webhooks.loopback import is_loopback
from holdfast.stores.backoff import FIRST_S, LONGEST_S, jittered
from holdfast.stores.deadline import deadline
from holdfast.stores.http.compression import GZIP, WORTH, ZSTD, packed
from holdfast.stores.http.coordinator_clock import Hearsay
from holdfast.stores.http.tls import trusted
from holdfast.stores.http.wire import NOW_HEADER, ROOT, Problem
from holdfast.version import __version__

#: Seconds for connecting; without a byte of an answer, beyond what a long poll is asked to wait; for a whole answer.
CONNECT_S, ANSWER_S, WHOLE_S = 5.0, 10.0, 60.0
#: Seconds without a byte of an answer to content that has to reach a disk first; for as long as bytes come.
CONTENT_S = 40.0
#: Seconds of an attempt that nothing depends on.
SOFT_S = 2.0
#: Seconds that an answer may come later than its caller wanted to wait: it may be on its way.
LAST_S = 2.0
#: The longest Retry-After that is believed, in seconds.
_BELIEVED_S = 60.0
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
    #: It may be long, and lasts for as long as bytes come.
    is_content: bool = False
    #: How the body was made smaller, if it was.
    encoding: str = ""


class _Answer(NamedTuple):
    status: int
    headers: httpx2.Headers
    content: bytes

    @property
    def is_coordinators(self) -> bool:
        """Whether a coordinator gave it, and not somebody in between."""
        return NOW_HEADER in self.headers


class Channel:
    """The channel to one coordinator. For any thread."""

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
        #: Attempts under way. The last of them closes the pool: a connection that is made meanwhile would be nobody's.
        self._lock = threading.Lock()
        self._talking = 0
        #: Bodies are made smaller for the way. Within one machine that costs more than it saves.
        self.packs = not is_near(url)
        headers["Accept-Encoding"] = f"{ZSTD}, {GZIP}" if self.packs else "identity"
        #: A coordinator has answered.
        self._has_met = False
        # No redirects, no proxies of the environment: an access token goes where the URL says and nowhere else.
        self._client = httpx2.Client(
            base_url=url.rstrip("/") + ROOT,
            headers=headers,
            limits=httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
            follow_redirects=False,
            trust_env=False,
            verify=trusted(url),
        )

    def send(self, request: Request, *, attempt_s: float | None = None) -> bytes:
        """Send until there is an answer, and give its body; with `attempt_s` once only, for so many seconds.

        Not again once the caller's own time is over: then the last attempt has a moment left.
        Raises the error the coordinator answered with; StoreBusy if nothing was done, or if it does no harm to ask
        anew; StoreFailed if the outcome is unknown. Of these two the fact `retry_after_s` says what was wished for.
        """
        if self.packs and request.body is not None and len(request.body) >= WORTH and not request.is_content:
            request = request._replace(body=packed(request.body), encoding=ZSTD)
        began = self.time.monotonic()
        ends_at = min(began + (self._patience_s if attempt_s is None else 0.0), deadline())
        arrived, pause_s = False, FIRST_S
        while True:
            retry_after_s = 0.0
            try:
                with self._talk():
                    answer = self._once(request, ANSWER_S if attempt_s is None else attempt_s)
            except _UNSENT as problem:
                why = _words(problem)
                if not self._has_met and _is_unbelieved(problem):  # waiting would not help
                    raise self._unbelieved(why) from problem
            except httpx2.TransportError as problem:
                arrived, why = True, _words(problem)
            else:
                self._has_met = self._has_met or answer.is_coordinators
                if 200 <= answer.status < 300 and answer.is_coordinators:
                    return answer.content
                error = _error_of(answer)
                # Who never met a coordinator here has the wrong address, and is told at once.
                if answer.status not in _AGAIN and (answer.is_coordinators or not self._has_met):
                    raise error
                arrived = arrived or answer.status != 429
                why, retry_after_s = error.message.rstrip("."), _retry_after(answer)
            left_s = ends_at - self.time.monotonic()
            if left_s <= 0 or retry_after_s > left_s:
                waited_s = self.time.monotonic() - began
                raise self._unanswered(request, why, waited_s, retry_after_s, arrived=arrived)
            reach("http.again")
            self._closed.wait(min(max(jittered(pause_s), retry_after_s), left_s))
            pause_s = min(LONGEST_S, 2 * pause_s)

    @contextmanager
    def _talk(self) -> Iterator[None]:
        with self._lock:
            if self._closed.is_set():
                raise StoreClosed(f"the channel to {self.url} was closed; the request was not sent.")
            self._talking += 1
        try:
            yield
        finally:
            with self._lock:
                self._talking -= 1
                is_over = self._closed.is_set() and not self._talking
            if is_over:
                self._client.close()

    def _once(self, request: Request, answer_s: float) -> _Answer:
        reach("http.sending")
        now = self.time.monotonic()
        last_s = max(0.0, deadline() - now) + LAST_S
        if request.is_content:
            answer_s, ends_at = CONTENT_S, float("inf")
        else:
            ends_at = now + min(WHOLE_S + request.wait_s, last_s)
        limits = httpx2.Timeout(min(answer_s + request.wait_s, last_s), connect=min(CONNECT_S, answer_s, last_s))
        headers = {"Content-Encoding": request.encoding} if request.encoding else None
        with self._client.stream(
            request.method,
            request.path,
            content=request.body,
            params=request.params,
            headers=headers,
            timeout=limits,
        ) as answer:
            parts: list[bytes] = []
            for part in answer.iter_bytes():
                parts.append(part)
                if self.time.monotonic() > ends_at:
                    raise httpx2.ReadTimeout("the answer came too slowly")
        reach("http.answered")
        if (told := answer.headers.get(NOW_HEADER)) is not None:
            self.time.hear(datetime.fromisoformat(told))
        return _Answer(answer.status_code, answer.headers, b"".join(parts))

    def _unbelieved(self, why: str) -> StoreBusy:
        return StoreBusy(
            f"{self.url} is not believed to be what it says: {why}. Nothing was sent.",
            hint="If its certificate is of an authority of your own, set SSL_CERT_FILE to that one's, in PEM.",
            url=self.url,
        )

    def _unanswered(
        self, request: Request, why: str, waited_s: float, retry_after_s: float, *, arrived: bool
    ) -> HoldfastError:
        silent = f"{self.url} gave no answer in {waited_s:.1f} s: {why}."
        if arrived and not request.is_repeatable:
            return StoreFailed(
                f"{silent} Whether the request was carried out is not known.",
                hint="Send the same again, with the same ids (id=, key=): what was carried out is not done twice.",
                url=self.url,
                retry_after_s=retry_after_s,
            )
        return StoreBusy(
            f"{silent} Nothing was acknowledged, and asking again does no harm.",
            hint="Is `holdfast serve` running there?",
            url=self.url,
            retry_after_s=retry_after_s,
        )

    def close(self) -> None:
        """Hang up; whoever waits to send again learns of it at once, whoever waits for an answer still gets it."""
        with self._lock:
            self._closed.set()
            is_over = not self._talking
        if is_over:
            self._client.close()


def is_near(url: str) -> bool:
    """Tell whether a URL is of this machine itself."""
    return is_loopback(urlsplit(url).hostname or "")


def _words(problem: Exception) -> str:
    return str(problem).rstrip(".") or type(problem).__name__


def _is_unbelieved(problem: BaseException | None) -> bool:
    """Tell whether a certificate is at the bottom of it."""
    while problem is not None and not isinstance(problem, ssl.SSLCertVerificationError):
        problem = problem.__cause__ or problem.__context__
    return problem is not None


def _error_of(answer: _Answer) -> HoldfastError:
    if answer.status == 404 and not answer.content and answer.is_coordinators:  # the answer to a HEAD
        return NotFound("there is no such thing.")
    try:
        return msgspec.json.decode(answer.content, type=Problem).error()
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError):  # a proxy, or no coordinator at all
        return StoreFailed(f"it answered {answer.status}, which is no answer of a coordinator", hint="")


def _retry_after(answer: _Answer) -> float:
    try:
        return min(_BELIEVED_S, max(0.0, float(answer.headers.get("Retry-After", 0))))
    except ValueError:  # a date; the pauses are as good
        return 0.0
