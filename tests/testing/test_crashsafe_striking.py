"""A process dies at the commits that were chosen, once at each, and what it says tells one commit from another."""

import msgspec
import pytest

from holdfast.model.events.jobs import JobCompleted
from holdfast.model.events.workflows import MessageStored, TurnExpired, TurnLocked
from holdfast.testing.crashsafe.faults import Fault, What
from holdfast.testing.crashsafe.striking import Strikes
from holdfast.testing.simfs import SimCrash

NULL = msgspec.Raw(b"null")


def locked(instance="i", *messages, token=1):
    return TurnLocked(instance_id=instance, token=token, locked_until="2026-01-01T00:00:00.000000Z", messages=messages)


def expired(instance):
    return TurnExpired(instance_id=instance, token=1, reason="restart", counted=False)


def signal(data):
    return MessageStored(instance_id="i", kind="QueueMessage", item=msgspec.Raw(data))


def deaths(strikes, *facts):
    """Commit until it goes through; give the sides at which processes died."""
    died = []
    while True:
        for when in ("before", "after"):
            try:
                strikes.at(when, facts)
            except SimCrash:
                died.append(when)
                if when == "before":
                    break
        else:
            return died


def at_every(first=0):
    return Strikes((Fault(What.CRASH_AT_EVERY, first),))


def test_each_commit_is_struck_once_before_and_after_by_turns():
    strikes = at_every()
    done = [JobCompleted(job_id=f"j{n}", token=n, result=NULL) for n in range(4)]
    assert [deaths(strikes, fact) for fact in done] == [["before"], ["after"], ["before"], ["after"]]
    assert [deaths(strikes, fact) for fact in done] == [[], [], [], []]
    assert list(strikes.struck.values()) == ["before", "after", "before", "after"]
    assert strikes.commits == 8


def test_an_odd_one_begins_with_the_other_side():
    assert [deaths(at_every(first), locked()) for first in (1, 2, 3)] == [["after"], ["before"], ["after"]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([locked("i", 1)], [locked("i", 1, 2)]),
        ([locked("i", 1)], [locked("k", 1)]),
        ([signal(b"1")], [signal(b"2")]),
        ([expired("i")], [expired("i"), expired("k")]),
    ],
)
def test_commits_that_say_something_else_are_struck_each(one, other):
    strikes = at_every()
    assert len(deaths(strikes, *one)) == len(deaths(strikes, *other)) == 1


@pytest.mark.parametrize(
    ("one", "again"),
    [([locked("i", 1, token=1)], [locked("i", 1, token=9)]), ([expired("i")], [expired("k")])],
    ids=["under another token", "what another left behind"],
)
def test_the_same_said_again_is_not_struck_again(one, again):
    strikes = at_every()
    deaths(strikes, *one)
    assert deaths(strikes, *again) == []


def test_numbers_choose_commits_by_count():
    strikes = Strikes((Fault(What.CRASH_BEFORE, 1), Fault(What.CRASH_AFTER, 1), Fault(What.CRASH_AFTER, 2)))
    assert [deaths(strikes, locked()) for _ in range(4)] == [[], ["before", "after"], ["after"], []]
    assert strikes.struck == {}
