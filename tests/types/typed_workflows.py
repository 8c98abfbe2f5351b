"""What a checker must accept of an application's workflows, and what it must know of them. Never run."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any, assert_type

from holdfast import Holdfast, Instance, Workflow
from holdfast.app.workflows.decisions import DecisionState
from holdfast.app.workflows.state import InstanceState
from holdfast.model.workflows.history import Event
from holdfast.rules.explain import Reason
from holdfast.testing import assert_crash_safe, replay, virtual, workflow_histories
from holdfast.testing.replaying import ReplayResult
from holdfast.workflows.api.context import Pending

hf = Holdfast("memory:")


class Declined(Exception):
    pass


@hf.task(queue="mail", raises=(Declined,))
def send(to: str, *, urgent: bool = False) -> bytes:
    return to.encode()


@hf.task
async def fetch(url: str) -> list[int]:
    return [len(url)]


def measure(text: str) -> int:
    return len(text)


async def weigh(text: str) -> float:
    return 0.5 * len(text)


@hf.workflow
async def onboard(user: int, *, polite: bool = True) -> str:
    assert_type(await send.call("a", urgent=True), bytes)
    assert_type(await send.options(priority=3, total_timeout=60, session="s").call(to="a"), bytes)
    assert_type(await fetch.call("b"), list[int])
    both = await asyncio.gather(fetch.call("a"), fetch.call("b"))
    assert_type(both, tuple[list[int], list[int]])
    assert_type(await hf.step(measure, "abc"), int)
    assert_type(await hf.step(weigh, "abc"), float)
    assert_type(await hf.step.options(name="n", attempts=3, timeout=5)(measure, text="abc"), int)
    assert_type(hf.idempotency_key(), str)
    assert_type(await hf.signal("any"), Any)
    assert_type(hf.now(), datetime)
    assert_type(await hf.signal("paid", type=int), int)
    assert_type(await hf.decision("Go?", ["yes", "no"]), str)
    assert_type(hf.patched("x"), bool)
    return "done"


@hf.workflow(version="2.0.0", timeout=60, raises=(Declined,), signals={"paid": int, "name": str | None})
def blocking(n: int) -> float:
    assert_type(send.begin("a"), Pending[bytes])
    assert_type(onboard.begin(n).result(), str)
    return 1.0


@hf.workflow(name="parent")
async def parent(n: int) -> None:
    assert_type(await onboard.call(n, polite=False), str)
    assert_type(await blocking.options(id="x", on_parent_end="leave").call(n), float)
    assert_type(onboard.start(n), Instance[str])


def outside() -> None:
    run = onboard.start(42, polite=False)
    assert_type(run, Instance[str])
    assert_type(onboard.start(42, id="user-42"), Instance[str])
    assert_type(onboard.options(id="user-42", signals=["a", ("b", 1)]).start(user=42), Instance[str])
    assert_type(blocking.start(1).result(timeout=3), float)
    assert_type(run.result(), str)
    assert_type(run.status(), InstanceState)
    assert_type(hf.instance("x").result(), Any)
    kept: Workflow[[int], float] = blocking
    assert_type(kept.name, str)


async def awaited() -> None:
    run = await onboard.aio.start(1)
    assert_type(run, Instance[str])
    assert_type(await run.aio.result(timeout=3), str)
    assert_type(await (await onboard.aio.start(1, id="x")).aio.status(), InstanceState)


def handles(run: Instance[str]) -> None:
    assert_type(run.id, str)
    assert_type(run.created, bool)
    assert_type(run.explain(), Reason)
    assert_type(run.history(), list[Event])
    assert_type(run.children(), list[Instance[Any]])
    assert_type(run.wait(timeout=3), InstanceState)
    assert_type(run.fork(id="other", input={"user": 1}), Instance[str])
    assert_type(hf.instances(status="RUNNING", limit=3), Sequence[Instance[Any]])
    (question,) = hf.decisions(instance=run.id)
    assert_type(question.record(), DecisionState)
    assert_type(question.record().options, tuple[str, ...] | None)
    question.resolve("yes", by="ann")


def tested() -> None:
    with virtual(hf) as world, workflow_histories(hf, "histories"):
        run = onboard.start(1)
        assert_type(world.run(run), str)
        assert_type(replay(run, onboard), ReplayResult)
    assert_crash_safe(onboard, (1,), signals=[("paid", 9)], outcomes=["done"], seeds=5)
