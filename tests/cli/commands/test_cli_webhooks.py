"""`holdfast webhooks`, on real stores. A secret is shown when it is made, and nowhere else."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from holdfast.model.commands import Complete, Lease
from holdfast.model.webhooks import Webhook
from holdfast.testing.receiver import LOOPBACK, Receiver

URL = "https://receiver.example/hook"


def add(holdfast, *words):
    told = holdfast("webhooks", "add", *(words or (URL,)), "-o", "json")
    assert told.exit_code == 0, told.stderr
    return json.loads(told.stdout)


@pytest.fixture
def secrets(opened):
    """Give the secrets of a webhook, from the store itself."""

    def look(webhook_id):
        with opened() as engine, engine.read() as view:
            return view.get(Webhook, webhook_id).secrets

    return look


@pytest.fixture
def owe(filled, opened):
    """End a run, so that every webhook is owed a delivery."""

    def end(job_id):
        filled(job_id)
        with opened() as engine:
            (grant,) = engine.ask(Lease(worker_id="w")).grants
            engine.ask(Complete(job_id=grant.job.job_id, token=grant.token))

    return end


def test_a_webhook_is_made_listed_and_shown_and_its_secret_told_once(holdfast, rows, secrets):
    made = add(holdfast, URL, "--event", "job.run.failed", "--event", "job.run.lost", "--queue", "mail")
    assert secrets(made["webhook_id"]) == (made["secret"],)
    assert re.fullmatch(r"[\w-]{43}", made["secret"])
    (row,) = rows("webhooks", "ls")
    assert (row["url"], row["events"], row["queues"]) == (URL, ["job.run.failed", "job.run.lost"], ["mail"])
    assert "secrets" not in row
    assert holdfast("webhooks", "ls", "-o", "ids").stdout.strip() == made["webhook_id"]
    page = holdfast("webhooks", "show", made["webhook_id"][:6]).stdout
    assert "failed, lost" in page
    assert "secrets  one" in page
    everything = [
        holdfast("webhooks", verb, *ids, "-o", form)
        for verb, ids in (("ls", ()), ("show", (made["webhook_id"],)), ("deliveries", (made["webhook_id"],)))
        for form in ("table", "json", "jsonl")
    ]
    everything += [holdfast("store", "check"), holdfast("status")]
    assert not any(made["secret"] in told.output for told in everything)
    assert rows("webhooks", "ls", "--namespace", "x") == []


def test_a_table_tells_the_id_and_the_secret_and_ids_tell_the_id_alone(holdfast):
    lines = holdfast("webhooks", "add", URL, "--id", "orders").stdout.splitlines()
    assert lines[0] == "id      orders"
    assert re.fullmatch(r"secret  [\w-]{43}", lines[1])
    assert holdfast("webhooks", "add", URL, "--id", "other", "-o", "ids").stdout == "other\n"


def test_a_secret_comes_from_a_file_or_stdin_and_is_not_told_back(holdfast, secrets, tmp_path):
    (tmp_path / "secret").write_text("from-a-file\n")
    made = add(holdfast, URL, "--id", "a", "--secret-from", str(tmp_path / "secret"))
    assert made == {"webhook_id": "a"}
    told = holdfast("webhooks", "add", URL, "--id", "b", "--secret-from", "-", stdin="from-stdin\n")
    assert "from-stdin" not in told.output
    assert (secrets("a"), secrets("b")) == (("from-a-file",), ("from-stdin",))
    missing = holdfast("webhooks", "add", URL, "--id", "c", "--secret-from", str(tmp_path / "none"))
    assert missing.exit_code == 2
    assert "cannot be read" in missing.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("file:///etc/passwd",), "scheme 'file'"),
        (("http://169.254.169.254/",), "not a public address"),
        (("http://2852039166/",), "a number that stands for an address"),
        (("http://[::ffff:169.254.169.254]/",), "not a public address"),
        (("http://[fd00:ec2::254]/",), "not a public address"),
        (("https://user:hunter2@receiver.example/",), "user info"),
        ((URL, "--event", "job.run.exploded"), "is not one of"),
        ((URL, "--queue", "no name"), "not a name"),
        ((URL, "--allow", "nowhere"), "is no network"),
    ],
)
def test_bad_input_is_refused_with_2_and_makes_nothing(holdfast, rows, words, said):
    add(holdfast, URL, "--id", "there")
    told = holdfast("webhooks", "add", *words, "--id", "new")
    assert told.exit_code == 2
    assert said in told.stderr
    assert "hunter2" not in told.output
    assert [row["webhook_id"] for row in rows("webhooks", "ls")] == ["there"]


def test_an_address_has_one_webhook_unless_another_id_is_given(holdfast, rows):
    first = add(holdfast)
    again = holdfast("webhooks", "add", URL)
    assert again.exit_code == 6
    assert first["webhook_id"] in again.stderr
    add(holdfast, URL, "--id", "other")
    assert len(rows("webhooks", "ls")) == 2


def test_a_webhook_is_changed_and_removed(holdfast, rows):
    add(holdfast, URL, "--id", "hook")
    words = ("--url", "https://other.example/", "--event", "job.run.lost", "--queue", "mail", "--disable")
    assert holdfast("webhooks", "update", "hook", *words).exit_code == 0
    (row,) = rows("webhooks", "ls")
    assert (row["url"], row["events"], row["queues"]) == ("https://other.example/", ["job.run.lost"], ["mail"])
    assert row["enabled"] is False
    assert "‖ disabled" in holdfast("webhooks", "ls").stdout
    holdfast("webhooks", "update", "hook", "--event", "all", "--queue", "all", "--enable")
    (row,) = rows("webhooks", "ls")
    assert (row["events"], row["queues"], row["enabled"]) == ([], None, True)
    assert holdfast("webhooks", "update", "hook").exit_code == 2
    assert holdfast("webhooks", "update", "hook", "--url", "http://10.0.0.1/").exit_code == 2
    assert holdfast("webhooks", "update", "hook", "--url", "http://10.0.0.1/", "--allow", "10.0.0.0/8").exit_code == 0
    assert holdfast("webhooks", "rm", "hook", "--dry-run").exit_code == 0
    assert holdfast("webhooks", "rm", "hook").exit_code == 0
    assert rows("webhooks", "ls") == []
    for verb in ("rm", "show", "test", "deliveries", "rotate"):
        assert holdfast("webhooks", verb, "hook").exit_code == 3


def test_an_id_is_found_by_an_unambiguous_beginning(holdfast):
    add(holdfast, URL, "--id", "orders-1")
    add(holdfast, URL, "--id", "orders-2")
    told = holdfast("webhooks", "show", "orders")
    assert told.exit_code == 2
    assert "orders-1, orders-2" in told.stderr
    assert holdfast("webhooks", "show", "orders-2").exit_code == 0


def test_secrets_are_rotated_in_two_steps(holdfast, rows, secrets):
    first = add(holdfast, URL, "--id", "hook")["secret"]
    second = rows("webhooks", "rotate", "hook")["secret"]
    assert secrets("hook") == (second, first)
    assert "two, being changed" in holdfast("webhooks", "show", "hook").stdout
    told = holdfast("webhooks", "rotate", "hook", "--forget-old")
    assert told.exit_code == 0
    assert second not in told.output
    assert secrets("hook") == (second,)
    holdfast("webhooks", "rotate", "hook", "--secret-from", "-", stdin="given-secret")
    assert secrets("hook") == ("given-secret", second)
    both = holdfast("webhooks", "rotate", "hook", "--forget-old", "--secret-from", "-", stdin="given-secret")
    assert both.exit_code == 2


def test_a_test_tells_whether_it_arrived(holdfast, rows):
    answers = iter([200, 503])
    with Receiver(lambda _received: next(answers)) as receiver:
        add(holdfast, receiver.url, "--id", "hook", "--allow", LOOPBACK)
        refused = holdfast("webhooks", "test", "hook")
        assert refused.exit_code == 1
        assert "not a public address" in refused.stdout
        well = holdfast("webhooks", "test", "hook", "--allow", LOOPBACK)
        assert (well.exit_code, "✓ delivered, 200" in well.stdout) == (0, True)
        badly = holdfast("webhooks", "test", "hook", "--allow", LOOPBACK, "-o", "json")
        assert (badly.exit_code, json.loads(badly.stdout)["last_status"]) == (1, 503)
        assert len(receiver.received) == 2


def test_deliveries_are_listed_and_sent_again(holdfast, rows, owe):
    add(holdfast, URL, "--id", "hook")
    owe("a")
    owe("b")
    found = rows("webhooks", "deliveries", "hook")
    assert [one["body"]["job_id"] for one in found] == ["b", "a"]
    assert {one["status"] for one in found} == {"PENDING"}
    assert rows("webhooks", "deliveries", "hook", "--status", "failed") == []
    assert len(rows("webhooks", "deliveries", "hook", "--limit", "1")) == 1
    assert "completed" in holdfast("webhooks", "deliveries", "hook").stdout
    assert "completed" in holdfast("webhooks", "show", "hook").stdout
    ids = holdfast("webhooks", "deliveries", "hook", "-o", "ids").stdout
    told = holdfast("webhooks", "redeliver", "-", stdin=ids)
    assert (told.exit_code, "2 deliveries are due" in told.stderr) == (0, True)
    assert holdfast("webhooks", "redeliver", "none").exit_code == 3
    assert holdfast("webhooks", "redeliver", *ids.split(), "--dry-run").exit_code == 0


def test_a_dry_run_makes_nothing_and_shows_no_secret(holdfast, rows, filled):
    filled("a")
    told = holdfast("webhooks", "add", URL, "--dry-run", "-o", "json")
    assert told.exit_code == 0
    assert msgspec.json.decode(told.stdout).keys() == {"webhook_id", "dry_run"}
    assert rows("webhooks", "ls") == []
