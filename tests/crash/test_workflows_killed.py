"""Processes killed -9 in the middle of many workflows cost time: no recorded step, no signal, no instance.

Judged by the histories, and by a diary that the steps keep outside the store (`flowmix`). The processes die by SIGKILL
at named points of a commit or turn, or wherever they are; whoever is left, or comes next, goes on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import flowmix
import msgspec
import pytest
from flowmix import CONTINUES, LONG, POINTS, ROUNDS, Ran, Report

from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Event, activity_key, step_key
from holdfast.testing.replaying import replay

pytestmark = pytest.mark.disk

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
#: Instances on one SQLite file, with three processes; and on a store that one process has.
MANY = 200 if SOAK else 30
FEW = 40 if SOAK else 10
PROCESSES = 3
#: How often a point is passed before somebody dies there.
NTH = 3
#: At how many points, of each store, and how many die wherever they are.
SQLITE_POINTS, POINTS_ALONE, ANYWHERE = (9, 6, ROUNDS) if SOAK else (4, 3, 2)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "deaths").mkdir()
    return tmp_path


def hire(url: str, place: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, flowmix.__file__, url, str(place), *words])


# --- three processes on one file --------------------------------------------------------------------------------------


class Crew:
    """Processes on one store; for each that is killed another one comes."""

    def __init__(self, url: str, place: Path) -> None:
        self._url, self._place = url, place
        self._changed = threading.Condition()
        self._is_over = False
        self._workers = [hire(url, place) for _ in range(PROCESSES)]
        self.deaths = 0
        self._watchers = [threading.Thread(target=self._watch, args=(slot,)) for slot in range(PROCESSES)]
        for watcher in self._watchers:
            watcher.start()

    def _watch(self, slot: int) -> None:
        while True:
            code = self._workers[slot].wait()
            with self._changed:
                if self._is_over:
                    return
                assert code == -9, f"a worker ended with {code}"
                self._workers[slot] = hire(self._url, self._place)
                self.deaths += 1
                self._changed.notify_all()

    def kill(self, slot: int) -> None:
        """Kill one wherever it is."""
        with self._changed:
            self._workers[slot].kill()

    def wait_for_deaths(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.deaths >= count, LONG), f"{self.deaths} of {count} died"

    def dismiss(self) -> None:
        with self._changed:
            self._is_over = True
            for worker in self._workers:
                worker.kill()
        for watcher in self._watchers:
            watcher.join()


def test_three_processes_killed_again_and_again_end_every_workflow_once_with_what_was_recorded(place):
    url = f"sqlite:{place / 'flows.db'}"
    points = POINTS["sqlite"][:SQLITE_POINTS]
    with flowmix.build(url, place) as hf:
        flowmix.begin(hf, MANY)
        is_over = threading.Event()
        answering = threading.Thread(target=flowmix.answer_all, args=(hf, is_over))
        answering.start()
        crew = Crew(url, place)
        try:
            for at in range(ROUNDS):
                for point in points[at::ROUNDS]:
                    flowmix.order(place, point, NTH)
                if at < ANYWHERE:
                    crew.kill(at % PROCESSES)
                flowmix.tell_all(hf, MANY, at)
                # No round without its deaths: none is left for a time when there is nothing to do any more.
                crew.wait_for_deaths(min(at + 1, ANYWHERE) + sum(len(points[one::ROUNDS]) for one in range(at + 1)))
            for n in range(MANY):
                hf.instance(f"w{n}").wait(LONG)
        finally:
            is_over.set()
            crew.dismiss()
            answering.join()
        assert not list((place / "deaths").iterdir())
        judge(hf, place, MANY)
        print(f"{crew.deaths} processes killed")


# --- one process after the other --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["wal", "dir"])
def test_a_process_alone_on_its_store_is_killed_again_and_again_and_the_next_one_goes_on(place, scheme):
    url = f"{scheme}:{place / 'store'}"
    for number, point in enumerate(POINTS[scheme][:POINTS_ALONE], 1):
        flowmix.order(place, point, 5 * number)
        died = hire(url, place, str(FEW))
        assert died.wait(LONG) == -9, f"nobody came to {point}"
    assert hire(url, place, str(FEW)).wait(LONG) == 0
    with flowmix.build(url, place) as hf:
        judge(hf, place, FEW)


# --- judging ----------------------------------------------------------------------------------------------------------


def judge(hf, place: Path, count: int) -> None:
    diary = flowmix.diary_of(place)
    used: set[str] = set()
    for n in range(count):
        used |= judge_instance(hf, n, diary)
    assert diary.keys() == used, "something ran that no history knows"
    assert hf.engine.store.check() == []
    more = sum(len(values) - 1 for values in diary.values())
    print(f"{len(diary)} steps and activities, {more} run again")


def judge_instance(hf, n: int, diary: dict[str, list[Ran]]) -> set[str]:
    run = hf.instance(f"w{n}")
    first, second = run.history(1), run.history(2)
    (child,) = run.children()
    report: Report = hf.mixed.start(n, id=f"w{n}").result(timeout=0)
    draws = [recorded(events) for events in (first, second)]
    assert report.draws == [*draws[0], *draws[1]]
    assert report.signals == list(range(2 * ROUNDS))
    assert report.doubled == [2 * (n + at) for at in range(ROUNDS)]
    assert report.answer == flowmix.answer_to(run.id)
    assert report.child == f"{recorded(child.history())[0]} {2 * n}"
    judge_signals(first, second)
    used: set[str] = set()
    for instance, execution_id, events in ((run.id, 1, first), (run.id, 2, second), (child.id, 1, child.history())):
        judge_history(events)
        used |= judge_steps(instance, execution_id, events, diary)
        definition = hf.mixed if instance == run.id else hf.child
        replay(events, definition)
    return used


def recorded(events: list[Event]) -> list[str]:
    """Give the results of steps by their number."""
    steps = [event.kind for event in events if isinstance(event.kind, event_kinds.StepCompleted)]
    assert sorted(step.step_no for step in steps) == list(range(1, len(steps) + 1)), "a step is recorded once"
    return [msgspec.json.decode(step.result) for step in sorted(steps, key=lambda step: step.step_no)]


def judge_signals(first: list[Event], second: list[Event]) -> None:
    """Each signal came in once, in order; what the first execution had not read, or not taken note of, it handed on."""
    carried = [int(data) for name, data in second[0].kind.carry_forward_events if name == "n"]
    came = [[int(event.kind.data) for event in events if is_signal(event)] for events in (first, second)]
    read = 2 * CONTINUES + 1
    assert carried[: len(came[0][read:])] == came[0][read:]
    assert [*came[0][:read], *carried, *came[1]] == list(range(2 * ROUNDS))


def is_signal(event: Event) -> bool:
    return isinstance(event.kind, event_kinds.QueueEventDelivered) and event.kind.name == "n"


ENDS = (event_kinds.OrchestrationCompleted, event_kinds.OrchestrationContinuedAsNew)
PAIRS = {
    event_kinds.ActivityScheduled: event_kinds.ActivityCompleted,
    event_kinds.TimerCreated: event_kinds.TimerFired,
    event_kinds.DecisionRequested: event_kinds.DecisionResolved,
    event_kinds.SubOrchestrationScheduled: event_kinds.SubOrchestrationCompleted,
}


def judge_history(events: list[Event]) -> None:
    """Numbered without gaps, ended once, and everything that was asked for answered once."""
    assert [event.event_id for event in events] == list(range(1, len(events) + 1))
    assert [event.event_id for event in events if isinstance(event.kind, ENDS)] == [len(events)]
    for asked, answered in PAIRS.items():
        questions = [event.event_id for event in events if isinstance(event.kind, asked)]
        answers = [event.source_event_id for event in events if isinstance(event.kind, answered)]
        assert sorted(answers) == questions, asked


def judge_steps(instance: str, execution_id: int, events: list[Event], diary: dict[str, list[Ran]]) -> set[str]:
    """What is recorded of a step is what its last run came to, and nothing that came after it began before that."""
    used: set[str] = set()
    ended = -1
    for work in in_order(instance, execution_id, events):
        runs = [run for key in work for run in diary[key]]
        assert min(run.line for run in runs) > ended, f"{instance}: ran again although it was recorded"
        ended = max(run.line for run in runs)
        used |= work.keys()
        for key, recorded_value in work.items():
            assert diary[key][-1].value == recorded_value
    return used


def in_order(instance: str, execution_id: int, events: list[Event]) -> list[dict[str, str]]:
    """Give the keys of steps and activities with what is recorded, one after the other; two that ran at once as one."""
    found: list[dict[str, str]] = []
    before = ""
    for event in events:
        match event.kind:
            case event_kinds.StepCompleted(step_no=number, result=result):
                key, value = step_key(instance, execution_id, number), msgspec.json.decode(result)
                name = value.partition("-")[0].rstrip("ab")
            case event_kinds.ActivityCompleted(result=result):
                key, value, name = activity_key(instance, execution_id, event.source_event_id), result, ""
            case _:
                continue
        if name and name == before:
            found[-1][key] = value
        else:
            found.append({key: value})
        before = name
    return found
