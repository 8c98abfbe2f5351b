"""Each call of a journal's life fails in each way a disk can fail, once and for ever.

A loop over the n-th call ends only when a run had nothing injected, so that no call is left out. Whatever the failure,
the program gets a typed error or none; and what it was told stays true, with and without a power cut behind it.
"""

from __future__ import annotations

import errno
import itertools
import os

import pytest
from stories import checkpoint, life, refresh, run
from witness import State, Witness, opened, recovered

from holdfast.errors import StoreError, StoreFailed, StoreFull
from holdfast.testing import SimFS

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
pytestmark = pytest.mark.usefixtures("one_id")

FAULTS = [
    ("write", errno.EIO, 1),
    ("write", errno.EIO, None),
    ("write", errno.ENOSPC, 1),
    ("write", errno.ENOSPC, 2),
    ("write", errno.ENOSPC, None),
    ("write", errno.EFBIG, 1),
    ("sync", errno.EIO, 1),
    ("sync", errno.EIO, None),
    ("sync", errno.ENOSPC, 1),
    ("sync", errno.EDQUOT, None),
    ("sync_dir", errno.EIO, 1),
    ("sync_dir", errno.EIO, None),
    ("create", errno.ENOSPC, 1),
    ("create", errno.ENOSPC, None),
    ("create", errno.EMFILE, 1),
    ("rename", errno.EIO, 1),
    ("rename", errno.ENOSPC, None),
    ("unlink", errno.EIO, 1),
    ("unlink", errno.EROFS, None),
    ("open", errno.EMFILE, 1),
    ("open", errno.EACCES, None),
    ("read", errno.EIO, 1),
    ("read", errno.EIO, None),
    ("stat", errno.EIO, 1),
    ("listdir", errno.EIO, 1),
    ("mkdir", errno.ENOSPC, 1),
    ("lock", errno.EROFS, 1),
    ("close", errno.EIO, 1),
]

injected = {"count": 0, "disks": 0}


def aftermath(fs: SimFS, witness: Witness, seen: set | None = None) -> None:
    """Examine what the next process finds: at once, and after power cuts of several kinds.

    The short form takes the cut that leaves least, and of those that leave more one from call to call. Many faults
    leave the same: a disk that was `seen` is not examined again.
    """
    injected["count"] += fs.injected
    fs.heal()
    turn, before = len(fs.calls) % 2, len(seen or ())
    witness.examine(fs.reboot(), fallback=True, seen=seen)
    witness.examine(fs.image().power_loss("lose", names="lose"), seen=seen)
    if SOAK or turn:
        witness.examine(fs.image().power_loss("keep", names="mixed"), seen=seen)
    if SOAK or not turn:
        witness.examine(fs.image().power_loss("blocks", len(fs.calls)), seen=seen)
    injected["disks"] += len(seen or ()) - before


def every_call(kind, arm) -> int:
    """Run the life with the fault at the 1st, 2nd, 3rd, … call of a kind; gives how many places there were."""
    seen = set()
    for nth in itertools.count(1):
        fs = SimFS()
        arm(fs, nth)
        try:
            witness = run(life, fs)
            if sum(call.kind == kind for call in fs.calls) < nth:
                return nth - 1
            assert fs.injected
            aftermath(fs, witness, seen)
        except BaseException as error:
            error.add_note(f"the fault was at call {nth}")
            raise
    raise AssertionError


@pytest.mark.parametrize(
    ("kind", "error", "times"),
    FAULTS,
    ids=[f"{kind}-{errno.errorcode[error]}-{times}" for kind, error, times in FAULTS],
)
def test_a_failing_call_is_told_by_a_typed_error_and_loses_nothing(kind, error, times):
    places = every_call(kind, lambda fs, nth: fs.fail(kind, nth, error, times=times))
    assert places, f"the life makes no call of kind {kind}"


@pytest.mark.parametrize("keep", [1, None])
@pytest.mark.parametrize("times", [1, 3])
def test_a_short_write_is_finished_and_nobody_notices(keep, times):
    def arm(fs, nth):
        fs.shorten("write", nth, keep, times=times)

    seen = set()
    for nth in itertools.count(1):
        fs, witness = SimFS(), Witness()
        arm(fs, nth)
        life(fs, witness)  # no error at all
        if not fs.injected:
            break
        assert set(witness.answers) <= {"yes", "maybe"}
        aftermath(fs, witness, seen)


def test_a_write_that_takes_nothing_counts_as_a_failed_one():
    assert every_call("write", lambda fs, nth: fs.shorten("write", nth, 0))


@pytest.mark.parametrize("again", ["truncate", "write", "sync"])
def test_a_second_failure_on_the_way_out_changes_nothing(again):
    """The write or sync fails, and so does what follows: cutting back, the next write, the next sync."""

    def arm(fs, nth):
        fs.fail("write", nth, errno.ENOSPC)
        fs.fail(again, 1 if again == "truncate" else nth + 1, errno.EIO)

    def arm_sync(fs, nth):
        fs.fail("sync", nth, errno.EIO)
        fs.fail("truncate", 1, errno.EIO)

    assert every_call("write", arm)
    assert every_call("sync", arm_sync)


def test_a_disk_that_fills_up_at_any_byte_is_survived():
    whole = SimFS()
    life(whole, Witness())
    total, seen = sum(len(call.data) for call in whole.calls if call.kind == "write"), set()
    for room in range(0, total, 7 if SOAK else 97):
        fs = SimFS()
        fs.room = room
        witness = run(life, fs)
        aftermath(fs, witness, seen)


def test_when_space_returns_what_waited_is_written_and_later_appends_go_on():
    fs, witness = SimFS(), Witness()
    journal = opened(fs)
    witness.commit(fs, journal, 10)
    fs.fail("write", 1, errno.ENOSPC, times=3)
    first, second = witness.send(journal, 20, 30), witness.send(journal, 40)
    witness.hear(fs, *first)
    witness.hear(fs, *second)
    witness.commit(fs, journal, 50)
    assert witness.answers == ["yes"] * 4
    assert fs.injected == 3
    aftermath(fs, witness)


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_an_interrupted_batch_followed_by_a_roll_leaves_a_log_that_opens(kind):
    """Cutting back is not synced, so a roll right after it must not leave an unsynced end in a full segment."""
    fs, witness = SimFS(), Witness()
    journal = opened(fs)
    witness.commit(fs, journal, 600)

    def interrupt(call):
        if call.kind == kind:
            fs.before = None
            raise KeyboardInterrupt

    fs.shorten("write", 1, 900)
    if kind == "write":
        fs.before = lambda call: setattr(fs, "before", interrupt) if call.kind == "write" else None
    else:
        fs.before = interrupt
    index, ticket = witness.send(journal, 500, 300)
    with pytest.raises(KeyboardInterrupt):
        ticket.wait()
    assert checkpoint(journal, refresh(journal, State()))
    moments = [fs.image()]
    witness.hear(fs, index, ticket)
    witness.commit(fs, journal, 70)
    moments.append(fs.image())
    for moment, seed in itertools.product(moments, range(40)):
        twin = witness.copy()
        twin.answers[1:] = ["maybe"] * 2 if moment is moments[0] else twin.answers[1:]
        twin.examine(moment.image().power_loss("blocks", seed))


def test_a_failed_sync_is_final():
    fs, witness = SimFS(), Witness()
    journal = opened(fs)
    witness.commit(fs, journal, 10)
    fs.fail("sync")
    index, ticket = witness.send(journal, 20)
    with pytest.raises(StoreFailed):
        ticket.wait()
    syncs = sum(call.kind == "sync" for call in fs.calls)
    for later in (
        ticket.wait,
        journal.flush,
        lambda: journal.append([{"type": "t:put", "n": 99}], ts=witness.clock.now()),
        lambda: list(journal.read()),
        journal.load,
    ):
        with pytest.raises(StoreFailed):
            later()
    journal.close()
    assert sum(call.kind == "sync" for call in fs.calls) == syncs, "a failed sync was repeated"
    assert witness.answers[index] == "maybe"
    aftermath(fs, witness)


def test_a_disk_that_stays_full_ends_in_store_full_and_reading_never_stopped():
    fs, witness = SimFS(), Witness()
    journal = opened(fs)
    witness.commit(fs, journal, 10)
    fs.fail("write", 1, errno.ENOSPC, times=None)
    _, ticket = witness.send(journal, 20)
    with pytest.raises(StoreFull):
        ticket.wait()
    fs.heal()
    with pytest.raises(StoreError):
        journal.append([{"type": "t:put", "n": 99}], ts=witness.clock.now())
    journal.close()
    assert recovered(opened(fs.image())).order() == [0]
    aftermath(fs, witness)


def test_the_number_of_injected_faults():
    """Last in this file: what all of the above have injected."""
    print(f"\n{injected['count']} faults injected into a journal's life left {injected['disks']} different disks")
    assert injected["count"] >= 1500
    assert injected["disks"] >= 2000, "hardly any was examined"
