"""Workflows under a storm of signals, cancels, timers, children and dying workers: no acknowledged message is lost.

The oracle is outside: what senders noted when an acknowledgement had returned. Each of those messages must be in the
history of its instance, or the feed says that it was dropped; every instance ends; and none stands still for long.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import storm
from storm import LOCK_S, PATIENCE_S, Plan, name_of
from test_coordinator_killed import Coordinator

from holdfast import Holdfast
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.instances import Message

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
PLAN = Plan(200, 12, 60.0) if SOAK else Plan(40, 12, 10.0)
REMOTE_PLAN = PLAN if SOAK else Plan(24, 8, 10.0)
#: Of processes alone on their store, which begin anew all the time; on `dir:` each commit waits for the disk.
ALONE_PLANS = {
    "wal": PLAN if SOAK else Plan(24, 8, 10.0),
    "dir": Plan(100, 8, 60.0) if SOAK else Plan(8, 4, 10.0),
}
PROCESSES = 3
#: Seconds that a process works before it is killed or stopped, at least and at most.
LIFE_S = (0.3, 1.5)
#: Processes that may follow each other on a store of one process; a tenth is enough.
LIVES = 1000 if SOAK else 200
#: Seconds that an instance may stand still. Where a dead process is noticed no lock has to run out; else twice a lock.
STILL_S, STILL_REMOTE_S = 15.0, 2 * LOCK_S

pytestmark = [pytest.mark.disk, pytest.mark.timeout(900 if SOAK else 300)]


# --- processes that come and go ---------------------------------------------------------------------------------------


class Process:
    """One process of the storm."""

    def __init__(self, role: str, url: str, place: Path, plan: Plan) -> None:
        words = [sys.executable, storm.__file__, role, url, str(place), *plan.words()]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "working\n"

    def kill(self) -> None:
        """End it with SIGKILL, wherever it is."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()

    def term(self) -> None:
        """Ask it to end, and wait until it has."""
        self._process.terminate()
        said, _ = self._process.communicate(timeout=PATIENCE_S)
        # One that had finished by itself does not listen any more.
        assert self._process.returncode == (-signal.SIGTERM if "finished" in said and self._process.returncode else 0)

    def finish(self) -> None:
        """Wait until it ends by itself."""
        said, _ = self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == 0
        assert "finished" in said


@dataclass
class Deaths:
    """Who ends next, by what; and how many have."""

    dice: Random = field(default_factory=lambda: Random(8))
    kills: int = 0
    terms: int = 0

    def wait(self) -> None:
        """Let somebody live for a while."""
        threading.Event().wait(self.dice.uniform(*LIFE_S))

    def strike(self, one: Any) -> None:
        """Kill or stop a process or a worker; each in turn."""
        if self.kills <= self.terms:
            self.kills += 1
            one.kill()
        else:
            self.terms += 1
            one.term()


class Thread:
    """A worker of this process; it can be stopped only."""

    def __init__(self, hf: Holdfast) -> None:
        self._worker = hf.worker(concurrency=4)
        self._worker.start()

    def kill(self) -> None:
        """End it without waiting for any step."""
        self._worker.stop()
        assert self._worker.join(PATIENCE_S)

    def term(self) -> None:
        """End it cleanly."""
        self._worker.drain()
        assert self._worker.join(PATIENCE_S)


@contextmanager
def workers(hire: Any, count: int) -> Iterator[list[Any]]:
    """Have so many at work, and none afterwards."""
    found: list[Any] = []
    try:
        found += [hire() for _ in range(count)]
        yield found
    finally:
        for one in found:
            one.kill()


def storm_of_many(
    hf: Holdfast, place: Path, hire: Any, count: int, plan: Plan = PLAN, shake: Callable[[], None] = lambda: None
) -> Deaths:
    """Send from this process, while workers die and others come; wait until every instance has ended.

    After each death `shake` is called.
    """
    deaths = Deaths()
    with workers(hire, count) as crew:
        recorder, senders = storm.Recorder(hf, place), storm.Senders(hf, place, plan)
        try:
            while senders.are_alive:
                deaths.wait()
                at = deaths.dice.randrange(count)
                deaths.strike(crew[at])
                crew[at] = hire()
                shake()
            wait_for_all(hf, plan)
        finally:
            senders.stop()
            recorder.finish()
        assert senders.problems == []
        for one in crew:
            one.term()
    return deaths


def wait_for_all(hf: Holdfast, plan: Plan) -> None:
    """Wait until every instance has ended, altogether no longer than patience lasts."""
    patience = threading.Timer(PATIENCE_S, lambda: None)
    patience.start()
    stuck = {}
    for n in range(plan.instances):
        try:
            hf.instance(name_of(n)).wait(PATIENCE_S if patience.is_alive() and not stuck else 0.1)
        except TimeoutError as problem:
            stuck[n] = str(problem)
    patience.cancel()
    assert stuck == {}, "instances that never end"


def storm_of_one(url: str, place: Path, plan: Plan) -> Deaths:
    """Let one process after the other do everything, until one of them finds that all has ended."""
    deaths = Deaths()
    cancels = sum(storm.cancelled_in(n, plan.rounds) is not None for n in range(plan.instances))
    expected = plan.instances * (1 + plan.rounds) + cancels
    for _ in range(LIVES):
        process = Process("alone", url, place, plan)
        try:
            if len(storm.Book(place).read()) >= expected:
                process.finish()
                return deaths
            deaths.wait()
            deaths.strike(process)
        finally:
            process.kill()
    pytest.fail(f"{LIVES} processes were not enough to send everything")


# --- the storms -------------------------------------------------------------------------------------------------------


def test_storm_on_memory_loses_no_acknowledged_message(tmp_path):
    with storm.build("memory:") as hf:
        deaths = storm_of_many(hf, tmp_path, lambda: Thread(hf), 2)
        judge(hf, tmp_path, deaths, STILL_S)


def test_storm_on_one_sqlite_file_loses_no_acknowledged_message(tmp_path):
    url = f"sqlite:{tmp_path / 'flows.db'}"
    with storm.build(url) as hf:
        deaths = storm_of_many(hf, tmp_path, lambda: Process("worker", url, tmp_path, PLAN), PROCESSES)
        judge(hf, tmp_path, deaths, STILL_S)


@pytest.mark.parametrize("scheme", ["wal", "dir"])
def test_storm_on_a_store_of_one_process_loses_no_acknowledged_message(tmp_path, scheme):
    url = f"{scheme}:{tmp_path / 'store'}"
    plan = ALONE_PLANS[scheme]
    deaths = storm_of_one(url, tmp_path, plan)
    with storm.build(url) as hf:
        judge(hf, tmp_path, deaths, STILL_S, plan)


@pytest.mark.parametrize(("scheme", "dies"), [("wal", False), ("sqlite", False), ("wal", True)])
def test_storm_of_remote_workers_loses_no_acknowledged_message(tmp_path, scheme, dies):
    url = f"{scheme}:{tmp_path / 'store'}"
    coordinator = Coordinator(url, tmp_path)

    def shake() -> None:
        if dies:
            coordinator.kill()
            coordinator.start()

    def hire() -> Process:
        return Process("worker", coordinator.url, tmp_path, REMOTE_PLAN)

    try:
        with storm.build(coordinator.url) as hf:
            deaths = storm_of_many(hf, tmp_path, hire, PROCESSES, REMOTE_PLAN, shake)
        coordinator.stop()
    finally:
        coordinator.end()
    with storm.build(url) as hf:
        judge(hf, tmp_path, deaths, STILL_S if dies else STILL_REMOTE_S, REMOTE_PLAN)


# --- judging ----------------------------------------------------------------------------------------------------------


@dataclass
class Feed:
    """What the feed says of messages."""

    #: Numbers of messages by instance and text of the signal; None is a cancel.
    sent: dict[tuple[str, str | None], list[int]] = field(default_factory=lambda: defaultdict(list))
    #: Why each message was dropped.
    dropped: dict[int, str] = field(default_factory=dict)

    def note(self, seq: int, event: dict[str, Any]) -> None:
        """Take one event."""
        if event["type"] == "message:dropped":
            self.dropped[event["message"]] = event["reason"]
        elif event["type"] == "message:stored" and event["kind"] == "QueueMessage":
            self.sent[event["instance_id"], event["item"]["data"]].append(seq)
        elif event["type"] == "message:stored" and event["kind"] == "CancelInstance":
            self.sent[event["instance_id"], None].append(seq)


@dataclass
class Timeline:
    """When an instance had something to do, and when something was done."""

    #: Messages that could be delivered, and since when; those that somebody has.
    waiting: dict[int, float] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    is_locked: bool = False
    has_step: bool = False
    has_ended: bool = False
    #: When it last went on.
    at: float = 0.0

    def still(self, now: float) -> float:
        """Give the seconds since it could have gone on."""
        if self.has_ended:
            return 0.0
        if self.is_locked or self.has_step:
            return now - self.at
        return now - max(self.at, min(self.waiting.values())) if self.waiting else 0.0

    def note(self, now: float, seq: int, event: dict[str, Any]) -> float:
        """Take an event of the instance; give how long it had stood still if it goes on with it."""
        if event["type"] == "message:stored":
            # A timer that no event of the history asked for only waits for the end of a lock.
            if event.get("event_id") != 0:
                self.waiting[seq] = max(now, moment(event.get("visible_at") or event.get("due_at")))
            return 0.0
        if event["type"] not in GOES_ON:
            return 0.0
        still = self.still(now)
        self.at = max(now, self.at)
        match event["type"]:
            case "turn:locked" | "turn:tagged":
                self.is_locked = True
                self.held |= set(event["messages"])
                for one in event["messages"]:
                    self.waiting.pop(one, None)
            case "turn:committed":
                self.is_locked = event.get("held_until") is not None
                kept = set(event.get("kept", ()))
                self.waiting |= dict.fromkeys(() if self.is_locked else kept, now)
                self.held = kept if self.is_locked else set()
                self.has_step = any(line.startswith("step") for line in event.get("waiting_on") or ())
                self.has_ended = event["status"] != "RUNNING"
            case _:
                again = max(now, moment(event.get("visible_at")))
                self.waiting |= dict.fromkeys([*self.held, *event.get("woken", ())], again)
                self.is_locked, self.held = False, set()
        return still


GOES_ON = {"turn:locked", "turn:tagged", "turn:committed", "turn:abandoned", "turn:expired"}


def moment(text: str | None) -> float:
    """Give a time of the feed in seconds; 0 for none."""
    return 0.0 if text is None else datetime.fromisoformat(text).timestamp()


def longest_still(entries: Iterable[tuple[int, float, dict[str, Any]]]) -> tuple[float, str]:
    """Give how long any instance stood still although it could have gone on, and which one."""
    lines: dict[str, Timeline] = defaultdict(Timeline)
    longest, now = (0.0, ""), 0.0
    for seq, at, event in entries:
        now = at
        if "instance_id" in event:
            instance = event["instance_id"]
            longest = max(longest, (lines[instance].note(at, seq, event), instance))
        elif event["type"] == "message:dropped":
            for line in lines.values():
                line.waiting.pop(event["message"], None)
    return max([longest, *((line.still(now), instance) for instance, line in lines.items())])


def judge(hf: Holdfast, place: Path, deaths: Deaths, most_still_s: float, plan: Plan = PLAN) -> None:
    """Compare what is in the store with what was acknowledged; print what happened."""
    book = storm.Book(place).read()
    feed, entries = Feed(), []
    for entry in storm.recorded(place):
        event = msgspec.json.decode(entry.event)
        feed.note(entry.seq, event)
        entries.append((entry.seq, moment(entry.ts), event))
    still_s, stillest = longest_still(entries)
    acknowledged = [line for line in book if not line[0].endswith("refused")]
    print(
        f"{plan.instances} instances, {len(acknowledged)} messages acknowledged, {len(book) - len(acknowledged)} "
        f"refused, {len(feed.dropped)} dropped, {deaths.kills} kills, {deaths.terms} terms, "
        f"longest stand-still {still_s:.1f} s ({stillest})"
    )
    assert {n for word, n, _ in book if word == "started"} == set(range(plan.instances))
    lost = {}
    for n in range(plan.instances):
        lost |= judge_instance(hf, n, {(word, at) for word, m, at in acknowledged if m == n}, feed, plan.rounds)
    assert lost == {}, "acknowledged, and neither in a history nor said to be dropped"
    with hf.engine.read() as view:
        left = [message.seq for message in view.all(Message)]
    assert left == []
    assert hf.engine.store.check() == []
    assert deaths.kills
    assert deaths.terms
    assert still_s <= most_still_s, stillest


def judge_instance(hf: Holdfast, n: int, acknowledged: set[tuple[str, int]], feed: Feed, rounds: int) -> dict[str, str]:
    """Check how an instance ended and what it read; give the acknowledged messages that nobody knows of."""
    run = hf.instance(name_of(n))
    events = run.history()
    kinds = [event.kind for event in events]
    assert [event.event_id for event in events] == list(range(1, len(events) + 1))
    read = [int(kind.data) for kind in kinds if isinstance(kind, event_kinds.QueueEventDelivered)]
    assert read == sorted(set(read)), "read twice, or in another order"
    was_cancelled = any(isinstance(kind, event_kinds.OrchestrationCancelRequested) for kind in kinds)
    status = run.status().status
    assert status == ("CANCELLED" if was_cancelled and status != "COMPLETED" else "COMPLETED")
    if status == "COMPLETED":
        assert run.result(timeout=0) == read[:rounds] == list(range(rounds))
    assert {child.status().status for child in run.children()} <= {"COMPLETED", "CANCELLED"}
    # An instance of which a message is lost waits for ever, unless it is cancelled: then only this tells.
    known = {("signal", at) for at in read} | {("cancelled", at) for _, at in acknowledged if was_cancelled}
    lost = {}
    for word, at in acknowledged - known - {("started", 0)}:
        numbers = feed.sent[name_of(n), str(at) if word == "signal" else None]
        if not numbers or not all(number in feed.dropped for number in numbers):
            lost[f"{word} {at} of {name_of(n)}"] = f"messages {numbers}, {status}"
    return lost
