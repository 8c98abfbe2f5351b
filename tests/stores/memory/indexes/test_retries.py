"""Chains: which jobs retry which, and nothing of those that are gone."""

from hypothesis import given
from hypothesis import strategies as st
from lineskit import Told, batches, job

from holdfast.model.jobs import Job
from holdfast.stores.memory.indexes.retries import Chains

#: A job and what it retries: never another one.
JOBS = st.integers(0, 7).map(lambda number: job(f"j{number}", retry_of=f"j{number // 3}" if number else None))


@given(batches(JOBS))
def test_after_any_changes_and_undone_ones_the_followers_of_a_job_are_those_that_are_there(drawn):
    told, chains = Told(), Chains()

    def follow(before, after):
        if before is None and after.retry_of is not None:
            chains.link(after, after.retry_of)
        elif after is None and before.retry_of is not None:
            chains.unlink(before, before.retry_of)

    told.run(follow, drawn)
    for name in (f"j{number}" for number in range(8)):
        expected = sorted(one.job_id for one in told.records[Job].values() if one.retry_of == name)
        assert sorted(chains.followers(name)) == expected


def test_a_job_that_is_retried_by_two_keeps_the_one_when_the_other_goes():
    chains = Chains()
    for name in "ab":
        chains.link(job(name), "first")
    assert list(chains.followers("first")) == ["a", "b"]
    chains.unlink(job("a"), "first")
    assert list(chains.followers("first")) == ["b"]
    chains.unlink(job("b"), "first")
    assert list(chains.followers("first")) == list(chains.followers("a")) == []
    assert not chains._followers  # of jobs that are gone nothing stays
