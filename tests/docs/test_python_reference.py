"""The page of the Python face names every public name there is, each in its section."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast
from holdfast.app.aio.application import AioHoldfast
from holdfast.app.aio.groups import AioGroup
from holdfast.app.aio.jobs import AioJob, AioTask
from holdfast.app.aio.queues import AioDispatch, AioQueue, AioReservation
from holdfast.app.aio.schedules import AioSchedule, AioTemplate, AioWebhook
from holdfast.app.aio.workflows import AioDecision, AioInstance, AioWorkflow
from holdfast.app.handles.artifact import Artifact
from holdfast.app.handles.queue import Dispatch, Limits, Queue
from holdfast.app.handles.reservation import Reservation
from holdfast.app.handles.schedule import Schedule, ScheduleOptions
from holdfast.app.handles.template import Template
from holdfast.app.handles.webhook import Webhook, WebhookOptions
from holdfast.app.tasks.options import Changes, Options, TaskOptions
from holdfast.app.workflows.context_api import Inside
from holdfast.app.workflows.decisions import Decision
from holdfast.app.workflows.handle import Published
from holdfast.workers.handlers.context import Context
from holdfast.workers.handlers.shell import Shell, ShellResult
from holdfast.workers.worker import Worker
from holdfast.workflows.api.workflow import WorkflowOptions

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "python.md").read_text()


def section(title):
    return re.search(rf"^## {title}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]


def named(text):
    """Every word that stands in code."""
    return set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text))))


def public(*kinds):
    return {name for kind in kinds for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("title", "kinds"),
    [
        ("Holdfast", (holdfast.Holdfast, AioHoldfast)),
        ("Task", (holdfast.Task, AioTask)),
        ("Job", (holdfast.Job, AioJob, Artifact)),
        ("Workflow", (holdfast.Workflow, AioWorkflow)),
        ("Instance, decision", (holdfast.Instance, AioInstance, Published, Decision, AioDecision)),
        ("Inside a workflow", (Inside,)),
        ("Queue, dispatch", (Queue, AioQueue, Dispatch, AioDispatch)),
        ("Schedule, template", (Schedule, AioSchedule, Template, AioTemplate)),
        ("Reservation", (Reservation, AioReservation)),
        ("Group", (holdfast.Group, AioGroup)),
        ("Webhook", (Webhook, AioWebhook)),
        ("Inside a handler", (Context, ShellResult)),
        ("Worker", (Worker,)),
    ],
)
def test_every_public_name_of_a_class_is_on_the_page(title, kinds):
    assert public(*kinds) - named(section(title)) == set()


def test_every_name_of_the_package_is_on_the_page():
    assert set(holdfast.__all__) <= set(re.findall(r"\w+", PAGE))


def test_every_option_is_on_the_page_with_where_it_may_stand():
    rows = re.findall(r"^\| (`.+?) \| ([a-z, ]+) \|", section("Options"), re.MULTILINE)
    places = {name: set(where.split(", ")) for names, where in rows for name in named(names)}
    kinds = {"task": TaskOptions, "call": Options, "update": Changes}
    expected = {name: set() for name in places}
    for where, kind in kinds.items():
        for name in kind.__annotations__:
            expected.setdefault(name, set()).add(where)
    assert places == expected


def test_every_limit_and_every_part_of_a_command_is_on_the_page():
    assert set(Limits.__annotations__) <= named(section("Queue, dispatch"))
    assert set(ScheduleOptions.__annotations__) <= named(section("Schedule, template"))
    assert set(WebhookOptions.__annotations__) <= named(section("Webhook"))
    assert set(WorkflowOptions.__annotations__) <= named(section("Workflow"))
    assert set(Shell.__dataclass_fields__) <= named(section("Inside a handler"))
