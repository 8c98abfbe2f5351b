"""What a checker must accept of workflows, and what it must know of it. Never run: it is read by mypy and pyright."""

import asyncio
import random
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.workflows.api import context as hf
from holdfast.workflows.api.context import Pending
from holdfast.workflows.api.definitions import Definitions
from holdfast.workflows.api.workflow import Activity, Register, Started, Workflow, activity

definitions = Definitions(SignatureCodec)
register = Register(definitions, SignatureCodec)


def send(to: str, *, urgent: bool = False) -> bytes:
    return to.encode()


async def fetch(url: str) -> list[int]:
    return [len(url)]


mail = activity(send, SignatureCodec(send), tag="mail")
get = activity(fetch, SignatureCodec(fetch))


@register
async def onboard(user: int) -> str:
    assert_type(await mail.call("a", urgent=True), bytes)
    assert_type(await get.call("b"), list[int])
    both = await asyncio.gather(get.call("a"), get.call("b"))
    assert_type(both, tuple[list[int], list[int]])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(mail.call("c"))
    assert_type(task.result(), bytes)
    assert_type(await hf.step(send, "x"), bytes)
    assert_type(await hf.step(fetch, "x"), list[int])
    assert_type(await hf.step.options(name="n", attempts=3)(fetch, url="x"), list[int])
    assert_type(await hf.signal("paid", type=int), int)
    assert_type(await hf.decision("Go?", ["yes"], timeout=timedelta(days=1), default="yes"), str)
    assert_type(hf.now(), datetime)
    assert_type(hf.uuid(), UUID)
    assert_type(hf.rng(), random.Random)
    assert_type(hf.patched("x"), bool)
    return "done"


@register(version="2.0.0", cancel_grace=5, timeout=timedelta(days=2), raises=(KeyError,), retention=None)
async def parent(n: int) -> float:
    child = assert_type(onboard.call(n), Coroutine[Any, Any, str])
    assert_type(await child, str)
    assert_type(await onboard.options(id="x", on_parent_end="leave").call(user=n), str)
    assert_type(onboard.start_detached(n), Started)
    if n > 1:
        hf.continue_as_new(n - 1)
    return 1.0


@register
def blocking(n: int) -> int:
    pending = mail.begin("a")
    assert_type(pending, Pending[bytes])
    assert_type(pending.result(), bytes)
    assert_type(onboard.begin(n).result(), str)
    return n


async def they_can_be_passed_on() -> None:
    stored: Activity[[str], list[int]] = get
    assert_type(await stored.call("u"), list[int])
    kept: Workflow[[int], str] = onboard
    assert_type(await kept.call(1), str)
    held: Workflow[[int], int] = blocking
    assert_type(held.name, str)
