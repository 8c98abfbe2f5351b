"""The working half of `holdfast dev`: import the application, say what it is made of, work until told to stop.

Writes news to one pipe; the other end of a second pipe is the parent's, and nothing is ever written there: when it
closes, the parent is gone, and what runs is released at once.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.app.application import Holdfast
from holdfast.cli.app_loader import load
from holdfast.cli.dev import files
from holdfast.cli.dev.job_lines import follow
from holdfast.cli.dev.messages import Broken, Files, News, Ready, Settings, encode_news
from holdfast.cli.render.terminal import safe, say
from holdfast.errors import HoldfastError
from holdfast.stores.opening import parse_url
from holdfast.workers.worker import Worker
from holdfast.workflows.determinism.guard import Guard

#: Seconds between two looks for modules that were imported later.
LOOK_S = 1.0
#: Seconds that a child has to leave when its parent is gone.
LEAVE_S = 10.0


def main(settings_json: str, news_fd: int, lifeline_fd: int) -> int:
    """Be a child. Gives the exit code."""
    settings = msgspec.json.decode(settings_json, type=Settings)
    for fd in (news_fd, lifeline_fd):
        os.set_inheritable(fd, False)  # noqa: FBT003 - the system's own signature
    hired: list[Worker] = []
    threading.Thread(target=_outlive_nobody, args=(lifeline_fd, hired), name="lifeline", daemon=True).start()
    tell = _Teller(news_fd)
    try:
        app = load(settings.app)
        url = _elsewhere(app, settings.place) if settings.temp else app.url
        worker = app.worker(concurrency=settings.concurrency)
    except HoldfastError as error:
        tell(Files(tuple(files.imported(sys.modules) | files.blamed(error.__cause__ or error))))
        tell(Broken(_why(error), error.exit_code))
        return error.exit_code
    hired.append(worker)
    tell(Files(tuple(files.imported(sys.modules))))
    tell(Ready(url=url, tasks=app.tasks.names()))
    threading.Thread(target=_tell_imports, args=(tell,), name="imports", daemon=True).start()
    follow(app.engine, worker.worker_id)
    app.workflows.guard = Guard(on_read=_Warner())
    try:
        worker.run(settings.grace_s)
    except HoldfastError as error:
        say(f"holdfast: {safe(f'{error.message} {error.hint}'.rstrip())}")
        return error.exit_code
    finally:
        app.close()
    return 0


class _Warner:
    """Says once of each line of a workflow that it reads what no replay can give it again."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, found: Exception) -> None:
        if str(found) not in self._told:
            self._told.add(str(found))
            say(f"holdfast: {safe(str(found))}")


class _Teller:
    """Writes news, one line each; a parent that is gone hears nothing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def __call__(self, news: News) -> None:
        rest = memoryview(encode_news(news) + b"\n")
        with self._lock, suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(self._fd, rest) :]


def _outlive_nobody(lifeline_fd: int, hired: list[Worker]) -> None:
    os.read(lifeline_fd, 1)
    if hired:
        hired[0].stop()
        hired[0].join(LEAVE_S)
    os._exit(1)  # also while the application is being imported


def _tell_imports(tell: _Teller) -> None:
    """Tell of files that handlers import when they first run."""
    count, rest = 0, threading.Event()
    while True:
        rest.wait(LOOK_S)
        if len(sys.modules) != count:
            count = len(sys.modules)
            tell(Files(tuple(files.imported(sys.modules))))


def _elsewhere(app: Holdfast, place: str) -> str:
    """Move an application to a store in another place, of the same kind. Raises InvalidOperation if its own is open."""
    scheme = parse_url(app.url).scheme
    if scheme != "memory":
        app.configure(f"{scheme}:{Path(place) / 'jobs'}")
    return app.url


def _why(error: HoldfastError) -> str:
    """Say what is wrong; for what the application raised, with its own lines of the way there."""
    cause = error.__cause__
    if cause is None:
        return f"{error.message} {error.hint}".rstrip()
    own = files.blamed(cause)
    frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if frame.filename in own]
    return "".join([*traceback.format_list(frames), *traceback.format_exception_only(cause)]).rstrip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
