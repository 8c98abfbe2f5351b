"""Instances as people meet them on the command line: why they are where they are, and what would change it."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import click
import pytest

from holdfast import Holdfast
from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.cli.render import instance_text
from holdfast.cli.root import cli
from holdfast.testing import corrupt_history
from holdfast.workflows.api.definitions import Definitions


def application(url, *, changed=False):
    hf = Holdfast(url)

    @hf.task(name="charge")
    def charge(order: int) -> str:
        return f"receipt {order}"

    def price(order: int) -> int:
        if order < 0:
            raise ValueError("no such order")
        return order * 100

    @hf.workflow(name="order")
    async def order(number: int) -> str:
        amount = await hf.step(price, number)
        if changed:
            await asyncio.sleep(60)
        answer = await hf.decision(f"Sell for {amount}?", ["yes", "no"], timeout=86_400, default="no")
        await charge.call(number)
        paid = await hf.signal("paid", type=int)
        return f"{answer}, {paid}"

    return hf, order


@pytest.fixture
def place(tmp_path):
    """One store will do: what is said comes from the rules."""
    return f"sqlite:{tmp_path / 'jobs.db'}"


@pytest.fixture
def work(place):
    """Have a worker do what can be done now."""

    def until_idle(**options):
        with application(place, **options)[0] as hf:
            hf.work(until_idle=True)

    return until_idle


@pytest.fixture
def start(holdfast):
    def run(instance="order-7", number=7):
        return holdfast("workflows", "start", "order", "--id", instance, "--input", f'{{"number": {number}}}')

    return run


def why(rows, instance="order-7"):
    told = rows("explain", instance)
    return told["reason"]["code"], told["reason"]["sentence"], [one["command"] for one in told["ways_on"]]


def test_a_start_makes_the_store_and_is_seen_before_any_worker_came(holdfast, rows, start):
    assert start().exit_code == 0
    (one,) = rows("workflows", "ls")
    assert (one["instance_id"], one["status"], one["version"]) == ("order-7", "RUNNING", None)
    assert one["reason"]["code"] == "unregistered"
    assert rows("workflows", "ls", "--workflow", "other") == []
    assert rows("workflows", "ls", "--status", "completed") == []
    assert "no live worker has workflow 'order'" in holdfast("workflows", "ls").stdout
    code, sentence, commands = why(rows)
    assert (code, commands) == ("unregistered", ["holdfast worker APP", "holdfast workflows cancel order-7 --force"])
    assert sentence in holdfast("workflows", "show", "order-7").stdout


def test_the_row_says_what_an_instance_waits_for_in_the_words_of_explain(holdfast, rows, start, work):
    start()
    work()
    code, sentence, commands = why(rows)
    assert (code, sentence) == ("waiting", "waits for decision 3 'Sell for 700?'")
    (question,) = rows("decisions", "ls")
    assert commands[0] == f"holdfast decisions resolve {question['decision_id']} yes|no"
    assert f"◆ RUNNING  {sentence}" in holdfast("explain", "order-7").stdout
    assert sentence in holdfast("workflows", "ls").stdout
    assert holdfast(*commands[0].removesuffix("|no").split()[1:]).exit_code == 0
    assert "✓ answered" in holdfast("decisions", "ls", "--all").stdout
    work()
    assert "✓ yes" in holdfast("decisions", "ls", "--all").stdout
    code, sentence, commands = why(rows)
    assert sentence == "waits for signal 'paid'"
    assert shlex.split(commands[0])[:5] == ["holdfast", "workflows", "signal", "order-7", "paid"]
    assert holdfast("workflows", "signal", "order-7", "paid", "--data", "9").exit_code == 0
    work()
    code, sentence, commands = why(rows)
    assert (code, commands) == ("ended", [])
    assert sentence.startswith("completed at ")


def test_a_history_tells_results_answers_and_signals(holdfast, start, work, rows):
    start()
    work()
    holdfast("decisions", "resolve", rows("decisions", "ls")[0]["decision_id"], "yes")
    holdfast("workflows", "signal", "order-7", "paid", "--data", "9")
    work()
    said = [one["says"] for one in rows("workflows", "history", "order-7")]
    assert said[0] == "workflow 'order' 1.0.0 input {\"number\":7}"
    assert said[1] == "step 1 'price': 700"
    assert any(one.startswith("answer to event 3: yes, by ") for one in said)
    assert any(one.startswith("completion of event ") and one.endswith(': "receipt 7"') for one in said)
    assert "signal 'paid' data 9" in said
    assert said[-1] == 'returned "yes, 9"'


def test_a_failure_is_told_with_its_error_and_the_ways_back(holdfast, rows, start, work):
    start("bad", -1)
    work()
    code, sentence, commands = why(rows, "bad")
    assert code == "ended"
    assert "ValueError: no such order" in sentence or "no such order" in sentence
    assert [command.split()[2] for command in commands] == ["history", "reset", "fork"]
    assert "step 1 'price' (failed): ValueError: no such order" in holdfast("workflows", "history", "bad").stdout


def test_changed_code_is_told_with_both_sides(holdfast, rows, start, work):
    start()
    work()
    holdfast("decisions", "resolve", rows("decisions", "ls")[0]["decision_id"], "yes")
    work(changed=True)
    code, sentence, commands = why(rows)
    assert code == "blocked"
    assert "event 3 differs" in sentence
    assert commands[0] == "holdfast workflows replay APP order-7"
    page = holdfast("workflows", "show", "order-7").stdout
    assert "recorded: decision 'Sell for 700?'" in page
    assert "code now: timer 60 s" in page
    assert "⚠ RUNNING" in page


def test_error_in_the_code_is_told_with_its_traceback(place, rows, start, work, holdfast):
    start()
    work()
    holdfast("decisions", "resolve", rows("decisions", "ls")[0]["decision_id"], "yes")
    with application(place)[0] as hf:
        hf.workflows = Definitions(SignatureCodec)

        @hf.workflow
        async def order(number: int) -> str:
            return wrong_name  # noqa: F821 - the error under test

        hf.work(until_idle=True)
    code, sentence, commands = why(rows)
    assert code == "blocked"
    assert sentence.endswith("its code raised NameError: name 'wrong_name' is not defined")
    assert commands == [
        "holdfast workflows replay APP order-7",
        "holdfast worker APP",
        "holdfast workflows fail order-7",
    ]
    page = holdfast("workflows", "show", "order-7").stdout
    assert "Traceback (most recent call last):" in page
    assert "return wrong_name" in page
    assert "NameError" in holdfast("workflows", "ls").stdout


def test_signal_that_was_set_aside_is_told_in_the_history(holdfast, start, work, rows):
    start()
    work()
    holdfast("decisions", "resolve", rows("decisions", "ls")[0]["decision_id"], "yes")
    holdfast("workflows", "signal", "order-7", "paid", "--data", '"nine"')
    work()
    assert why(rows)[1].startswith("waits for signal 'paid'; set aside: 1 of signal 'paid', the last one because ")
    said = [one["says"] for one in rows("workflows", "history", "order-7")]
    assert said[-1] == "signal 1 'paid' set aside: Expected `int`, got `str`"


def test_a_damaged_history_is_told_with_what_ends_it(place, rows, start, work, holdfast):
    start()
    work()
    with application(place)[0] as hf:
        corrupt_history(hf.engine.store, "order-7")
        hf.instance("order-7").signal("paid", 9)
        hf.work(until_idle=True)
    code, _, commands = why(rows)
    assert (code, commands) == ("blocked", ["holdfast store check", "holdfast workflows fail order-7"])


def test_what_is_neither_job_nor_instance_exits_3(holdfast, start):
    start()
    assert holdfast("explain", "nothing").exit_code == 3


def test_an_instance_that_waits_for_a_job_names_it(rows, place):
    with application(place)[0] as hf:

        @hf.task(name="later", queue="elsewhere")
        def later() -> None: ...

        @hf.workflow(name="hopeful")
        async def hopeful() -> None:
            await later.call()

        hopeful.start(id="h")
        hf.worker(["default"], until_idle=True).run()
        (job,) = hf.jobs()
    _, sentence, commands = why(rows, "h")
    assert f"job {job.id} is QUEUED" in sentence
    assert commands[0] == f"holdfast explain {job.id}"


def test_every_way_on_is_a_command_that_there_is():
    found = set(re.findall(r'"holdfast (\w+)(?: ([a-z]+))?', Path(instance_text.__file__).read_text()))
    assert len(found) > 8
    for word, verb in sorted(found):
        command = cli.get_command(click.Context(cli), word)
        assert command is not None, word
        if isinstance(command, click.Group):
            assert command.get_command(click.Context(command), verb) is not None, (word, verb)


def test_the_status_page_counts_the_instances_that_run(holdfast, rows, start, work):
    start()
    work()
    assert rows("status")["running_instances"] == 1
    assert re.search(r"workflows +1 running", holdfast("status").stdout)


def test_a_question_that_waits_for_a_person_is_counted_and_shown_until_it_is_answered(holdfast, rows, start, work):
    start()
    work()
    assert rows("status")["open_decisions"] == 1
    assert re.search(r"decisions +1 waits for an answer", holdfast("status").stdout)
    (asked,) = rows("workflows", "show", "order-7")["decisions"]
    assert asked["options"] == ["yes", "no"]
    assert f"{asked['prompt']} (yes, no) {asked['decision_id']}" in holdfast("workflows", "show", "order-7").stdout
    assert holdfast("decisions", "resolve", asked["decision_id"], "yes").exit_code == 0
    assert rows("status")["open_decisions"] == 0
    assert "for an answer" not in holdfast("status").stdout
    assert rows("workflows", "show", "order-7")["decisions"] == []


def test_an_input_that_does_not_fit_is_told_and_listed_though_nothing_has_begun(holdfast, rows, work):
    holdfast("workflows", "start", "order", "--id", "odd")
    work()
    code, sentence, commands = why(rows, "odd")
    assert code == "blocked"
    assert "missing required field `number`" in sentence
    assert commands == ["holdfast worker APP", "holdfast workflows fail odd"]
    assert [one["instance_id"] for one in rows("workflows", "ls")] == ["odd"]
    assert holdfast(*commands[-1].split()[1:]).exit_code == 0
    assert rows("workflows", "show", "odd")["status"] == "FAILED"


def test_an_instance_of_a_workflow_that_there_is_not_can_be_ended(holdfast, rows, work):
    """A misspelt start must not wait for ever: whoever works ends it, though nobody has its code."""
    holdfast("workflows", "start", "odrer", "--id", "typo")
    assert why(rows, "typo")[0] == "unregistered"
    assert holdfast(*why(rows, "typo")[2][-1].split()[1:]).exit_code == 0
    work()
    assert rows("workflows", "show", "typo")["status"] == "CANCELLED"
    assert holdfast("workflows", "rm", "typo", "--yes").exit_code == 0


def test_what_a_worker_gave_back_is_ended_by_force_at_once_or_removed(holdfast, rows, work):
    """Nothing sleeps here: a cancel that waited with the start for its next try would find the worker gone."""
    for name in ("typo", "gone"):
        holdfast("workflows", "start", "odrer", "--id", name)
    work()
    refused = holdfast("workflows", "fail", "typo")
    assert refused.exit_code == 6
    assert "holdfast workflows cancel typo" in refused.stderr
    assert "--force" in refused.stderr
    assert holdfast("workflows", "cancel", "typo", "--force").exit_code == 0
    work()
    assert rows("workflows", "show", "typo")["status"] == "CANCELLED"
    assert "force" in holdfast("workflows", "rm", "gone", "--yes").stderr
    assert holdfast("workflows", "rm", "gone", "--yes", "--force").exit_code == 0
    assert [one["instance_id"] for one in rows("workflows", "ls")] == ["typo"]
