"""What a checker must accept, and what it must know of it. Never run: it is read by mypy and pyright."""

from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from sqlite3 import Connection
from typing import Any, Literal, assert_type

from holdfast import Backoff, Group, Holdfast, Job, Shell, Task
from holdfast.app.tasks.task import AsyncTask
from holdfast.errors import WorkFailed
from holdfast.model.commands import NewJob
from holdfast.model.groups import Group as GroupRecord
from holdfast.model.groups import GroupStatus
from holdfast.model.jobs import Job as Record
from holdfast.model.jobs import JobStatus, Run
from holdfast.model.logs import LogLine
from holdfast.model.outcomes import GroupCancelled
from holdfast.model.workers import Progress, WorkerInfo
from holdfast.rules.explain import Reason
from holdfast.workers.handlers.shell import Command, ShellResult

hf = Holdfast("memory:")


@dataclass
class Order:
    number: int
    total: Decimal


@hf.task
def bare(to: str, copies: int = 1) -> Order:
    return Order(copies, Decimal(len(to)))


@hf.task(queue="mail", max_attempts=4, timeout=30, retry="chain", backoff=Backoff(base_s=1), lease=timedelta(minutes=1))
def called(order: Order, *rest: int, urgent: bool = False, **more: str) -> list[int]:
    return [order.number, *rest]


@hf.task
async def fetch(url: str) -> bytes:
    return url.encode()


@hf.task(name="later", isolation="process", memory_limit=1 << 30, no_retry=(KeyError,), tags={"a": "b"})
async def fetch_called(url: str, *, retries: int = 3) -> None:
    return None


def direct_calls_are_the_functions_own() -> None:
    assert_type(bare("a", copies=2), Order)
    assert_type(called(Order(1, Decimal(1)), 2, 3, urgent=True, note="x"), list[int])
    calls = [fetch("u"), fetch.options(priority=1)("u")]
    assert_type(calls, list[Coroutine[Any, Any, bytes]])


def an_enqueued_call_gives_a_job_of_its_result() -> None:
    job = bare.enqueue("a", copies=2)
    assert_type(job, Job[Order])
    assert_type(job.result(timeout=1), Order)
    assert_type(called.enqueue(Order(1, Decimal(1)), 2, urgent=True, note="x").result(), list[int])
    assert_type(fetch.enqueue("u"), Job[bytes])
    assert_type(fetch.enqueue(url="u").result(), bytes)
    assert_type(fetch_called.enqueue("u", retries=1), Job[None])


def options_never_mix_with_arguments(db: Connection) -> None:
    urgent = bare.options(priority=9, delay=60, key="k", key_scope="queue", key_hold="window", key_window=60.5)
    assert_type(urgent.enqueue("a").result(), Order)
    assert_type(fetch.options(id="mine", not_before=datetime(2026, 1, 1, tzinfo=UTC), ttl=5).enqueue("u"), Job[bytes])
    assert_type(
        fetch_called.options(connection=db, on_conflict="reject", limit_key="x", key_limit=2).enqueue("u"), Job[None]
    )


def many_jobs_are_enqueued_in_every_form() -> None:
    new = bare.job("a", copies=3)
    assert_type(new, NewJob)
    assert_type(bare.enqueue_many([("a",), {"to": "b"}, new]), list[Job[Order]])
    assert_type(fetch.enqueue_many((f"u{n}",) for n in range(3)), list[Job[bytes]])


def a_handle_is_typed(job: Job[Order]) -> None:
    assert_type(job.refresh(), Record)
    assert_type(job.wait(1.5), Record)
    assert_type(job.status, JobStatus)
    assert_type(job.runs(), Sequence[Run])
    assert_type(job.explain(), Reason)
    assert_type(job.progress, Progress | None)
    assert_type(job.log(1, follow=True), Iterator[LogLine])
    assert_type(job.cancel("no", force=True), Literal["cancelled", "requested"])
    assert_type(job.retry(), Job[Order])
    assert_type(job.retry().result(), Order)
    job.move(to="first")
    job.update(priority=3, timeout=None, tags={"a": "b"})
    job.bury("poison")


async def everything_is_awaited_under_the_same_names(job: Job[Order]) -> None:
    assert_type(await bare.aio.enqueue("a", copies=2), Job[Order])
    assert_type(await fetch.aio.enqueue(url="u"), Job[bytes])
    assert_type(await bare.options(priority=1).aio.enqueue("a"), Job[Order])
    assert_type(await fetch.aio.enqueue_many([("u",)]), list[Job[bytes]])
    assert_type(await job.aio.result(timeout=1), Order)
    assert_type(await (await fetch.aio.enqueue("u")).aio.result(), bytes)
    assert_type(await job.aio.wait(), Record)
    assert_type(await job.aio.status(), JobStatus)
    assert_type(await job.aio.progress(), Progress | None)
    assert_type(job.aio.log(follow=True), AsyncIterator[LogLine])
    assert_type(await job.aio.retry(), Job[Order])
    await job.aio.update(priority=3)
    assert_type(await hf.aio.job("id"), Job[Any])
    assert_type(await hf.aio.run("id"), Run)
    assert_type(await hf.aio.workers(), Sequence[WorkerInfo])
    assert_type(await hf.aio.queue("mail").counts(), dict[JobStatus, int])
    await hf.aio.queue("mail").pause("why")
    await hf.aio.dispatch.resume()


def the_application_is_typed() -> None:
    assert_type(hf.job("id"), Job[Any])
    assert_type(hf.jobs(status="QUEUED", limit=3), Sequence[Job[Any]])
    assert_type(hf.run("id"), Run)
    assert_type(hf.workers(), Sequence[WorkerInfo])
    assert_type(hf.queue("mail").counts(), dict[JobStatus, int])
    hf.queue("mail").pause("why")
    hf.work(queues=["mail"], concurrency=4, until_idle=True)


def groups_are_typed() -> None:
    fanned = hf.fan_out(fetch, [("a",), {"url": "b"}, fetch.job("c")], then=bare.job("x"), on_failure="skip")
    assert_type(fanned, Group[bytes])
    assert_type(fanned.results(timeout=5), list[bytes])
    assert_type(fanned.results(return_exceptions=True), list[bytes | WorkFailed])
    assert_type(fanned.jobs(), list[Job[bytes]])
    assert_type(fanned.wait(3), GroupRecord)
    assert_type(fanned.progress, Progress)
    assert_type(fanned.cancel("why", running=True), GroupCancelled)
    assert_type(hf.group([bare.job("a"), fetch.enqueue("b")], mode="concurrent", name="n", id="g"), Group[Any])
    assert_type(hf.chain(bare.job("a"), fetch.job("b"), then=bare.job("c")), Group[Any])
    assert_type(hf.groups(status="QUEUED", limit=3), Sequence[Group[Any]])
    assert_type(hf.find_group("id").status, GroupStatus)
    assert_type(hf.current_group, Group[Any] | None)


async def groups_are_awaited(group: Group[int]) -> None:
    assert_type(await group.aio.results(), list[int])
    assert_type(await group.aio.results(3, return_exceptions=True), list[int | WorkFailed])
    assert_type(await group.aio.wait(timeout=3), GroupRecord)
    assert_type(await hf.aio.fan_out(fetch, [("a",)]), Group[bytes])
    assert_type(await hf.aio.chain(bare.job("a"), name="n"), Group[Any])


def a_task_can_be_passed_on() -> None:
    def enqueue_by_name(task: Task[[str], bytes]) -> bytes:
        return task.enqueue("u").result()

    assert_type(enqueue_by_name(fetch), bytes)
    stored: AsyncTask[[str], bytes] = fetch
    assert_type(stored.options(queue="x").enqueue("u"), Job[bytes])


@hf.task(isolation="shell", timeout=60)
def archive(folder: str) -> list[str]:
    return ["tar", folder]


@hf.task(isolation="shell")
def count() -> Shell:
    return Shell("ls | wc -l", shell=True)


def a_command_has_typed_arguments_and_a_result_of_its_own() -> None:
    assert_type(archive.enqueue("notes").result(), ShellResult)
    assert_type(count.enqueue().result().stdout, str)
    assert_type(archive("notes"), Command)
