"""Whoever is kept to some namespaces lists, counts and finds what lies in these, in Python and at the command line."""

from __future__ import annotations

import hashlib
from collections import Counter

import msgspec
import pytest
from click.testing import CliRunner
from coordinators import running

from holdfast import Holdfast
from holdfast.cli.root import cli
from holdfast.model.access import Access, Role
from holdfast.model.jobs import Job
from holdfast.stores.http.store import HttpStore
from holdfast.stores.http.wire import PAGE

WITHIN = Access(name="within", roles=(Role.ADMIN,), namespaces=("shop",), digest=hashlib.sha256(b"within").hexdigest())
READER = Access(
    name="both", roles=(Role.READER,), namespaces=("shop", "mill"), digest=hashlib.sha256(b"both").hexdigest()
)


def program(url, namespace, **given):
    hf = Holdfast(url, namespace=namespace, **given)

    @hf.task(name="send", queue=f"q-{namespace or 'unnamed'}")
    def send(number: int) -> None: ...

    return hf, send


@pytest.fixture(scope="module")
def url():
    """A coordinator with the same things in three namespaces, one of which has many jobs."""
    with running("memory:", accesses=[WITHIN, READER]) as serving:
        for namespace in ("", "shop", "mill"):
            hf, send = program(serving.url, namespace)
            hf.schedule("nightly", send, cron="0 2 * * *", params={"number": 1})
            hf.template("letter", send, params={"number": 1})
            hf.webhook("https://example.com/")
            hf.group([send.job(1), send.job(2)])
            send.enqueue_many([(number,) for number in range(PAGE if not namespace else 20)])
            hf.close()
        yield serving.url


def test_in_python(url):
    hf, _ = program(url, "shop", access_token="within")
    assert [one.name for one in hf.schedules()] == ["nightly"]
    assert [one.name for one in hf.templates()] == ["letter"]
    assert len(hf.webhooks()) == len(hf.groups()) == 1
    assert len(hf.jobs(limit=500)) == 22
    hf.close()


def test_at_the_command_line(url):
    def listed(*words):
        done = CliRunner().invoke(
            cli,
            [*words, "-o", "json", "--store", url, "--namespace", "shop"],
            env={"HOLDFAST_ACCESS_TOKEN": "within"},
            catch_exceptions=False,
        )
        assert done.exit_code == 0, done.output
        return msgspec.json.decode(done.stdout)

    for noun in ("schedules", "templates", "webhooks", "groups"):
        assert len(listed(noun, "ls")) == 1, noun
    (queue,) = listed("queues", "ls")
    assert queue["name"] == "q-shop"
    job = listed("jobs", "ls", "--limit", "1")[0]
    assert listed("jobs", "show", job["job_id"][:35])["job_id"] == job["job_id"]


def test_page_after_page_of_what_is_theirs_comes_full_and_ends(url):
    """However many others lie between them: nothing of them shows, not even their number."""
    asked = []
    store = HttpStore.open(url, access_token="both")
    with store.read() as view:
        see = view._see

        def counted(look):
            asked.append(see(look))
            return asked[-1]

        view._see = counted
        assert Counter(job.namespace for job in view.all(Job)) == {"shop": 22, "mill": 22}
        assert [seen.more for seen in asked] == [False]
        assert {one.namespace for one in view.counts()} == {"shop", "mill"}
        first = view.ids_with_prefix("", 30)
        assert len(first) == 30
        assert {view.get(Job, one).namespace for one in first} == {"shop", "mill"}
    store.close()
