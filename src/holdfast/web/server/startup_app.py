"""What stands at the port from the first moment on: says that the process lives, and that the rest comes in a moment.

Once the coordinator is ready, everything goes there. Whom it could not answer before its end is told to send the same
again.
"""

from __future__ import annotations

import asyncio

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import StoreBusy
from holdfast.web.middleware.security_headers import safely
from holdfast.web.problems import response_to


class Front:
    """The application that the server knows."""

    def __init__(self) -> None:
        #: Who answers; None while the store is being recovered.
        self.behind: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        if self.behind is not None:
            await _handed(self.behind, scope, receive, send)
            return
        answer: Response = PlainTextResponse("ok\n")
        if scope["path"] != "/healthz":
            answer = response_to(
                StoreBusy("the store is being recovered. Nothing was done.", hint="Send it again in a moment.")
            )
        # What belongs to the request was not read.
        await _last(answer)(scope, receive, send)


async def _handed(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Hand a request on. One that the end of the server cuts short is not an error: whoever asked can ask the next."""
    has_begun = False

    async def sending(message: Message) -> None:
        nonlocal has_begun
        has_begun = True
        await send(message)

    try:
        await app(scope, receive, sending)
    except asyncio.CancelledError:  # by the server alone, when those under way have had their time
        if not has_begun:
            ending = StoreBusy(
                "the coordinator ends. Whether anything was done is not known.",
                hint="Send the same again, with the same ids: that settles it.",
            )
            await _last(response_to(ending))(scope, receive, send)


def _last(answer: Response) -> Response:
    answer.raw_headers = [*safely(answer.raw_headers), (b"connection", b"close")]
    return answer
