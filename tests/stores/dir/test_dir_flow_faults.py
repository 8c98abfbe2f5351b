"""Workflows on `dir:`, with the process dying or the power cut at each call the store makes.

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
from dir_kit import is_new, seen_anew

from holdfast.engine import Engine, engine
from holdfast.errors import StoreError
from holdfast.model.records import TABLES
from holdfast.model.workflows.commands import AppendHistory, DeleteInstances, Delta, NewEvent
from holdfast.stores.dir import DirStore
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing import ManualClock, SimCrash, SimFS
from holdfast.testing.conformance.provider_kit import activity, completed, event, patch, signal, start, started, timer
from holdfast.testing.simfs import CHANGES
from holdfast.workflows.provider import (
    ContinueAsNew,
    EventKind,
    ExecutionMetadata,
    Provider,
    PruneOptions,
    SessionFetchConfig,
    Status,
)

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
ME = SessionFetchConfig("me", 60.0)
#: An id that no file can have for its name.
ODD = "../A b/" + "ü" * 90


def ended(status, output="done"):
    return ExecutionMetadata(status=status, output=output)


def raw(one):
    return msgspec.Raw(msgspec.json.encode(one))


def replaced(provider):
    """Delete an instance and make another of the same id, in one commit."""
    events = (NewEvent(event=raw(started("a"))), NewEvent(event=raw(patch(2, "a"))))
    provider.engine.submit_many(
        [
            DeleteInstances(instance_ids=("a",), force=True, tree=True),
            AppendHistory(instance_id="a", execution_id=1, delta=Delta(events=events)),
        ]
    )


#: Each step is one commit, or none.
STORY = [
    lambda p: p.enqueue_for_orchestrator(start("a")),
    lambda p: p.fetch_orchestration_item(30.0),
    lambda p: p.abandon_orchestration_item("1"),
    lambda p: p.fetch_orchestration_item(30.0),
    lambda p: p.ack_orchestration_item(
        "2",
        1,
        [
            started("a"),
            event(2, EventKind.KeyValueSet(key="k\0", value="v"), "a"),
            event(3, EventKind.DecisionRequested(prompt="?"), "a"),
            event(4, EventKind.CustomStatusUpdated(status="fine"), "a"),
        ],
        [activity(5, "a", session_id="s"), activity(6, "a")],
        [timer(7, 2**50, "a"), signal("ghost"), start(ODD)],
    ),
    lambda p: p.enqueue_for_orchestrator(signal("a")),
    lambda p: p.fetch_orchestration_item(30.0),
    lambda p: p.ack_orchestration_item("3", 1, [started(ODD)], hold=60.0),
    lambda p: p.ack_orchestration_item("3", 1, [patch(2, ODD)], metadata=ended(Status.COMPLETED)),
    lambda p: p.fetch_work_item(30.0, session=ME),
    lambda p: p.ack_work_item("4", completed(5, "a")),
    lambda p: p.fetch_orchestration_item(30.0),
    lambda p: p.fetch_more_messages("5"),
    lambda p: p.abandon_orchestration_item("5", 0.0, reason="no code"),
    "snapshot",
    lambda p: p.fetch_orchestration_item(30.0),
    lambda p: p.ack_orchestration_item(
        "6",
        1,
        [patch(8, "a"), event(9, EventKind.KeyValuesCleared(), "a")],
        (),
        [ContinueAsNew(instance="a", orchestration="flow", input="{}")],
        ended(Status.CONTINUED_AS_NEW),
        cancelled_timers=[7],
    ),
    lambda p: p.fetch_orchestration_item(30.0),
    lambda p: p.ack_orchestration_item("7", 2, [started("a", 2), patch(5, "a", 2)]),
    lambda p: p.append_with_execution("a", 2, [patch(3, "a", 2)]),
    lambda p: p.prune_executions("a", PruneOptions()),
    lambda p: p.delete_instance(ODD),
    replaced,
    lambda p: p.enqueue_for_orchestrator(start(ODD)),
    lambda p: p.fetch_orchestration_item(30.0),
    lambda p: p.ack_orchestration_item("8", 1, [started(ODD)]),
    lambda p: p.delete_instances_atomic(["a", ODD], force=True),
    lambda p: p.enqueue_for_orchestrator(start("last")),
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


def tell(store, heard):
    """Run the story; `heard` gets each step that was acknowledged."""
    provider = Provider(Engine(store, clock=ManualClock()))
    for step in STORY:
        if step == "snapshot":
            store.snapshot()
        else:
            step(provider)
        heard.append(step)


@pytest.fixture
def chapters(chance):
    """The state after each step, told by the model."""
    chance["restart"]()
    store, states = MemoryStore(), [tables_of(MemoryStore())]

    class Listening(list):
        def append(self, step):
            states.append(tables_of(store))

    tell(store, Listening())
    return states


def opened(fs):
    return DirStore.open("store", fs=fs, clock=ManualClock())


@pytest.fixture
def images(chance):
    """The disk before each call that changes it, with the number of steps acknowledged by then."""
    chance["restart"]()
    fs, heard, kept = SimFS(), [], []
    fs.before = lambda call: kept.append((fs.image(), len(heard), call)) if call.kind in CHANGES else None
    store = opened(fs)
    tell(store, heard)
    store.close()
    fs.before = None
    return kept


def examine(fs, heard, chapters, *, twice=False):
    """Reopen and compare with the model."""
    store = opened(fs)
    found = tables_of(store)
    assert found in chapters[heard : heard + 2], f"after {heard} steps: neither before nor after the next"
    left = [path for path in fs.tree() if "/.tmp-" in path or path.startswith(("data/intent/", "data/trash/"))]
    assert not left
    if twice:
        assert not store.check()
        Provider(Engine(store, clock=ManualClock())).enqueue_for_orchestrator(signal("later"))
        store.close()
        seen = fs.tree()
        again = opened(fs)
        assert not again.check()
        again.close()
        assert fs.tree() == seen, "a second opening changes nothing"
    return found


def texts_of_intents(images):
    found = {}
    for fs, _, _ in images:
        found |= {path: data for path, data in fs.tree().items() if path.startswith("data/intent/0")}
    return found


def intents_in(images):
    return {path: msgspec.json.decode(data) for path, data in texts_of_intents(images).items()}


CUTS = [("lose", "lose"), ("mixed", "blocks"), ("mixed", "lose"), ("mixed", "keep"), ("lose", "keep")]


def test_the_story_on_files_is_the_story(images, chapters):
    final, heard, _ = images[-1]
    assert heard == len(STORY)
    assert examine(final.reboot(), heard, chapters, twice=True) == chapters[-1]
    assert not [path for path in final.tree() if path.startswith("data/instances/")]


def test_the_story_does_all_that_a_commit_can_do(images):
    done = [effect for intent in intents_in(images).values() for effect in intent["body"]["effects"]]
    assert {effect["do"] for effect in done} == {"put", "drop", "append", "trash"}
    assert {effect["folder"].count("/") for effect in done if effect["do"] == "trash"} == {1, 3}
    assert {effect["offset"] > 0 for effect in done if effect["do"] == "append"} == {True, False}
    names = {effect["name"] for effect in done if effect["do"] == "put"}
    assert names >= {"meta", "lock", "kv", "state", "s"}


def test_a_crash_at_any_call_leaves_the_state_before_or_after_the_step_in_flight(images, chapters):
    assert len(images) > 500
    for nth, (fs, heard, _) in enumerate(seen_anew(images)):
        examine(fs.reboot(), heard, chapters, twice=SOAK or nth % 4 == 0)


def test_a_power_cut_at_any_call_loses_nothing_acknowledged(images, chapters):
    seen = set()
    for nth, (fs, heard, _) in enumerate(images):
        for turn, (names, mode) in enumerate(CUTS):
            for seed in range(5) if SOAK else (0,):
                if SOAK or (nth + turn * 2) % (len(CUTS) * 2) == 0:
                    left = fs.image().power_loss(mode, seed=nth + seed, names=names)
                    if is_new(seen, left, heard):
                        examine(left, heard, chapters)


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
    for at, (image, heard, _) in enumerate(interesting[:: 3 if SOAK else 53]):
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
    for nth, (image, heard, _) in enumerate(images[:: 1 if SOAK else 7]):
        fs = image.reboot()
        found = tables_of(opened(fs))
        assert found in chapters[heard : heard + 2]
        left = fs.image().power_loss("lose", seed=nth, names="lose" if nth % 2 else "mixed")
        assert examine(left, heard, chapters) == found


def test_a_failing_disk_stops_the_store_or_nothing_has_happened(chapters, chance):
    for nth in itertools.count(1, 1 if SOAK else 23):
        fs, heard = SimFS(), []
        fs.fail("change", nth, errno.ENOSPC if nth % 2 else errno.EIO)
        chance["restart"]()
        with suppress(StoreError):
            store = opened(fs)
            tell(store, heard)
            store.close()
        if not fs.injected:
            break
        fs.heal()
        examine(fs.reboot(), len(heard), chapters)


def test_an_old_intent_that_reappears_changes_nothing(images, chapters):
    """Power loss may bring back the file of an intent whose instances are long gone."""
    settled = images[-1][0].reboot()
    opened(settled).close()
    expected = settled.tree()
    for path, data in texts_of_intents(images).items():
        fs = settled.image()
        fs.put(path, data)
        store = opened(fs)
        assert tables_of(store) == chapters[-1]
        store.close()
        assert fs.tree() == expected


def test_when_feed_and_counters_are_gone_the_records_tell(images, chapters):
    for fs, heard, _ in images[:: 7 if SOAK else 61]:
        lost = fs.reboot()
        for path in list(lost.tree()):
            if path.startswith("data/feed/") or path == "data/meta.json":
                lost.unlink(path)
        store = opened(lost)
        found = tables_of(store)
        for name, rows in found.items():
            if name != "meta":
                assert rows in (chapters[heard][name], chapters[min(heard + 1, len(STORY))][name]), name
        tokens = [turn.token for turn in found["turns"] if turn.token is not None]
        assert max(tokens, default=0) <= (found["meta"][0].last_token if found["meta"] else 0)
        Provider(Engine(store, clock=ManualClock())).enqueue_for_orchestrator(start("new"))
        store.close()
        opened(lost).close()


def test_a_crash_in_the_middle_of_a_write_is_a_crash_before_it(images, chapters):
    writes = [(fs, heard, call) for fs, heard, call in images if call.kind == "write"]
    histories = [one for one in writes if one[2].path.endswith("history.jsonl")]
    assert len(histories) > 5
    for fs, heard, call in (*histories, *writes[:: 1 if SOAK else 9]):
        half = fs.image()
        handle = half.open(call.path, "append")
        half.write(handle, call.data[: len(call.data) // 2])
        examine(half.reboot(), heard, chapters)
