"""An inline step: a function that the worker runs within a turn, and whose outcome is recorded.

The runtime numbers it, hands it out as a StepCall, and takes its outcome back as text or details. How it is run, on
which thread or loop, is the worker's affair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.model.error_details import ErrorDetails
from holdfast.model.payloads import pack
from holdfast.model.workflows.event_kinds import AnyKind
from holdfast.model.workflows.history import step_key
from holdfast.workflows.api.definitions import Codec
from holdfast.workflows.api.error_conversion import USER_CODE_RAISES, details_of, encoding_details

#: Seconds before an attempt of a step is repeated: FIRST · 2ⁿ, at most LONGEST.
FIRST, LONGEST = 0.1, 5.0


@dataclass(kw_only=True, eq=False)
class StepCall:
    """A step that waits to be run, or runs."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    #: Seconds one attempt may take.
    timeout_s: float | None = None
    #: Attempts in this process.
    attempts: int = 1
    codec: Codec | None = None
    #: From here on set by the execution.
    step_no: int = 0
    instance: str = ""
    execution_id: int = 0
    is_started: bool = False
    future: asyncio.Future[AnyKind] = field(init=False, repr=False)

    @property
    def idempotency_key(self) -> str:
        """The same on every attempt, also after a crash."""
        return step_key(self.instance, self.execution_id, self.step_no)

    def outcome(self, value: Any) -> str | ErrorDetails:
        """Write what the function gave; what is not JSON becomes a failure."""
        try:
            packed = pack(value, "result") if self.codec is None else self.codec.pack_result(value)
        except USER_CODE_RAISES as problem:
            return encoding_details(f"the result of step {self.name!r}", problem)
        return bytes(packed).decode()

    def failure(self, problem: BaseException, attempts: int = 1) -> ErrorDetails:
        """Write what the function raised."""
        return msgspec.structs.replace(details_of(problem), attempt_count=attempts, max_attempts=self.attempts)

    def decode(self, text: str) -> Any:
        """Read a result as the function's annotation says."""
        raw = msgspec.Raw(text.encode())
        return msgspec.json.decode(raw) if self.codec is None else self.codec.unpack_result(raw)


def pause_before(attempt: int) -> float:
    """Give the seconds to wait before attempt `attempt` (2 is the first repetition)."""
    return float(min(LONGEST, FIRST * 2 ** (attempt - 2)))
