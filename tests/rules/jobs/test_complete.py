"""How an execution ends: run, job, counters and successor, by retry mode, with and without a cancel request."""

import msgspec
import pytest
from world import START, World, content

from holdfast.model import commands as c
from holdfast.model.jobs import Backoff
from holdfast.model.payloads import MAX_ERROR
from holdfast.model.times import later


def end(world, how, token, job_id="j"):
    held = {"job_id": job_id, "token": token}
    match how:
        case "returns":
            return world.do(c.Complete(**held, result=msgspec.Raw(b"7")))
        case "raises" | "raises, spent":
            return world.do(c.Fail(**held, error="boom"))
        case "times out":
            return world.do(c.Fail(**held, error="boom", error_kind="timeout"))
        case "fatal":
            return world.do(c.Fail(**held, error="boom", fatal=True))
        case "bad result":
            return world.do(c.Fail(**held, error="boom", error_kind="bad_result"))
        case "snoozes":
            return world.do(c.Snooze(**held, delay_s=7))
        case "gives up":
            return world.do(c.GiveUp(**held, reason="no use"))
        case "released":
            return world.do(c.Release(**held, begun=True))
        case "released unbegun":
            return world.do(c.Release(**held, begun=False))
        case "lost" | "lost, spent":
            world.wait(30)
            return world.do(c.Expire())
    raise AssertionError(how)


# run, job with requeue, job with chain (+: a successor follows), (attempts, snoozes, expiries), back of the band
TABLE = {
    "returns":          ("COMPLETED", "COMPLETED", "COMPLETED",  (1, 0, 0), False),
    "raises":           ("FAILED",    "QUEUED",    "FAILED+",    (1, 0, 0), True),
    "times out":        ("FAILED",    "QUEUED",    "FAILED+",    (1, 0, 0), True),
    "raises, spent":    ("FAILED",    "FAILED",    "FAILED",     (1, 0, 0), False),
    "fatal":            ("FAILED",    "FAILED",    "FAILED",     (1, 0, 0), False),
    "bad result":       ("FAILED",    "FAILED",    "FAILED",     (1, 0, 0), False),
    "snoozes":          ("SKIPPED",   "QUEUED",    "CANCELLED+", (0, 1, 0), True),
    "gives up":         ("CANCELLED", "CANCELLED", "CANCELLED",  (0, 0, 0), False),
    "released":         ("CANCELLED", "QUEUED",    "CANCELLED+", (0, 0, 0), False),
    "released unbegun": ("CANCELLED", "QUEUED",    "QUEUED",     (0, 0, 0), False),
    "lost":             ("LOST",      "QUEUED",    "FAILED+",    (0, 0, 1), False),
    "lost, spent":      ("LOST",      "DEAD",      "DEAD",       (0, 0, 1), False),
}  # fmt: skip


@pytest.mark.parametrize("asked", [False, True], ids=["", "after a cancel request"])
@pytest.mark.parametrize("mode", ["requeue", "chain"])
@pytest.mark.parametrize("how", TABLE)
def test_an_execution_ends_as_the_table_says(how, mode, asked):
    run_status, requeue, chain, counts, to_the_back = TABLE[how]
    expected = (requeue if mode == "requeue" else chain).removesuffix("+")
    follows = mode == "chain" and chain.endswith("+") and not asked
    if asked and how != "returns":
        expected = "CANCELLED"  # after a request only completion wins
    world = World()
    spent = how.endswith("spent")
    world.enqueue("j", retry_mode=mode, max_attempts=1 if spent else 4, max_expiries=1 if spent else 5)
    world.enqueue("behind")
    token = world.lease()[0].token
    if asked:
        world.do(c.Cancel(job_id="j", reason="enough"))
    groups = len(world.groups)
    reply = end(world, how, token)
    job, run = world.job(), world.run()
    assert len(world.groups) == groups + 1  # one commit
    assert (run.status, job.status) == (run_status, expected)
    assert (job.attempts, job.snoozes, job.expiries) == counts
    assert run.finished_at == world.now
    assert job.finished_at == (None if expected == "QUEUED" else world.now)
    heirs = world.tables.successors("j")
    assert len(heirs) == follows
    goes_on = heirs[0] if heirs else job
    if follows:
        assert (goes_on.attempts, goes_on.snoozes, goes_on.expiries) == counts  # the budget moves along
        assert (goes_on.status, goes_on.executions, goes_on.finished_at, goes_on.started_at) == (
            "QUEUED",
            0,
            None,
            None,
        )
    if goes_on.status == "QUEUED":
        assert goes_on.position == (300 if to_the_back else 100)
    if not how.startswith("lost"):
        assert (reply.job_status, reply.duplicate) == (expected, False)
        assert reply.successor == (heirs[0].job_id if heirs else None)


def test_a_result_and_an_exit_code_are_kept():
    world = World()
    token = world.start("j")
    world.do(c.Complete(job_id="j", token=token, result=msgspec.Raw(b"[1]"), artifacts=msgspec.Raw(b"[]"), exit_code=0))
    assert bytes(world.job().result) == b"[1]"
    assert (bytes(world.run().artifacts), world.run().exit_code) == (b"[]", 0)


def test_a_completed_job_forgets_its_last_error():
    world = World()
    token = world.start("j")
    world.do(c.Fail(job_id="j", token=token, error="first"))
    world.wait(10)
    (grant,) = world.lease()
    assert grant.job.error == "first"
    world.do(c.Complete(job_id="j", token=grant.token))
    assert (world.job().error, [run.error for run in world.tables.runs("j")]) == (None, ["first", None])


def test_a_failure_is_kept_with_its_kind_and_details():
    world = World()
    token = world.start("j")
    world.do(
        c.Fail(job_id="j", token=token, error="e", error_kind="exit", exit_code=3, details=msgspec.Raw(b'{"a":1}'))
    )
    run = world.run()
    assert (run.error, run.error_kind, run.exit_code, bytes(run.details)) == ("e", "exit", 3, b'{"a":1}')
    assert world.job().error == "e"


def test_a_fatal_failure_is_of_that_kind():
    world = World()
    token = world.start("j")
    world.do(c.Fail(job_id="j", token=token, error="e", error_kind="exception", fatal=True))
    assert world.run().error_kind == "fatal"


def test_a_monstrous_error_is_cut_and_escaped_before_it_is_kept():
    world = World()
    token = world.start("j")
    world.do(c.Fail(job_id="j", token=token, error="\ud800" + "x" * 100_000))
    assert len(world.job().error.encode()) <= MAX_ERROR
    assert world.job().error == world.run().error
    token = world.start("k")
    world.do(c.GiveUp(job_id="k", token=token, reason="\ud800" * 100_000))
    assert len(world.job("k").cancel_reason.encode()) <= MAX_ERROR


@pytest.mark.parametrize("mode", ["requeue", "chain"])
def test_delays_are_10_20_40_without_jitter_and_the_fourth_failure_is_the_last(mode):
    world = World()
    world.enqueue("j", retry_mode=mode)
    delays = []
    for _ in range(4):
        (grant,) = world.lease()
        end(world, "raises", grant.token, grant.job.job_id)
        waiting = [job for job in world.tables.records[type(grant.job)].values() if job.status == "QUEUED"]
        if waiting:
            (job,) = waiting
            delays.append(job.not_before)
            world.now = later(job.not_before, -1e-6)
            assert world.lease() == ()
            world.wait(1e-6)
    assert delays == [later(START, 10), later(START, 30), later(START, 70)]
    last = world.job(grant.job.job_id)
    assert (last.status, last.attempts) == ("FAILED", 4)
    assert world.lease() == ()


@pytest.mark.parametrize("mode", ["requeue", "chain"])
def test_with_one_attempt_there_is_one_execution(mode):
    world = World()
    token = world.start("j", max_attempts=1, retry_mode=mode)
    end(world, "raises", token)
    world.wait(86_400)
    assert (world.job().status, world.lease(), world.tables.successors("j")) == ("FAILED", (), [])


@pytest.mark.parametrize("after", [0, 1.5, 3600])
def test_a_handler_may_choose_the_delay_itself(after):
    world = World()
    token = world.start("j", backoff=Backoff(base_s=99))
    world.do(c.Fail(job_id="j", token=token, error="e", retry_after_s=after))
    assert world.job().not_before == later(START, after)
    world.wait(after)
    assert len(world.lease()) == 1


def test_a_chosen_delay_buys_no_attempt():
    world = World()
    token = world.start("j", max_attempts=1)
    world.do(c.Fail(job_id="j", token=token, error="e", retry_after_s=1))
    assert world.job().status == "FAILED"


def test_jitter_lengthens_the_delay_by_its_fraction_at_most():
    delays = set()
    for number in range(20):
        world = World()
        world.draws = number * 1000
        token = world.start("j", backoff=Backoff(base_s=100, jitter=0.2))
        end(world, "raises", token)
        delays.add(world.job().not_before)
    assert len(delays) == 20
    assert all(later(START, 100) <= delay < later(START, 120) for delay in delays)


def test_a_snooze_waits_as_long_as_asked():
    world = World()
    token = world.start("j")
    end(world, "snoozes", token)
    assert (world.job().not_before, world.run().reason) == (later(START, 7), "snoozed")


# --- the same report again --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["returns", "raises", "fatal", "snoozes", "gives up"])
@pytest.mark.parametrize("mode", ["requeue", "chain"])
def test_a_report_sent_again_is_acknowledged_and_the_first_one_stays(how, mode):
    world = World()
    token = world.start("j", retry_mode=mode)
    first = end(world, how, token)
    before = content(world.tables)
    world.wait(60)
    again = end(world, how, token)
    assert (again.duplicate, again.job_status, again.successor) == (True, first.job_status, first.successor)
    assert content(world.tables) == before


@pytest.mark.parametrize("how", ["raises", "snoozes", "released"])
@pytest.mark.parametrize("since", ["leased again", "completed", "cancelled"])
def test_a_report_sent_again_tells_where_the_job_went_then_and_not_where_it_is_now(how, since):
    world = World()
    token = world.start("j")
    first = end(world, how, token)
    assert first.job_status == "QUEUED"
    world.wait(60)
    if since == "cancelled":
        world.do(c.Cancel(job_id="j"))
    else:
        (grant,) = world.lease()
        if since == "completed":
            world.do(c.Complete(job_id="j", token=grant.token))
    again = end(world, how, token)
    assert (again.duplicate, again.job_status) == (True, "QUEUED")


def test_a_late_failure_never_undoes_completion():
    world = World()
    token = world.start("j")
    end(world, "returns", token)
    assert world.refused(c.Fail(job_id="j", token=token, error="late")) == "already_reported"


def test_the_same_failure_reported_twice_makes_one_successor():
    world = World()
    token = world.start("j", retry_mode="chain")
    first, second = end(world, "raises", token), end(world, "raises", token)
    assert first.successor == second.successor
    assert len(world.tables.successors("j")) == 1


def test_a_cancelled_job_keeps_the_reason_it_was_given():
    world = World()
    token = world.start("j")
    world.do(c.Cancel(job_id="j", reason="enough"))
    assert (world.job().cancel_requested_at, world.job().cancel_reason) == (START, "enough")
    end(world, "raises", token)
    assert (world.job().status, world.job().cancel_reason) == ("CANCELLED", "enough")
    token = world.start("k")
    world.do(c.GiveUp(job_id="k", token=token, reason="no use"))
    assert (world.job("k").cancel_reason, world.run("k").reason) == ("no use", "gave_up")
