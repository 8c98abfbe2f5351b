"""Whoever waits for a limited time is told when it is over, also by a coordinator that is away; nobody waits longer."""

from __future__ import annotations

import asyncio
import threading

import pytest
from coordinators import running

from holdfast import Holdfast
from holdfast.app.handles.job import Job
from holdfast.errors import StoreBusy
from holdfast.failpoints import listening
from holdfast.testing import ManualClock

pytestmark = pytest.mark.usefixtures("brief_pauses")

#: Seconds that callers wait here, and between two tries of theirs.
LIMIT_S, STEP_S = 2.0, 0.5


@pytest.fixture(scope="module")
def clock():
    return ManualClock()


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory, clock):
    with running(f"wal:{tmp_path_factory.mktemp('limited') / 'jobs'}", clock=clock) as serving:
        yield serving


@pytest.fixture
def hf(proxy, clock):
    with Holdfast(proxy.url, clock=clock) as made:
        yield made


def handles(hf):
    """Give one of each that can be waited for, with the call that waits."""

    @hf.task(name="never")
    def never() -> None: ...

    @hf.workflow(name="endless")
    async def endless() -> None: ...

    job, run = never.enqueue(), endless.start(id="one")
    group = hf.group([never.job()])
    return {
        "job": (job.result, job.aio.result),
        "job wait": (job.wait, job.aio.wait),
        "instance": (run.result, run.aio.result),
        "instance wait": (run.wait, run.aio.wait),
        "group": (group.results, group.aio.results),
    }


KINDS = ["job", "job wait", "instance", "instance wait", "group"]


@pytest.mark.parametrize("kind", KINDS)
def test_who_waits_for_something_of_a_coordinator_that_is_away_waits_no_longer_than_he_wanted_to(
    hf, proxy, clock, kind
):
    wait, _ = handles(hf)[kind]
    proxy.refuse()
    began = clock.monotonic()
    with listening("http.again", lambda: clock.advance(STEP_S)), pytest.raises(StoreBusy, match=proxy.url):
        wait(timeout=LIMIT_S)
    assert clock.monotonic() - began == LIMIT_S


@pytest.mark.parametrize("kind", KINDS)
def test_so_does_who_awaits(hf, proxy, clock, kind):
    _, wait = handles(hf)[kind]
    proxy.refuse()
    began = clock.monotonic()

    def again():
        # The lookout has begun to ask, too, and it is patient: how often, only the machine knows.
        if threading.current_thread().name != "holdfast-lookout":
            clock.advance(STEP_S)

    with listening("http.again", again), pytest.raises(StoreBusy, match=proxy.url):
        asyncio.run(wait(timeout=LIMIT_S))
    assert clock.monotonic() - began == LIMIT_S


def test_a_coordinator_that_goes_away_while_one_waits_changes_nothing_about_the_limit(hf, proxy, clock):
    wait, _ = handles(hf)["job"]
    began = clock.monotonic()
    with (
        listening("bell.waiting", proxy.refuse),
        listening("http.again", lambda: clock.advance(STEP_S)),
        pytest.raises(StoreBusy),
    ):
        wait(timeout=LIMIT_S)
    assert clock.monotonic() - began == LIMIT_S


def test_an_application_that_was_never_open_opens_no_longer_either(proxy, clock):
    proxy.refuse()
    began = clock.monotonic()
    hf = Holdfast(proxy.url, clock=clock)
    with listening("http.again", lambda: clock.advance(STEP_S)), pytest.raises(StoreBusy):
        Job(hf, "01890000-0000-7000-8000-000000000000").wait(timeout=LIMIT_S)
    assert clock.monotonic() - began == LIMIT_S


def test_who_comes_back_in_time_is_not_missed(hf, proxy, clock):
    """The limit is one of waiting, not of the line: an answer that comes before its end is taken."""
    wait, _ = handles(hf)["job"]
    proxy.refuse()

    def back():
        clock.advance(STEP_S)
        proxy.heal()

    with listening("http.again", back), pytest.raises(TimeoutError, match="QUEUED"):
        wait(timeout=STEP_S)
