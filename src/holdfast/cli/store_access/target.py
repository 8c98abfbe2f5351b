"""Which store a command speaks to. Reading takes no lock and changes nothing; writing is refused while another has it.

A `dir:` or `wal:` belongs to one process. Looking at it from outside reads its files anew, so a look is made only when
they have changed. If that process is a coordinator on this machine, it is asked to do what is to be changed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import click

from holdfast.cli.render.log_format import show_events
from holdfast.cli.render.terminal import safe, say
from holdfast.clock import SystemClock
from holdfast.engine.admission import admitted
from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import recover
from holdfast.engine.remote_admission import Unkept
from holdfast.errors import InvalidOperation, InvalidValue, NotFound, StoreFailed, StoreLocked, UsageError
from holdfast.model.commands import Command
from holdfast.model.ids import NAME_HINT, is_name
from holdfast.model.outcomes import Outcome, Refusal
from holdfast.model.times import Timestamp, stamp
from holdfast.rules.decide import decide
from holdfast.rules.random_source import Draws
from holdfast.stores.opening import StoreUrl, open_store, parse_url
from holdfast.stores.protocol import Store, View

F = TypeVar("F", bound=Callable[..., Any])

#: Stores of one process → the directory in which every commit leaves its mark.
_MARKED = {"dir": "data/feed", "wal": "log"}
#: How often these marks are looked at, in seconds: such a store rings no bell for other processes.
MARK_PAUSE_S = 0.1
#: How long somebody at a terminal waits for a coordinator that gives no answer, in seconds.
PATIENCE_S = 5.0


class Target(NamedTuple):
    """The store a command was given, and the namespace it looks at."""

    url: str
    #: None if none was named: lists then show the default one, ids are found in any.
    namespace: str | None

    @property
    def name(self) -> str:
        """The namespace of lists and new jobs."""
        return self.namespace or ""

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Open the store for looking. Raises NotFound if there is none."""
        show_events()
        reader = Reader(self.url)
        try:
            yield reader
        finally:
            reader.close()

    @contextmanager
    def look(self) -> Iterator[View]:
        """Look at the store once."""
        with self.reading() as reader, reader.look() as view:
            yield view

    @contextmanager
    def writing(self, *, create: bool = False) -> Iterator[Engine]:
        """Open the store for changing. Raises StoreLocked with pid and host if another process has it."""
        show_events()
        where = parse_url(self.url)
        if not (create and where.scheme != "memory"):
            existing(self.url)
        elif not _is_there(where):
            say(f"holdfast: {safe(self.url)} is new")
        engine = Engine(_open_or_ask(self.url))
        try:
            recover(engine)
            yield engine
        finally:
            engine.close()

    def send(self, commands: list[Command], *, dry_run: bool = False, create: bool = False) -> list[Outcome]:
        """Have commands decided, in one commit; with `dry_run` only decided."""
        if dry_run:
            with self.reading() as reader, reader.look() as view:
                return [_decided(view, reader.store, command) for command in commands]
        with self.writing(create=create) as engine:
            return engine.submit_many(commands)


class Reader:
    """A store opened for looking, as often as wanted."""

    def __init__(self, url: str) -> None:
        self._where = existing(url)
        self._url = url
        self._seen = self._fingerprint()
        self._store: Store | None = open_store(url, readonly=True, patience_s=PATIENCE_S)

    @property
    def store(self) -> Store:
        """The store as it was when last looked at."""
        assert self._store is not None
        return self._store

    @contextmanager
    def look(self) -> Iterator[View]:
        """Open a view of what is durable now."""
        if self._where.scheme in _MARKED:
            found = self._fingerprint()
            if found != self._seen:
                self.close()
                self._seen, self._store = found, open_store(self._url, readonly=True)
        with self.store.read() as view:
            yield view

    def wait(self, after: int, timeout: float | None) -> bool:
        """Return True when there may be an event above `after`, False when `timeout` seconds have passed."""
        if self._where.scheme not in _MARKED:
            return self.store.wait(after, timeout)
        clock = SystemClock()
        deadline = None if timeout is None else clock.monotonic() + timeout
        pause = threading.Event()
        while True:
            left = MARK_PAUSE_S if deadline is None else deadline - clock.monotonic()
            if left <= 0:
                return False
            # Also if something is there already: a busy log is not folded again and again without a rest.
            pause.wait(min(left, MARK_PAUSE_S))
            if self._fingerprint() != self._seen:
                return True

    def _fingerprint(self) -> tuple[tuple[str, int, int], ...]:
        """Give what changes with every commit of such a store: the names, sizes and times of some files."""
        if self._where.scheme not in _MARKED:
            return ()
        try:
            with os.scandir(Path(self._where.path) / _MARKED[self._where.scheme]) as found:
                return tuple(sorted((file.name, (at := file.stat()).st_size, at.st_mtime_ns) for file in found))
        except FileNotFoundError:
            return ()

    def close(self) -> None:
        """Let go."""
        if self._store is not None:
            self._store.close()
            self._store = None


def _open_or_ask(url: str) -> Store:
    """Open a store for changing, or the coordinator of this machine that has it."""
    try:
        return open_store(url, patience_s=PATIENCE_S)
    except StoreLocked as held:
        served = str(held.facts.get("url", ""))
        if not _is_plain_loopback(served):
            raise
        say(f"holdfast: {safe(url)} is served at {safe(served)}, which is asked instead")
        return open_store(served, patience_s=PATIENCE_S)


def _is_plain_loopback(url: str) -> bool:
    """Tell whether a URL is of this machine alone. It is from the file of a lock, which may say anything."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and ip_address(parts.hostname or "::").is_loopback
    except ValueError:
        return False


def existing(url: str) -> StoreUrl:
    """Take a URL apart. Raises NotFound if no store is there, InvalidOperation for one that cannot be shared."""
    where = parse_url(url)
    if where.scheme == "memory":
        raise InvalidOperation("memory: lives in one process and cannot be looked at from another.")
    if not _is_there(where):
        raise NotFound(f"there is no store at {where.path}.", hint="Check the path.")
    return where


def _is_there(where: StoreUrl) -> bool:
    """Tell whether there is a store. Raises StoreFailed for a directory that is a file."""
    if where.is_elsewhere:  # whoever asks it will learn that
        return True
    place = Path(where.path)
    if where.scheme not in _MARKED or not place.exists():
        return place.exists()
    if not place.is_dir():
        raise StoreFailed(
            f"{where.path}: is no directory. Nothing was changed.",
            hint="Give the path of a directory; a file is a `sqlite:` store's.",
            file=where.path,
        )
    # Opening would make a store in any directory; a log without its identity is one that is damaged.
    return any((place / part).exists() for part in _SIGNS[where.scheme])


#: What is found in the directory of a store.
_SIGNS = {"dir": ("holdfast.json", "data/tasks"), "wal": ("journal.json", "log")}


def lying_here(url: str) -> StoreUrl:
    """Take the URL of a store on this machine apart. Raises as `existing`, and InvalidOperation for a coordinator."""
    where = existing(url)
    if where.is_elsewhere:
        raise InvalidOperation(
            f"{url} is a coordinator: its store can be looked after only where it lies. Nothing was done.",
            hint="Run the command on that machine, with the URL of the store that `holdfast serve` was given.",
        )
    return where


def now() -> Timestamp:
    """Give the time by this machine."""
    return stamp(SystemClock().now())


def _decided(view: View, store: Store, command: Command) -> Outcome:
    checked = admitted(command, Unkept(store.blobs), store.workers.all)
    if isinstance(checked, Refusal):
        return checked
    at = now()
    return decide(view, checked, at, Draws(at, int.from_bytes(os.urandom(8))), None).outcome


def store_option(command: F) -> F:
    """Give a command `--store`; it asks for it by `target()`."""
    return click.option(
        "--store",
        metavar="URL",
        envvar="HOLDFAST_STORE",
        help="The store, for example sqlite:jobs.db; else HOLDFAST_STORE.",
        expose_value=False,
        is_eager=True,
        callback=_keep("holdfast.store"),
    )(command)


def store_options(command: F) -> F:
    """Give a command `--store` and `--namespace`; it asks for both by `target()`."""
    namespace = click.option(
        "--namespace",
        metavar="NAME",
        help="The namespace; by default the unnamed one.",
        expose_value=False,
        is_eager=True,
        callback=_keep("holdfast.namespace"),
    )
    return store_option(namespace(command))


def _keep(place: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        del param
        ctx.meta[place] = value

    return keep


def target() -> Target:
    """Give the store the running command was told to use. Raises UsageError if there is none."""
    meta = click.get_current_context().meta
    url = meta.get("holdfast.store")
    if not url:
        raise UsageError("no store was named.", hint="Give --store URL, or set HOLDFAST_STORE, e.g. to sqlite:jobs.db.")
    namespace = meta.get("holdfast.namespace")
    if namespace and not is_name(namespace):
        raise InvalidValue(f"namespace: {namespace!r} is not a name.", hint=NAME_HINT, field="namespace")
    return Target(url, namespace)
