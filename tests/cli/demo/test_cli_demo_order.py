"""The demo's workflow proves what it claims: each way to lose a step, or to run one again, makes it fail."""

from __future__ import annotations

import signal
import sqlite3
import tempfile

import msgspec
import pytest
from click.testing import CliRunner

from holdfast.cli.demo import run
from holdfast.cli.demo.order import scenario as story
from holdfast.cli.demo.order import verify as proof
from holdfast.cli.demo.order.workflow import FATAL, STEPS, Line, receipt
from holdfast.cli.demo.record import Said
from holdfast.cli.demo.verify import Verdict
from holdfast.cli.root import cli
from holdfast.failpoints import listening
from holdfast.model.workflows import event_kinds
from holdfast.stores.protocol import Finding


class Audience:
    """Hears the story and remembers it."""

    def __init__(self):
        self.heard = {}

    def __getattr__(self, verb):
        return lambda *said: self.heard.__setitem__(verb, said)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    place = tmp_path_factory.mktemp("order")
    audience = Audience()
    return story.play(story.Plan(f"sqlite:{place / 'order.db'}", place / "steps.jsonl"), audience), audience.heard


@pytest.fixture
def evidence(played):
    return played[0]


# --- on a healthy store -----------------------------------------------------------------------------------------------


def test_a_workflow_goes_on_behind_its_last_recorded_step(evidence):
    assert proof.judge(evidence) == []
    before = [one.step for one in evidence.at_kill.recorded()]
    assert before == list(STEPS)[: len(before)]
    assert [one.step for one in evidence.at_end.recorded()] == list(STEPS)
    assert {step: len(evidence.at_end.began(step)) for step in before} == dict.fromkeys(before, 1)
    assert evidence.returned == [receipt(step, evidence.order) for step in STEPS]


def test_its_story_is_told_as_it_happened(played):
    evidence, heard = played
    hand, under_way = heard["killed"]
    assert hand.process.returncode == -signal.SIGKILL
    assert under_way == evidence.at_kill.under_way() == [FATAL]
    assert heard["restarted"][0].pid != hand.pid
    # Far below the time that a lock lives: the dead process was noticed.
    assert heard["carried_on"][0] < 15


# --- the check can fail -----------------------------------------------------------------------------------------------


def replaced(evidence, **changes):
    return proof.judge(msgspec.structs.replace(evidence, **changes))


def at_end(evidence, **changes):
    return replaced(evidence, at_end=msgspec.structs.replace(evidence.at_end, **changes))


def position(evidence, step):
    """Where the history has the result of an inline step."""
    kinds_of = [event.kind for event in evidence.at_end.history]
    return next(
        at for at, kind in enumerate(kinds_of) if isinstance(kind, event_kinds.StepCompleted) and kind.name == step
    )


def test_a_recorded_step_that_is_gone_is_found(evidence):
    at, history = position(evidence, "pack"), list(evidence.at_end.history)
    problems = at_end(evidence, history=history[:at] + history[at + 1 :])
    assert "step pack is not recorded" in problems
    assert any("is not what it was when the worker was killed" in problem for problem in problems)


def test_a_history_that_lost_its_end_is_found(evidence):
    assert "2 events that were recorded at the kill are gone" in at_end(evidence, history=evidence.at_kill.history[:-2])


def test_a_step_with_the_result_of_another_is_found(evidence):
    at, history = position(evidence, "mail"), list(evidence.at_end.history)
    kind = msgspec.structs.replace(history[at].kind, result='"mail of order 8"')
    history[at] = msgspec.structs.replace(history[at], kind=kind)
    assert at_end(evidence, history=history) == ["step mail has a result that is not its own"]


def test_a_step_recorded_twice_is_found(evidence):
    history = list(evidence.at_end.history)
    assert at_end(evidence, history=[*history, history[position(evidence, "mail")]]) == [
        "step mail is recorded 2 times"
    ]


def test_a_recorded_step_that_is_run_again_is_found(evidence):
    (first,) = evidence.at_end.began("reserve")
    assert at_end(evidence, record=[*evidence.at_end.record, first]) == [
        "step reserve was executed 2 times, and 1 would be explained"
    ]


def test_a_step_run_again_under_another_key_is_found(evidence):
    record = [line for line in evidence.at_end.record if line != evidence.at_end.began(FATAL)[0]]
    first, second = (Line(Said.BEGAN, FATAL, key) for key in ("one", "two"))
    assert f"step {FATAL} was executed again under another key" in at_end(evidence, record=[*record, first, second])


def test_a_step_that_nobody_executed_is_found(evidence):
    record = [line for line in evidence.at_end.record if line.step != "ship"]
    assert at_end(evidence, record=record) == ["step ship is recorded, but no execution did it"]


def test_a_wrong_result_or_none_is_found(evidence):
    assert replaced(evidence, returned=["nothing"]) == ["the order has a result that is not its own"]
    assert replaced(evidence, failure="it is RUNNING") == ["the order did not end well: it is RUNNING"]


def test_a_kill_that_hit_nothing_is_found(evidence):
    problems = replaced(evidence, at_kill=evidence.at_end)
    assert "no step was under way when the worker was killed, so nothing was shown" in problems
    problems = replaced(evidence, at_kill=proof.Sight(history=[], record=[]))
    assert "no step was recorded when the worker was killed, so nothing was shown" in problems


def test_what_the_store_finds_is_a_problem(evidence):
    found = [Finding(code="row_sum", message="row 7 differs")]
    assert replaced(evidence, findings=found) == ["store check: row 7 differs"]


def test_the_demo_exits_1_when_a_recorded_step_vanishes_from_the_store(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # The jobs are another test's; here they are taken to be well, so that the step alone decides.
    monkeypatch.setattr(run.scenario, "play", lambda *_: None)
    well = Verdict(problems=[], within_s=3, takeover_s=0.1)
    monkeypatch.setattr(run.verify, "judge", lambda *_: well)
    monkeypatch.setattr(run.display, "tell", lambda *_: None)

    def sabotage():
        (file,) = tmp_path.glob("*/order.db")
        database = sqlite3.connect(file)
        database.execute("""DELETE FROM history WHERE event LIKE '%"pack"%'""")
        assert database.total_changes == 1
        database.commit()
        database.close()

    with listening("demo.carried_on", sabotage):
        told = CliRunner().invoke(cli, ["demo"])
    assert told.exit_code == 1, told.output
    assert "step pack is not recorded" in told.stdout
    assert "Not as promised" in told.stdout
    assert "store check: " in told.stdout
