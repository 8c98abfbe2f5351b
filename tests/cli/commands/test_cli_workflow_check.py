"""`workflows check` and `replay --pdb` as they are used: a process of their own, on an application that was changed."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from pseudoterminal import Terminal

from holdfast import Holdfast
from holdfast.cli.app_loader import load
from holdfast.cli.root import cli

LONG = 30

FIRST = """
import asyncio
from holdfast import Holdfast

hf = Holdfast("STORE")

@hf.task(name="charge")
def charge(amount: int) -> int:
    return amount

@hf.task(name="ship")
def ship(parcel: str) -> str:
    return parcel

@hf.workflow
async def order(amount: int) -> str:
    paid = await charge.call(amount)
    await hf.signal("packed")
    return await ship.call(f"parcel {paid}")

@hf.workflow
def plain(amount: int) -> int:
    doubled = 2 * amount
    hf.signal("packed")
    return doubled
"""
#: A step came in before the activity that is recorded; and the same with another version beside it.
SECOND = FIRST.replace("    paid = await charge", '    await ship.call("first")\n    paid = await charge')
VERSIONED = FIRST.replace("@hf.workflow\nasync", '@hf.workflow(version="2.0.0")\nasync')


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """An application in a file, and a store in which one order is half done and another has ended."""
    shop = Shop(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    shop.write(FIRST)
    sys.modules.pop("shop", None)
    app = load("shop:hf")
    with app:
        orders = {name: shop.order(app, name) for name in ("half", "done")}
        shop.order(app, "plain", workflow="plain")
        orders["done"].signal("packed")
        shop.settle(app)
        assert orders["done"].result(timeout=0) == "parcel 7"
    del sys.modules["shop"]
    return shop


class Shop:
    """An application in a file of a directory, and the command line there."""

    def __init__(self, folder):
        self.folder = folder
        self.url = f"sqlite:{folder / 'jobs.db'}"

    def write(self, text):
        (self.folder / "shop.py").write_text(text.replace("STORE", self.url))

    def settle(self, app):
        worker = app.worker(until_idle=True)
        worker.start()
        assert worker.join(LONG)

    def order(self, app, name, workflow="order"):
        module = sys.modules["shop"]
        run = getattr(module, workflow).start(7, id=name)
        self.settle(app)
        return run

    def cli(self, *args, stdin=None, store=True):
        """Run a command as a process of its own would: the application is loaded anew."""
        sys.modules.pop("shop", None)
        importlib.invalidate_caches()
        url = ("--store", self.url) if store else ()
        return CliRunner().invoke(cli, [*args, *url], input=stdin, env={"HOLDFAST_STORE": ""})

    def process(self, *args):
        """Run a command as a process of its own."""
        return subprocess.run(
            [sys.executable, "-c", "from holdfast.cli import main; main()", *args, "--store", self.url],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


def test_changed_code_is_found_before_it_is_deployed(shop):
    assert shop.process("workflows", "check", "shop:hf").returncode == 0
    shop.write(SECOND)
    told = shop.process("workflows", "check", "shop:hf")
    assert told.returncode == 1
    assert "workflow 'order' 1.0.0, instance 'half', execution 1: event 2 differs (event 1 matches)" in told.stdout
    assert "recorded: activity 'charge' queue 'default' input {\"amount\":7}" in told.stdout
    assert "code now: activity 'ship' queue 'default' input {\"parcel\":\"first\"}" in told.stdout
    assert "shop.py:" in told.stdout
    assert "hf.patched" in told.stdout
    assert "'done'" in told.stdout
    found = json.loads(shop.process("workflows", "check", "shop:hf", "--ended", "0", "-o", "json").stdout)
    (only,) = [one for one in found if one["kind"] == "difference"]
    assert (only["instance"], only["event_id"]) == ("half", 2)
    assert "charge" in only["recorded"]
    assert "ship" in only["found"]


@pytest.mark.parametrize("line", ["paid = await charge", "doubled ="])
def test_call_that_cannot_be_replayed_is_found(shop, line):
    shop.write(FIRST.replace("import asyncio", "import time").replace(line, f"time.sleep(0)\n    {line}"))
    told = shop.cli("workflows", "check", "shop:hf")
    assert told.exit_code == 1
    assert "a workflow may not block its turn with time.sleep (shop.py:" in told.stdout


def test_a_version_without_code_is_found(shop):
    shop.write(VERSIONED)
    told = shop.cli("workflows", "check", "shop:hf")
    assert told.exit_code == 1
    assert "there is no workflow 'order' 1.0.0, of which instance 'half' is one" in told.stdout


def test_a_corpus_of_histories_is_checked_without_a_store(shop):
    corpus = shop.folder / "corpus"
    corpus.mkdir()
    for name in ("half", "done"):
        assert shop.cli("workflows", "export", name, "--to", str(corpus / f"{name}.json")).exit_code == 0
    words = ("workflows", "check", "shop:hf", "--histories", str(corpus))
    assert shop.cli(*words, store=False).exit_code == 0
    shop.write(SECOND)
    told = shop.cli(*words, store=False)
    assert told.exit_code == 1
    assert "difference: half.json: workflow 'order' 1.0.0, instance 'half'" in told.stdout
    assert "done.json" in told.stdout


def test_a_file_that_cannot_be_read_is_found_as_the_others_are(shop):
    corpus = shop.folder / "corpus"
    corpus.mkdir()
    (corpus / "bad.json").write_text("no history")
    (corpus / "later.json").write_text('{"kind":"holdfast history","format":99}')
    (corpus / "folder.json").mkdir()
    assert shop.cli("workflows", "export", "half", "--to", str(corpus / "half.json")).exit_code == 0
    shop.write(SECOND)
    told = shop.cli("workflows", "check", "shop:hf", "--histories", str(corpus), store=False)
    assert told.exit_code == 1
    assert "damage: bad.json: is no exported history" in told.stdout
    assert "damage: folder.json: cannot be read: Is a directory" in told.stdout
    assert "damage: later.json: is of format 99" in told.stdout
    assert "difference: half.json: workflow 'order' 1.0.0, instance 'half'" in told.stdout
    assert "4 found" in told.stderr


def test_the_debugger_shows_the_variables_of_the_workflow_and_nothing_happens(shop):
    typed = "where\np amount, paid\nq\n"
    told = shop.cli("workflows", "replay", "shop:hf", "half", "--until", "3", "--pdb", stdin=typed)
    assert told.exit_code == 0, told.stderr
    assert "shop.py(18)order()" in told.stdout
    assert "(7, 7)" in told.stdout
    before = shop.cli("workflows", "show", "half", "-o", "json").stdout
    with Holdfast(shop.url) as app, app.engine.read() as view:
        seq = view.seq
    shop.cli("workflows", "replay", "shop:hf", "done", "--until", "4", "--pdb", stdin="p paid\nc\n")
    with Holdfast(shop.url) as app, app.engine.read() as view:
        assert view.seq == seq
    assert shop.cli("workflows", "show", "half", "-o", "json").stdout == before


def test_the_debugger_opens_in_a_def_workflow_and_on_a_terminal(shop):
    screen = Terminal(
        shop.url, "workflows", "replay", "shop:hf", "plain", "--pdb", PYTHONPATH=str(shop.folder), PYTHON_COLORS="0"
    )
    screen.until(r"\(Pdb\) ")
    screen.keys("p doubled * 100\r")
    screen.until("1400")
    screen.keys("q\r")
    text, code = screen.end()
    assert code == 0, text
    assert "plain()" in text


def test_an_event_that_is_not_there_and_code_that_stands_nowhere_are_told(shop):
    told = shop.cli("workflows", "replay", "shop:hf", "half", "--until", "99")
    assert (told.exit_code, "events 1-3" in told.stderr) == (2, True)
    told = shop.cli("workflows", "replay", "shop:hf", "done", "--pdb", stdin="q\n")
    assert (told.exit_code, "come to its end" in told.stderr) == (2, True)
    assert shop.cli("workflows", "replay", "shop:hf", "nobody").exit_code == 3
    shop.write(VERSIONED)
    assert shop.cli("workflows", "replay", "shop:hf", "half").exit_code == 2
