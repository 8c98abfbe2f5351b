"""Groups: members one after another or side by side, judged by their chains, ended and called back in one commit."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from holdfast.errors import (
    DuplicateKey,
    GroupNotFound,
    IdReused,
    InvalidOperation,
    InvalidValue,
    JobNotFound,
    PayloadTooLarge,
    StoreError,
)
from holdfast.failpoints import listening
from holdfast.model.commands import (
    Bury,
    Cancel,
    CancelGroup,
    CreateGroup,
    Expire,
    Fail,
    Lease,
    NewJob,
    Retention,
    Retry,
)
from holdfast.model.events import JobFailed
from holdfast.model.groups import Group, GroupMode, GroupStatus, OnFailure
from holdfast.model.ids import JobId
from holdfast.model.jobs import Backoff, Job, JobStatus, RunStatus
from holdfast.model.outcomes import GroupCancelled, Grouped, Swept
from holdfast.rules.explain import explain
from holdfast.rules.state import Lane
from holdfast.stores.protocol import GroupQuery
from holdfast.testing.conformance.harness import Broken, Harness, Topic, new_job
from holdfast.testing.conformance.marks import counts_writes

AT_ONCE = Backoff(base_s=0, jitter=0)
DAY = 86_400
SIDE_BY_SIDE: dict[str, Any] = {"mode": GroupMode.CONCURRENT, "on_failure": OnFailure.CONTINUE}

in_both_retry_modes = pytest.mark.parametrize("mode", ["requeue", "chain"])


def group_of(harness: Harness, *members: NewJob | str, group_id: str = "g", **options: Any) -> Group:
    """Make a group; names stand for new jobs that are tried once."""
    given = tuple(new_job(each, max_attempts=1) if isinstance(each, str) else each for each in members)
    harness.ask(CreateGroup(group_id=group_id, members=given, **options))
    return group(harness, group_id)


def group(harness: Harness, group_id: str = "g") -> Group:
    """Give a group."""
    with harness.engine.read() as view:
        found = view.get(Group, group_id)
    assert found is not None
    return found


def end(harness: Harness, how: str) -> str:
    """Lease the next job and end it in a way; give its id."""
    grant = harness.take()
    match how:
        case "completed":
            harness.complete(grant)
        case "failed":
            harness.fail(grant, fatal=True)
        case "dead":
            harness.ask(Bury(job_id=grant.job.job_id))
        case _:
            harness.ask(Cancel(job_id=grant.job.job_id, force=True))
    return grant.job.job_id


#: What the members are, what is done about failures, and what the group is then.
TABLE: list[tuple[str, OnFailure, GroupStatus]] = [
    ("", OnFailure.STOP, GroupStatus.CREATED),
    ("queued queued", OnFailure.CONTINUE, GroupStatus.QUEUED),
    ("running queued", OnFailure.CONTINUE, GroupStatus.RUNNING),
    ("completed completed queued", OnFailure.CONTINUE, GroupStatus.RUNNING),
    ("cancelled queued", OnFailure.CONTINUE, GroupStatus.RUNNING),
    ("failed running", OnFailure.CONTINUE, GroupStatus.RUNNING),
    ("completed completed", OnFailure.CONTINUE, GroupStatus.COMPLETED),
    ("completed failed dead", OnFailure.SKIP, GroupStatus.COMPLETED),
    ("completed failed cancelled", OnFailure.SKIP, GroupStatus.PARTIAL),
    ("failed failed", OnFailure.SKIP, GroupStatus.FAILED),
    ("failed cancelled", OnFailure.CONTINUE, GroupStatus.FAILED),
    ("dead cancelled", OnFailure.CONTINUE, GroupStatus.FAILED),
    ("cancelled cancelled", OnFailure.CONTINUE, GroupStatus.CANCELLED),
    ("completed cancelled", OnFailure.CONTINUE, GroupStatus.PARTIAL),
    ("completed failed", OnFailure.CONTINUE, GroupStatus.PARTIAL),
]


class Groups(Topic):
    """How members are made, led and judged."""

    def test_members_are_created_with_their_group_in_one_commit(self, harness: Harness) -> None:
        found = group_of(harness, "a", "b", name="nightly")
        assert (found.status, found.members, found.queued, found.name) == (GroupStatus.QUEUED, 2, 2, "nightly")
        assert [(harness.job(name).group_id, harness.job(name).sequence_number) for name in "ab"] == [
            ("g", 0),
            ("g", 1),
        ]
        assert harness.kinds() == ["group:created", "job:created", "job:created", "group:changed"]

    def test_queued_jobs_join_a_group_among_new_ones(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("old"), new_job("other"))
        outcome = harness.ask(CreateGroup(group_id="g", members=(new_job("a"), JobId("old"), new_job("b"))))
        assert outcome == Grouped(group_id="g", members=(JobId("a"), JobId("old"), JobId("b")))
        assert harness.order() == ["other", "a"]
        with harness.engine.read() as view:
            assert [job.job_id for job in view.members("g")] == ["a", "old", "b"]

    def test_a_group_without_members_is_created_and_stays_so(self, harness: Harness) -> None:
        assert group_of(harness).status is GroupStatus.CREATED

    def test_a_group_sent_again_is_the_same(self, harness: Harness) -> None:
        command = CreateGroup(
            group_id="g", members=(new_job("a", params={"n": 1}), new_job("b")), callback=new_job("z")
        )
        harness.ask(command)
        harness.complete(harness.take())
        with harness.unchanged():
            again = harness.ask(command)
        assert again == Grouped(group_id="g", members=(JobId("a"), JobId("b")), created=False)

    @pytest.mark.parametrize(
        "other",
        [
            {"members": (new_job("a"),)},
            {"members": (new_job("b"), new_job("a"))},
            {"members": (new_job("a"), new_job("b", params={"n": 2}))},
            {"mode": GroupMode.CONCURRENT},
            {"on_failure": OnFailure.SKIP},
            {"name": "other"},
            {"callback": new_job("y")},
        ],
    )
    def test_the_id_of_a_group_is_not_used_for_another(self, harness: Harness, other: dict[str, Any]) -> None:
        same: dict[str, Any] = {"members": (new_job("a"), new_job("b")), "callback": new_job("z")}
        harness.ask(CreateGroup(group_id="g", **same))
        harness.refused(IdReused, CreateGroup(group_id="g", **same | other), group_id="g")

    def test_only_a_queued_job_without_a_group_can_join_one(self, harness: Harness) -> None:
        harness.enqueue("running")
        harness.take()
        harness.enqueue("ended")
        harness.ask(Cancel(job_id=JobId("ended")))
        harness.enqueue("elsewhere", namespace="x")
        group_of(harness, "member", group_id="first")
        for name in ("running", "ended", "member"):
            command = CreateGroup(group_id="g", members=(new_job("new"), JobId(name)))
            harness.refused(InvalidOperation, command, job_id=name)
        for name in ("nobody", "elsewhere"):
            harness.refused(JobNotFound, CreateGroup(group_id="g", members=(JobId(name),)), job_id=name)

    def test_a_new_member_never_takes_the_place_of_what_is_there(self, harness: Harness) -> None:
        harness.enqueue("a", key="k")
        harness.refused(IdReused, CreateGroup(group_id="g", members=(new_job("b"), new_job("a"))), job_id="a")
        keyed = CreateGroup(group_id="g", members=(new_job("b", key="k"),))
        harness.refused(DuplicateKey, keyed, job_id="a", key="k")
        twice = (new_job("b", key="l"), new_job("c", key="l"))
        harness.refused(DuplicateKey, CreateGroup(group_id="g", members=twice), job_id="b")
        harness.refused(IdReused, CreateGroup(group_id="g", members=(new_job("b"),), callback=new_job("a")), job_id="a")

    def test_what_no_group_can_be_is_refused(self, harness: Harness) -> None:
        one = (new_job("a"),)
        many = tuple(JobId(f"j{number}") for number in range(10_001))
        for wrong in (
            CreateGroup(group_id=" g", members=one),
            CreateGroup(group_id="g", members=(*one, *one)),
            CreateGroup(group_id="g", members=(*one, JobId("a"))),
            CreateGroup(group_id="g", members=one, callback=new_job("a")),
            CreateGroup(group_id="g", members=many),
            CreateGroup(group_id="g", members=one, namespace="x"),
            CreateGroup(group_id="g", members=one, name=" outer blanks "),
            CreateGroup(group_id="g", members=(new_job("a", priority=101),)),
            CreateGroup(group_id="g", callback=new_job("z")),
            CreateGroup(group_id="g", members=one, callback=new_job("z", key="k")),
            CreateGroup(group_id="g", members=(7,)),  # type: ignore[arg-type]  # what a checker would refuse
        ):
            harness.refused(InvalidValue, wrong)
        large = new_job("z", params={"text": "x" * 70_000})
        harness.refused(PayloadTooLarge, CreateGroup(group_id="g", members=one, callback=large))

    def test_a_large_payload_of_a_member_lies_beside_it(self, harness: Harness) -> None:
        group_of(harness, new_job("a", params={"text": "x" * 70_000}))
        assert len(bytes(harness.job("a").params)) < 200

    # --- order --------------------------------------------------------------------------------------------------------

    def test_sequential_members_run_one_after_another(self, harness: Harness) -> None:
        group_of(harness, "a", "b", "c")
        for name in "abc":
            (grant,) = harness.lease(10)
            assert grant.job.job_id == name
            assert harness.lease(10, worker="w2") == ()
            harness.complete(grant)
        assert group(harness).status is GroupStatus.COMPLETED

    def test_the_sequence_goes_before_priority_and_place(self, harness: Harness) -> None:
        group_of(harness, "a", new_job("b", priority=9), new_job("c", priority=50, queue="fast"))
        assert harness.order(queues=("default", "fast")) == ["a"]

    def test_concurrent_members_run_side_by_side(self, harness: Harness) -> None:
        group_of(harness, "a", "b", "c", mode=GroupMode.CONCURRENT)
        assert harness.order() == ["a", "b", "c"]

    def test_a_member_that_waits_never_blocks_the_job_behind_it(self, harness: Harness) -> None:
        group_of(harness, "a", "b", "c")
        harness.enqueue_many(new_job("x"), new_job("y"))
        assert harness.order() == ["a", "x", "y"]

    def test_two_groups_do_not_wait_for_each_other(self, harness: Harness) -> None:
        group_of(harness, "a", "b")
        group_of(harness, "c", "d", group_id="h")
        assert harness.order() == ["a", "c"]

    @in_both_retry_modes
    def test_a_retry_that_waits_holds_the_rest(self, harness: Harness, mode: str) -> None:
        group_of(harness, new_job("a", retry_mode=mode, backoff=Backoff(base_s=60, jitter=0)), "b")
        harness.fail(harness.take())
        assert harness.order() == []
        harness.advance(60)
        first = harness.take()
        assert first.job.sequence_number == 0
        harness.complete(first)
        assert harness.order() == ["b"]

    def test_a_delayed_member_holds_the_rest_until_its_time_and_keeps_its_own(self, harness: Harness) -> None:
        group_of(harness, new_job("a", delay_s=10), new_job("b", delay_s=100), "c")
        assert harness.order() == []
        harness.advance(10)
        assert end(harness, "completed") == "a"
        assert harness.order() == []
        with harness.engine.read() as view:
            assert view.next_due(Lane.DELAYED) == harness.after(100)
        harness.advance(90)
        assert [end(harness, "completed") for _ in range(2)] == ["b", "c"]

    def test_a_waiting_member_becomes_ready_by_no_time_of_its_own(self, harness: Harness) -> None:
        group_of(harness, "a", new_job("b", delay_s=5))
        first = harness.take()
        harness.advance(6)
        assert harness.order() == []
        with harness.engine.read() as view:
            assert view.next_due(Lane.DELAYED) is None
        harness.complete(first)
        assert harness.order() == ["b"]

    def test_a_cancelled_member_lets_the_next_one_go(self, harness: Harness) -> None:
        group_of(harness, "a", "b", "c")
        harness.ask(Cancel(job_id=JobId("b")))
        assert end(harness, "completed") == "a"
        assert harness.order() == ["c"]

    def test_members_wait_as_before_after_a_restart(self, harness: Harness) -> None:
        group_of(harness, "a", "b", "c")
        harness.enqueue("x")
        harness.restart()
        assert end(harness, "completed") == "a"
        harness.restart()
        assert harness.order() == ["b", "x"]

    def test_waiting_members_keep_their_place_in_the_queue(self, harness: Harness) -> None:
        group_of(harness, "a", "b", "c")
        harness.enqueue("x")
        assert harness.waiting() == ["a", "b", "c", "x"]
        harness.enqueue("y")
        assert harness.job("y").position == 500

    def test_explain_names_the_member_that_holds_a_waiting_one(self, harness: Harness) -> None:
        group_of(harness, "a", "b", new_job("late", delay_s=60))
        with harness.engine.read() as view:
            found = {name: explain(view, harness_job, harness.now) for name, harness_job in _jobs(view).items()}
        assert (found["a"].code, found["b"].code, found["late"].code) == ("ready", "group_wait", "delayed")
        assert found["b"].holder == "a"
        assert "number 1 of 3" in found["b"].sentence
        assert "QUEUED" in found["b"].sentence

    # --- status -------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("members", "on_failure", "status"), TABLE)
    def test_the_status_follows_from_the_members(
        self, harness: Harness, members: str, on_failure: OnFailure, status: GroupStatus
    ) -> None:
        ways = members.split()
        names = [f"m{number}" for number in range(len(ways))]
        group_of(harness, *names, mode=GroupMode.CONCURRENT, on_failure=on_failure)
        for way in ways:
            if way == "running":
                harness.take()
            elif way != "queued":
                end(harness, way)
        found = group(harness)
        assert found.status is status
        assert (found.finished_at is not None) == all(way not in ("queued", "running") for way in ways or ["queued"])
        assert (found.started_at is not None) == any(way != "queued" for way in ways)

    def test_a_member_cancelled_before_it_began_makes_the_group_run_without_having_started(
        self, harness: Harness
    ) -> None:
        group_of(harness, "a", "b")
        harness.ask(Cancel(job_id=JobId("a")))
        assert (group(harness).status, group(harness).started_at) == (GroupStatus.RUNNING, None)

    def test_a_group_started_with_its_first_lease_and_ends_with_its_last_member(self, harness: Harness) -> None:
        group_of(harness, "a", "b")
        harness.advance(5)
        first = harness.take()
        assert (group(harness).started_at, group(harness).finished_at) == (harness.after(5), None)
        harness.advance(5)
        harness.complete(first)
        harness.advance(5)
        end(harness, "completed")
        assert (group(harness).started_at, group(harness).finished_at) == (harness.after(5), harness.after(15))

    @counts_writes
    def test_the_status_changes_in_the_commit_of_the_member(self, harness: Harness) -> None:
        group_of(harness, "a")
        seq = harness.seq
        grant = harness.take()
        assert harness.kinds(seq) == ["lease:granted", "group:changed"]
        seq = harness.seq
        harness.complete(grant)
        assert harness.kinds(seq) == ["job:completed", "group:changed"]

    @in_both_retry_modes
    def test_a_member_whose_retry_succeeds_has_not_failed(self, harness: Harness, mode: str) -> None:
        group_of(harness, *(new_job(name, retry_mode=mode, backoff=AT_ONCE) for name in "abc"))
        harness.fail(harness.take())
        assert (group(harness).status, group(harness).failed) == (GroupStatus.RUNNING, 0)
        for _ in range(3):
            end(harness, "completed")
        found = group(harness)
        assert (found.status, found.completed, found.members) == (GroupStatus.COMPLETED, 3, 3)

    @in_both_retry_modes
    def test_a_lost_lease_is_no_failure_until_the_job_is_dead(self, harness: Harness, mode: str) -> None:
        group_of(harness, new_job("a", retry_mode=mode, max_expiries=2), "b")
        for status in (JobStatus.QUEUED, JobStatus.CANCELLED):
            harness.take()
            harness.advance(31)
            harness.ask(Expire())
            assert harness.status("b") is status
        assert (group(harness).status, group(harness).failed) == (GroupStatus.FAILED, 1)

    def test_a_member_past_its_latest_start_is_cancelled_and_no_failure(self, harness: Harness) -> None:
        group_of(harness, new_job("a", ttl_s=5), "b")
        harness.advance(6)
        harness.ask(Expire())
        assert (group(harness).cancelled, group(harness).status) == (1, GroupStatus.RUNNING)
        assert harness.order() == ["b"]

    def test_a_manual_retry_belongs_to_no_group(self, harness: Harness) -> None:
        group_of(harness, "a")
        end(harness, "failed")
        harness.ask(Retry(job_id=JobId("a"), new_job_id=JobId("again")))
        assert (harness.job("again").group_id, harness.job("again").sequence_number) == (None, None)
        assert end(harness, "completed") == "again"
        assert group(harness).status is GroupStatus.FAILED

    # --- failure ------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("how", ["failed", "dead"])
    def test_stop_skips_all_that_wait_and_names_the_failed_job(self, harness: Harness, how: str) -> None:
        group_of(harness, "a", "b", "c")
        end(harness, how)
        for name in "bc":
            assert harness.status(name) is JobStatus.CANCELLED
            (run,) = harness.runs(name)
            assert (run.status, run.run_no, run.token, run.reason) == (RunStatus.SKIPPED, 0, None, "group")
            assert "job a" in (run.error or "")
        assert (group(harness).status, group(harness).failed, group(harness).cancelled) == (GroupStatus.FAILED, 1, 2)

    def test_stop_lets_running_members_end(self, harness: Harness) -> None:
        group_of(harness, "a", "b", "c", mode=GroupMode.CONCURRENT)
        first, second = harness.lease(2)
        harness.fail(first, fatal=True)
        assert (harness.status("b"), harness.status("c")) == (JobStatus.RUNNING, JobStatus.CANCELLED)
        assert group(harness).status is GroupStatus.RUNNING
        harness.complete(second)
        assert group(harness).status is GroupStatus.PARTIAL

    @in_both_retry_modes
    def test_a_member_that_fails_after_the_stop_is_not_tried_again(self, harness: Harness, mode: str) -> None:
        members = [new_job(name, retry_mode=mode, backoff=AT_ONCE) for name in "ab"]
        group_of(harness, *members, mode=GroupMode.CONCURRENT)
        first, second = harness.lease(2)
        harness.fail(first, fatal=True)
        harness.fail(second)
        assert harness.order() == []
        assert (group(harness).status, group(harness).failed, group(harness).cancelled) == (GroupStatus.FAILED, 1, 1)

    def test_members_ended_by_one_command_are_judged_together(self, harness: Harness) -> None:
        members = [new_job("a", max_expiries=1), new_job("b"), new_job("c", retry_mode="chain"), new_job("d")]
        group_of(harness, *members, mode=GroupMode.CONCURRENT)
        harness.lease(3)
        harness.advance(31)
        harness.ask(Expire())
        found = group(harness)
        assert (found.status, found.failed, found.cancelled) == (GroupStatus.FAILED, 1, 3)

    @pytest.mark.parametrize("on_failure", [OnFailure.CONTINUE, OnFailure.SKIP])
    def test_others_go_on_after_a_failure(self, harness: Harness, on_failure: OnFailure) -> None:
        group_of(harness, "a", "b", on_failure=on_failure)
        end(harness, "failed")
        assert end(harness, "completed") == "b"
        expected = GroupStatus.COMPLETED if on_failure is OnFailure.SKIP else GroupStatus.PARTIAL
        assert group(harness).status is expected

    def test_a_cancelled_member_stops_nothing(self, harness: Harness) -> None:
        group_of(harness, "a", "b")
        end(harness, "cancelled")
        assert harness.order() == ["b"]


class GroupEnds(Topic):
    """Cancelling, calling back, and being forgotten."""

    def test_cancelling_a_group_ends_what_waits(self, harness: Harness) -> None:
        group_of(harness, "a", "b", "c", **SIDE_BY_SIDE)
        first = harness.take()
        outcome = harness.ask(CancelGroup(group_id="g", reason="not today"))
        assert outcome == GroupCancelled(cancelled=2, requested=0)
        assert [harness.status(name) for name in "abc"] == [JobStatus.RUNNING, *[JobStatus.CANCELLED] * 2]
        assert (harness.runs("b"), harness.job("b").cancel_reason) == ((), "not today")
        harness.complete(first)
        assert group(harness).status is GroupStatus.PARTIAL

    @counts_writes
    def test_running_members_are_asked_to_stop_if_that_is_wished(self, harness: Harness) -> None:
        group_of(harness, "a", "b", **SIDE_BY_SIDE)
        first = harness.take()
        cancel = CancelGroup(group_id="g", running=True)
        assert harness.ask(cancel) == GroupCancelled(cancelled=1, requested=1)
        with harness.unchanged():
            assert harness.ask(cancel) == GroupCancelled()
        harness.fail(first)
        assert (harness.status("a"), group(harness).status) == (JobStatus.CANCELLED, GroupStatus.CANCELLED)

    def test_a_group_is_cancelled_once(self, harness: Harness) -> None:
        group_of(harness, "a")
        first = CancelGroup(cmd="x", group_id="g")
        assert harness.ask(first) == GroupCancelled(cancelled=1)
        with harness.unchanged():
            assert harness.ask(first) == GroupCancelled(cancelled=1)
        harness.refused(InvalidOperation, CancelGroup(group_id="g"), group_id="g", status="CANCELLED")
        harness.refused(GroupNotFound, CancelGroup(group_id="h"), group_id="h")

    @pytest.mark.parametrize("how", ["completed", "failed", "dead", "cancelled"])
    @counts_writes
    def test_the_callback_is_made_in_the_commit_that_ends_the_group(self, harness: Harness, how: str) -> None:
        group_of(harness, "a", "b", callback=new_job("z", params={"n": 1}, delay_s=5), **SIDE_BY_SIDE)
        end(harness, "completed")
        with harness.engine.read() as view:
            assert view.get(Job, "z") is None
        grant, seq = harness.take(), harness.seq
        if how == "completed":
            harness.complete(grant)
        elif how == "failed":
            harness.fail(grant)
        elif how == "dead":
            harness.ask(Bury(job_id=grant.job.job_id))
        else:
            harness.ask(Cancel(job_id=grant.job.job_id, force=True))
        assert harness.kinds(seq)[1:] == ["group:changed", "job:created"]
        called = harness.job("z")
        assert (called.group_id, called.sequence_number, called.not_before) == ("g", None, harness.after(5))
        assert (group(harness).members, bytes(called.params)) == (2, b'{"n":1}')

    def test_cancelling_a_whole_group_calls_back_once(self, harness: Harness) -> None:
        group_of(harness, "a", "b", callback=new_job("z"))
        harness.ask(CancelGroup(group_id="g"))
        assert harness.order() == ["z"]
        assert harness.kinds().count("job:created") == 3

    def test_a_callback_can_be_retried_and_changes_nothing_of_its_group(self, harness: Harness) -> None:
        group_of(harness, "a", callback=new_job("z", retry_mode="chain", backoff=AT_ONCE))
        end(harness, "completed")
        before = group(harness)
        harness.fail(harness.take())
        (heir,) = harness.heirs("z")
        end(harness, "failed")
        assert (heir.group_id, group(harness)) == ("g", before)

    def test_groups_with_one_callback_may_end_at_once(self, harness: Harness) -> None:
        for number in ("1", "2"):
            group_of(harness, new_job(number, max_expiries=1), group_id=number, callback=new_job("z"))
        harness.take()
        harness.take()
        harness.advance(3600)
        assert harness.ask(Expire()) == Swept(count=2)
        assert [group(harness, number).status for number in ("1", "2")] == [GroupStatus.FAILED] * 2
        assert harness.order() == ["z"]

    @counts_writes
    def test_a_taken_id_does_not_keep_a_group_from_ending(self, harness: Harness) -> None:
        group_of(harness, "a", callback=new_job("z"))
        harness.enqueue("z")
        end(harness, "completed")
        assert group(harness).status is GroupStatus.COMPLETED
        assert harness.kinds().count("job:created") == 2
        harness.advance(8 * DAY)
        assert harness.tick().pruned == 2
        assert _kept(harness) == (["z"], [])

    def test_a_crash_at_any_point_of_a_commit_leaves_the_whole_effect_or_nothing(self, harness: Harness) -> None:
        for number, point in enumerate(self.points):
            names = [f"{kind}{number}" for kind in "abz"]
            reached: list[str] = []

            def fail(reached: list[str] = reached, point: str = point) -> None:
                reached.append(point)
                raise Broken

            members = [new_job(name, max_attempts=1, queue=point) for name in names[:2]]
            group_of(harness, *members, group_id=point, callback=new_job(names[2], queue=f"{point}-end"))
            report = Fail(job_id=JobId(names[0]), token=harness.take(queues=(point,)).token, error="boom")
            with listening(point, fail), suppress(Broken, StoreError):
                harness.engine.submit(report)
            assert reached, f"no commit passes {point}"
            harness.restart()
            harness.recover()
            stored = (harness.status(names[0]), harness.status(names[1]), group(harness, point).status)
            whole = (JobStatus.FAILED, JobStatus.CANCELLED, GroupStatus.FAILED)
            assert stored in ((JobStatus.RUNNING, JobStatus.QUEUED, GroupStatus.RUNNING), whole), point
            harness.report(report)
            stored = (harness.status(names[0]), harness.status(names[1]), group(harness, point).status)
            assert stored == whole
            assert harness.order(queues=(f"{point}-end",)) == [names[2]]

    def test_recovery_gives_a_group_what_a_torn_commit_would_have_left_out(self, harness: Harness) -> None:
        group_of(harness, "a", "b", callback=new_job("z"))
        group_of(harness, "c", "d", group_id="h")
        grant = harness.take()
        failed = JobFailed(
            job_id=JobId("a"), token=grant.token, error="boom", error_kind="exception", to=JobStatus.FAILED
        )
        # The failure alone: what no command leaves behind, but damage may.
        with harness.authority.store.write() as batch:
            batch.add([failed], harness.now)
        assert harness.status("b") is JobStatus.QUEUED
        assert harness.recover().mended == 1
        assert (harness.status("b"), group(harness).status) == (JobStatus.CANCELLED, GroupStatus.FAILED)
        assert harness.order() == ["c", "z"]

    # --- being listed and forgotten -----------------------------------------------------------------------------------

    def test_groups_are_listed_newest_first_page_by_page(self, harness: Harness) -> None:
        for number in range(5):
            group_of(harness, f"j{number}", group_id=f"g{number}")
            harness.advance(1)
        group_of(harness, new_job("x", namespace="x"), group_id="other", namespace="x")
        harness.ask(CancelGroup(group_id="g3"))
        with harness.engine.read() as view:
            first = view.groups(GroupQuery(limit=2))
            second = view.groups(GroupQuery(limit=2, before=(first[-1].created_at, first[-1].group_id)))
            cancelled = view.groups(GroupQuery(status=GroupStatus.CANCELLED))
            elsewhere = view.groups(GroupQuery(namespace="x"))
        assert [[found.group_id for found in page] for page in (first, second, cancelled, elsewhere)] == [
            ["g4", "g3"],
            ["g2", "g1"],
            ["g3"],
            ["other"],
        ]

    @counts_writes
    def test_a_group_goes_as_a_whole_when_the_last_of_it_is_old_enough(self, harness: Harness) -> None:
        group_of(harness, new_job("a", retry_mode="chain", backoff=AT_ONCE), "b", callback=new_job("z"))
        harness.fail(harness.take())
        end(harness, "completed")
        harness.advance(5 * DAY)
        end(harness, "failed")
        end(harness, "completed")
        harness.advance(29 * DAY)
        assert harness.tick().pruned == 0
        harness.advance(2 * DAY)
        assert harness.tick().pruned == 5
        assert _kept(harness) == ([], [])

    @counts_writes
    def test_a_member_stays_as_long_as_its_group_lives(self, harness: Harness) -> None:
        group_of(harness, "a", "b")
        end(harness, "completed")
        harness.advance(60 * DAY)
        assert harness.tick().pruned == 0
        assert _kept(harness) == (["a", "b"], ["g"])

    @counts_writes
    def test_a_group_stays_until_its_callback_and_manual_retries_are_over(self, harness: Harness) -> None:
        group_of(harness, "a", callback=new_job("z", queue="later"))
        end(harness, "failed")
        harness.ask(Retry(job_id=JobId("a"), new_job_id=JobId("again")))
        harness.advance(31 * DAY)
        assert harness.tick().pruned == 0
        end(harness, "completed")
        harness.complete(harness.take(queues=("later",)))
        harness.advance(6 * DAY)
        assert harness.tick().pruned == 0
        harness.advance(1 * DAY)
        assert harness.tick().pruned == 4
        assert _kept(harness) == ([], [])

    def test_a_group_without_members_goes_with_time(self, harness: Harness) -> None:
        group_of(harness)
        harness.advance(6 * DAY)
        harness.tick()
        assert _kept(harness) == ([], ["g"])
        harness.advance(2 * DAY)
        assert harness.tick().pruned == 1
        assert _kept(harness) == ([], [])

    def test_what_belongs_to_no_group_goes_beside_groups_that_stay(self, harness: Harness) -> None:
        group_of(harness, "a", "b")
        end(harness, "completed")
        harness.enqueue("x", priority=5)
        assert end(harness, "completed") == "x"
        harness.tick(Retention(done_s=0, failed_s=0))
        assert _kept(harness) == (["a", "b"], ["g"])

    def test_a_second_process_sees_whose_turn_it_is(self, harness: Harness) -> None:
        other = harness.second()
        group_of(harness, "a", "b")
        first = harness.take()
        assert other.ask(Lease(worker_id="w2", n=5)) == harness.ask(Lease(worker_id="w3", n=5))
        harness.complete(first)
        outcome = other.ask(Lease(worker_id="w2", n=5))
        assert [grant.job.job_id for grant in outcome.grants] == ["b"]  # type: ignore[union-attr]  # a Lease is answered so

    def test_ten_thousand_members_are_one_command_and_hold_back_nobody(self, harness: Harness) -> None:
        group_of(harness, *(new_job(f"m{number:05}") for number in range(10_000)))
        harness.enqueue("x")
        # Those that wait are not even met on the way, so a Lease costs the same with ten and with ten thousand.
        with harness.engine.read() as view:
            assert [job.job_id for job in view.ready("", ("default",), None, harness.now)] == ["m00000", "x"]
        assert harness.order() == ["m00000", "x"]
        harness.ask(CancelGroup(group_id="g"))
        found = group(harness)
        assert (found.members, found.cancelled, found.running) == (10_000, 9_999, 1)


def _jobs(view: Any) -> dict[str, Job]:
    return {job.job_id: job for job in view.all(Job)}


def _kept(harness: Harness) -> tuple[list[str], list[str]]:
    with harness.engine.read() as view:
        return [job.job_id for job in view.all(Job)], [found.group_id for found in view.all(Group)]
