"""Code that no longer fits its instances blocks them alone, until it fits again; whoever waits is told.

Other bad input: `promises/test_bad_workflows_harm_nobody.py`, row by row.
"""

import asyncio
import threading

import pytest

from holdfast import Holdfast
from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.errors import (
    HistoryCorrupt,
    InvalidArguments,
    NondeterminismError,
)
from holdfast.model.workflows.instances import InstanceStatus
from holdfast.testing.corruption import corrupt_history
from holdfast.workflows.api.definitions import Definitions

LONG = 30


@pytest.fixture(params=["memory", "wal", "sqlite"])
def hf(request, tmp_path):
    urls = {"memory": "memory:", "wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}
    with Holdfast(urls[request.param]) as app:

        @app.workflow
        async def fine(n: int) -> int:
            return n + 1

        app.fine = fine
        yield app


def settle(hf):
    """Work until nothing is left to do."""
    worker = hf.worker(until_idle=True)
    worker.start()
    assert worker.join(LONG)


def forget(hf):
    """Take all workflows away, as a program without them would be; `fine` stays."""
    hf.workflows = Definitions(SignatureCodec)
    hf.workflows.add(hf.fine.definition)


def others_go_on(hf):
    assert hf.fine.start(1).created
    settle(hf)
    assert [one.result() for one in hf.instances(workflow="fine", limit=1)] == [2]


def test_changed_code_blocks_its_instance_until_it_fits_again(hf):
    @hf.workflow
    async def shifting() -> str:
        await hf.signal("a")
        await asyncio.sleep(0.001)
        return await hf.signal("b", type=str)

    run = shifting.start(id="s")
    run.signal("a")
    settle(hf)
    was = shifting.definition
    forget(hf)

    @hf.workflow(name="shifting")
    async def changed() -> str:
        await hf.signal("a")
        hf.send_signal("s", "other")
        return "changed"

    run.signal("b", "done")
    settle(hf)
    with pytest.raises(NondeterminismError) as caught:
        run.result(timeout=LONG)
    problem = caught.value
    assert (problem.instance, problem.execution_id) == ("s", 1)
    assert problem.event_id > 1
    assert "timer" in problem.recorded
    assert "'other'" in problem.found
    assert problem.location.startswith("test_workflows_trouble.py:")
    assert str(problem).endswith(NondeterminismError.default_hint)
    state = run.status()
    assert state.status is InstanceStatus.RUNNING
    assert state.blocked is not None
    assert state.blocked.kind == "Nondeterminism"
    assert run.explain().code == "blocked"
    others_go_on(hf)
    forget(hf)
    hf.workflows.add(was)
    settle(hf)
    assert run.result(timeout=0) == "done"


def test_input_that_no_longer_fits_blocks_its_instance(hf):
    @hf.workflow
    async def picky(n: int) -> int:
        return n

    run = picky.start(5, id="p")
    forget(hf)

    @hf.workflow(name="picky")
    async def other(n: str) -> str:
        return n

    settle(hf)
    with pytest.raises(InvalidArguments, match="instance 'p' is blocked"):
        run.result(timeout=0)
    assert run.status().blocked.kind == "Input"
    others_go_on(hf)


def test_a_blocked_instance_tells_whoever_awaits_it(hf):
    @hf.workflow
    async def long() -> str:
        return await hf.signal("go", type=str)

    run = long.start(id="bad")
    settle(hf)
    corrupt_history(hf.engine.store, "bad")
    run.signal("go", "a")

    async def story():
        with pytest.raises(HistoryCorrupt):
            await run.aio.result(timeout=LONG)

    done = threading.Thread(target=settle, args=(hf,))
    done.start()
    asyncio.run(story())
    done.join(LONG)
