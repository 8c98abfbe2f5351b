"""What a coordinator counts: every figure of the contract is there, and moves when its thing happens."""

from __future__ import annotations

import asyncio
import errno
import re
from datetime import timedelta

import msgspec
import pytest

from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import tick
from holdfast.errors import StoreFailed
from holdfast.journal.filesystem import OsFS
from holdfast.model.access import Access, Role
from holdfast.model.commands import Bury, Cancel, Complete, Enqueue, Expire, Extend, Fail, Lease, NewJob, Retention
from holdfast.model.workers import WorkerInfo
from holdfast.stores.opening import open_store
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.harness import new_job
from holdfast.web.coordinator.coordinator import Coordinator
from holdfast.web.metrics import families
from holdfast.web.prometheus import Family, exposed

#: The names of the contract, and those of the journal.
LISTED = [
    "jobs", "queue_oldest_seconds", "wait_seconds", "run_seconds", "leases_active", "lease_granted_total",
    "lease_expired_total", "lease_extended_total", "reports_total", "duplicate_reports_total",
    "duplicate_executions_total", "retries_total", "dead_total", "rejected_total", "workers", "restarts_total",
    "commit_seconds", "commit_batch_size", "store_bytes", "feed_seq", "clock_steps_total", "longpolls_open",
    "durability_relaxed",
]  # fmt: skip
OF_THE_JOURNAL = [
    "fsync_seconds", "batch_records", "batch_bytes", "bytes_written_total", "records_total", "flush_errors_total",
    "checkpoint_seconds", "checkpoint_failures_total", "last_checkpoint_timestamp", "last_checkpoint_seq",
    "snapshot_bytes", "replay_seconds", "replay_records", "log_bytes", "segments", "appended_seq", "durable_seq",
    "state", "durability",
]  # fmt: skip

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\+Inf|-Inf|NaN|[-+0-9.e]+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')


def parsed(text):
    """Read Prometheus' text format strictly: each family once, its help and type first, histograms whole."""
    assert text.endswith("\n")
    kinds, samples = {}, {}
    name = None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert re.fullmatch(_NAME, name)
            assert name not in kinds, "the lines of one family stand together"
            continue
        if line.startswith("# TYPE "):
            _, _, of, kind = line.split(" ")
            assert of == name
            assert kind in {"counter", "gauge", "histogram"}
            assert kind != "counter" or of.endswith("_total")
            kinds[of] = kind
            continue
        found = _SAMPLE.fullmatch(line)
        assert found, line
        suffix = found[1].removeprefix(name)
        assert suffix in ({"_bucket", "_sum", "_count"} if kinds[name] == "histogram" else {""}), line
        labels = _LABEL.findall(found[2] or "")
        assert sum(len(key) + len(value) + 4 for key, value in labels) - bool(labels) == len(found[2] or ""), line
        key = (found[1], *(f"{key}={value}" for key, value in labels))
        assert key not in samples, f"{line} is there twice"
        samples[key] = float(found[3])
    for histogram in (one for one, kind in kinds.items() if kind == "histogram"):
        buckets = [value for key, value in samples.items() if key[0] == f"{histogram}_bucket"]
        assert buckets == sorted(buckets)
        assert samples[f"{histogram}_bucket", "le=+Inf"] == samples[f"{histogram}_count",] == buckets[-1]
    return kinds, samples


class Watched:
    """A coordinator on a store, without a server before it, and its figures."""

    def __init__(self, url):
        self.clock = ManualClock()
        self.engine = Engine(open_store(url, clock=self.clock), clock=self.clock)
        self.coordinator = Coordinator(self.engine)
        self.coordinator.restarts = 0
        self.send = self.engine.submit

    def text(self):
        return exposed(families(self.coordinator, self.coordinator.census.look()))

    def figures(self):
        return parsed(self.text())[1]

    def lease(self, **wish):
        (grant,) = self.send(Lease(worker_id="w", **wish)).grants
        return {"job_id": grant.job.job_id, "token": grant.token}

    def moved(self, work):
        """Give which figures changed by what, gauges and counters alike."""
        before = self.figures()
        work()
        after = self.figures()
        return {key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key, 0)}


@pytest.fixture(params=["wal", "sqlite", "dir"])
def watched(request, tmp_path):
    found = Watched(f"{request.param}:{tmp_path / 'jobs'}")
    yield found
    found.engine.close()


def test_every_listed_figure_is_there_and_the_text_can_be_read(watched):
    names = parsed(watched.text())[0]
    assert sorted(f"holdfast_{name}" for name in LISTED) == sorted(
        name for name in names if not name.startswith("holdfast_journal_")
    )


@pytest.mark.parametrize("scheme", ["wal", "dir"])
def test_a_journal_tells_of_itself(tmp_path, scheme):
    watched = Watched(f"{scheme}:{tmp_path / 'jobs'}")
    names, before = parsed(watched.text())
    assert sorted(f"holdfast_journal_{name}" for name in OF_THE_JOURNAL) == sorted(
        name for name in names if name.startswith("holdfast_journal_")
    )
    assert before["holdfast_journal_state", "state=open"] == 1
    assert before["holdfast_journal_state", "state=failed"] == 0
    moved = watched.moved(lambda: watched.send(Enqueue(jobs=(new_job("a"),))))
    assert moved["holdfast_journal_records_total",] == 1
    assert moved["holdfast_journal_fsync_seconds_count",] == 1
    assert moved["holdfast_journal_durable_seq",] == 1
    assert moved["holdfast_journal_bytes_written_total",] >= moved["holdfast_journal_log_bytes",] > 100
    assert watched.figures()["holdfast_journal_segments",] == 1
    if scheme == "wal":
        assert watched.moved(watched.engine.store.snapshot)["holdfast_journal_snapshot_bytes",] > 0
    watched.engine.close()
    again = Watched(f"{scheme}:{tmp_path / 'jobs'}")
    assert again.figures()["holdfast_journal_replay_records",] == 1
    again.engine.close()


def test_a_log_of_files_that_cannot_be_written_is_told_as_failed(tmp_path, monkeypatch):
    watched = Watched(f"dir:{tmp_path / 'jobs'}")

    def broken(*_):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(OsFS, "sync_dir", broken)
    with pytest.raises(StoreFailed):
        watched.send(Enqueue(jobs=(new_job("a"),)))
    stats = watched.engine.store.journal_stats()
    assert (stats.state, stats.flush_errors_total, stats.records_total) == ("failed", 1, 0)
    monkeypatch.undo()
    watched.engine.close()


def test_a_job_from_enqueue_to_end_moves_what_speaks_of_it(watched):
    moved = watched.moved(lambda: watched.send(Enqueue(jobs=(new_job("a", queue="mail"),))))
    assert moved["holdfast_jobs", "queue=mail", "status=QUEUED"] == 1
    assert moved["holdfast_feed_seq",] == 1
    assert moved["holdfast_commit_seconds_count",] == moved["holdfast_commit_batch_size_count",] == 1

    watched.clock.advance(7)
    assert watched.figures()["holdfast_queue_oldest_seconds", "queue=mail"] == 7
    held = {}
    moved = watched.moved(lambda: held.update(watched.lease(queues=("mail",))))
    assert moved["holdfast_lease_granted_total",] == 1
    assert moved["holdfast_leases_active",] == 1
    assert moved["holdfast_wait_seconds_sum",] == 7
    assert moved["holdfast_jobs", "queue=mail", "status=RUNNING"] == 1

    watched.clock.advance(10)
    assert watched.moved(lambda: watched.send(Extend(**held)))["holdfast_lease_extended_total",] == 1
    moved = watched.moved(lambda: watched.send(Complete(**held)))
    assert moved["holdfast_reports_total", "kind=complete", "reply=committed"] == 1
    assert moved["holdfast_run_seconds_sum",] == 10
    assert moved["holdfast_leases_active",] == -1
    assert watched.moved(lambda: watched.send(Complete(**held)))["holdfast_duplicate_reports_total",] == 1


def test_a_lease_that_is_asked_for_twice_in_one_commit_has_waited_once(watched):
    watched.send(Enqueue(jobs=(new_job("a"),)))
    watched.clock.advance(7)
    lease = Lease(worker_id="w", cmd="c")

    def twice():
        first, second = watched.engine.submit_many([lease, lease])
        assert first.grants[0].token == second.grants[0].token

    moved = watched.moved(twice)
    assert moved["holdfast_wait_seconds_count",] == moved["holdfast_lease_granted_total",] == 1


def test_what_goes_wrong_is_counted_by_its_kind(watched):
    watched.send(Enqueue(jobs=(new_job("a"), new_job("b", retry_mode="chain"), new_job("c"), new_job("d"))))
    lost, failed, dead = watched.lease(), watched.lease(), watched.lease()
    moved = watched.moved(lambda: watched.send(Fail(**failed, error="no")))
    assert moved["holdfast_retries_total", "mode=chain"] == 1
    assert watched.moved(lambda: watched.send(Fail(**lost, error="no")))["holdfast_retries_total", "mode=requeue"] == 1
    assert watched.moved(lambda: watched.send(Bury(job_id=dead["job_id"])))["holdfast_dead_total",] == 1
    late = watched.lease()
    watched.clock.advance(60)
    moved = watched.moved(lambda: watched.send(Expire(limit=10)))
    assert moved["holdfast_lease_expired_total", "reason=timeout"] == 1
    moved = watched.moved(lambda: watched.send(Complete(**late)))
    assert moved["holdfast_duplicate_executions_total",] == 1
    assert moved["holdfast_reports_total", "kind=complete", "reply=cancelled"] == 1
    moved = watched.moved(lambda: watched.send(Cancel(job_id="nothing")))
    assert moved["holdfast_rejected_total", "code=job_not_found"] == 1


def test_what_somebody_may_not_send_is_counted_although_no_commit_sees_it(watched):
    reader = Access(name="r", roles=(Role.READER,))
    ask = lambda: watched.coordinator.admit(reader, Cancel(job_id="a"))  # noqa: E731 - called by `moved`
    assert watched.moved(ask)["holdfast_rejected_total", "code=forbidden"] == 1


def test_workers_clocks_and_the_size_of_the_store_are_looked_at(watched):
    roster, now = watched.engine.store.workers, watched.engine.look().now
    worker = WorkerInfo(worker_id="w", name="w", host="h", pid=1, version="1", started_at=now, last_seen=now)
    moved = watched.moved(lambda: roster.note(worker))
    assert moved["holdfast_workers", "state=ready"] == 1

    def step():
        watched.clock.set_wall(watched.clock.now() + timedelta(seconds=100))
        tick(watched.engine, Retention())

    assert watched.moved(step)["holdfast_clock_steps_total", "direction=forward"] == 1
    moved = watched.moved(lambda: watched.engine.store.blobs.put(b"x" * 100_000))
    assert moved["holdfast_store_bytes",] >= 100_000


def test_long_polls_are_counted_while_they_wait(watched):
    coordinator = watched.coordinator

    async def wait():
        waiting = [
            asyncio.create_task(coordinator.bell.wait(10**9, 20)),
            asyncio.create_task(coordinator.lobby.lease(Lease(worker_id="w"), 20)),
        ]
        await asyncio.sleep(0)
        assert watched.figures()["holdfast_longpolls_open",] == 2
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert watched.figures()["holdfast_longpolls_open",] == 0

    asyncio.run(wait())


def test_no_label_names_a_job_a_key_or_what_is_in_it(watched):
    job = new_job("the-id", "the-type", {"word": "the-payload"}, key="the-key", tags={"the-tag": "the-value"})
    assert watched.send(Enqueue(jobs=(job,))).jobs[0].created
    held = watched.lease()
    watched.send(Fail(**held, error="the-error"))
    watched.send(Complete(**held))
    text = watched.text()
    assert not re.search(r"the-(id|type|payload|key|tag|value|error)", text)


def test_a_look_that_took_long_is_not_taken_again_for_a_hundred_times_as_long(watched):
    class Slow:
        """A clock by which each look takes a second."""

        def __init__(self):
            self.at = 0.0

        def now(self):
            return watched.clock.now()

        def monotonic(self):
            self.at += 1
            return self.at

    watched.engine.time.clock = slow = Slow()
    census = watched.coordinator.census
    first = census.look()
    assert census.look() is first
    slow.at += 1000
    assert census.look() is not first


def test_names_that_people_chose_are_written_so_that_they_can_be_read_again():
    text = exposed([Family("a", "gauge", 'two\nlines \\ "', [(('x"y\\z\nw',), 0.25)], ("queue",))])
    assert parsed(text)[1] == {("a", 'queue=x\\"y\\\\z\\nw'): 0.25}


def test_queues_whose_names_join_to_the_same_are_counted_apart(watched):
    for number, (namespace, queue) in enumerate([("a", "q"), ("", "a/q"), ("a", "b/q")], 1):
        spot = {"job_type": "t", "params": msgspec.Raw(b"{}"), "namespace": namespace, "queue": queue}
        jobs = tuple(NewJob(job_id=f"{number}.{one}", **spot) for one in range(number + 1))
        watched.send(Enqueue(jobs=jobs))
        watched.lease(namespace=namespace, queues=(queue,))
    figures = watched.figures()
    assert {
        key[1]: value for key, value in figures.items() if key[0] == "holdfast_jobs" and key[2] == "status=QUEUED"
    } == {
        "queue=a/q": 1,
        "queue=a%2Fq": 2,
        "queue=a/b%2Fq": 3,
    }
    assert figures["holdfast_leases_active",] == 3
    assert len([key for key in figures if key[0] == "holdfast_queue_oldest_seconds"]) == 3
