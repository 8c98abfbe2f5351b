"""Django tasks for the tests: module-level functions, as Django wants them."""

from __future__ import annotations

from django_tasks import task

from holdfast import Cancel, Fatal, Retry, Snooze


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task(priority=7, queue_name="mail")
def mail(to: str) -> str:
    return f"to {to}"


@task
async def later(n: int) -> int:
    return n * 2


@task(takes_context=True)
def contextual(context, word: str) -> list:
    return [word, context.attempt, context.task_result.id]


class Trouble(Exception):
    """Something of the application's own."""


@task
def fail(text: str) -> None:
    raise Trouble(text)


@task(backend="patient")
def flaky() -> None:
    raise Trouble("again")


@task
def no_json() -> object:
    return object()


@task
def give_up(how: str) -> None:
    raise {"cancel": Cancel("no need"), "snooze": Snooze(60), "retry": Retry(after=60), "fatal": Fatal("no")}[how]


def not_a_task() -> None:
    """Only a function."""
