"""The OPTIONS of a backend in Django's settings: what they may hold, the application they name, and their checks."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from holdfast.app.application import Holdfast
from holdfast.errors import InvalidValue
from holdfast.stores.opening import parse_url

_EXAMPLE = 'Set OPTIONS to {"store": "sqlite:jobs.db"}, for example.'


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What OPTIONS may hold."""

    #: URL of the store; or else `app`.
    store: str | None = None
    #: Dotted path of a Holdfast object of the project, for those who also have tasks of its own kind.
    app: str | None = None
    #: Executions that may report, in total. Django's tasks cannot say that they may be repeated, hence 1.
    max_attempts: Annotated[int, msgspec.Meta(ge=1)] = 1
    #: Longest single execution, in seconds.
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    #: Enqueue when the transaction around it has committed, not before.
    on_commit: bool = True


#: URL → the application on it. Django makes a backend for every thread; they share one store.
_applications: dict[str, Holdfast] = {}
_making = threading.Lock()


def read(options: Mapping[str, Any]) -> Options:
    """Give the options. Raises ImproperlyConfigured, saying which is wrong."""
    try:
        return msgspec.convert(dict(options), Options)
    except msgspec.ValidationError as problem:
        raise ImproperlyConfigured(f"OPTIONS of the Holdfast backend: {problem}") from None


def application(options: Options) -> Holdfast:
    """Give the application that the options name; the same one for all threads. Nothing is opened."""
    if options.app is not None:
        found = import_string(options.app)
        if not isinstance(found, Holdfast):
            raise ImproperlyConfigured(f"{options.app} is a {type(found).__name__}, not a Holdfast object.")
        return found
    if options.store is None:
        raise ImproperlyConfigured(f"the Holdfast backend has no store. {_EXAMPLE}")
    with _making:
        if options.store not in _applications:
            _applications[options.store] = Holdfast(options.store)
        return _applications[options.store]


def findings(given: Mapping[str, Any]) -> Iterator[checks.CheckMessage]:
    """Say what is wrong with OPTIONS, without opening anything."""
    try:
        options = read(given)
    except ImproperlyConfigured as problem:
        yield checks.Error(str(problem), id="holdfast.E001")
        return
    if (options.store is None) == (options.app is None):
        said = "neither a store nor an app" if options.store is None else "both a store and an app"
        yield checks.Error(f"The Holdfast backend has {said}.", hint=_EXAMPLE, id="holdfast.E002")
        return
    try:
        url = application(options).url
        scheme = parse_url(url).scheme
    except InvalidValue as problem:
        yield checks.Error(problem.message, hint=problem.hint, id="holdfast.E003")
        return
    except (ImportError, ImproperlyConfigured) as problem:
        yield checks.Error(f"OPTIONS['app']: {problem}", id="holdfast.E004")
        return
    if scheme == "memory":
        hint = "Use sqlite:PATH to keep them."
        yield checks.Warning("memory: loses its tasks with the process.", hint=hint, id="holdfast.W001")
    elif scheme in ("dir", "wal"):
        hint = "Use sqlite:PATH, which many processes share."
        message = f"{url} belongs to one process; a worker beside the server would be refused."
        yield checks.Warning(message, hint=hint, id="holdfast.W002")
