"""The store of an application: opened by the first call that needs it, in the process that makes the call.

A forked child opens its own. Knows nothing of tasks; what is to happen at each opening is left to its heirs.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from holdfast.app.handles.reservation import Held
from holdfast.clock import Clock, SystemClock
from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import recover
from holdfast.errors import InvalidOperation, InvalidValue
from holdfast.model.ids import NAME_HINT, is_name
from holdfast.stores.opening import open_store, parse_url
from holdfast.workflows.api.workflow import demand_outside


class OpensStore:
    """One store by its URL, with at most one engine of its own in this process."""

    def __init__(self, url: str, *, namespace: str, clock: Clock | None, access_token: str | None = None) -> None:
        """Name the store. Raises InvalidValue for a URL or a namespace that is none."""
        parse_url(url)
        if namespace and not is_name(namespace):
            raise InvalidValue(f"namespace: {namespace!r} is not a name.", hint=NAME_HINT, field="namespace")
        self.url = url
        self.namespace = namespace
        self._clock = clock
        self._access_token = access_token
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._pid = 0
        #: Used instead of its own, while one is lent.
        self._lent: Engine | None = None
        #: The queues it has reserved in this process.
        self.held = Held()
        _applications.add(self)

    def _prepare(self, engine: Engine) -> None:
        """Do what an application wants done whenever its store was opened and recovered."""

    @property
    def engine(self) -> Engine:
        """The engine on this application's store, opened on first use in this process.

        Raises WorkflowNotAllowed within a workflow: what is read or written here could not be replayed.
        """
        demand_outside("the store")
        if self._lent is not None:
            return self._lent
        engine = self._engine
        if engine is not None and self._pid == os.getpid():
            return engine
        with self._lock:
            if self._engine is None or self._pid != os.getpid():
                engine = self._recovered()
                # The engine before the pid: those who look without the lock must not take the parent's for their own.
                self._engine = engine
                self._pid = os.getpid()
                self._prepare(engine)
            return self._engine

    def _recovered(self) -> Engine:
        """Open the store and recover it. Nobody else gets the engine before: what it granted could be taken back."""
        engine = Engine(open_store(self.url, clock=self._clock, access_token=self._access_token), clock=self._clock)
        try:
            recover(engine)
        except BaseException:
            engine.close()
            raise
        return engine

    @property
    def clock(self) -> Clock:
        """The clock by which its callers wait."""
        return self._clock or SystemClock() if self._lent is None else self._lent.time.clock

    @property
    def is_open(self) -> bool:
        """Whether the store is open in this process."""
        return self._lent is not None or self._is_own_open()

    def _is_own_open(self) -> bool:
        return self._engine is not None and self._pid == os.getpid()

    def open(self) -> Self:
        """Open the store now, not by the first call that needs it. Raises StoreError if it cannot be opened."""
        _ = self.engine
        return self

    def close(self) -> None:
        """Give back the queues it has reserved and close the store; the next call that needs it opens it again.

        A lent engine is left to who lent it. Raises WorkflowNotAllowed within a workflow, whose worker needs the store.
        """
        demand_outside("hf.close")
        if self._lent is not None:
            return
        self.held.release()
        with self._lock:
            engine, self._engine = self._engine, None
            if engine is not None and self._pid == os.getpid():
                engine.close()

    def configure(self, url: str) -> None:
        """Name another store, for programs that learn its URL after their tasks were defined.

        Raises InvalidOperation if the present one is open, InvalidValue for a URL that is none.
        """
        parse_url(url)
        with self._lock:
            if self._is_own_open() and url != self.url:
                raise InvalidOperation(
                    f"the store {self.url} is in use; {url} was not taken.", hint="Configure before the first use."
                )
            self.url = url

    @contextmanager
    def lend(self, engine: Engine) -> Iterator[Self]:
        """Use this engine instead of the application's own inside the block, in all threads; for tests."""
        before, self._lent = self._lent, engine
        try:
            yield self
        finally:
            self._lent = before

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close."""
        self.close()


#: Kept only so that a forked child finds them.
_applications: weakref.WeakSet[OpensStore] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """Give applications a lock of their own: whoever held the parent's is not here to open it.

    What is reserved is the parent's, too.
    """
    for app in list(_applications):
        app.held = Held()
        app._lock = threading.RLock()  # noqa: SLF001 - the fork concerns this module, not the class's users


os.register_at_fork(after_in_child=_after_fork_in_child)
