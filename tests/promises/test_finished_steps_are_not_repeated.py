"""What a workflow has recorded is not run again after kill -9; what was under way may be, under the same key."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast import Holdfast
from holdfast.failpoints import reach
from holdfast.model.workflows.event_kinds import ActivityCompleted, OrchestrationCompleted, StepCompleted
from holdfast.testing import killed_at

PARTS = ("reserve", "charge", "ship", "mail")


@pytest.fixture(params=["dir", "wal", "sqlite"])
def url(request, tmp_path):
    return f"{request.param}:{tmp_path / 'jobs'}"


@pytest.fixture
def shop(url, tmp_path):
    """An application whose steps and tasks write down, beside the store, that they ran."""
    hf = Holdfast(url)

    def perform(part: str) -> str:
        with (tmp_path / "effects").open("a") as file:
            file.write(f"{part} {hf.idempotency_key()}\n")
        reach("effect")  # it has happened out there; nothing of it is recorded
        return f"{part} done"

    charge = hf.task(name="charge")(lambda: perform("charge"))

    @hf.workflow
    async def order() -> list[str]:
        return [
            await hf.step.options(name="reserve")(perform, "reserve"),
            await charge.call(),
            *[await hf.step.options(name=part)(perform, part) for part in ("ship", "mail")],
        ]

    yield hf, order
    hf.close()


def effects(tmp_path):
    return [tuple(line.split()) for line in (tmp_path / "effects").read_text().splitlines()]


@pytest.mark.parametrize("killed_in", [2, 3])
def test_recorded_work_is_not_run_again_and_what_was_under_way_has_its_old_key(shop, tmp_path, killed_in):
    hf, order = shop
    order.start(id="order-1")
    hf.close()
    killed_at("effect", lambda: hf.work(until_idle=True), nth=killed_in)

    run = hf.instance("order-1")
    before = run.history()
    # A job's result is acknowledged with the job; its event may wait in the mail until the next commit of a turn.
    recorded = sum(isinstance(event.kind, StepCompleted) for event in before) + len(hf.jobs(status="COMPLETED"))
    assert recorded == killed_in - 1
    worker = hf.worker()
    worker.start()
    assert run.result(timeout=60) == [f"{part} done" for part in PARTS]
    worker.stop()
    worker.join()

    after = run.history()
    assert after[: len(before)] == before, "what was acknowledged stands as it stood"
    ran = Counter(part for part, _ in effects(tmp_path))
    assert ran == {part: 2 if number == killed_in else 1 for number, part in enumerate(PARTS, 1)}
    assert len({key for _, key in effects(tmp_path)}) == len(PARTS), "a key for each, the same on both attempts"
    kinds = [event.kind for event in after]
    assert [kind.name for kind in kinds if isinstance(kind, StepCompleted)] == ["reserve", "ship", "mail"]
    assert sum(isinstance(kind, ActivityCompleted | OrchestrationCompleted) for kind in kinds) == 2
    assert hf.engine.store.check() == []
