"""An endpoint as data, what its handler is asked, and how it reads and orders.

A handler gets an `Ask` and gives a response. It looks in a thread, at one view of the store; what it orders is decided
with all that waits, by who asks, and a refusal is raised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.engine.engine import Engine
from holdfast.engine.reasons import Reasons
from holdfast.errors import Forbidden, IdReused, InvalidValue
from holdfast.model.access import Access
from holdfast.model.commands import Command
from holdfast.model.ids import uuid5
from holdfast.model.outcomes import Outcome, Refusal
from holdfast.model.records import Record
from holdfast.model.times import Timestamp
from holdfast.rules.access.roles import may_read, roles_for
from holdfast.rules.access.visibility import Sight, may_see, sight_in
from holdfast.rules.explain import Sees
from holdfast.stores.protocol import View
from holdfast.web.api.paging import Page, Query, cursor_of, place_in
from holdfast.web.bodies import answer
from holdfast.web.coordinator.coordinator import Coordinator

Q = TypeVar("Q")
B = TypeVar("B")
T = TypeVar("T")

#: Content that is no JSON of ours.
BYTES, TEXT, EVENTS = "application/octet-stream", "text/plain", "text/event-stream"

#: Ids that lead elsewhere in a path, however they are written.
CLIMBING = (".", "..")

#: Who may read what can be somebody's own.
SEEN = "reader, operator, admin; client: what it submitted"


class Ask(Generic[Q, B]):
    """One request, read."""

    def __init__(  # noqa: PLR0917 - the parts of a request, put together in one place
        self, request: Request, coordinator: Coordinator, access: Access, path: Mapping[str, str], query: Q, body: B
    ) -> None:
        self.request = request
        self.coordinator = coordinator
        self.access = access
        #: Parameters of the path, by name, as they were before they were encoded.
        self.path = path
        self.query = query
        self.body = body
        #: What the command's id is made from, if the caller chose something.
        self.key = request.headers.get("idempotency-key", "")

    @property
    def engine(self) -> Engine:
        """The authority."""
        return self.coordinator.engine

    @property
    def now(self) -> Timestamp:
        """The authority's time."""
        return self.engine.look().now

    @property
    def named(self) -> str | None:
        """The namespace that was named, or None."""
        found: str | None = getattr(self.query, "namespace", None)
        return found

    @property
    def namespace(self) -> str:
        """The namespace of lists and of what is made."""
        return self.named or ""

    @property
    def listed(self) -> str:
        """The list that is asked for, to which its cursors belong."""
        path: str = self.request.scope["path"]
        return path

    def place(self, kind: Any) -> Any:
        """Give the place that the cursor names, or None. Raises InvalidValue for one of another list."""
        return place_in(self.listed, getattr(self.query, "cursor", None), kind)

    def id_of(self, chosen: str | None, *parts: str) -> str:
        """Give the id that was chosen, or a new one. Raises InvalidValue for one that no path could name."""
        if chosen in CLIMBING:
            raise InvalidValue(
                f"{chosen!r} is no id for what is made here: clients and proxies take it out of a path, so nothing "
                "could be asked of it. Nothing was changed.",
                hint="Choose another one.",
                field="id" if parts[0] == "instance" else f"{parts[0]}_id",
            )
        return self.new_id(*parts) if chosen is None else chosen

    def new_id(self, *parts: str) -> str:
        """Make an id; the same one for the same Idempotency-Key of the same caller."""
        if not self.key:
            return self.engine.new_id()
        return uuid5("idempotency", self.access.name, self.namespace, self.key, *parts)

    @property
    def cmd(self) -> str:
        """The id of the command, empty without a key: nobody else's, although they chose the same key."""
        return self.new_id("command") if self.key else ""

    @property
    def digest(self) -> str:
        """What tells this request from another one under the same key; empty without a key."""
        if not self.key:
            return ""
        request = self.request
        said = (request.method, request.scope["path"], request.headers.get("if-match"), self.query, self.body)
        # Read again and put in order: who sends it again may write its fields in another one.
        plain = msgspec.json.decode(msgspec.json.encode(said))
        return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()

    def version(self) -> int | None:
        """Give the version that If-Match names, or None for any. Raises InvalidValue."""
        text = self.request.headers.get("if-match", "*").strip()
        if text == "*":
            return None
        digits = text.removeprefix('"').removesuffix('"')
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 10):
            raise InvalidValue(
                f"If-Match: {text!r:.40} is no version. Nothing was changed.",
                hint="Give the ETag of what was read.",
                field="If-Match",
            )
        return int(digits)

    # --- looking ------------------------------------------------------------------------------------------------------

    async def look(self, work: Callable[[View], T]) -> T:
        """Look at the store as it is now, in a thread."""

        def looking() -> T:
            with self.engine.read() as view:
                return work(view)

        return await self.coordinator.in_thread(looking)

    async def page(self, find: Callable[[View], tuple[Iterable[T], Any]]) -> Response:
        """Answer with the rows that are found, and a cursor to the place to go on behind; None: there are no more."""

        def looking(view: View) -> Page[T]:
            rows, place = find(view)
            cursor = None if place is None else cursor_of(self.listed, place)
            return Page(items=list(rows), next_cursor=cursor, as_of=view.seq)

        return told(await self.look(looking))

    def reasons(self, view: View) -> Reasons:
        """Give what says why jobs are where they are."""
        return Reasons(view, self.now, self.engine.store.workers.all(), self.eyes(view))

    def demand_list(self, *, namespace: str | None = None) -> None:
        """Demand that they may list all that belongs to a namespace. Raises Forbidden."""
        if sight_in(self.access, namespace) is not Sight.ALL:
            raise self.forbidden()

    def submitter(self, *, namespace: str | None = None) -> str | None:
        """Give who must have submitted what is listed of a namespace; None: anybody. Raises Forbidden."""
        match sight_in(self.access, namespace):
            case Sight.ALL:
                return None
            case Sight.OWN:
                return self.access.name
            case Sight.NOTHING:
                raise self.forbidden()

    def sees(self, record: Record, view: View) -> bool:
        """Tell whether a record is there for them."""
        return may_see(self.access, record, view)

    def eyes(self, view: View) -> Sees:
        """Give what tells whether something that holds a job, which is in the same namespace, is there for them."""
        return None if may_read(self.access) else lambda thing: self.sees(thing, view)

    def forbidden(self) -> Forbidden:
        """Say that they may not."""
        return Forbidden(f"{self.access.name} has no role for that, or not there. Nothing was done.")

    # --- ordering -----------------------------------------------------------------------------------------------------

    async def order(self, command: Command) -> Outcome:
        """Have a command decided; its outcome is durable. Raises what refuses it."""
        (outcome,) = await self.coordinator.decide(self.access, [command])
        if isinstance(outcome, Refusal):
            error = outcome.error()
            # Of a key they know nothing but the key, not the id that was made from it.
            if isinstance(error, IdReused) and self.key and error.facts.get("cmd") == self.cmd:
                raise IdReused(
                    "the key of this request was used before, for something else. Nothing was changed.",
                    hint="Choose another Idempotency-Key.",
                )
            raise error
        return outcome


Handler = Callable[[Ask[Any, Any]], Awaitable[Response]]


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """What is done at one path by one method."""

    method: str
    #: Below the root, with the names of its parameters in braces.
    path: str
    #: One sentence.
    summary: str
    #: None: it is served elsewhere (`web.routes`), and only described here.
    handler: Handler | None
    #: Status of a success → its content: a struct, the media type of what is no struct, or None.
    answers: Mapping[int, Any]
    query: type = Query
    body: Any = None
    #: Statuses of errors beyond those that any request may meet.
    refuses: tuple[int, ...] = ()
    #: The command it sends; None if it reads.
    sends: type | None = None
    #: Headers it heeds beside Idempotency-Key.
    headers: tuple[str, ...] = ()
    #: Whether it answers with an ETag.
    has_version: bool = False
    #: Who may, in words, where neither the command nor the common rule for reading says so.
    roles: str = ""

    @property
    def parameters(self) -> list[str]:
        """The names of the path's parameters, in order."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @property
    def allowed(self) -> str:
        """Say who may."""
        return self.roles or ", ".join(roles_for(self.sends))


def told(content: Any, status: int = 200, *, version: int | None = None) -> Response:
    """Answer with a struct."""
    response = answer(content, status)
    if version is not None:
        response.headers["ETag"] = f'"{version}"'
    return response


def done(identity: str) -> Response:
    """Answer that it is as asked."""
    return told(Settled(identity))


def gone() -> Response:
    """Answer that it is there no more."""
    return Response(status_code=204)


class Settled(msgspec.Struct, frozen=True):
    """It is as asked."""

    id: str
