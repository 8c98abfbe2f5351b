"""Lists of all jobs: newest first, by who submitted them, by how they ended, and counted."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from lineskit import RAW, START, STATUSES, Told, batches, job

from holdfast.model.jobs import Job, JobStatus
from holdfast.model.times import later
from holdfast.stores.memory.indexes.jobs import JobLists
from holdfast.stores.protocol import QueueCount

MANY = 100


@st.composite
def jobs(draw):
    """A job: what it is listed by depends on its id alone."""
    number = draw(st.integers(0, 7))
    return Job(
        f"j{number}",
        "a",
        RAW,
        later(START, number % 3),
        namespace="n" if number == 7 else "",
        queue=draw(st.sampled_from("qr")),
        status=draw(STATUSES),
        submitted_by=(None, "shop", "bank", "shop")[number % 4],
    )


def answers(lists):
    """Ask all that can be asked."""
    found = [lists.counts(), [list(lists.with_end(status)) for status in JobStatus]]
    for namespace in ("", "n", "other"):
        found += [sorted(lists.few(namespace, status, MANY)) for status in JobStatus]
        for who in (None, "shop", "bank", "nobody"):
            for before in (None, (later(START, 1), "j4"), (START, "")):
                found.append(list(lists.newest(namespace, who, before) or ()))
    return found


@given(batches(jobs()))
def test_after_any_changes_and_undone_ones_lists_answer_as_those_filled_with_what_is_there(drawn):
    told, lists = Told(), JobLists()

    def follow(before, after):
        if before is None:
            lists.add(after)
        else:
            lists.count(before, -1)
        if after is None:
            lists.discard(before)
        else:
            lists.count(after, 1)

    told.run(follow, drawn)
    everything = list(told.records[Job].values())
    fresh = JobLists()
    fresh.fill(everything)
    for one in everything:
        fresh.count(one, 1)
    assert answers(lists) == answers(fresh)
    counted = Counter((one.namespace, one.queue, one.status) for one in everything)
    assert lists.counts() == [QueueCount(*name, count) for name, count in sorted(counted.items())]
    mine = [(one.created_at, one.job_id) for one in everything if (one.namespace, one.submitted_by) == ("", "shop")]
    assert list(lists.newest("", "shop", None) or ()) == sorted(mine, reverse=True)


def test_a_list_goes_on_behind_the_one_that_was_seen_last():
    lists = JobLists()
    lists.fill([job(name) for name in "abc"])
    assert list(lists.newest("", None, (START, "c"))) == [(START, "b"), (START, "a")]
    assert list(lists.newest("", None, (START, "a"))) == []


def test_where_nobody_ever_was_there_is_no_list_at_all():
    lists = JobLists()
    lists.add(job("a", submitted_by="shop"))
    assert lists.newest("other", None, None) is None
    assert lists.newest("", "bank", None) is None
    assert list(lists.newest("", None, None)) == list(lists.newest("", "shop", None)) == [(START, "a")]


def test_those_that_ended_so_are_given_if_they_are_few_and_those_under_way_never_are():
    lists = JobLists()
    for name in "ab":
        lists.count(job(name, status=JobStatus.FAILED), 1)
    for status in (JobStatus.QUEUED, JobStatus.RUNNING):
        lists.count(job("c", status=status), 1)
        assert lists.few("", status, MANY) == []
    assert sorted(lists.few("", JobStatus.FAILED, 2)) == ["a", "b"]
    assert lists.few("", JobStatus.FAILED, 1) is None


def test_those_of_all_namespaces_that_ended_so_are_walked_by_id():
    lists = JobLists()
    for name, namespace in (("c", ""), ("a", "n"), ("b", "")):
        lists.count(job(name, namespace=namespace, status=JobStatus.FAILED), 1)
    lists.count(job("d", status=JobStatus.DEAD), 1)
    assert list(lists.with_end(JobStatus.FAILED)) == ["a", "b", "c"]
