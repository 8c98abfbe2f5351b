"""Tables in memory: every index says the same as a look at all records, after every change and every undoing."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model import events as ev
from holdfast.model.groups import Group, GroupMode
from holdfast.model.jobs import Job, JobStatus, KeyHold, RetryKind, Run, RunStatus
from holdfast.model.records import TABLES, Authority, DoneCommand, HeldKey, Queue, key_of
from holdfast.model.times import FOREVER, later
from holdfast.rules.fold_changes import Stamp
from holdfast.rules.jobs.dispatch_order import place
from holdfast.rules.state import Lane
from holdfast.stores.memory.batch import BatchTables
from holdfast.stores.memory.indexes import ready_by_task
from holdfast.stores.memory.tables import Tables
from holdfast.stores.protocol import JobQuery, QueueCount

START = "2026-01-01T00:00:00.000000Z"
RAW = msgspec.Raw(b"{}")
TIMES = st.integers(0, 5).map(lambda seconds: later(START, seconds))
MAYBE = st.none() | TIMES
#: Which jobs belong to a group, with their own number as their place in it.
SEQUENTIAL, CONCURRENT = (2, 5, 6, 7), (1, 8)


@pytest.fixture(autouse=True, scope="module")
def short_lines():
    """Look by task behind one of another: lines are short here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ready_by_task, "PASSED", 1)
        patch.setattr(ready_by_task, "PASSED_EACH", 1)
        yield


def grouped(kind=Tables):
    """Tables in which members find their group."""
    tables = kind()
    tables.put(Group, "s", Group("s", START, mode=GroupMode.SEQUENTIAL, members=4))
    tables.put(Group, "c", Group("c", START, mode=GroupMode.CONCURRENT, members=2))
    return tables


def waiting(everything):
    """Name the members that are not first among those of their group that are not over."""
    line = [job for job in everything if job.group_id == "s" and not job.has_ended]
    return {job.job_id for job in sorted(line, key=lambda job: job.sequence_number)[1:]}


@st.composite
def jobs(draw):
    """A job as the rules would leave it: what never changes depends on its id alone."""
    number = draw(st.integers(0, 9))
    status = draw(st.sampled_from([JobStatus.QUEUED] * 6 + list(JobStatus)))
    running, ended = status is JobStatus.RUNNING, status not in (JobStatus.QUEUED, JobStatus.RUNNING)
    return Job(
        f"j{number}",
        "abc"[number % 3],
        RAW,
        later(START, number // 3),
        namespace="n" if number == 9 else "",
        queue=draw(st.sampled_from("qqqr")),
        status=status,
        position=draw(st.integers(-2, 2)) * 100,
        rank=draw(st.sampled_from([-1, 0, 0, 0, 1])),
        not_before=draw(MAYBE) if status is JobStatus.QUEUED else None,
        expires_at=draw(MAYBE),
        group_id="s" if number in SEQUENTIAL else "c" if number in CONCURRENT else None,
        sequence_number=number if number in (*SEQUENTIAL, *CONCURRENT) else None,
        retry_of=f"j{number + 1}" if number % 4 == 0 else None,
        retry_kind=RetryKind.MANUAL if number % 4 == 0 else None,
        token=draw(st.integers(1, 99)) if running else None,
        worker_id="w" if running else None,
        lease_expires_at=draw(TIMES) if running else None,
        session_id=draw(st.sampled_from([None, "s"])) if running else None,
        grant_cmd=draw(st.sampled_from([None, "c"])) if running else None,
        finished_at=draw(TIMES) if ended else None,
        submitted_by=(None, "shop", "bank")[number % 3],
    )


@st.composite
def runs(draw):
    number = draw(st.integers(0, 5))
    return Run(
        f"r{number}",
        f"j{number % 3}",
        number,
        later(START, number),
        RAW,
        token=number,
        status=draw(st.sampled_from([None, RunStatus.LOST])),
    )


RECORDS = (
    jobs()
    | jobs()
    | jobs()
    | runs()
    | st.builds(DoneCommand, st.sampled_from("abc"), st.just("d"), st.just(RAW), st.just(START))
    | st.builds(
        HeldKey, st.just(""), st.sampled_from("ab"), st.sampled_from(["j1", "j2"]), st.just(KeyHold.WINDOW), TIMES
    )
    | st.builds(
        HeldKey,
        st.just(""),
        st.sampled_from("ab"),
        st.sampled_from(["j1", "j2"]),
        st.sampled_from([KeyHold.ACTIVE, KeyHold.FOREVER]),
    )
    | st.builds(Queue, st.just(""), st.sampled_from("ab"), st.booleans())
    | st.builds(Authority, st.integers(0, 9))
)
CHANGES = st.lists(st.tuples(RECORDS, st.sampled_from([False, False, False, True])), min_size=12, max_size=30)


def change(tables, record, removes):
    tables.put(type(record), key_of(record), None if removes else record)


def demand_agreement(tables, now=None):
    """Compare every look-up with a look at all records."""
    everything = list(tables.records[Job].values())
    queued = [job for job in everything if job.status is JobStatus.QUEUED]
    for namespace in ("", "n"):
        for queue in ("q", "r"):
            mine = sorted((job for job in queued if (job.namespace, job.queue) == (namespace, queue)), key=place)
            assert tables.bands(namespace, queue) == sorted({job.rank for job in mine})
            for rank in (-1, 0, 1, 2):
                band = [job for job in mine if job.rank == rank]
                assert tables.band(namespace, queue, rank) == band
                assert tables.edge(namespace, queue, rank, last=False) == min(
                    (job.position for job in band), default=None
                )
                assert tables.edge(namespace, queue, rank, last=True) == max(
                    (job.position for job in band), default=None
                )
                for at, job in enumerate(band):
                    assert tables.beside(job, after=False) == (band[at - 1] if at else None)
                    assert tables.beside(job, after=True) == (band[at + 1] if at + 1 < len(band) else None)
        if now is not None:
            due = [
                job
                for job in queued
                if job.namespace == namespace
                and job.job_id not in waiting(everything)
                and (job.not_before is None or job.not_before <= now)
            ]
            assert list(tables.ready(namespace, ["q", "r", "q"], None, now)) == sorted(due, key=place)
            wanted = sorted((job for job in due if job.job_type == "a" and job.queue == "q"), key=place)
            assert list(tables.ready(namespace, ["q"], ["a"], now)) == wanted
            both = [job for job in sorted(due, key=place) if job.job_type in ("a", "c")]
            assert list(tables.ready(namespace, ["r", "q"], ["c", "a"], now)) == both
        for status in (None, *JobStatus):
            for queue, kind, who in ((None,) * 3, ("q", None, None), (None, "b", None), (None, None, "shop")):
                listed = sorted(
                    (
                        job
                        for job in everything
                        if job.namespace == namespace
                        and status in (None, job.status)
                        and queue in (None, job.queue)
                        and kind in (None, job.job_type)
                        and who in (None, job.submitted_by)
                    ),
                    key=lambda job: (job.created_at, job.job_id),
                    reverse=True,
                )
                query = JobQuery(
                    namespace=namespace, status=status, queue=queue, job_type=kind, submitted_by=who, limit=3
                )
                pages, page = [], tables.jobs(query)
                while page:
                    pages += page
                    last = (page[-1].created_at, page[-1].job_id)
                    page = tables.jobs(msgspec.structs.replace(query, before=last))
                assert pages == listed
    _demand_lanes(tables, everything)
    counted = {}
    for job in everything:
        name = (job.namespace, job.queue, job.status)
        counted[name] = counted.get(name, 0) + 1
    assert tables.counts() == [QueueCount(*name, count) for name, count in sorted(counted.items())]


def _demand_lanes(tables, everything):
    lanes = {
        Lane.LEASE: [(job.lease_expires_at, job) for job in everything if job.status is JobStatus.RUNNING],
        Lane.TTL: [(job.expires_at, job) for job in everything if job.status is JobStatus.QUEUED and job.expires_at],
        Lane.COMMAND: [(command.at, command) for command in tables.records[DoneCommand].values()],
        Lane.KEY: [(held.held_until, held) for held in tables.records[HeldKey].values() if held.hold is KeyHold.WINDOW],
    }
    for lane, entries in lanes.items():
        ordered = sorted(entries, key=lambda entry: (entry[0], key_of(entry[1])))
        assert list(tables.due(lane, FOREVER)) == [record for _, record in ordered]
        assert tables.next_due(lane) == (ordered[0][0] if ordered else None)
        middle = later(START, 2)
        assert list(tables.due(lane, middle)) == [record for when, record in ordered if when <= middle]
    for name in "sc":
        mine = sorted((job for job in everything if job.group_id == name), key=lambda job: job.sequence_number)
        assert tables.members(name) == mine
        live = sorted(group.group_id for group in tables.all(Group) if group.finished_at is None)
        assert [group.group_id for group in tables.live_groups()] == live
        assert tables.turn_of(name) == next((job for job in mine if not job.has_ended), None)
        assert tables.members(name, JobStatus.QUEUED) == [job for job in mine if job.status is JobStatus.QUEUED]
    _demand_ended(tables, everything)
    leased = [job for _, job in sorted(lanes[Lane.LEASE], key=lambda entry: (entry[0], entry[1].job_id))]
    assert list(tables.local_leases()) == [job for job in leased if job.session_id]
    granted = [job for job in leased if job.grant_cmd == "c"]
    assert sorted(tables.granted_by("c"), key=key_of) == sorted(granted, key=key_of)
    for name in {job.job_id for job in everything} | {"j10"}:
        followers = [job for job in everything if job.retry_of == name]
        assert tables.successors(name) == sorted(followers, key=lambda job: (job.created_at, job.job_id))
        mine = [run for run in tables.records[Run].values() if run.job_id == name]
        numbered = sorted(mine, key=lambda run: run.run_no or 99)
        assert list(tables.runs(name)) == numbered
        assert tables.last_run(name) == (numbered[-1] if numbered else None)
        for run in mine:
            assert tables.run_by_token(name, run.token) == run
        assert tables.run_by_token(name, 77) is None


def _demand_ended(tables, everything):
    ended = [job for job in everything if job.finished_at is not None and job.group_id is None]
    assert tables.ended_queues() == sorted({(job.namespace, job.queue) for job in ended})
    for namespace, queue in tables.ended_queues():
        for failed in (False, True):
            statuses = (JobStatus.FAILED, JobStatus.DEAD) if failed else (JobStatus.COMPLETED, JobStatus.CANCELLED)
            mine = [job for job in ended if (job.namespace, job.queue) == (namespace, queue) and job.status in statuses]
            mine.sort(key=lambda job: (job.finished_at, job.job_id))
            assert list(tables.ended(namespace, queue, failed=failed, until=FOREVER)) == mine
            for keep in (0, 1, 3):
                places = [(job.finished_at, job.job_id) for job in mine]
                expected = places[-keep - 1] if len(places) > keep else None
                assert tables.ended_beyond(namespace, queue, failed=failed, keep=keep) == expected


@settings(max_examples=60)
@given(CHANGES)
def test_every_look_up_agrees_with_a_look_at_all_records(changes):
    tables = grouped()
    for record, removes in changes:
        change(tables, record, removes)
    demand_agreement(tables)
    for kind in TABLES.values():
        assert list(tables.all(kind)) == [tables.get(kind, key) for key in sorted(tables.records[kind])]


@settings(max_examples=60)
@given(CHANGES, CHANGES, TIMES)
def test_delayed_jobs_become_ready_in_their_order_and_stay_so_through_changes(before, after, now):
    tables = grouped()
    for record, removes in before:
        change(tables, record, removes)
    tables.promote(now, 500)
    demand_agreement(tables, now)
    for record, removes in after:
        change(tables, record, removes)
    tables.promote(now, 500)
    demand_agreement(tables, now)


@settings(max_examples=30)
@given(CHANGES)
def test_tables_filled_at_once_equal_tables_filled_one_by_one(changes):
    one, other = grouped(), Tables()
    for record, removes in changes:
        change(one, record, removes)
    for kind in TABLES.values():
        other.load(kind, one.all(kind))
    demand_agreement(other)
    assert one.counts() == other.counts()


def test_a_put_gives_back_what_was_there():
    tables = Tables()
    first, second = Queue("", "q"), Queue("", "q", paused=True)
    assert tables.put(Queue, "\0q", first) is None
    assert tables.put(Queue, "\0q", second) == first
    assert tables.put(Queue, "\0q", None) == second
    assert tables.put(Queue, "\0q", None) is None


def test_no_more_than_asked_for_are_made_ready():
    tables = Tables()
    for number in range(5):
        tables.put(Job, f"j{number}", Job(f"j{number}", "t", RAW, START, not_before=later(START, number)))
    tables.promote(later(START, 3), 2)
    assert [job.job_id for job in tables.ready("", ["default"], None, later(START, 3))] == ["j0", "j1"]
    assert tables.next_due(Lane.DELAYED) == later(START, 2)
    tables.promote(later(START, 3), 500)
    assert len(list(tables.ready("", ["default"], None, later(START, 3)))) == 4


def test_a_job_made_ready_and_delayed_again_waits_again_and_stands_in_line_once():
    tables = Tables()
    job = Job("j", "t", RAW, START, not_before=START)
    tables.put(Job, "j", job)
    tables.promote(START, 500)
    delayed = msgspec.structs.replace(job, not_before=later(START, 60))
    for _ in range(2):
        tables.put(Job, "j", delayed)
        tables.promote(START, 500)
        assert list(tables.ready("", ["default"], None, START)) == []
        assert tables.band("", "default", 0) == [delayed]


# --- batches ----------------------------------------------------------------------------------------------------------


def image(tables):
    return {kind: dict(table) for kind, table in tables.records.items()}, tables.seq, tables.ts


def created(name, **fields):
    return ev.JobCreated(job=Job(name, "t", RAW, START, **fields))


def test_an_undone_batch_leaves_records_indexes_number_and_time_as_they_were():
    tables = BatchTables()
    tables.begin(lambda *_: None)
    tables.add([created("a"), created("b", not_before=START)], START)
    before = image(tables)
    tables.begin(lambda *_: None)
    tables.promote(START, 500)
    grant = ev.LeaseGranted(job_id="a", run_id="r", run_no=1, token=1, worker_id="w", lease_expires_at=later(START, 30))
    tables.add([grant], later(START, 1))
    tables.add([ev.JobDead(job_id="b"), ev.JobPruned(job_id="b")], later(START, 2))
    tables.add([created("c")], later(START, 3))
    assert tables.seq == 6
    tables.undo()
    assert image(tables) == before
    demand_agreement(tables)
    tables.promote(START, 500)
    assert [job.job_id for job in tables.ready("", ["default"], None, START)] == ["a", "b"]


def test_events_are_numbered_and_time_never_runs_backwards():
    tables = BatchTables()
    kept = []
    tables.begin(lambda events, first, ts: kept.append((len(events), first, ts)))
    tables.add([created("a"), created("b")], later(START, 10))
    tables.add([created("c")], START)
    assert kept == [(2, 1, later(START, 10)), (1, 3, later(START, 10))]
    assert (tables.seq, tables.ts, tables.get(Job, "c").seq) == (3, later(START, 10), 3)


@pytest.mark.parametrize("where", ["fold", "keep"])
def test_a_group_that_cannot_be_added_leaves_nothing(where):
    tables = BatchTables()

    def refuse(*_):
        raise KeyError(where)

    tables.begin(refuse if where == "keep" else lambda *_: None)
    events = [created("a"), created("a" if where == "fold" else "b")]
    with pytest.raises(Exception, match="created twice" if where == "fold" else "keep"):
        tables.add(events, START)
    assert image(tables) == image(BatchTables())
    demand_agreement(tables)


def test_a_durable_event_is_folded_for_good():
    tables = BatchTables()
    tables.replay(created("a"), Stamp(7, START))
    assert (tables.seq, tables.ts, tables.get(Job, "a").seq) == (7, START, 7)


def test_what_somebody_submitted_is_found_without_passing_by_what_others_did(monkeypatch):
    tables, looked = Tables(), []
    for number in range(1000):
        who = "shop" if number in (3, 500) else "bank"
        tables.put(Job, f"j{number}", Job(f"j{number}", "t", RAW, later(START, number), submitted_by=who))
    look = tables._job
    monkeypatch.setattr(tables, "_job", lambda job_id: looked.append(job_id) or look(job_id))
    assert [job.job_id for job in tables.jobs(JobQuery(submitted_by="shop"))] == ["j500", "j3"]
    assert tables.jobs(JobQuery(submitted_by="nobody")) == []
    assert looked == ["j500", "j3"]
