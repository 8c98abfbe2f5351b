"""A command on a pseudo-terminal of its own, for tests of what people see."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from multiprocessing.connection import wait

#: What would change the look of a terminal.
FOREIGN = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")


class Terminal:
    """A command on a pseudo-terminal of its own."""

    def __init__(self, url, *args, columns=80, lines=24, stdin=None, **env):
        self.text = ""
        self._end, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from holdfast.cli import main; main()", *args],
            stdin=inner if stdin is None else stdin,
            stdout=inner,
            stderr=inner,
            env={**kept, "HOLDFAST_STORE": url, "TERM": "xterm", "PYTHONUTF8": "1", **env},
            start_new_session=True,
        )
        os.close(inner)

    def until(self, pattern):
        """Read until the pattern has been written."""
        while not re.search(pattern, self.text):
            assert self._read(), self.text

    def keys(self, text):
        os.write(self._end, text.encode())

    def resize(self, columns, lines):
        """Give the terminal another size, and tell the command as a terminal does."""
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def _read(self):
        ready = wait([self._end], 60)
        assert ready, f"nothing more after: {self.text}"
        try:
            found = os.read(self._end, 65536)
        except OSError:  # the other side has closed
            return False
        self.text += found.decode(errors="replace")
        return bool(found)

    def end(self):
        """Read to the end; give what was written and the exit code."""
        while self._read():
            pass
        os.close(self._end)
        return self.text.replace("\r\n", "\n"), self.process.wait(60)


def bare(text):
    """Give text without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
