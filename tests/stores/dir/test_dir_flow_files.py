"""Workflows in readable files: what lies where, what becomes of damage, and what people may not do to them."""

from __future__ import annotations

import json
import shutil

import pytest
from dir_kit import Desk

from holdfast.engine import Engine
from holdfast.errors import ProviderError
from holdfast.model.workflows.instances import HistoryRow, Message
from holdfast.stores.check_and_repair import check
from holdfast.stores.dir import DirStore
from holdfast.stores.dir.integrity import repair
from holdfast.testing.conformance.provider_kit import activity, event, patch, signal, start, started
from holdfast.testing.corruption import corrupt_history, corrupt_message
from holdfast.workflows.provider import EventKind, ExecutionMetadata, InstanceFilter, Provider, Status
from support.unsynced import Unsynced

DONE = ExecutionMetadata(status=Status.COMPLETED)


class Flows(Desk):
    """A desk whose store holds instances."""

    @property
    def provider(self):
        return Provider(self.engine)

    @property
    def data(self):
        return self.path / "data"

    def turn(self):
        """Fetch, and give the token."""
        return self.provider.fetch_orchestration_item(30.0)[1]

    def begin(self, name="i", *more, **options):
        self.provider.enqueue_for_orchestrator(start(name))
        self.provider.ack_orchestration_item(self.turn(), 1, [started(name), *more], **options)

    def tree(self):
        """Give every file of instances and messages."""
        places = ("instances", "queues/orchestrator", "queues/parked", "sessions", "decisions", "trash")
        found = (path for place in places for path in (self.data / place).rglob("*"))
        return sorted(str(path.relative_to(self.data)) for path in found if path.is_file())

    def json(self, path):
        return json.loads((self.data / path).read_text())

    def ids(self, name="i"):
        return [one.event_id for one in self.provider.read(name)]


@pytest.fixture
def desk(tmp_path):
    desk = Flows(tmp_path / "store")
    yield desk
    desk.close()


HISTORY = "instances/i/executions/1/history.jsonl"


# --- what lies where --------------------------------------------------------------------------------------------------


def test_each_thing_has_its_file(desk):
    kv = event(2, EventKind.KeyValueSet(key="k", value="v"))
    asked = event(3, EventKind.DecisionRequested(prompt="Go?"))
    desk.begin("i", kv, asked, worker_items=[activity(4)], orchestrator_items=[signal("i"), signal("ghost")])
    desk.turn()
    (question,) = (desk.data / "decisions").iterdir()
    (mail,) = (desk.data / "queues/orchestrator").iterdir()
    (parked,) = (desk.data / "queues/parked").iterdir()
    assert desk.tree() == [
        f"decisions/{question.name}",
        HISTORY,
        "instances/i/executions/1/state.json",
        "instances/i/kv.json",
        "instances/i/lock.json",
        "instances/i/meta.json",
        f"queues/orchestrator/{mail.name}",
        f"queues/parked/{parked.name}",
    ]
    assert (mail.name[16:], parked.name[16:]) == ("-i.json", "-ghost.json")
    assert desk.json("instances/i/meta.json")["orchestrationName"] == "flow"
    assert desk.json("instances/i/kv.json")["keys"] == {"k": {"touched": True, "delta": "v"}}
    lock = desk.json("instances/i/lock.json")
    assert (lock["token"], lock["messages"]) == (2, [int(mail.name[:16])])
    state = desk.json("instances/i/executions/1/state.json")
    assert (state["eventCount"], state["fileBytes"]) == (3, (desk.data / HISTORY).stat().st_size)
    lines = [json.loads(line) for line in (desk.data / HISTORY).read_text().splitlines()]
    assert [line["id"] for line in lines] == [line["event"]["event_id"] for line in lines] == [1, 2, 3]
    assert len(list((desk.data / "tasks/pending").iterdir())) == 1
    assert all(path.stat().st_mode & 0o077 == 0 for path in (desk.data / "instances").rglob("*"))
    desk.demand_sound()


NAMES = [
    "a/b",
    "..",
    ".",
    "A",
    "a",
    "\u00e9",
    "e\u0301",
    "con",
    "x" * 300,
    "ü" * 250,
    "a%2fb",
    " ",
    "../../etc",
    "a\nb",
    "-",
    "~",
]


def test_ids_of_every_shape_have_directories_of_their_own(desk):
    for name in NAMES:
        desk.begin(name)
    folders = [path.name for path in (desk.data / "instances").iterdir()]
    assert len(set(map(str.lower, folders))) == len(NAMES)
    desk.reopen()
    assert sorted(desk.provider.list_instances()) == sorted(NAMES)
    assert all(desk.provider.read(name) == [started(name)] for name in NAMES)
    desk.demand_sound()
    for name in NAMES:
        desk.provider.delete_instance(name, force=True)
    assert list((desk.data / "instances").iterdir()) == []


def test_of_what_is_deleted_nothing_is_left(desk):
    desk.begin("i", event(2, EventKind.KeyValueSet(key="k", value="v")), worker_items=[activity(4)])
    desk.provider.enqueue_for_orchestrator(signal("i"))
    desk.turn()
    desk.provider.delete_instance("i", force=True)
    assert desk.tree() == []
    assert [path for state in ("pending", "running", "failed") for path in desk.ls(state)] == []
    desk.begin("i")
    assert desk.reopen().provider.read("i") == [started("i")]
    desk.demand_sound()


def test_a_lock_on_what_does_not_begin_leaves_no_directory(desk):
    desk.provider.enqueue_for_orchestrator(start("i"))
    token = desk.turn()
    assert desk.tree()[0] == "instances/i/lock.json"
    desk.provider.abandon_orchestration_item(token)
    assert list((desk.data / "instances").iterdir()) == []


def test_what_a_turn_writes_does_not_grow_with_the_history(tmp_path):
    written = []

    class Counting(Unsynced):
        def write(self, h, data):
            written[-1] += len(data)
            return super().write(h, data)

        def read(self, h, size, offset):
            written[-1] += len(found := super().read(h, size, offset))
            return found

    desk = Flows(tmp_path / "store", opened=False)
    written.append(0)
    store = DirStore.open(desk.path, fs=Counting(desk.path, create=True), clock=desk.clock)
    desk.engine = Engine(store, clock=desk.clock)
    desk.begin("i")
    for number in range(40):
        written.append(0)
        desk.provider.enqueue_for_orchestrator(signal("i"))
        found = desk.provider.fetch_orchestration_item(30.0, resident={"i": (1, 1 + number * 50)})
        assert found[0].history == ()
        events = [patch(2 + number * 50 + more) for more in range(50)]
        desk.provider.ack_orchestration_item(found[1], 1, events)
    early, late = sum(written[5:10]) / 5, sum(written[-5:]) / 5
    # A history beyond one piece costs a look at its end.
    assert late < early + 40_000
    assert desk.ids() == list(range(1, 2002))
    desk.close()


def test_events_are_read_from_their_files_and_not_kept_in_memory(desk):
    desk.begin("i", *(patch(number) for number in range(2, 300)))
    with desk.engine.read() as view:
        assert not view.records[HistoryRow]
        assert [row.event_id for row in view.history(next(iter(view.histories.kept)), 290, 3)] == [291, 292, 293]
    with pytest.raises(ProviderError, match="Duplicate event_id 7 in execution 1"):
        desk.provider.append_with_execution("i", 1, [patch(7)])


def test_events_that_came_out_of_order_are_read_in_order(desk):
    desk.begin("i", patch(9), patch(5))
    desk.provider.append_with_execution("i", 1, [patch(7)])
    desk.provider.append_with_execution("i", 1, [patch(12)])
    for _ in range(2):
        assert desk.ids() == [1, 5, 7, 9, 12]
        with desk.engine.read() as view:
            (history_id,) = view.histories.kept
            assert [row.event_id for row in view.history(history_id, 5, 2)] == [7, 9]
        desk.reopen()
    desk.demand_sound()


# --- damage -----------------------------------------------------------------------------------------------------------


def spoilt(desk, how):
    """Damage the history of one instance, with the store closed."""
    desk.begin("i", patch(2), patch(3))
    desk.begin("good")
    desk.close()
    path = desk.data / HISTORY
    text = path.read_bytes()
    lines = text.splitlines(keepends=True)
    match how:
        case "cut short":
            path.write_bytes(text[: len(lines[0]) + 20])
        case "cut at a line":
            path.write_bytes(lines[0])
        case "gone":
            path.unlink()
        case "a bit":
            at = len(lines[0]) + 40
            path.write_bytes(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :])
        case "noughts":
            path.write_bytes(bytes(len(text)))
    desk.open()


SPOILT = ["cut short", "cut at a line", "gone", "a bit", "noughts"]


@pytest.mark.parametrize("how", SPOILT)
def test_a_damaged_history_is_told_and_its_last_event_still_fits(desk, how):
    spoilt(desk, how)
    assert desk.provider.read("good") == [started("good")]
    with pytest.raises(ProviderError, match=r"execution 1, event \d+: cannot be read"):
        desk.provider.read("i")
    assert {finding.code for finding in desk.store.check()} == {"history"}
    assert {finding.id for finding in desk.store.check()} == {"i"}
    desk.provider.enqueue_for_orchestrator(signal("i"))
    item, token, _ = desk.provider.fetch_orchestration_item(30.0)
    assert (item.history, item.history_error is None) == ((), False)
    desk.provider.ack_orchestration_item(token, 1, [patch(99)], metadata=DONE)
    desk.reopen()
    assert desk.provider.get_instance_info("i").status == "Completed"
    with pytest.raises(ProviderError, match="cannot be read"):
        desk.provider.read("i")
    assert b'"id":99' in (desk.data / HISTORY).read_bytes()
    assert desk.quarantined() == {}
    desk.provider.delete_instance("i")
    desk.demand_sound()


def test_what_follows_the_last_event_is_cut_and_kept_beside(desk):
    desk.begin("i", patch(2))
    desk.close()
    path = desk.data / HISTORY
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id":3,"crc":')
    assert [finding.code for finding in check(f"dir:{desk.path}")] == []
    desk.open()
    assert (desk.store.report.torn, path.read_bytes()) == (1, whole)
    assert b"".join(one.read_bytes() for one in path.parent.glob("*.torn.json")) == b'{"id":3,"crc":'
    assert desk.ids() == [1, 2]
    assert desk.reopen().store.report.torn == 0
    desk.demand_sound()


@pytest.mark.parametrize("file", ["meta.json", "kv.json", "executions/1/state.json"])
def test_an_instance_that_cannot_be_read_is_set_aside_whole_and_comes_back_mended(desk, file):
    desk.begin("bad/1", event(2, EventKind.KeyValueSet(key="k", value="v")))
    desk.begin("good")
    desk.provider.enqueue_for_orchestrator(signal("bad/1"))
    desk.close()
    path = desk.data / "instances/bad%2f1" / file
    good = path.read_bytes()
    path.write_bytes(good[:-9])
    assert {finding.code for finding in check(f"dir:{desk.path}")} >= {"file_damaged"}
    plan = repair.plan(str(desk.path))
    assert not plan.is_needed
    assert "The next opening sets it aside, with all in it" in plan.lines[0]
    desk.open()
    assert desk.provider.list_instances() == ["good"]
    assert desk.provider.fetch_orchestration_item(30.0) is None
    (aside,) = [one for one in (desk.data / "quarantine").iterdir() if one.is_dir()]
    assert [one.file for one in desk.store.check() if one.code == "quarantined"] == [f"data/quarantine/{aside.name}"]
    desk.close()
    assert not repair.plan(str(desk.path)).is_needed
    (aside / file).write_bytes(good)
    plan = repair.plan(str(desk.path))
    assert plan.is_needed
    plan.apply()
    desk.open()
    assert desk.provider.get_kv_all_values("bad/1") == {"k": "v"}
    assert desk.provider.fetch_orchestration_item(30.0)[0].messages == (signal("bad/1"),)
    desk.demand_sound()


def test_a_lock_that_cannot_be_read_is_no_lock(desk):
    desk.begin("i")
    desk.provider.enqueue_for_orchestrator(signal("i"))
    desk.turn()
    desk.close()
    (desk.data / "instances/i/lock.json").write_bytes(b"{")
    desk.open()
    item, token, attempts = desk.provider.fetch_orchestration_item(30.0)
    assert (item.messages, attempts, int(token)) == ((signal("i"),), 1, 3)
    assert len(desk.quarantined()) == 1


def test_a_message_that_cannot_be_read_is_set_aside_and_the_others_go_on(desk):
    desk.begin("i")
    for data in "12":
        desk.provider.enqueue_for_orchestrator(signal("i", data))
    desk.turn()
    desk.close()
    first, _ = sorted((desk.data / "queues/orchestrator").iterdir())
    first.write_bytes(b"\0" * 50)
    desk.open()
    item, token, attempts = desk.provider.fetch_orchestration_item(30.0)
    assert (item.messages, attempts) == ((signal("i", "2"),), 2)
    desk.provider.ack_orchestration_item(token, 1)
    desk.demand_sound(quarantined=1)


def test_corruption_on_request_is_there_after_reopening(desk):
    desk.begin("i", patch(2))
    corrupt_history(desk.store, "i")
    with pytest.raises(ProviderError, match="execution 1, event 1: cannot be read"):
        desk.reopen().provider.read("i")
    desk.provider.enqueue_for_orchestrator(signal("i"))
    corrupt_message(desk.store, "i")
    assert desk.provider.fetch_orchestration_item(30.0) is None
    assert desk.reopen().provider.get_queue_depths().parked == 1


# --- people -----------------------------------------------------------------------------------------------------------


def test_what_people_put_among_instances_and_messages_is_no_instance_and_no_message(desk):
    desk.begin("i")
    desk.provider.enqueue_for_orchestrator(signal("i"))
    desk.close()
    (mail,) = (desk.data / "queues/orchestrator").iterdir()
    shutil.copy(mail, mail.with_name("0000000000000099-i.json"))
    shutil.copytree(desk.data / "instances/i", desk.data / "instances/copy")
    (desk.data / "instances/link").symlink_to(desk.data / "instances/i")
    (desk.data / "instances/note.txt").write_text("hello")
    desk.open()
    assert desk.provider.list_instances() == ["i"]
    assert len(desk.provider.fetch_orchestration_item(30.0)[0].messages) == 1
    assert desk.store.report.quarantined == 2
    assert (desk.data / "instances/link").is_symlink()
    assert {finding.code for finding in desk.store.check()} == {"quarantined", "file_unknown"}


def test_an_edit_while_the_store_is_open_is_told_and_overwritten(desk):
    desk.begin("i")
    path = desk.data / "instances/i/meta.json"
    path.write_text(path.read_text().replace('"flow"', '"wolf"'))
    assert [finding.code for finding in desk.store.check()] == ["file_differs"]
    desk.provider.enqueue_for_orchestrator(signal("i"))
    desk.provider.ack_orchestration_item(desk.turn(), 1)
    assert desk.provider.get_instance_info("i").orchestration_name == "flow"
    desk.demand_sound()


def test_a_pending_activity_whose_file_is_taken_away_fails_and_its_workflow_hears_it(desk):
    desk.begin("i", worker_items=[activity(2)])
    (path,) = (desk.data / "tasks/pending").iterdir()
    path.unlink()
    desk.settle(running=True)
    (message,) = desk.provider.fetch_orchestration_item(30.0)[0].messages
    assert (message.details.kind, message.id) == ("Cancelled", 2)


def test_what_retention_and_filters_delete_goes_from_the_disk(desk):
    for name in ("a", "b"):
        desk.begin(name, metadata=DONE)
    desk.begin("c")
    assert desk.provider.delete_instance_bulk(InstanceFilter()).instances_deleted == 2
    assert {path.split("/")[1] for path in desk.tree()} == {"c"}
    with desk.engine.read() as view:
        assert not list(view.all(Message))
