"""Python between SQLite and its files: a VFS beside the default one, in the very library the sqlite3 module uses.

It knows no fault. A `Layer` claims a folder; from then on each call on a file of that folder passes through the layer,
which decides whether the real call is made. Everything else goes straight to the default VFS.

A file stays the default VFS's own: only its table of methods is exchanged for a copy in which a few point to Python.
Locks and the shared memory of WAL mode keep their native methods, so several connections work as always. The copy ends
at version 2, hence SQLite never maps a file into memory, where no call could be seen.

Nothing made here is ever freed: a connection that a test abandoned may call until the process ends.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sqlite3
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

#: The name to give in a URI: `file:…?vfs=holdfast-sim`.
NAME = "holdfast-sim"

_OPEN_CREATE = 0x4
#: Types of files whose first sync also syncs the directory, when they were opened to be created.
_OPEN_JOURNAL, _OPEN_SUPER_JOURNAL, _OPEN_WAL = 0x800, 0x4000, 0x80000

_FILE_METHODS = (
    *("xClose", "xRead", "xWrite", "xTruncate", "xSync", "xFileSize"),
    *("xLock", "xUnlock", "xCheckReservedLock", "xFileControl", "xSectorSize", "xDeviceCharacteristics"),
    *("xShmMap", "xShmLock", "xShmBarrier", "xShmUnmap"),
)
_VFS_METHODS = (
    *("xOpen", "xDelete", "xAccess", "xFullPathname", "xDlOpen", "xDlError", "xDlSym", "xDlClose"),
    *("xRandomness", "xSleep", "xCurrentTime", "xGetLastError", "xCurrentTimeInt64"),
)


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`, version 2."""

    _fields_ = (("iVersion", c_int), *((name, c_void_p) for name in _FILE_METHODS))


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs`, version 2."""

    _fields_ = (
        ("iVersion", c_int),
        ("szOsFile", c_int),
        ("mxPathname", c_int),
        ("pNext", c_void_p),
        ("zName", c_char_p),
        ("pAppData", c_void_p),
        *((name, c_void_p) for name in _VFS_METHODS),
    )


_SIGNATURES: dict[str, Any] = {
    "xClose": CFUNCTYPE(c_int, c_void_p),
    "xRead": CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64),
    "xWrite": CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64),
    "xTruncate": CFUNCTYPE(c_int, c_void_p, c_int64),
    "xSync": CFUNCTYPE(c_int, c_void_p, c_int),
    "xFileSize": CFUNCTYPE(c_int, c_void_p, POINTER(c_int64)),
    # A name stays a pointer: behind its NUL SQLite keeps more that the default VFS reads.
    "xOpen": CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p),
    "xDelete": CFUNCTYPE(c_int, c_void_p, c_void_p, c_int),
    "xAccess": CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_void_p),
}

Real = Callable[[], int]


class OpenedFile(NamedTuple):
    """What a layer is told of a file that is being opened."""

    name: str
    #: There was none before.
    is_new: bool
    #: Its first sync syncs the directory too, as the default VFS does it.
    syncs_folder: bool


class Layer(Protocol):
    """Stands between SQLite and the files of one folder. Each method returns SQLite's code; `real` makes the call."""

    def open(self, file: OpenedFile, real: Real, content: Callable[[], bytes]) -> int:
        """Open a file; `content` reads it, once it is open."""
        ...

    def read(self, name: str, size: int, at: int, real: Real) -> int:
        """Read."""
        ...

    def write(self, name: str, data: bytes, at: int, real: Callable[[int], int]) -> int:
        """Write; `real` takes how many of the bytes."""
        ...

    def truncate(self, name: str, size: int, real: Real) -> int:
        """Cut."""
        ...

    def sync(self, name: str, real: Real) -> int:
        """Make bytes durable."""
        ...

    def size(self, name: str, real: Real) -> int:
        """Ask for the length."""
        ...

    def close(self, name: str, real: Real) -> None:
        """Close. Always done: whatever died, its descriptors and locks must not stay."""
        ...

    def delete(self, name: str, real: Real, *, syncs_folder: bool) -> int:
        """Remove a name."""
        ...

    def access(self, name: str, real: Real) -> int:
        """Ask whether there is such a file."""
        ...


class _File(NamedTuple):
    layer: Layer
    name: str
    #: Method → the default VFS's own.
    own: dict[str, Any]


class Shim:
    """The VFS. There is one a process; get it from `shim()`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._find, self._register = library.sqlite3_vfs_find, library.sqlite3_vfs_register
        self._find.restype, self._find.argtypes = c_void_p, [c_char_p]
        self._register.restype, self._register.argtypes = c_int, [c_void_p, c_int]
        self._default = self._find(None)
        real = _Vfs.from_address(self._default)
        self.default_name = (real.zName or b"").decode()
        self._layers: dict[str, Layer] = {}
        #: Address of SQLite's file → what we know of it.
        self._files: dict[int, _File] = {}
        #: Address of a table of methods → our copy of it, and its own methods.
        self._tables: dict[int, tuple[_Methods, dict[str, Any]]] = {}
        #: Open file → the method table it had from the default VFS.
        self._native: dict[int, int] = {}
        self._own = {name: _SIGNATURES[name](getattr(real, name)) for name in ("xOpen", "xDelete", "xAccess")}
        self._callbacks = {name: self._callback(name) for name in _SIGNATURES}
        self._vfs = _Vfs()
        ctypes.memmove(ctypes.addressof(self._vfs), self._default, ctypes.sizeof(_Vfs))
        self._vfs.iVersion, self._vfs.pNext, self._vfs.zName = 2, None, NAME.encode()
        for name in self._own:
            setattr(self._vfs, name, _address(self._callbacks[name]))
        self._register(ctypes.addressof(self._vfs), 0)

    def claim(self, folder: str, layer: Layer) -> None:
        """Put a layer above a folder; while there is any, new connections pass through the shim by default."""
        self._layers[folder] = layer
        self._register(ctypes.addressof(self._vfs), 1)

    def leave(self, folder: str) -> None:
        """Take the layer off again. Files it knows stay with it until they are closed."""
        self._layers.pop(folder, None)
        if not self._layers:
            self._register(self._default, 1)

    def retire(self) -> None:
        """Give everything still open its own functions back: the callbacks end with the interpreter, files do not."""
        for file, address in self._native.items():
            c_void_p.from_address(file).value = address
        own = _Vfs.from_address(self._default)
        for name in self._own:
            setattr(self._vfs, name, getattr(own, name))
        # Connections keep pointing at it until they are closed, which may be after the last Python object is gone.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._vfs))
        self._register(self._default, 1)

    # --- callbacks --------------------------------------------------------------------------------------------------

    def _callback(self, name: str) -> Any:
        """Make a Python method callable by SQLite. No exception may pass through C; it becomes an I/O error."""
        method = getattr(self, f"_{name}")

        def guarded(*arguments: Any) -> int:
            try:
                return int(method(*arguments))
            except BaseException as error:  # noqa: BLE001 - see above; the layer's owner finds it in `failures`
                failures.append(error)
                return sqlite3.SQLITE_IOERR

        return _SIGNATURES[name](guarded)

    def _xOpen(self, _vfs: int, name: int | None, file: int, flags: int, out: int | None) -> int:  # noqa: N802 - C's name
        def real() -> int:
            return int(self._own["xOpen"](self._default, name, file, flags, out))

        layer, short = self._place(name)
        if layer is None:
            return real()
        journal = flags & (_OPEN_JOURNAL | _OPEN_SUPER_JOURNAL | _OPEN_WAL)
        creates = bool(flags & _OPEN_CREATE)
        opened = OpenedFile(
            short, creates and not os.path.lexists(ctypes.string_at(name or 0)), creates and bool(journal)
        )
        code = layer.open(opened, real, lambda: self._content(file))
        if code == sqlite3.SQLITE_OK:
            self._exchange(file, layer, short)
        return code

    def _xDelete(self, _vfs: int, name: int, syncs_folder: int) -> int:  # noqa: N802 - C's name
        def real() -> int:
            return int(self._own["xDelete"](self._default, name, syncs_folder))

        layer, short = self._place(name)
        return real() if layer is None else layer.delete(short, real, syncs_folder=bool(syncs_folder))

    def _xAccess(self, _vfs: int, name: int, flags: int, out: int) -> int:  # noqa: N802 - C's name
        def real() -> int:
            return int(self._own["xAccess"](self._default, name, flags, out))

        layer, short = self._place(name)
        return real() if layer is None else layer.access(short, real)

    def _xRead(self, file: int, into: int, size: int, at: int) -> int:  # noqa: N802 - C's name
        it = self._files[file]
        return it.layer.read(it.name, size, at, lambda: it.own["xRead"](file, into, size, at))

    def _xWrite(self, file: int, data: int, size: int, at: int) -> int:  # noqa: N802 - C's name
        it = self._files[file]
        return it.layer.write(it.name, ctypes.string_at(data, size), at, lambda n: it.own["xWrite"](file, data, n, at))

    def _xTruncate(self, file: int, size: int) -> int:  # noqa: N802 - C's name
        it = self._files[file]
        return it.layer.truncate(it.name, size, lambda: it.own["xTruncate"](file, size))

    def _xSync(self, file: int, flags: int) -> int:  # noqa: N802 - C's name
        it = self._files[file]
        return it.layer.sync(it.name, lambda: it.own["xSync"](file, flags))

    def _xFileSize(self, file: int, into: Any) -> int:  # noqa: N802 - C's name
        it = self._files[file]
        return it.layer.size(it.name, lambda: it.own["xFileSize"](file, into))

    def _xClose(self, file: int) -> int:  # noqa: N802 - C's name
        it = self._files.pop(file)
        self._native.pop(file, None)
        code = sqlite3.SQLITE_OK

        def real() -> int:
            nonlocal code
            code = int(it.own["xClose"](file))
            return code

        it.layer.close(it.name, real)
        return code

    # --- inside -----------------------------------------------------------------------------------------------------

    def _place(self, name: int | None) -> tuple[Layer | None, str]:
        """Find the layer a path belongs to; files without a name are SQLite's own affair."""
        if not name:
            return None, ""
        folder, short = os.path.split(os.fsdecode(ctypes.string_at(name)))
        return self._layers.get(folder), short

    def _own_methods(self, file: int) -> tuple[int, dict[str, Any]]:
        address = c_void_p.from_address(file).value or 0
        if address not in self._tables:
            table = _Methods()
            ctypes.memmove(ctypes.addressof(table), address, ctypes.sizeof(_Methods))
            if table.iVersion < 2:
                raise NotImplementedError("the default VFS has no shared memory")
            table.iVersion = 2
            names = [name for name in _FILE_METHODS if name in _SIGNATURES]
            own = {name: _SIGNATURES[name](getattr(table, name)) for name in names}
            for method in names:
                setattr(table, method, _address(self._callbacks[method]))
            self._tables[address] = table, own
        return address, self._tables[address][1]

    def _exchange(self, file: int, layer: Layer, name: str) -> None:
        """Let SQLite find our methods in the file the default VFS has opened."""
        address, own = self._own_methods(file)
        self._files[file] = _File(layer, name, own)
        self._native[file] = address
        c_void_p.from_address(file).value = ctypes.addressof(self._tables[address][0])

    def _content(self, file: int) -> bytes:
        """Read a file that has just been opened, before its methods are exchanged."""
        _, own = self._own_methods(file)
        size = c_int64()
        if own["xFileSize"](file, ctypes.byref(size)) != sqlite3.SQLITE_OK:
            raise OSError("a file cannot be measured")
        if not size.value:
            return b""
        buffer = ctypes.create_string_buffer(size.value)
        if own["xRead"](file, buffer, size.value, 0) != sqlite3.SQLITE_OK:
            raise OSError("a file cannot be read")
        return buffer.raw


#: Exceptions that came up inside callbacks; a test that uses the shim demands that there are none.
failures: list[BaseException] = []


@cache
def shim() -> Shim:
    """Give the shim of this process. Raises ImportError, OSError or AttributeError where it cannot be made."""
    module = import_module("_sqlite3")
    # By its handle, a module's symbols and those of the libraries it was linked to are found, and no others.
    library = ctypes.CDLL(getattr(module, "__file__", None))
    library.sqlite3_libversion.restype = c_char_p
    version = library.sqlite3_libversion().decode()
    if version != sqlite3.sqlite_version:
        raise OSError(f"found SQLite {version}, but Python uses {sqlite3.sqlite_version}")
    made = Shim(library)
    if not made.default_name.startswith("unix"):
        raise OSError(f"the default VFS is {made.default_name}, not unix")
    atexit.register(made.retire)
    return made


def unavailable() -> str | None:
    """Say why the shim cannot be used here; None if it can."""
    try:
        shim()
    except (ImportError, OSError, AttributeError) as problem:
        return f"SQLite's own functions cannot be reached: {problem}"
    return None


def real_folder(folder: str | Path) -> str:
    """Give a folder as SQLite will name it."""
    return os.path.realpath(folder)


def _address(callback: Any) -> int:
    return ctypes.cast(callback, c_void_p).value or 0
