"""Wake-up between processes: a waiting one binds a datagram socket beside the database, a committing one sends a byte.

Right without it, only slower: a wake-up says "look again", never what there is. No byte is lost that matters, because a
waiter binds first and looks second, and a committer commits first and rings second. The directory is ours alone (0700);
names in it are made by us, and found ones are only ever sent to.
"""

from __future__ import annotations

import os
import secrets
import socket
import stat
import threading
from contextlib import suppress
from pathlib import Path

#: How long a waiter sleeps at most before it looks by itself: with a socket, and without one. Seconds.
WITH_BELL_S = 1.0
WITHOUT_BELL_S = 0.05
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Bells:
    """Rings waiters of this process and of others."""

    def __init__(self, database: str) -> None:
        self._place = f"{database}-wake"
        self._rung = threading.Condition()
        self._count = 0
        self._socket: socket.socket | None = None
        self._name = ""
        self._tried = False
        self._closed = False

    @property
    def pause_s(self) -> float:
        """How long to sleep at most before looking without being rung."""
        return WITHOUT_BELL_S if self._socket is None else WITH_BELL_S

    def count(self) -> int:
        """Give a number that every ring changes; from here on other processes can ring too."""
        with self._rung:
            if not self._tried and not self._closed:
                self._tried = True
                self._bind()
            return self._count

    def sleep(self, count: int, timeout: float) -> None:
        """Wait until rung since `count` was given, or until `timeout` seconds have passed."""
        with self._rung:
            self._rung.wait_for(lambda: self._closed or self._count != count, timeout)

    def ring(self) -> None:
        """Wake every waiter of this process and of others. Never blocks, never fails."""
        self._ring_here()
        with suppress(OSError):
            fd = os.open(self._place, _DIRECTORY)
            try:
                self._ring_there(fd)
            finally:
                os.close(fd)

    def close(self) -> None:
        """Let everybody go and take the socket away."""
        with self._rung:
            self._closed = True
            self._rung.notify_all()
            ear, self._socket = self._socket, None
        if ear is not None:
            with suppress(OSError):
                Path(self._place, self._name).unlink()
            with suppress(OSError):
                ear.shutdown(socket.SHUT_RDWR)  # ends the listener's recv
            ear.close()

    def leave_to_parent(self) -> None:
        """In a forked child: drop the socket without touching what the parent has bound."""
        self._closed = True
        if self._socket is not None:
            self._socket.close()

    def _ring_here(self) -> None:
        with self._rung:
            self._count += 1
            self._rung.notify_all()

    def _ring_there(self, fd: int) -> None:
        names = [name for name in os.listdir(fd) if name != self._name]
        if not names:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mouth:
            mouth.settimeout(0)
            for name in names:
                try:
                    mouth.sendto(b"\0", _address(fd, name))
                except ConnectionRefusedError:
                    _remove_dead(fd, name)
                except OSError:
                    # Above all a full buffer: that waiter has rings enough to come.
                    continue

    def _bind(self) -> None:
        """Bind a socket of our own and listen; without one waiters look by themselves."""
        with suppress(OSError):
            Path(self._place).mkdir(mode=0o700, exist_ok=True)
            fd = os.open(self._place, _DIRECTORY)
            try:
                found = os.fstat(fd)
                if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
                    return
                ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                name = secrets.token_hex(8)
                try:
                    ear.bind(_address(fd, name))
                except OSError:
                    ear.close()
                    raise
            finally:
                os.close(fd)
            self._socket, self._name = ear, name
            threading.Thread(target=self._listen, args=(ear,), name="holdfast-sqlite-bell", daemon=True).start()

    def _listen(self, ear: socket.socket) -> None:
        with suppress(OSError):
            while not self._closed:
                ear.recv(1)
                self._ring_here()


def _remove_dead(fd: int, name: str) -> None:
    """Remove a socket whose process is gone; what is no socket was not put there by us."""
    with suppress(OSError):
        if stat.S_ISSOCK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=fd)


def _address(fd: int, name: str) -> str:
    """Name a socket by its directory's descriptor: a path could be longer than an address may be."""
    return f"/proc/self/fd/{fd}/{name}"
