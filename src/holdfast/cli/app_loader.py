"""Loading an application named as MODULE:NAME. Whatever is wrong with it is told with its file and line."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from holdfast.errors import InvalidValue

if TYPE_CHECKING:
    from holdfast.app.application import Holdfast

_HOLDFAST = Path(__file__).parents[1]


def load(app: str) -> Holdfast:
    """Import an application. Raises InvalidValue, saying what is missing and where."""
    from holdfast.app.application import Holdfast  # noqa: PLC0415 - imported when called

    module, colon, name = app.partition(":")
    if not colon or not module or not name.isidentifier():
        raise InvalidValue(f"{app!r} does not name an application.", hint="Use MODULE:NAME, for example app:hf.")
    found = _imported(module)
    if not hasattr(found, name):
        raise InvalidValue(
            f"{_file_of(found)} has no {name}.", hint="Name the variable that holds its Holdfast object."
        )
    application = getattr(found, name)
    if not isinstance(application, Holdfast):
        kind = type(application).__name__
        raise InvalidValue(f"{name} in {_file_of(found)} is of type {kind}, not a Holdfast object.")
    return application


def _imported(module: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is not None and (module == missing.name or module.startswith(f"{missing.name}.")):
            raise InvalidValue(
                f"there is no module {module} in {here} or on the Python path.",
                hint="Run it where your application is.",
            ) from None
        raise _broken(module, missing, str(missing)) from missing
    except SystemExit as leaving:
        # A script that runs on import would end the worker as if all were well.
        said = f"it ends the process while it is imported, with {leaving.code!r}"
        raise _broken(module, leaving, said, 'Put what a script does behind `if __name__ == "__main__":`.') from leaving
    except SyntaxError as wrong:
        file, line = wrong.filename or module, wrong.lineno or 0
        raise _told(module, file, line, f"{type(wrong).__name__}: {wrong.msg}") from wrong
    except Exception as error:
        # Whatever an application raises on import is its own; it is told, with where it came from.
        raise _broken(module, error, f"{type(error).__name__}: {error}") from error


def _broken(module: str, error: BaseException, said: str, hint: str = "") -> InvalidValue:
    """Name the deepest line of the application itself; else, the deepest of all."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if _is_own(frame.filename)]
    last = (own or frames)[-1]
    return _told(module, last.filename, last.lineno or 0, said, hint)


def _told(module: str, file: str, line: int, said: str, hint: str = "") -> InvalidValue:
    place = os.path.relpath(file) if _is_own(file) else file
    return InvalidValue(
        f"{module} cannot be imported: {place}, line {line}: {said.rstrip('.')}.", hint=hint, file=file, line=line
    )


def _is_own(file: str) -> bool:
    """Tell whether a file lies where the command was started, and was not installed there."""
    path = Path(file)
    is_installed = "site-packages" in path.parts or path.is_relative_to(_HOLDFAST)
    return path.is_relative_to(Path.cwd()) and not is_installed


def _file_of(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return module.__name__ if file is None else os.path.relpath(file) if _is_own(file) else file
