"""Code that no longer does what a history says is refused before it does anything; code that fits goes on."""

from __future__ import annotations

import pytest

from holdfast import Engine, Holdfast
from holdfast.errors import NondeterminismError
from holdfast.stores.opening import open_store


@pytest.fixture(params=["memory", "dir", "wal", "sqlite"])
def engine(request, tmp_path):
    opened = Engine(open_store("memory:" if request.param == "memory" else f"{request.param}:{tmp_path / 'jobs'}"))
    yield opened
    opened.close()


def deployed(first):
    """An application whose workflow calls the task of that name first; and what its tasks have done."""
    hf, done = Holdfast("memory:"), []

    def task(name):
        return hf.task(name=name)(lambda: done.append(name) or name)

    tasks = {name: task(name) for name in ("mail", "text")}

    @hf.workflow(name="renew")
    async def renew() -> str:
        told = await tasks[first].call()
        await hf.signal("paid")
        return f"{told}, then {await tasks['text'].call()}"

    return hf, renew, done


def test_changed_code_does_nothing_and_code_that_fits_goes_on(engine):
    old, renew, _ = deployed("mail")
    with old.lend(engine):
        run = renew.start(id="user-1")
        old.work(until_idle=True)
        before = run.history()
        run.signal("paid")

    new, _, done = deployed("text")
    with new.lend(engine):
        new.work(until_idle=True)
        run = new.instance("user-1")
        with pytest.raises(NondeterminismError, match="event 2 differs") as told:
            run.result(timeout=0)
        assert "recorded: activity 'mail'" in str(told.value)
        assert "code now: activity 'text'" in str(told.value)
        assert run.status().status == "RUNNING"
        assert (run.history(), done) == (before, []), "nothing was written, and nothing run"

    again, _, done = deployed("mail")
    with again.lend(engine):
        again.work(until_idle=True)
        assert again.instance("user-1").result(timeout=60) == "mail, then text"
        assert done == ["text"], "the mail was recorded, and not sent again"
