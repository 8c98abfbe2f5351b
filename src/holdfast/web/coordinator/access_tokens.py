"""The access tokens a coordinator knows, read again whenever their file was changed.

A token that was revoked, made or has expired counts as such from the next request on. A file that is gone holds none.
One that cannot be used, because it is damaged or others can read it, changes nothing: what was known before stays, so
that a slip of the hand does not lock everybody out, and an error is logged. Requests that have arrived together share
one look. The order of a look: what the file is, then what it holds; whoever writes between the two is seen at the next.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.clock import Clock, SystemClock
from holdfast.errors import HoldfastError, Unauthorized
from holdfast.model.access import Access
from holdfast.model.times import stamp
from holdfast.stores import access_file
from holdfast.web.coordinator.request_coalescing import Shared

log = logging.getLogger("holdfast.serve")

#: What a file is known by. Its content is always replaced whole; its mode may change alone.
_Print = tuple[int, ...]


class Keyring:
    """Access tokens, by what they hash to. Belongs to one event loop."""

    def __init__(
        self, accesses: Sequence[Access] = (), *, file: Path | None = None, clock: Clock | None = None
    ) -> None:
        """Know these, or those of a file. Raises what `accessfile.read` raises: at the start nothing is known yet."""
        self._file = file
        self._clock = clock or SystemClock()
        self._print: _Print | None = None
        #: What the file was when it could not be used, and that was told. It is tried again with every look: what kept
        #: it from being read, such as too many open files, need not show on it.
        self._told: _Print | None = None
        self._accesses = tuple(accesses)
        # Each look gives the interpreter away to the thread that commits: a hundred requests waited a hundred times.
        self._looked = Shared(self._look)
        if file is not None:
            self._print = _print_of(file)
            self._accesses = tuple(access_file.read(file))

    def all(self) -> Sequence[Access]:
        """Give all there are now, expired ones too."""
        return self._looked()

    def find(self, shown: str) -> Access:
        """Give what a shown token stands for. Raises Unauthorized. Takes as long whichever it is, and if it is none."""
        digest = hashlib.sha256(shown.encode(errors="surrogateescape")).hexdigest()
        found: Access | None = None
        for access in self.all():
            if hmac.compare_digest(access.digest, digest):
                found = access
        if found is None:
            raise Unauthorized("the access token is not known. Nothing was done.", hint="Was it revoked?")
        if self._is_over(found):
            raise Unauthorized(
                f"the access token {found.name!r} expired at {found.expires_at}. Nothing was done.",
                hint="Make another with `holdfast access add`.",
            )
        return found

    def holds(self, access: Access) -> bool:
        """Tell whether what was found once would be found again."""
        return access in self.all() and not self._is_over(access)

    def _is_over(self, access: Access) -> bool:
        return access.expires_at is not None and access.expires_at <= stamp(self._clock.now())

    def _look(self) -> Sequence[Access]:
        if self._file is not None:
            self._read_again(self._file)
        return self._accesses

    def _read_again(self, file: Path) -> None:
        found = _print_of(file)
        if found == self._print:
            return
        try:
            self._accesses = tuple(access_file.read(file))
        except HoldfastError as problem:
            # Told once for each state of the file, not with every request.
            if found != self._told:
                log.error("serve.access_file", extra={"file": str(file), "problem": str(problem)})  # noqa: TRY400 - no bug
            self._told = found
        else:
            self._print, self._told = found, None
            log.info("serve.access_read", extra={"file": str(file), "tokens": len(self._accesses)})


def _print_of(file: Path) -> _Print | None:
    try:
        found = os.stat(file)  # noqa: PTH116 - asked with every request, and this is half the price
    except FileNotFoundError:
        return None
    except OSError:  # reading it tells why
        return ()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode
