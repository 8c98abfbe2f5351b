"""The file of access tokens: JSON, readable by its owner alone, with hashes in place of the tokens themselves."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from holdfast.errors import InvalidOperation, InvalidValue, NotFound
from holdfast.model.access import Access, Role
from holdfast.model.ids import NAME_HINT, is_name
from holdfast.model.times import Timestamp, parse_timestamp

#: Begins every access token, so that people and scanners know one when they see it.
PREFIX = "hfa_"
_DIGEST = re.compile("[0-9a-f]{64}")


class _File(msgspec.Struct, frozen=True):
    accesses: list[Access]


_read = msgspec.json.Decoder(_File).decode


def state_dir() -> Path:
    """Give the directory where programs of this user keep what outlives them."""
    named = os.environ.get("HOLDFAST_STATE_DIR")
    if named:
        return Path(named)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "holdfast"


def read(path: Path) -> list[Access]:
    """Give what the file holds; nothing if there is none.

    Raises InvalidOperation if others could read it or this process cannot, InvalidValue for what is no such file.
    """
    try:
        # Nobody waits at a pipe for what may never come: a coordinator reads this between two requests.
        with open(path, "rb", opener=_warily) as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read() if stat.S_ISREG(mode) else b""
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise InvalidOperation(f"{path} cannot be read: {problem}. It was not used.", file=str(path)) from problem
    if not stat.S_ISREG(mode):
        raise InvalidOperation(f"{path} is not a file. It was not used.", file=str(path))
    if stat.S_IMODE(mode) & 0o077:
        raise InvalidOperation(
            f"{path} can be read or written by others. It was not used.", hint=f"chmod 600 {path}", file=str(path)
        )
    try:
        return [_checked(access) for access in _read(content).accesses]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidValue) as problem:
        why = str(problem).rstrip(".")
        raise InvalidValue(
            f"{path}: {why}. It was not used.",
            hint="Mend it, or remove it and make the access tokens anew: `holdfast access add`.",
            file=str(path),
        ) from problem


def _warily(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _checked(access: Access) -> Access:
    """Give what somebody may have written by hand in our form: times are compared as text, hashes as ASCII."""
    if _DIGEST.fullmatch(access.digest) is None:
        raise InvalidValue(f"{access.name!r:.80}: its digest is not 64 hex digits", field="digest")
    if access.expires_at is None:
        return access
    return msgspec.structs.replace(access, expires_at=parse_timestamp(access.expires_at, "expires_at"))


def add(
    path: Path,
    name: str,
    roles: tuple[Role, ...],
    namespaces: tuple[str, ...] | None,
    now: Timestamp,
    *,
    expires_at: Timestamp | None = None,
) -> str:
    """Make an access token and give it: the only time it is seen. Raises InvalidValue, or InvalidOperation if taken."""
    if not is_name(name):
        raise InvalidValue(f"name: {name!r:.80} is not a name.", hint=NAME_HINT, field="name")
    if not roles:
        raise InvalidValue("role: none was given.", field="role")
    if expires_at is not None and expires_at <= now:
        raise InvalidValue(f"expires: {expires_at} has passed. Nothing was made.", field="expires")
    token = PREFIX + secrets.token_urlsafe(32)
    digest = hashlib.sha256(token.encode()).hexdigest()
    made = Access(name=name, roles=roles, namespaces=namespaces, digest=digest, created_at=now, expires_at=expires_at)
    with _alone(path) as before:
        if any(access.name == name for access in before):
            raise InvalidOperation(
                f"an access token named {name!r} is there. Nothing was made.", hint="Revoke it first."
            )
        _write(path, [*before, made])
    return token


def revoke(path: Path, name: str) -> None:
    """Forget an access token; a coordinator that runs refuses it from the next request on. Raises NotFound."""
    with _alone(path) as before:
        after = [access for access in before if access.name != name]
        if len(after) == len(before):
            raise NotFound(f"there is no access token named {name!r:.80}. Nothing was changed.")
        _write(path, after)


@contextmanager
def _alone(path: Path) -> Iterator[list[Access]]:
    """Give what the file holds while nobody else changes it: two at a time, and one's revocation could be lost."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield read(path)
    finally:
        os.close(directory)


def _write(path: Path, accesses: list[Access]) -> None:
    """Replace the file whole: written beside it for its owner alone, synced, renamed, the directory synced."""
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(_File(accesses))))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
