"""`hf.group`, chains and fan-outs, and the handle on a group, as an application meets them."""

import asyncio

import pytest

from holdfast import Backoff, Group, Holdfast
from holdfast.app.completion_waiter import limit_of
from holdfast.errors import (
    GroupNotFound,
    InvalidArguments,
    InvalidOperation,
    InvalidValue,
    JobCancelled,
    JobFailed,
)
from holdfast.model.groups import GroupStatus

AT_ONCE = Backoff(base_s=0, jitter=0)


@pytest.fixture(params=["memory", "wal", "sqlite"])
def hf(request, tmp_path):
    urls = {"memory": "memory:", "wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}
    with Holdfast(urls[request.param]) as app:
        yield app


@pytest.fixture
def double(hf):
    @hf.task(max_attempts=1)
    def double(number: int) -> int:
        if number < 0:
            raise ValueError(number)
        return 2 * number

    return double


def work(hf):
    hf.work(until_idle=True)


# --- making -----------------------------------------------------------------------------------------------------------


def test_members_run_one_after_another_and_give_their_results_in_order(hf):
    order = []

    @hf.task
    def note(word: str) -> str:
        order.append(word)
        return word.upper()

    group = hf.group([note.options(priority=rank).job(word) for rank, word in enumerate("abc")], name="letters")
    assert (group.status, group.created, len(group.jobs())) == (GroupStatus.QUEUED, True, 3)
    work(hf)
    assert order == ["a", "b", "c"]
    assert (group.status, group.results()) == (GroupStatus.COMPLETED, ["A", "B", "C"])
    assert group.refresh().name == "letters"


def test_a_job_that_waits_becomes_a_member(hf, double):
    waiting = double.enqueue(1)
    group = hf.chain(double.job(2), waiting)
    assert [job.id for job in group.jobs()][1] == waiting.id
    work(hf)
    assert group.results() == [4, 2]
    with pytest.raises(InvalidOperation, match="belongs to group"):
        hf.chain(waiting)


def test_a_chain_stops_at_the_first_failure(hf, double):
    group = hf.chain(double.job(1), double.job(-1), double.job(3))
    work(hf)
    assert group.status is GroupStatus.PARTIAL
    with pytest.raises(JobFailed, match="-1"):
        group.results()
    first, second, third = group.results(return_exceptions=True)
    assert (first, type(second), type(third)) == (2, JobFailed, JobCancelled)
    assert "the group was stopped by the failure of job" in str(third)


def test_a_fan_out_goes_on_after_a_failure_and_calls_back_once(hf, double):
    seen = []

    @hf.task
    def gather(label: str) -> int:
        group = hf.current_group
        seen.append((label, group.status, group.results(return_exceptions=True)))
        return len(seen)

    group = hf.fan_out(double, [(1,), {"number": -1}, double.job(3)], then=gather.job("all"))
    work(hf)
    ((label, status, results),) = seen
    assert (label, status, results[0], results[2]) == ("all", GroupStatus.PARTIAL, 2, 6)
    assert isinstance(results[1], JobFailed)
    assert group.wait(0).failed == 1


@pytest.mark.parametrize("retry", ["requeue", "chain"])
def test_a_retried_member_is_one_member(hf, retry):
    tries = []

    @hf.task(retry=retry, backoff=AT_ONCE)
    def flaky(name: str) -> str:
        tries.append(name)
        if tries == ["a"]:
            raise ValueError
        return name

    group = hf.chain(flaky.job("a"), flaky.job("b"))
    work(hf)
    assert tries == ["a", "a", "b"]
    assert (group.results(), len(group.jobs())) == (["a", "b"], 2)


def test_the_same_call_with_the_same_id_finds_the_group_it_made(hf, double):
    jobs = [double.job(1), double.job(2)]
    first = hf.group(jobs, id="nightly-2026-01-01")
    again = hf.group(jobs, id="nightly-2026-01-01")
    assert (again.id, first.created, again.created) == (first.id, True, False)
    assert len(hf.jobs()) == 2


def test_what_is_no_member_or_no_option_is_refused(hf, double):
    for wrong in ([double], ["id"], [3]):
        with pytest.raises(InvalidArguments):
            hf.group(wrong)
    with pytest.raises(InvalidArguments, match="no option 'color'"):
        hf.group([double.job(1)], color="red")
    with pytest.raises(InvalidValue, match="mode"):
        hf.group([double.job(1)], mode="random")
    with pytest.raises(InvalidValue, match="on_failure"):
        hf.chain(double.job(1), on_failure="panic")
    with pytest.raises(InvalidArguments, match="tuple of one"):
        hf.fan_out(double, ["ab"])
    with pytest.raises(InvalidValue, match="never call back"):
        hf.fan_out(double, [], then=double.job(1))
    assert hf.jobs() == []


def test_a_group_without_members_is_over_at_once(hf, double):
    group = hf.fan_out(double, [])
    assert (group.status, group.results(), group.progress.fraction) == (GroupStatus.CREATED, [], None)
    assert group.wait().members == 0


# --- looking and waiting ----------------------------------------------------------------------------------------------


def test_groups_are_found_by_id_and_listed_newest_first(hf, double):
    first = hf.chain(double.job(1))
    second = hf.chain(double.job(2))
    second.cancel()
    assert [group.id for group in hf.groups()] == [second.id, first.id]
    assert [group.id for group in hf.groups(status="CANCELLED")] == [second.id]
    assert [group.id for group in hf.groups(limit=1)] == [second.id]
    assert hf.find_group(first.id).status is GroupStatus.QUEUED
    assert repr(first) == f"<Group {first.id}>"
    with pytest.raises(GroupNotFound):
        hf.find_group("nobody")
    with pytest.raises(GroupNotFound):
        Group(hf, "nobody").jobs()
    with pytest.raises(InvalidValue, match="status"):
        hf.groups(status="DONE")
    for limit in (0, "5", True):
        for listing in (hf.groups, hf.jobs):
            with pytest.raises(InvalidValue, match="limit"):
                listing(limit=limit)


def test_what_is_no_list_of_jobs_and_no_id_is_refused(hf, double):
    for members in (None, 5):
        with pytest.raises(InvalidArguments, match="list of jobs"):
            hf.group(members)
    with pytest.raises(InvalidValue, match="group_id"):
        hf.group([double.job(1)], id="")
    assert hf.jobs() == []


def test_progress_counts_the_members_that_have_ended(hf, double):
    group = hf.chain(double.job(1), double.job(2), double.job(3), double.job(4))
    group.jobs()[1].cancel()
    progress = group.progress
    assert (progress.fraction, progress.done, progress.total) == (0.25, 1, 4)


def test_waiting_in_vain_says_how_far_the_group_is(hf, double):
    group = hf.chain(double.job(1), double.job(2))
    group.jobs()[0].cancel()
    with pytest.raises(TimeoutError, match=r"is RUNNING after 0 s: 1 of 2 members have ended, 0 run. It goes on"):
        group.wait(timeout=0)
    with pytest.raises(TimeoutError):
        group.results(timeout=0)


@pytest.mark.parametrize("timeout", [float("nan"), "5", True])
def test_what_is_no_time_to_wait_for_an_end_is_refused(hf, double, timeout):
    group = hf.chain(double.job(1))
    for handle in (group, group.jobs()[0]):
        with pytest.raises(InvalidValue, match="timeout"):
            handle.wait(timeout)
        with pytest.raises(InvalidValue, match="timeout"):
            asyncio.run(handle.aio.wait(timeout))


def test_a_time_that_no_clock_can_count_is_no_limit():
    assert [limit_of(timeout) for timeout in (float("inf"), 1e300, 10**400, 5, 0.5)] == [None, None, None, 5, 0.5]


def test_cancelling_ends_what_waits(hf, double):
    group = hf.fan_out(double, [(1,), (2,)])
    outcome = group.cancel("not today", running=True)
    assert (outcome.cancelled, outcome.requested, group.status) == (2, 0, GroupStatus.CANCELLED)
    with pytest.raises(JobCancelled, match="not today"):
        group.results()
    with pytest.raises(InvalidOperation, match="is CANCELLED and cannot be cancelled"):
        group.cancel()


def test_a_handler_outside_any_group_has_none(hf):
    seen = []

    @hf.task
    def alone() -> None:
        seen.append(hf.current_group)

    alone.enqueue()
    work(hf)
    assert seen == [None]


def test_a_member_knows_its_group(hf):
    seen = []

    @hf.task
    def member() -> None:
        seen.append(hf.current_group.id)

    group = hf.chain(member.job())
    work(hf)
    assert seen == [group.id]


# --- awaited ----------------------------------------------------------------------------------------------------------


def test_groups_are_made_waited_for_and_read_by_awaiting(hf, double):
    async def story():
        group = await hf.aio.fan_out(double, [(1,), (2,)])
        chain = await hf.aio.chain(double.job(3))
        plain = await hf.aio.group([double.job(4)], mode="concurrent")
        waiting = asyncio.gather(*(each.aio.results(timeout=30) for each in (group, chain, plain)))
        await asyncio.to_thread(work, hf)
        assert await waiting == [[2, 4], [6], [8]]
        assert await group.aio.status() is GroupStatus.COMPLETED
        assert (await group.aio.progress()).fraction == 1
        assert (await group.aio.wait()).completed == 2
        assert len(await group.aio.jobs()) == 2
        assert [each.id for each in await hf.aio.groups(limit=1)] == [plain.id]
        found = await hf.aio.find_group(chain.id)
        assert (await found.aio.refresh()).members == 1

    asyncio.run(story())


def test_awaiting_in_vain_says_how_far_the_group_is(hf, double):
    async def story():
        group = await hf.aio.chain(double.job(1), double.job(-1))
        with pytest.raises(TimeoutError, match="0 of 2 members have ended"):
            await group.aio.wait(timeout=0.01)
        await group.aio.cancel("enough")
        failures = await group.aio.results(return_exceptions=True)
        assert [type(each) for each in failures] == [JobCancelled, JobCancelled]
        with pytest.raises(GroupNotFound):
            await Group(hf, "nobody").aio.wait(timeout=5)

    asyncio.run(story())
