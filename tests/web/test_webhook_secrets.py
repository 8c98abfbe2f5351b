"""Secrets of webhooks are shown when they are made, and through no channel afterwards."""

from __future__ import annotations

import asyncio
import logging

import httpx2
import pytest
from click.testing import CliRunner
from coordinators import running

from holdfast import Holdfast
from holdfast.cli.root import cli
from holdfast.model.webhooks import Webhook
from holdfast.testing.receiver import LOOPBACK, Receiver

GIVEN = "given-by-the-user-1234"
ROTATED = "rotated-by-the-user-5678"
#: Type of every event of a webhook that has been through `use_webhook`.
EVENTS = ["webhook:created", "webhook:updated"]


@pytest.fixture(params=["wal", "sqlite", "dir"])
def url(request, tmp_path):
    return f"{request.param}:{tmp_path / 'jobs'}"


@pytest.fixture(autouse=True)
def records(caplog):
    """Keep every record of every log, down to the least important one."""
    caplog.set_level(logging.DEBUG)
    return caplog.records


def use_webhook(hf: Holdfast, address: str) -> list[str]:
    """Make, rotate, change and use webhooks; return every secret that they have ever had."""
    made = hf.webhook(address, id="made")
    given = hf.webhook(address, id="given", secret=GIVEN)
    found = [made.secret, given.secret, made.rotate(), given.rotate(ROTATED)]
    given.forget_old_secret()
    given.update(events=["job.run.completed"])
    hf.webhook(address, id="made")
    found.append(made.rotate())
    assert made.test().last_status == 200

    @hf.task
    def work() -> None: ...

    work.enqueue()
    hf.work(until_idle=True)
    assert made.deliveries()
    assert len(set(found)) == 5
    return [str(secret) for secret in found]


@pytest.fixture
def used(url):
    """Use webhooks on a store, and return their secrets."""
    with Receiver() as receiver, Holdfast(url, webhook_allow=[LOOPBACK]) as hf:
        secrets = use_webhook(hf, receiver.url)
        with hf.engine.read() as view:
            stored = [secret for webhook in view.all(Webhook) for secret in webhook.secrets]
    assert set(stored) < set(secrets), "they are not where they are needed"
    return secrets


def command_line(url: str, *words: str) -> str:
    answer = CliRunner().invoke(cli, words, env={"HOLDFAST_STORE": url})
    assert not isinstance(answer.exception, Exception) or answer.exit_code, answer.exception
    return answer.output


def assert_hidden(shown: str, secrets: list[str], where: str) -> None:
    for secret in secrets:
        assert secret not in shown, where


def test_feed_of_the_application_shows_no_webhook_secret(url, used):
    async def awaited(hf):
        return [event async for event in hf.aio.feed()]

    with Holdfast(url) as hf:
        events = list(hf.feed())
        assert {event.type for event in events if event.type.startswith("webhook:")} == set(EVENTS)
        assert_hidden(str(events), used, "hf.feed")
        assert_hidden(str(asyncio.run(awaited(hf))), used, "hf.aio.feed")
        # The rest of the event is there.
        (made,) = [event for event in events if event.facts.get("webhook", {}).get("webhook_id") == "made"]
        assert made.facts["webhook"]["url"].startswith("http")
        assert "secrets" not in made.facts["webhook"]


COMMANDS = [
    ("feed", "tail", "-n", "1000"),
    ("feed", "tail", "-n", "1000", "-o", "jsonl"),
    ("feed", "tail", "--after", "0", "-o", "jsonl"),
    *(("webhooks", "ls", "-o", form) for form in ("table", "json", "jsonl")),
    *(("webhooks", "show", "made", "-o", form) for form in ("table", "json")),
    *(("webhooks", "deliveries", "made", "-o", form) for form in ("table", "json", "jsonl")),
    ("status",),
    ("status", "-o", "json"),
    ("doctor",),
    ("doctor", "-o", "json"),
    ("store", "check"),
    ("store", "check", "-o", "json"),
]


def test_command_line_shows_no_webhook_secret(url, used):
    for words in COMMANDS:
        shown = command_line(url, *words)
        assert "Usage:" not in shown, words
        assert_hidden(shown, used, " ".join(words))


def test_coordinator_sends_no_webhook_secret(url, used):
    with running(url) as serving, httpx2.Client(base_url=f"{serving.url}/api/v1") as client:
        for path in ("/webhooks", "/webhooks/made", "/webhooks/given", "/deliveries", "/status", "/workers"):
            assert_hidden(client.get(path).text, used, path)
        page = client.get("/feed", headers={"Accept": "application/json"}).text
        assert all(name in page for name in EVENTS)
        assert_hidden(page, used, "a page of the feed")
        last = client.get("/feed", headers={"Accept": "application/json"}).json()["entries"][-1]["seq"]
        with client.stream("GET", "/feed") as stream:
            text = ""
            for chunk in stream.iter_text():
                text += chunk
                if f"id: {last}\n" in text:
                    break
        assert_hidden(text, used, "the stream of the feed")
        with Holdfast(serving.url) as hf:
            assert_hidden(str(list(hf.feed())), used, "the feed of a remote application")
            with hf.engine.read() as view:
                assert_hidden(str([msg for one in view.all(Webhook) for msg in one.secrets]), used, "a look-up")
        for words in COMMANDS[:9]:
            assert_hidden(command_line(serving.url, *words), used, " ".join(words))


def test_logs_and_records_have_no_webhook_secret(url, used, records):
    with Holdfast(url) as hf:
        assert_hidden(repr([webhook.record() for webhook in hf.webhooks()]), used, "record()")
        with hf.engine.read() as view:
            assert_hidden(repr(list(view.all(Webhook))), used, "repr")
    assert any(record.getMessage() == "delivery.tried" for record in records)
    assert_hidden(repr([vars(record) for record in records]), used, "a log")


def test_findings_of_damaged_webhooks_show_no_secret(url, used, tmp_path, records):
    place = tmp_path / "jobs"
    files = (
        [place, *tmp_path.glob("jobs-wal")] if place.is_file() else [one for one in place.rglob("*") if one.is_file()]
    )
    damaged = 0
    for path in files:
        before = path.read_bytes()
        # Of the same length, so that the sums of the records tell it, and not their frames.
        after = before.replace(b"webhook:created", b"webhook:cheated").replace(b"/hook", b"/hack")
        damaged += before != after
        path.write_bytes(after)
    assert damaged
    found = command_line(url, "store", "check")
    assert found
    shown = [found, *(command_line(url, *words) for words in (*COMMANDS, ("store", "repair", url), ("store", "check")))]
    assert_hidden("".join(shown) + repr([vars(record) for record in records]), used, "what is said of damage")
