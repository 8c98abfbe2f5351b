"""`holdfast workflows` and `holdfast decisions`, on real stores that hold what a runtime has written."""

from __future__ import annotations

import json
import sys

import flowapp
import msgspec
import pytest

from holdfast.app.workflows.workflow import Workflow
from holdfast.model.workflows.history import ExecutionMetadata
from holdfast.model.workflows.work_items import StartOrchestration
from holdfast.testing import virtual
from holdfast.workflows.provider import Provider

APP = "flowapp:hf"


@pytest.fixture(autouse=True)
def _mode(monkeypatch):
    monkeypatch.setitem(sys.modules, "flowapp", flowapp)
    before = dict(flowapp.MODE)
    yield
    flowapp.MODE.update(before)


def recorded(name, *args, moves=None):
    """Run a workflow of the application in a world of its own, to its end or for some turns, and give what it wrote."""
    with virtual(flowapp.hf) as world:
        run = Workflow(flowapp.hf, flowapp.hf.workflows.get(name)).start(*args, id="i")
        if moves is None:
            world.run(run)
        else:
            for _ in range(moves):
                world.turn_once(Provider(flowapp.hf.engine), 7)
        info = Provider(flowapp.hf.engine).get_instance_info("i")
        return run.history(), info.status, info.output, run.status().waiting_on


@pytest.fixture
def keep(opened):
    """Write an instance into the store, by the provider."""

    def write(found, instance="i"):
        events, status, output, waiting_on = found
        moved = [msgspec.structs.replace(event, instance=instance) for event in events]
        with opened() as engine:
            provider = Provider(engine)
            begun = moved[0].kind
            provider.enqueue_for_orchestrator(
                StartOrchestration(instance=instance, orchestration=begun.name, input=begun.input)
            )
            item, token, _ = provider.fetch_orchestration_item(30)
            assert item.instance == instance
            provider.ack_orchestration_item(
                token,
                1,
                moved,
                metadata=ExecutionMetadata(
                    status=status,
                    output=output,
                    orchestration_name=begun.name,
                    orchestration_version=begun.version,
                    waiting_on=waiting_on,
                ),
            )

    return write


# --- looking ----------------------------------------------------------------------------------------------------------


def test_instances_are_listed_shown_and_their_history_told(holdfast, rows, keep):
    keep(recorded("welcome", 1), "done")
    keep(recorded("welcome", 2, moves=1), "going")
    listed = rows("workflows", "ls")
    assert [(one["instance_id"], one["status"]) for one in listed] == [("going", "RUNNING"), ("done", "COMPLETED")]
    assert [one["instance_id"] for one in rows("workflows", "ls", "--status", "completed")] == ["done"]
    assert rows("workflows", "ls", "--workflow", "nothing") == []
    shown = rows("workflows", "show", "done")
    assert (shown["workflow"], shown["version"], shown["output"]) == ("welcome", "1.0.0", '"hello ann"')
    assert shown["custom_status"] == "begun"
    assert "activity" in holdfast("workflows", "show", "going").stdout
    events = rows("workflows", "history", "done")
    assert [one["event_id"] for one in events] == list(range(1, len(events) + 1))
    assert events[-1]["says"] == 'returned "hello ann"'
    assert "timer 5 s" in holdfast("workflows", "history", "done").stdout
    assert rows("workflows", "history", "done", "--after", "2") == events[2:]
    assert rows("workflows", "history", "done", "--last", "2") == events[-2:]
    assert rows("workflows", "history", "done", "--after", "2", "--last", "1") == events[-1:]
    assert rows("workflows", "history", "done", "--after", "999") == []


def test_what_is_not_there_exits_3(holdfast, keep):
    keep(recorded("welcome", 1), "done")
    for verb in ("show", "history", "wait", "export"):
        assert holdfast("workflows", verb, "x").exit_code == 3, verb
    assert holdfast("workflows", "history", "done", "--execution", "9").exit_code == 3
    assert holdfast("workflows", "cancel", "x").exit_code == 3
    assert holdfast("workflows", "rm", "x", "--yes").exit_code == 3


def test_a_signal_to_nobody_names_the_option_that_keeps_it(holdfast, keep):
    keep(recorded("welcome", 1), "done")
    told = holdfast("workflows", "signal", "nobody", "paid")
    assert told.exit_code == 3
    assert "--hold" in told.stderr
    assert "hold=" not in told.stderr
    assert holdfast("workflows", "cancel", "nobody").stderr.endswith("Nothing was sent.\n")
    assert holdfast("workflows", "signal", "nobody", "paid", "--hold", "1h").exit_code == 0


def test_waiting_tells_by_its_exit_code_how_it_ended(holdfast, rows, keep):
    keep(recorded("welcome", 1), "done")
    keep(recorded("welcome", 2, moves=1), "going")
    assert rows("workflows", "wait", "done")["output"] == '"hello ann"'
    late = holdfast("workflows", "wait", "going", "--timeout", "0")
    assert late.exit_code == 5
    assert "It goes on" in late.stderr


# --- speaking to them -------------------------------------------------------------------------------------------------


def test_an_instance_is_started_once_signalled_and_asked_to_stop(holdfast, rows, keep, opened):
    keep(recorded("welcome", 1), "done")
    words = ("workflows", "start", "welcome", "--id", "w1", "--input", '{"times": 2}')
    assert rows(*words) == {"instance_id": "w1", "created": True}
    assert rows(*words) == {"instance_id": "w1", "created": False}
    assert holdfast(*words[:-1], '{"times": 3}').exit_code == 6
    assert holdfast("workflows", "signal", "w1", "go", "--data", "7").exit_code == 0
    assert holdfast("workflows", "signal", "done", "go").exit_code == 6
    assert holdfast("workflows", "signal", "w1", "go", "--data", "{").exit_code == 2
    assert holdfast("workflows", "cancel", "w1", "--reason", "enough").exit_code == 0
    with opened() as engine:
        item, _, _ = Provider(engine).fetch_orchestration_item(30)
    assert [type(one).__name__ for one in item.messages] == ["StartOrchestration", "QueueMessage", "CancelInstance"]
    assert item.messages[0].input == '{"times":2}'
    assert item.messages[1].data == "7"


def test_instances_are_removed_and_those_that_run_only_by_force(holdfast, rows, keep):
    keep(recorded("welcome", 1), "done")
    keep(recorded("welcome", 2, moves=1), "going")
    assert holdfast("workflows", "rm", "going", "--yes").exit_code == 6
    assert holdfast("workflows", "rm", "going", "--yes", "--force").exit_code == 0
    assert rows("workflows", "prune", "--older-than", "1d")["instances"] == 0
    assert rows("workflows", "prune")["instances"] == 1
    assert rows("workflows", "ls") == []


def test_a_dry_run_changes_nothing(holdfast, rows, keep):
    keep(recorded("welcome", 1), "done")
    assert holdfast("workflows", "rm", "done", "--dry-run").exit_code == 0
    assert len(rows("workflows", "ls")) == 1


# --- checking ---------------------------------------------------------------------------------------------------------


def test_code_that_follows_all_histories_passes(holdfast, keep):
    keep(recorded("welcome", 1), "done")
    keep(recorded("welcome", 2, moves=1), "going")
    told = holdfast("workflows", "check", APP)
    assert told.exit_code == 0, told.stdout + told.stderr


def test_changed_code_exits_1_naming_instance_event_expected_and_found(holdfast, keep):
    keep(recorded("welcome", 1), "done")
    flowapp.MODE["name"] = "bob"
    told = holdfast("workflows", "check", APP, "-o", "json")
    assert told.exit_code == 1
    (found,) = json.loads(told.stdout)
    assert (found["kind"], found["instance"], found["event_id"]) == ("difference", "done", 3)
    assert "ann" in found["recorded"]
    assert "bob" in found["found"]
    assert "hf.patched" in holdfast("workflows", "check", APP).stdout


def test_a_changed_timer_and_a_removable_patch_are_notes(holdfast, rows, keep):
    flowapp.MODE["patch"] = True
    keep(recorded("welcome", 1, moves=1), "going")
    keep(recorded("welcome", 1), "done")
    flowapp.MODE["sleep"] = 9
    kinds = {one["kind"]: one["text"] for one in rows("workflows", "check", APP)}
    assert set(kinds) == {"timer", "patch"}
    assert "+4 s" in kinds["timer"]
    assert "'new'" in kinds["patch"]
    (use,) = rows("workflows", "patches")
    assert (use["patch"], use["having"], use["lacking"], use["removable"]) == ("new", 1, 0, True)


def test_wrong_usage_exits_2(holdfast, keep):
    keep(recorded("welcome", 1), "done")
    assert holdfast("workflows", "check", "nowhere:hf").exit_code == 2
    assert holdfast("workflows", "check", APP, env={"HOLDFAST_STORE": ""}).exit_code == 2
    assert holdfast("workflows", "check", APP, "--histories", "no-such-directory").exit_code == 2


def test_exported_histories_are_checked_and_replayed_without_a_store(holdfast, keep, tmp_path):
    keep(recorded("welcome", 1), "done")
    folder = tmp_path / "histories"
    folder.mkdir()
    file = folder / "done.json"
    assert holdfast("workflows", "export", "done", "--to", str(file)).exit_code == 0
    assert holdfast("workflows", "export", "done").stdout == file.read_text()
    alone = {"HOLDFAST_STORE": ""}
    assert holdfast("workflows", "check", APP, "--histories", str(folder), env=alone).exit_code == 0
    told = holdfast("workflows", "replay", APP, str(file), env=alone)
    assert 'returned   "hello ann"' in told.stdout, told.stderr
    until = holdfast("workflows", "replay", APP, str(file), "--until", "3", env=alone)
    assert "waits for  activity 3 'greet'" in until.stdout
    assert holdfast("workflows", "replay", APP, "done").exit_code == 0
    flowapp.MODE["name"] = "bob"
    changed = holdfast("workflows", "replay", APP, str(file), env=alone)
    assert changed.exit_code == 1
    assert "event 3 differs" in changed.stdout
    assert holdfast("workflows", "check", APP, "--histories", str(folder), env=alone).exit_code == 1


def test_a_redacted_export_has_no_word_of_the_payloads_and_still_replays(holdfast, keep, tmp_path):
    keep(recorded("welcome", 1), "done")
    file = tmp_path / "done.json"
    assert holdfast("workflows", "export", "done", "--redact", "--to", str(file)).exit_code == 0
    assert "ann" not in file.read_text()
    assert holdfast("workflows", "replay", APP, str(file)).exit_code == 0


def test_the_debugger_opens_where_the_workflow_stands(holdfast, keep):
    keep(recorded("welcome", 3), "done")
    told = holdfast("workflows", "replay", APP, "done", "--until", "3", "--pdb", stdin="p times * 111\nc\n")
    assert "333" in told.stdout, told.stdout + told.stderr
    assert told.exit_code == 0


def test_files_that_are_no_histories_are_refused(holdfast, tmp_path):
    for content in ("", "{}", "[1", '{"kind":"holdfast history","format":1}'):
        file = tmp_path / "x.json"
        file.write_text(content)
        assert holdfast("workflows", "replay", APP, str(file)).exit_code == 7, content
    file.write_text('{"kind":"holdfast history","format":99}')
    assert "newer" in holdfast("workflows", "replay", APP, str(file)).stderr


# --- decisions --------------------------------------------------------------------------------------------------------


def test_a_question_is_listed_shown_and_answered_once(holdfast, rows, keep, opened):
    keep(recorded("ask", moves=1), "q")
    (asked,) = rows("decisions", "ls")
    assert (asked["prompt"], asked["options"], asked["instance"]) == ("Ship it?", ["yes", "no"], "q")
    short = asked["decision_id"][:8]
    assert "yes, no" in holdfast("decisions", "show", short).stdout
    assert holdfast("decisions", "resolve", short, "maybe").exit_code == 2
    assert holdfast("decisions", "resolve", short).exit_code == 2
    assert holdfast("decisions", "resolve", short, "yes").exit_code == 0
    assert holdfast("decisions", "resolve", short, "no").exit_code == 6
    assert rows("decisions", "ls") == []
    assert len(rows("decisions", "ls", "--all")) == 1
    assert holdfast("decisions", "show", "nothing").exit_code == 3
