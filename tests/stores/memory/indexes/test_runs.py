"""Runs of each job in order, and the starts of queues that have a rate, whatever was changed and undone before."""

from hypothesis import given
from hypothesis import strategies as st
from lineskit import RAW, START, Told, batches

from holdfast.model.jobs import Run, RunStatus
from holdfast.model.records import Queue
from holdfast.model.times import later
from holdfast.rules.jobs.dispatch_order import run_place
from holdfast.stores.memory.indexes.runs import RunLines

LIMITED = Queue("", "q", rate_count=1, rate_period_s=60.0)


def run(number, **fields):
    """A run that was granted with its own number as token; the first of a job is number 1."""
    fields = {"run_no": number, "token": number, "started_at": later(START, number), "queue": "q"} | fields
    return Run(f"r{number}", fields.pop("job_id", "j"), params_snapshot=RAW, **fields)


@st.composite
def runs(draw):
    """A run: what it is found by depends on its id alone. Every fourth was skipped."""
    number = draw(st.integers(0, 7))
    skipped = {"run_no": 0, "token": None} if number % 4 == 0 else {}
    return run(
        number,
        job_id="jk"[number % 2],
        queue="qqr"[number % 3],
        limit_key=(None, "k", "l")[number % 3],
        status=draw(st.sampled_from([None, RunStatus.LOST])),
        **skipped,
    )


QUEUES = st.builds(Queue, st.just(""), st.sampled_from("qr"), rate_count=st.sampled_from([None, 1, 2]))


@given(batches(runs() | runs() | QUEUES))
def test_after_any_changes_and_undone_ones_runs_and_starts_are_those_of_what_is_there(drawn):
    told = Told()
    lines = RunLines(told.records[Run])

    def follow(before, after):
        kind = type(after or before)
        (lines.reindex_run if kind is Run else lines.reindex_queue)(before, after)

    told.run(follow, drawn)
    there = list(told.records[Run].values())
    for job_id in "jk":
        assert list(lines.of(job_id)) == sorted((one for one in there if one.job_id == job_id), key=run_place)
    for one in there:
        assert one.token is None or lines.with_token(one.job_id, one.token) == one
    rated = {queue.name for queue in told.records[Queue].values() if queue.rate_count is not None}
    for queue in "qr":
        for key in (None, "k", "l"):
            mine = [one for one in there if one.queue == queue in rated and one.token and key in (None, one.limit_key)]
            for after, skip in (("", 0), (later(START, 3), 0), ("", 1)):
                expected = sorted(one.started_at for one in mine if one.started_at > after)[skip:]
                assert list(lines.starts("", queue, key, after, skip)) == expected


def test_a_run_that_was_skipped_comes_last_and_began_nothing():
    table = {}
    lines = RunLines(table)
    lines.reindex_queue(None, LIMITED)
    for one in (run(0, token=None), run(2), run(1)):
        lines.reindex_run(None, one)
    assert [one.run_id for one in lines.of("j")] == ["r1", "r2", "r0"]
    assert list(lines.starts("", "q", None, "", 0)) == [later(START, 1), later(START, 2)]


def test_a_token_finds_the_run_of_its_own_job_alone():
    lines = RunLines({})
    lines.reindex_run(None, run(1))
    assert lines.with_token("j", 1) == run(1)
    assert lines.with_token("j", 2) is None
    assert lines.with_token("k", 1) is None


def test_a_rate_that_comes_later_counts_what_began_before_and_one_that_went_counts_nothing():
    table = {"r1": run(1), "r2": run(2, queue="other"), "r3": run(3, namespace="n")}
    lines = RunLines(table)
    for one in table.values():
        lines.reindex_run(None, one)
    assert list(lines.starts("", "q", None, "", 0)) == []
    lines.reindex_queue(None, LIMITED)
    assert list(lines.starts("", "q", None, "", 0)) == [later(START, 1)]
    lines.reindex_queue(LIMITED, Queue("", "q", paused=True))
    assert list(lines.starts("", "q", None, "", 0)) == []


def test_a_rate_that_changes_counts_nothing_twice():
    table = {"r1": run(1)}
    lines = RunLines(table)
    lines.reindex_run(None, run(1))
    lines.reindex_queue(None, LIMITED)
    lines.reindex_queue(LIMITED, Queue("", "q", rate_count=5, rate_period_s=60.0))
    lines.reindex_run(run(1), run(1, status=RunStatus.LOST))
    assert list(lines.starts("", "q", None, "", 0)) == [later(START, 1)]
