"""What stands at the port from the first moment on: says that the process lives, and that the rest comes in a moment.

Once the coordinator is ready, everything goes there.
"""

from __future__ import annotations

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import StoreBusy
from holdfast.web.headers import safely
from holdfast.web.problems import response_to


class Front:
    """The application that the server knows."""

    def __init__(self) -> None:
        #: Who answers; None while the store is being recovered.
        self.behind: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        if self.behind is not None:
            await self.behind(scope, receive, send)
            return
        answer: Response = PlainTextResponse("ok\n")
        if scope["path"] != "/healthz":
            answer = response_to(StoreBusy("the store is being recovered. Nothing was done.", hint="In a moment."))
        # What belongs to the request was not read.
        answer.raw_headers = [*safely(answer.raw_headers), (b"connection", b"close")]
        await answer(scope, receive, send)
