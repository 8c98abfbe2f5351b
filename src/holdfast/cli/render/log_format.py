"""What the library logs, for people: the event's name and its facts on one line of stderr, from warnings on.

Only where nobody else listens: an application that sets up logging gets its events as it wants them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.render.terminal import safe, say

if TYPE_CHECKING:
    import logging


def show_events() -> None:
    """From now on tell warnings and errors of the library, unless somebody listens already."""
    import logging  # noqa: PLC0415 - `--help` starts without it

    class Teller(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(f"holdfast: {safe(told(record))}")
            if record.exc_info:
                # Something broke that nobody foresaw: without where it did, nobody can mend it.
                for line in logging.Formatter().formatException(record.exc_info).splitlines():
                    say(safe(line))

    log = logging.getLogger("holdfast")
    if not log.hasHandlers():
        log.addHandler(Teller(logging.WARNING))


def told(record: logging.LogRecord) -> str:
    """Write an event with its facts, which are the fields that a bare record does not have."""
    import logging  # noqa: PLC0415 - the same

    usual = vars(logging.makeLogRecord({}))
    facts = ", ".join(f"{name} {value}" for name, value in vars(record).items() if name not in usual)
    return f"{record.getMessage()}: {facts}" if facts else record.getMessage()
