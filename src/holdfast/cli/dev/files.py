"""The files an application is made of, and whether they have changed: by time and size, which is enough for editors."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

import holdfast

#: Time and size of each file; None for one that is not there.
Prints = dict[str, tuple[int, int] | None]


def imported(modules: Mapping[str, ModuleType]) -> set[str]:
    """Give the files of modules that are neither Python's, nor installed, nor ours."""
    found = (getattr(module, "__file__", None) for module in list(modules.values()))
    return {str(path) for path in map(_whole, filter(None, found)) if not _is_foreign(path)}


def blamed(error: BaseException) -> set[str]:
    """Give the application's files that an error came through; the one at fault may not be imported."""
    names = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    if isinstance(error, SyntaxError) and error.filename:
        names.add(error.filename)
    paths = (_whole(name) for name in names if not name.startswith("<"))
    return {str(path) for path in paths if not _is_foreign(path)}


def _whole(name: str) -> Path:
    return Path(name).absolute()


def _is_foreign(path: Path) -> bool:
    return any(path.is_relative_to(home) for home in _FOREIGN)


# By where things are installed, not by sys.prefix: an application may well live in /usr/src.
_FOREIGN = [
    *{Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    *map(Path, site.getsitepackages()),
    Path(holdfast.__file__).parent,
    Path(sys.executable).parent,
]


def prints(paths: Iterable[str]) -> Prints:
    """Look at files."""
    return {path: _print(path) for path in paths}


def _print(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - hundreds of them, several times a second
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def changed(before: Prints, after: Prints) -> list[str]:
    """Name the files that are other than they were."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
