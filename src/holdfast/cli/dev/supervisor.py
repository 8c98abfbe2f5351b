"""The watching half of `holdfast dev`: start a child, look at its files, start another when they have changed.

On a change the child is asked to stop first and the next one starts when it is gone, so that a store for one process
is never wanted twice. Files are looked at before a child starts: what is saved while it imports is a change.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType

import msgspec

from holdfast.cli.dev import files
from holdfast.cli.dev.messages import Broken, Files, News, Ready, Settings, decode_news
from holdfast.cli.render import status_labels
from holdfast.cli.render.errors import INTERRUPTED
from holdfast.cli.render.terminal import safe, safe_lines, say, screen
from holdfast.errors import InvalidValue

#: Seconds between two looks at the files. A change counts when the next look sees the same: editors write in steps.
LOOK_S = 0.25
#: Seconds that a child has to leave when everything is to end at once.
LEAVE_S = 3.0


def develop(settings: Settings) -> int:
    """Watch and restart until told to stop; give the exit code."""
    with tempfile.TemporaryDirectory(prefix="holdfast-dev-") if settings.temp else nullcontext("") as place:
        parent = _Parent(msgspec.structs.replace(settings, place=place))
        with _listening(parent.ask_to_stop):
            return parent.run()


@contextmanager
def _listening(heard: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Parent:
    """Holds at most one child."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._looks = screen("auto", sys.stderr)
        self._child: _Child | None = None
        #: How the files were when the child started, and when they were last looked at.
        self._before: files.Prints = {}
        self._last: files.Prints = {}
        #: Times that somebody asked for the end.
        self._asked = 0
        self._told_to_stop = False
        self._reload = True
        self._greeted = False
        #: How to exit, once it is known that there is no use in waiting.
        self._code = 0

    def ask_to_stop(self, _number: int, _frame: FrameType | None) -> None:
        """Hear a signal; the loop sees to it within a look."""
        self._asked += 1

    def run(self) -> int:
        """Watch until told to stop."""
        while True:
            if self._child is None:
                if self._asked or self._code:
                    return self._code
                if self._reload:
                    self._start()
            self._hear()
            if self._asked > 1:
                return self._leave_now()
            if self._asked and self._child is not None and not self._told_to_stop:
                within = f"running jobs have {self._settings.grace_s:g} s to end"
                self._say(status_labels.READY, f"stopping; {within}; Ctrl-C again leaves at once")
                self._stop_child()
            self._look()

    # --- the child ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._reload = self._told_to_stop = False
        self._before = self._last = files.prints(self._before)
        self._child = _Child(self._settings)

    def _stop_child(self) -> None:
        if self._child is not None and not self._told_to_stop:
            self._told_to_stop = True
            self._child.process.terminate()

    def _hear(self) -> None:
        """Take what the child says, for up to a look."""
        child = self._child
        ready, _, _ = select.select([] if child is None else [child.news], [], [], LOOK_S)
        if child is None or not ready:
            return
        for news in child.read():
            self._take(news)
        if child.is_silent:
            self._child = None
            code = child.end()
            if code and not child.is_broken and not self._told_to_stop:
                self._say(
                    status_labels.FAILED, f"the worker ended with code {code}; it starts again when a file changes"
                )

    def _take(self, news: News) -> None:
        match news:
            case Files():
                found = files.prints(news.paths)
                self._before = {**found, **self._before}
                self._last = {**found, **self._last}
            case Ready():
                self._greet(news)
            case Broken():
                self._take_broken(news)

    def _take_broken(self, news: Broken) -> None:
        no_file = not self._before
        if no_file or (news.exit_code != InvalidValue.exit_code and not self._greeted):
            # A name that is none, a store that another has: no save would mend it.
            say(f"holdfast: {safe(news.text)}")
            self._code = news.exit_code
            return
        for line in safe_lines(news.text):
            say(f"  {line}")
        self._say(status_labels.FAILED, f"{self._settings.app} cannot be used; it starts when that is mended")

    # --- the files ----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        now = files.prints(self._before)
        settled, self._last = now == self._last, now
        found = files.changed(self._before, now)
        if not (found and settled) or self._asked:
            return
        more = f" and {len(found) - 1} more" if found[1:] else ""
        self._say(status_labels.BACKOFF, f"{_short(found[0])}{more} changed")
        self._before = now
        self._reload = True
        self._stop_child()

    # --- words --------------------------------------------------------------------------------------------------------

    def _say(self, look: status_labels.Look, text: str) -> None:
        say(f"{self._looks.glyph(look)} {safe(text)}")

    def _greet(self, ready: Ready) -> None:
        count = f"{len(ready.tasks)} task{'' if len(ready.tasks) == 1 else 's'}"
        if self._greeted:
            self._say(status_labels.RUNNING, f"works again: {count}")
            return
        self._greeted = True
        rows = {
            "store": f"{ready.url}, {self._fate(ready.url)}",
            "tasks": ", ".join(ready.tasks) or "none",
            "files": f"{len(self._before)}, watched for changes",
        }
        self._say(status_labels.RUNNING, f"{self._settings.app} works; Ctrl-C stops it")
        for title, text in rows.items():
            say(f"  {self._looks.faint(title.ljust(5))}  {safe(text)}")

    def _fate(self, url: str) -> str:
        if url.startswith("memory:"):
            return "gone with each restart"
        return "thrown away at the end" if self._settings.temp else "kept"

    def _leave_now(self) -> int:
        if self._child is not None:
            self._child.process.terminate()  # its second: it releases what it holds and leaves
            try:
                self._child.process.wait(LEAVE_S)
            except subprocess.TimeoutExpired:
                self._child.process.kill()
            self._child.end()
        return INTERRUPTED


def _short(path: str) -> str:
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


class _Child:
    """One child process, and what it says."""

    def __init__(self, settings: Settings) -> None:
        self.news, theirs_news = os.pipe()
        theirs_life, self._lifeline = os.pipe()
        command = [sys.executable, "-m", "holdfast.cli.dev.child", msgspec.json.encode(settings).decode()]
        try:
            # A group of its own: Ctrl-C is for the parent, which asks the child itself.
            self.process = subprocess.Popen(  # noqa: S603 - our own module
                [*command, str(theirs_news), str(theirs_life)],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs_news, theirs_life),
                # Compiled copies are matched by second and size: two saves in one second would run the first.
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                process_group=0,
            )
        finally:
            os.close(theirs_news)
            os.close(theirs_life)
        self._rest = b""
        #: It has closed its pipe, so it ends.
        self.is_silent = False
        self.is_broken = False

    def read(self) -> Iterator[News]:
        """Give what it has said, line by line."""
        found = os.read(self.news, 1 << 16)
        self.is_silent = not found
        *lines, self._rest = (self._rest + found).split(b"\n")
        for line in lines:
            news = decode_news.decode(line)
            self.is_broken |= isinstance(news, Broken)
            yield news

    def end(self) -> int:
        """Wait for the process and let go of it; give its exit code."""
        code = self.process.wait()
        os.close(self.news)
        os.close(self._lifeline)
        return code
