"""A bit of everything a coordinator is asked for, also what it refuses: for watching its memory.

A round leaves only ended jobs behind, one of them failed, and what was said about them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from benchmarks.raw import Connection
from holdfast.model.commands import Complete, Enqueue, Fail, Lease
from holdfast.model.outcomes import Leased
from holdfast.stores.http.wire import Commands, Heartbeat, HeldLease, LeaseWish, encode

#: Requests of one round.
REQUESTS = 16
#: A body that is decoded, and one that is not even JSON.
_WRONG, _BROKEN = b'{"commands":[{"command":"enqueue"}]}', b'{"commands":['


async def mixed_round(connection: Connection, new: Callable[[], Enqueue]) -> None:
    """Ask for everything once. Raises RuntimeError if anything is answered as it should not be."""
    first, second, again = new(), new(), new()
    await connection.post("/commands", encode(Commands([first])))
    await connection.post("/commands", encode(Commands([second, again])))
    await connection.post("/commands", encode(Commands([again])))
    lease = Lease(cmd=new().cmd, worker_id="mixed", n=3)
    leased = msgspec.json.decode(await connection.post("/lease", encode(LeaseWish(lease=lease))), type=Leased)
    held = [HeldLease(job_id=grant.job.job_id, token=grant.token) for grant in leased.grants]
    await connection.post("/workers/mixed/heartbeat", encode(Heartbeat(leases=held)))
    await connection.post("/look", b'{"look":"get","given":{"kind":"jobs","key":"%s"}}' % first.jobs[0].job_id.encode())
    ends: list[Complete | Fail] = [
        Complete(job_id=one.job_id, token=one.token, result=msgspec.Raw(b"[1]")) for one in held[1:]
    ]
    ends += [Fail(job_id=one.job_id, token=one.token, error="it did not work", fatal=True) for one in held[:1]]
    await connection.post("/commands", encode(Commands([*ends])))
    await connection.post("/lease", encode(LeaseWish(lease=Lease(cmd=new().cmd, worker_id="mixed", queues=("none",)))))
    blob = b"x" * 200_000
    named = f"/blobs/{hashlib.sha256(blob).hexdigest()}"
    await _expect(connection, 204, "PUT", named, blob)
    await _expect(connection, 200, "GET", named)
    await _expect(connection, 200, "GET", "/changes")
    await _expect(connection, 200, "GET", f"/feed?after={_seq(await connection.ask('GET', '/changes'))}")
    await _expect(connection, 422, "POST", "/commands", _WRONG)
    await _expect(connection, 422, "POST", "/commands", _BROKEN)
    await _expect(connection, 404, "GET", "/nothing-of-that-name")


def _seq(answered: tuple[int, bytes]) -> int:
    return int(msgspec.json.decode(answered[1])["seq"])


async def _expect(connection: Connection, status: int, method: str, path: str, body: bytes = b"") -> None:
    found, said = await connection.ask(method, path, body)
    if found != status:
        raise RuntimeError(f"{method} {path} was answered {found}, not {status}: {said[:200]!r}")
