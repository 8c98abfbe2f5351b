"""By which a handler chooses its outcome, other than returning or failing. They are no errors of ours."""

from __future__ import annotations


class Signal(Exception):
    """A handler's wish about its own execution."""


class Retry(Signal):
    """Count a failed attempt and try again, after `after` seconds or the task's own backoff."""

    def __init__(self, message: str = "the handler asked for a retry", *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Fatal(Signal):
    """Fail for good, whatever is left of the attempts."""


class Snooze(Signal):
    """Call again in `delay` seconds; uses up no attempt."""

    def __init__(self, delay: float) -> None:
        super().__init__(f"snoozed for {delay} s")
        self.delay = delay


class Cancel(Signal):
    """End the job CANCELLED."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
