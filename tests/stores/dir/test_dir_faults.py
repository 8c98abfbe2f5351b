"""Commands on `dir:`, with the process dying, the power cut or the disk failing at each call the store makes.

The oracle is the same story told on `memory:`, with its state kept after every step. Whatever the fault, the state
after reopening is that after the last acknowledged step, or after the one that was in flight; never another.
"""

from __future__ import annotations

import errno
import itertools
import os
from contextlib import suppress

import msgspec
import pytest
from dir_kit import is_new, job, seen_anew

from holdfast.engine import Engine, engine
from holdfast.engine.file_adoption import adopt
from holdfast.engine.maintenance import tick
from holdfast.errors import StoreError, StoreFailed, StoreFull
from holdfast.model.commands import (
    Bury,
    Cancel,
    Complete,
    Enqueue,
    Expire,
    Extend,
    Fail,
    Lease,
    Move,
    PauseDispatch,
    Prune,
    Release,
    Retention,
    SetQueue,
    Snooze,
    Update,
)
from holdfast.model.events import JobChanges, QueueChanges
from holdfast.model.jobs import Backoff, Job, JobStatus, RetryMode
from holdfast.model.outcomes import Refusal
from holdfast.model.records import TABLES
from holdfast.rules.invariants import violations
from holdfast.stores.dir import DirStore
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing import ManualClock, SimCrash, SimFS
from holdfast.testing.simfs import CHANGES

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
NOW = Backoff(base_s=0, jitter=0)

#: Every row of the table of transitions; "snapshot" begins a new file of the feed.
STORY = [
    Enqueue(cmd="e1", jobs=(job("a"), job("b", key="k", backoff=NOW), job("c", retry_mode=RetryMode.CHAIN, key="c"))),
    Update(job_id="a", changes=JobChanges(priority=5, tags={"x": "y"})),
    Move(cmd="m1", job_id="c", to="first"),
    Lease(cmd="l1", worker_id="w", n=3),
    Extend(job_id="a", token=1, lease_s=600),
    Complete(job_id="a", token=1, result=msgspec.Raw(b'{"fine":[1,2.5,"\xc3\xbc"]}')),
    Fail(job_id="c", token=2, error="no"),
    "snapshot",
    Fail(job_id="b", token=3, error="again"),
    Lease(worker_id="w", n=1),
    Snooze(job_id="b", token=4, delay_s=0),
    Lease(worker_id="w", n=1),
    Release(job_id="b", token=5, begun=True),
    Lease(worker_id="w", n=1),
    Fail(job_id="b", token=6, error="for good", fatal=True),
    Enqueue(jobs=(job("d"), job("e"), job("f"), job("g"), job("h", ttl_s=5), job("i", delay_s=900))),
    Lease(worker_id="w", n=3, lease_s=5),
    Cancel(cmd="x1", job_id="d", force=True),
    Bury(job_id="e", reason="no use"),
    "later",
    Expire(),
    Cancel(cmd="x2", job_id="f", reason="not needed"),
    Bury(job_id="g"),
    Lease(worker_id="w", n=1),
    PauseDispatch(reason="all"),
    SetQueue(queue="mail", changes=QueueChanges(max_running=3)),
    "snapshot",
    Prune(retention=Retention(done_s=1, failed_s=1)),
    Enqueue(jobs=(job("z"),)),
]


def tables_of(store):
    with store.read() as view:
        return {name: list(view.all(kind)) for name, kind in TABLES.items()}


@pytest.fixture(autouse=True)
def chance(monkeypatch):
    """The same ids in every run, so that states can be compared."""
    fresh = {"count": itertools.count(1)}
    monkeypatch.setattr(engine, "_seed", lambda: next(fresh["count"]))
    fresh["restart"] = lambda: fresh.update(count=itertools.count(1))
    return fresh


def tell(store, clock, heard):
    """Run the story; `heard` gets each step that was acknowledged."""
    holder = Engine(store, clock=clock)
    for step in STORY:
        if step == "snapshot":
            store.snapshot()
        elif step == "later":
            clock.advance(10)
        else:
            outcome = holder.submit(step)
            assert not isinstance(outcome, Refusal), (step, outcome)
        heard.append(step)


@pytest.fixture
def chapters(chance):
    """The state after each step, told by the model."""
    chance["restart"]()
    store, states = MemoryStore(), [tables_of(MemoryStore())]

    class Listening(list):
        def append(self, step):
            states.append(tables_of(store))

    tell(store, ManualClock(), Listening())
    return states


def opened(fs):
    return DirStore.open("store", fs=fs, clock=ManualClock())


def one_copy_each(fs, store):
    """Demand that each job has exactly one file, in the right directory, and that nothing else lies about."""
    files = [path for path in fs.tree() if path.startswith("data/tasks/")]
    assert not [path for path in fs.tree() if "/.tmp-" in path or path.startswith("data/intent/")]
    with store.read() as view:
        states = {job.job_id: job.status for job in view.all(Job)}
    folder = {"QUEUED": "pending", "RUNNING": "running", "COMPLETED": "completed"}
    assert sorted(files) == sorted(
        f"data/tasks/{folder.get(status, 'failed')}/{job_id}.json" for job_id, status in states.items()
    )


def examine(fs, heard, chapters):
    """Reopen and compare with the model; then go on, as the program that crashed would."""
    store = opened(fs)
    found = tables_of(store)
    assert found in chapters[heard : heard + 2], f"after {heard} steps: neither before nor after {STORY[heard:][:1]}"
    with store.read() as view:
        assert not list(violations(view))
    one_copy_each(fs, store)
    if heard < len(STORY) and not isinstance(STORY[heard], str):
        Engine(store, clock=ManualClock()).submit(STORY[heard])
    assert not store.check()
    store.close()
    seen = fs.tree()
    twice = opened(fs)
    assert not twice.check()
    twice.close()
    assert fs.tree() == seen, "a second opening changes nothing"


@pytest.fixture
def images(chance):
    """The disk before each call that changes it, with the number of steps acknowledged by then."""
    chance["restart"]()
    fs, heard, kept = SimFS(), [], []
    fs.before = lambda call: kept.append((fs.image(), len(heard), call)) if call.kind in CHANGES else None
    store = opened(fs)
    tell(store, ManualClock(), heard)
    store.close()
    fs.before = None
    return kept


CUTS = [("keep", "keep"), ("lose", "lose"), ("mixed", "blocks"), ("mixed", "lose"), ("mixed", "keep"), ("lose", "keep")]


def test_a_crash_at_any_call_leaves_the_state_before_or_after_the_step_in_flight(images, chapters):
    assert len(images) > 500
    for fs, heard, _ in seen_anew(images):
        examine(fs.reboot(), heard, chapters)


def test_a_power_cut_at_any_call_loses_nothing_acknowledged(images, chapters):
    seen = set()
    for nth, (fs, heard, _) in enumerate(images):
        for turn, (names, mode) in enumerate(CUTS[1:]):
            for seed in range(5) if SOAK else (0,):
                if SOAK or (nth + turn) % (len(CUTS) - 1) == 0:
                    left = fs.image().power_loss(mode, seed=nth + seed, names=names)
                    if is_new(seen, left, heard):
                        examine(left, heard, chapters)


def test_a_crash_in_the_middle_of_a_write_is_a_crash_before_it(images, chapters):
    writes = [(fs, heard, call) for fs, heard, call in images if call.kind == "write"]
    for fs, heard, call in writes[:: 1 if SOAK else 5]:
        half = fs.image()
        handle = half.open(call.path, "append")
        half.write(handle, call.data[: len(call.data) // 2])
        examine(half.reboot(), heard, chapters)


def test_a_look_before_opening_sees_what_opening_will_make_of_it(images):
    """After a power cut in a commit a check says that all is well, if the next opening finishes the commit."""
    begun = [(nth, fs) for nth, (fs, _, _) in enumerate(images) if any("data/intent/0" in path for path in fs.tree())]
    seen = set()
    for nth, fs in begun[:: 1 if SOAK else 3]:
        left = fs.image().power_loss("blocks", seed=nth, names=("keep", "lose", "mixed")[nth % 3])
        if not is_new(seen, left, 0):
            continue
        looked = DirStore.open("store", fs=left, readonly=True, clock=ManualClock())
        assert looked.check() == []
        before, seq = tables_of(looked), len(list(looked.feed(looked.feed_begins)))
        looked.close()
        store = opened(left)
        assert before == tables_of(store)
        assert seq == len(list(store.feed(store.feed_begins)))
        store.close()
    assert len(seen) > 20


def test_crashes_in_recovery_leave_what_recovery_can_finish(images, chapters):
    """A second crash, with the power cut, while the first is being recovered from."""
    interesting = [one for one in images if any("data/intent/0" in path for path in one[0].tree())]
    assert len(interesting) > 200
    seen = set()
    for at, (image, heard, _) in enumerate(interesting[:: 3 if SOAK else 37]):
        for nth in itertools.count(1):
            fs = image.image().power_loss("keep", seed=at, names="keep")
            fs.crash(nth)
            try:
                opened(fs)
            except SimCrash:
                left = fs.power_loss("lose", seed=nth, names="mixed")
                if is_new(seen, left, heard):
                    examine(left, heard, chapters)
            if not fs.injected:
                break


def test_what_a_recovery_found_stays_so_when_the_power_goes_after_it(images, chapters):
    """What a killed process left in the cache only must be durable before anything rests on it."""
    for nth, (image, heard, _) in enumerate(images[:: 1 if SOAK else 3]):
        fs = image.reboot()
        found = tables_of(opened(fs))
        assert found in chapters[heard : heard + 2]
        for names, mode in CUTS[1:] if SOAK else [CUTS[1], CUTS[3]]:
            left = fs.image().power_loss(mode, seed=nth, names=names)
            store = opened(left)
            assert tables_of(store) == found
            assert not store.check()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_a_failing_disk_stops_the_store_or_nothing_has_happened(code, chapters, chance):
    """Fail the n-th change, once, until a run had nothing to fail; in between a few are passed over."""
    step = 1 if SOAK else 9
    for nth in itertools.count(1 + (code == errno.ENOSPC) * 4, step):
        fs, heard = SimFS(), []
        fs.fail("change", nth, code)
        chance["restart"]()
        with suppress(StoreError):
            store = opened(fs)
            tell(store, ManualClock(), heard)
            store.close()
        if not fs.injected:
            break
        fs.heal()
        examine(fs.reboot(), len(heard), chapters)


def test_after_a_failed_write_nothing_is_taken_until_the_store_is_reopened(chance):
    for kind in ("write", "sync", "rename", "sync_dir", "unlink"):
        fs = SimFS()
        holder = Engine(opened(fs), clock=ManualClock())
        holder.submit(Enqueue(jobs=(job("a"),)))
        fs.fail(kind, 1, errno.EIO, times=None)
        with pytest.raises(StoreError):
            holder.submit(Lease(worker_id="w"))
        fs.heal()
        with pytest.raises(StoreFailed):
            holder.submit(Enqueue(jobs=(job("b"),)))
        with holder.read() as view:
            assert view.get(Job, "b") is None


def test_a_full_disk_refuses_before_anything_has_happened_and_goes_on_when_there_is_room():
    fs = SimFS()
    holder = Engine(opened(fs), clock=ManualClock())
    holder.submit(Enqueue(jobs=(job("a"),)))
    before = fs.tree()
    fs.room = 100
    for _ in range(3):
        with pytest.raises(StoreFull):
            holder.submit(Enqueue(jobs=(job("b", {"text": "x" * 2000}),)))
        assert fs.tree() == before
    fs.heal()
    holder.submit(Enqueue(jobs=(job("b"),)))
    assert not holder.store.check()


def test_who_hears_of_a_full_disk_may_rely_on_it_that_nothing_happened():
    heard = set()
    for nth in itertools.count(1):
        fs = SimFS()
        holder = Engine(opened(fs), clock=ManualClock())
        fs.fail("change", nth, errno.ENOSPC)
        told = None
        try:
            holder.submit(Enqueue(jobs=(job("b"),)))
        except (StoreFull, StoreFailed) as problem:
            told = type(problem)
        if not fs.injected:
            break
        fs.heal()
        with opened(fs.reboot()).read() as view:
            heard.add((told, view.get(Job, "b") is not None))
    assert heard >= {(StoreFull, False), (StoreFailed, True)}
    assert (StoreFull, True) not in heard


def test_an_adopted_file_is_there_once_whatever_call_the_adoption_dies_at():
    page = b'{"payload": {"type": "work", "data": {"n": 1}}, "taskId": "s/1"}'
    for nth in itertools.count(1):
        fs = SimFS()
        opened(fs).close()
        fs.put("data/tasks/pending/odd name.json", page)
        fs.crash(nth)
        with suppress(SimCrash):
            adopt(Engine(opened(fs), clock=ManualClock()))
        for names, mode in CUTS:
            left = fs.image().power_loss(mode, seed=nth, names=names)
            store = opened(left)
            adopt(Engine(store, clock=ManualClock()))
            with store.read() as view:
                (found,) = view.all(Job)
            assert (found.job_id, found.status, bytes(found.params)) == ("s/1", JobStatus.QUEUED, b'{"n":1}')
            assert [path for path in left.tree() if "/tasks/" in path] == ["data/tasks/pending/s%2f1.json"]
            assert not store.check()
        if not fs.injected:
            break
    assert nth > 20


def test_a_wish_that_met_a_full_disk_is_fulfilled_when_there_is_room():
    fs, clock = SimFS(), ManualClock()
    holder = Engine(DirStore.open("s", fs=fs, clock=clock), clock=clock)
    holder.submit(Enqueue(jobs=(job("gone"), job("edited"))))
    fs.put("data/tasks/pending/new.json", b'{"payload": {"type": "work"}}')
    fs.unlink("data/tasks/pending/gone.json")
    text = fs.tree()["data/tasks/pending/edited.json"]
    fs.put("data/tasks/pending/edited.json", text.replace(b'"priority": 0', b'"priority": 17'))
    fs.room = 50
    for _ in range(2):
        with pytest.raises(StoreFull):
            adopt(holder)
        clock.advance(1)  # a file that is gone is looked for twice
    fs.heal()
    assert adopt(holder) == 3
    found = {one.job_id: (one.status.value, one.priority) for one in tables_of(holder.store)["jobs"]}
    assert found == {"gone": ("CANCELLED", 0), "edited": ("QUEUED", 17), "new": ("QUEUED", 0)}
    assert not holder.store.check()


# --- intents that come back -------------------------------------------------------------------------------------------


def test_an_old_intent_that_reappears_changes_nothing(images, chapters):
    """Power loss may bring back the file of an intent whose files have long moved on."""
    final, _, _ = images[-1]
    intents = {}
    for fs, _, _ in images:
        intents |= {path: data for path, data in fs.tree().items() if path.startswith("data/intent/0")}
    assert len(intents) > 20
    settled = final.reboot()
    opened(settled).close()
    expected = settled.tree()
    for path, data in intents.items():
        fs = settled.image()
        fs.put(path, data)
        store = opened(fs)
        assert tables_of(store) == chapters[-1]
        store.close()
        assert fs.tree() == expected


def test_an_intent_whose_feed_lines_were_torn_is_completed(images, chapters):
    told = [(fs, heard) for fs, heard, call in images if call.kind == "write" and call.path.startswith("data/feed/")]
    for fs, heard in told[:: 1 if SOAK else 3]:
        (intent,) = [data for path, data in fs.tree().items() if path.startswith("data/intent/0")]
        last = msgspec.json.decode(intent)["last"]
        newest = max(path for path in fs.tree() if path.startswith("data/feed/"))
        for torn in (b"{", b'{"seq":%d,"ts":"2026' % last, b"\0" * 512, b"\0" * 300 + b'{"seq":1}\n'):
            cut = fs.image()
            cut.put(newest, cut.tree()[newest] + torn)
            store = opened(cut)
            assert tables_of(store) == chapters[heard + 1]
            assert store.report.torn == 1
            assert not store.check()
            kept = [data for path, data in cut.tree().items() if ".torn" in path]
            assert torn in b"".join(kept)


def test_when_feed_and_counters_are_gone_the_records_tell(images, chapters):
    for fs, heard, _ in images[:: 7 if SOAK else 41]:
        lost = fs.reboot()
        for path in list(lost.tree()):
            if path.startswith("data/feed/") or path == "data/meta.json":
                lost.unlink(path)
        store = opened(lost)
        found = tables_of(store)
        # Tokens no record has any more, and what only the feed knew, may be counted lower.
        for name, rows in found.items():
            if name != "meta":
                assert rows in (chapters[heard][name], chapters[heard + 1][name] if heard < len(STORY) else rows)
        tokens = [run.token for run in found["job_runs"] if run.token is not None]
        assert max(tokens, default=0) <= (found["meta"][0].last_token if found["meta"] else 0)
        holder = Engine(store, clock=ManualClock())
        assert not isinstance(holder.submit(Enqueue(jobs=(job("new"),))), Refusal)
        tick(holder)
        store.close()
        opened(lost).close()


# --- the order of the calls -------------------------------------------------------------------------------------------


def test_no_two_steps_of_a_commit_are_exchanged():
    """Intent durable → targets durable → sources gone → feed durable → intent gone. A crash alone would not tell."""
    fs = SimFS()
    holder = Engine(opened(fs), clock=ManualClock())
    holder.submit(Enqueue(jobs=(job("a", key="k"), job("b"))))
    begin = len(fs.calls)
    holder.submit(Lease(worker_id="w", n=2))
    holder.submit_many([Complete(job_id="a", token=1), Fail(job_id="b", token=2, error="x", fatal=True)])
    calls = [call for call in fs.calls[begin:] if call.kind in CHANGES]
    starts = [at for at, call in enumerate(calls) if call.kind == "create" and "/intent/" in call.path]
    assert len(starts) == 2
    for first, after in zip(starts, [*starts[1:], len(calls)], strict=True):
        one = calls[first:after]

        def at(kind, where, one=one):
            return [n for n, call in enumerate(one) if call.kind == kind and where in (call.dst or call.path)]

        assert at("write", "/intent/") < at("sync", "/intent/") < at("rename", "/intent/") < at("sync_dir", "/intent")
        committed = at("sync_dir", "/intent")[0]
        renamed, gone = at("rename", "/tasks/"), at("unlink", "/tasks/")
        assert renamed
        assert gone
        assert committed < min(at("create", "/tasks/"))
        for n in renamed:
            draft = one[n].path
            assert [call.kind for call in one[:n] if call.path == draft] == ["create", "write", "sync"]
        targets = {one[n].dst.rpartition("/")[0] for n in renamed}
        durable = [max(n for n in at("sync_dir", target) if n < gone[0]) for target in targets]
        assert max(renamed) < min(durable)
        assert max(durable) < min(gone), "a source goes only after every target is durable"
        told = at("write", "/feed/")
        assert len(told) == 1
        assert max(at("sync_dir", "/tasks")) < told[0] < at("sync", "/feed/")[0]
        assert at("sync", "/feed/")[0] < at("unlink", "/intent/")[-1] == len(one) - 1


@pytest.mark.parametrize("replaced", [False, True], ids=["moved", "replaced"])
def test_a_directory_moved_or_replaced_beneath_us_is_noticed_before_any_acknowledgement(tmp_path, replaced):
    """Who opens the store by its name would find nothing of it, or another one."""
    path = tmp_path / "store"
    holder = Engine(DirStore.open(path), clock=ManualClock())
    holder.submit(Enqueue(cmd="e1", jobs=(job("a"),)))
    path.rename(tmp_path / "away")
    if replaced:
        DirStore.open(path).close()
    for name in ("b", "c"):
        with pytest.raises(StoreFailed, match="moved or replaced"):
            holder.submit(Enqueue(jobs=(job(name),)))
    holder.close()
    store = DirStore.open(tmp_path / "away")
    with store.read() as view:
        assert view.get(Job, "a") is not None
        assert view.get(Job, "c") is None
    store.close()
