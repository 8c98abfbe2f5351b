"""`holdfast workflows reset|fork|fail|import`, without the workflow's code, on real stores."""

from __future__ import annotations

import asyncio
import json

import pytest

from holdfast import Holdfast
from holdfast.app.workflows.workflow import Workflow
from holdfast.testing.corruption import corrupt_history

LONG = 30


def settle(app):
    worker = app.worker(until_idle=True)
    worker.start()
    assert worker.join(LONG)


def build(url, *, is_broken=False, has_other_code=False):
    """Give an application whose one workflow fails, waits for a signal, or does something else."""
    app = Holdfast(url)

    @app.task(name="pay", max_attempts=1)
    def pay(amount: int) -> int:
        if is_broken:
            raise OSError("the bank is closed")
        return amount

    if has_other_code:

        @app.workflow(name="order")
        async def other(amount: int) -> None:
            await asyncio.sleep(amount)
    else:

        @app.workflow(name="order")
        async def order(amount: int) -> list:
            paid = await pay.call(amount)
            return [paid, await app.signal("go", type=str)]

    return app


@pytest.fixture
def failed(place):
    """Make instances that have failed."""

    def make(*ids):
        with build(place, is_broken=True) as app:
            for one in ids:
                start(app, one)
            settle(app)

    return make


def start(app, name, amount=7):
    return Workflow(app, app.workflows.get("order", None)).start(amount, id=name)


@pytest.fixture
def blocked(place):
    """Make an instance that waits, and then is met by other code."""
    with build(place) as app:
        start(app, "b")
        settle(app)
    with build(place, has_other_code=True) as app:
        app.instance("b").signal("go", "kept")
        settle(app)


def outcome(place, name):
    with build(place) as app:
        settle(app)
        run = app.instance(name)
        if not run.status().has_ended:
            run.signal("go", "x")
            settle(app)
        return run.result(timeout=0)


def test_a_failed_instance_is_reset_and_comes_to_its_end(holdfast, rows, place, failed):
    failed("o")
    assert rows("workflows", "reset", "o", "--reason", "open again") == {"instance_id": "o", "until": 2}
    assert rows("workflows", "show", "o")["status"] == "RUNNING"
    assert outcome(place, "o") == [7, "x"]
    told = holdfast("workflows", "reset", "o", "--to", "1")
    assert (told.exit_code, "goes on behind event 1" in told.stderr) == (0, True)
    assert outcome(place, "o") == [7, "x"]


def test_a_fork_and_its_origin_name_each_other(holdfast, rows, place, failed):
    failed("o")
    made = rows("workflows", "fork", "o", "--id", "copy")
    assert made == {"instance_id": "copy", "forked_from": "o", "until": 2}
    assert rows("workflows", "show", "o")["forks"] == ["copy"]
    assert rows("workflows", "show", "copy")["forked_from"] == "o"
    assert "fork of    o" in holdfast("workflows", "show", "copy").stdout
    assert "forks      copy" in holdfast("workflows", "show", "o").stdout
    assert outcome(place, "copy") == [7, "x"]
    unnamed = rows("workflows", "fork", "o", "--input", '{"amount": 9}')["instance_id"]
    assert outcome(place, unnamed) == [9, "x"]


@pytest.mark.usefixtures("blocked")
def test_a_blocked_instance_is_ended_and_can_be_reset(holdfast, rows, place):
    assert rows("workflows", "show", "b")["blocked"]["kind"] == "Nondeterminism"
    assert holdfast("workflows", "fail", "b", "--reason", "given up").exit_code == 0
    shown = rows("workflows", "show", "b")
    assert (shown["status"], shown["output"], shown["blocked"]) == ("FAILED", "given up", None)
    assert rows("workflows", "history", "b")[-1]["event_id"] == 2**31 - 1
    assert holdfast("workflows", "reset", "b").exit_code == 0
    assert outcome(place, "b") == [7, "kept"]


def test_a_damaged_instance_is_ended_and_reset_only_to_what_can_be_read(holdfast, place):
    with build(place) as app:
        start(app, "d")
        settle(app)
        corrupt_history(app.engine.store, "d")
    assert holdfast("workflows", "fail", "d").exit_code == 0
    told = holdfast("workflows", "reset", "d")
    assert told.exit_code == 7
    assert "cannot be read" in told.stderr


def test_bad_input_is_refused_by_its_exit_code_and_changes_nothing(holdfast, place, opened, failed):
    failed("o", "taken")
    with build(place) as app:
        start(app, "going")
        settle(app)
    with opened() as engine, engine.read() as view:
        before = view.seq
    refused = {
        ("reset", "nobody"): 3,
        ("reset", "o", "--to", "99"): 2,
        ("reset", "o", "--to", "0"): 2,
        ("reset", "o", "--to", "x"): 2,
        ("reset", "going"): 6,
        ("fork", "nobody"): 3,
        ("fork", "o", "--to", "99"): 2,
        ("fork", "o", "--id", "taken"): 6,
        ("fork", "o", "--id", ""): 2,
        ("fork", "o", "--id", "a::sub::b"): 2,
        ("fork", "o", "--input", "[1]"): 2,
        ("fork", "o", "--input", "{"): 2,
        ("fork", "o", "--input", "{}", "--to", "1"): 2,
        ("fail", "nobody"): 3,
        ("fail", "o"): 6,
        ("fail", "going"): 6,
        ("import", "nowhere.json"): 2,
        ("reset", "o", "--dry-run"): 0,
        ("fork", "o", "--id", "copy", "--dry-run"): 0,
    }
    for words, code in refused.items():
        told = holdfast("workflows", *words)
        assert told.exit_code == code, (words, told.stderr)
        assert code == 0 or "Traceback" not in told.stderr
    with opened() as engine, engine.read() as view:
        assert view.seq == before
    problem = holdfast("workflows", "reset", "going", "-o", "json")
    assert json.loads(problem.stderr)["code"] == "invalid_operation"


# --- import -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [(), ("--redact",)])
def test_an_export_comes_back_the_same_from_another_store(holdfast, rows, tmp_path, failed, form):
    failed("o")
    holdfast("workflows", "export", "o", *form, "--to", str(tmp_path / "o.json"))
    other = {"HOLDFAST_STORE": f"sqlite:{tmp_path / 'other.db'}"}
    told = holdfast("workflows", "import", str(tmp_path / "o.json"), env=other)
    assert told.exit_code == 0, told.stderr
    again = holdfast("workflows", "export", "o", env=other)
    assert again.stdout == (tmp_path / "o.json").read_text()
    assert rows("workflows", "show", "o", env=other)["status"] == "FAILED"
    assert holdfast("workflows", "import", str(tmp_path / "o.json"), env=other).exit_code == 6
    forked = holdfast("workflows", "fork", "o", "--id", "copy", env=other)
    assert forked.exit_code == (6 if form else 0), forked.stderr
    if form:
        assert "redacted" in forked.stderr


def test_what_was_running_when_it_was_exported_is_over_where_it_is_imported(holdfast, rows, place, tmp_path):
    with build(place) as app:
        start(app, "going")
        settle(app)
    text = holdfast("workflows", "export", "going").stdout
    other = {"HOLDFAST_STORE": f"wal:{tmp_path / 'other'}"}
    assert holdfast("workflows", "import", "-", stdin=text, env=other).exit_code == 0
    shown = rows("workflows", "show", "going", env=other)
    assert (shown["status"], shown["output"]) == ("CANCELLED", "it was running when it was exported")
    assert holdfast("workflows", "reset", "going", env=other).exit_code == 0
    assert outcome(other["HOLDFAST_STORE"], "going") == [7, "x"]


def test_files_that_contradict_themselves_are_not_imported(holdfast, failed, tmp_path):
    failed("o")
    text = holdfast("workflows", "export", "o").stdout
    lines = text.splitlines()
    bad = {
        "none.json": "{}",
        "stranger.json": text.replace('"instance":"o"', '"instance":"p"', 1),
        "gap.json": "\n".join([*lines[:3], *lines[4:]]),
        "late.json": text.replace('"format":1', '"format":2'),
    }
    for name, content in bad.items():
        (tmp_path / name).write_text(content)
        told = holdfast("workflows", "import", str(tmp_path / name))
        assert told.exit_code == 7, (name, told.stderr)
    assert holdfast("workflows", "show", "p").exit_code == 3
