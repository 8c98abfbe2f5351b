"""A corpus of histories: what tests ran is kept once a way, and checked against tomorrow's code."""

import asyncio

import pytest

from holdfast import Holdfast
from holdfast.errors import NondeterminismError
from holdfast.testing import replay, virtual, workflow_histories


def built(sleep=5, name="a/../b"):
    hf = Holdfast("memory:")

    @hf.workflow(name=name)
    async def walk(n: int) -> int:
        if n > 1:
            await asyncio.sleep(sleep)
        if n > 2:
            await hf.signal("never")
        return n

    return hf, walk


def test_every_way_that_ended_is_kept_once_and_what_runs_is_not(tmp_path):
    for _ in range(2):
        hf, walk = built()
        with virtual(hf) as world, workflow_histories(hf, tmp_path / "kept"):
            for n in (1, 1, 2):
                world.run(walk.start(n))
            walk.start(3)
            world.settle()
    files = sorted((tmp_path / "kept").iterdir())
    assert len(files) == 2
    assert all(file.name.startswith("a_.._b-1.0.0-") for file in files)


def test_a_kept_history_is_replayed_with_the_code_there_is_now(tmp_path):
    hf, walk = built()
    with virtual(hf) as world, workflow_histories(hf, tmp_path):
        run = walk.start(2)
        world.run(run)
        assert replay(run, walk).output == 2
    (file,) = tmp_path.iterdir()
    assert replay(file, walk).output == 2
    hf, changed = built()
    assert replay(file, changed).output == 2
    hf = Holdfast("memory:")

    @hf.workflow(name="other")
    async def other(n: int) -> int:
        await hf.signal("first")
        return n

    with pytest.raises(NondeterminismError, match="event 2 differs"):
        replay(file, other)
