"""An access token for some namespaces reads, leases and changes nothing of others, by no command and by no look-up."""

from __future__ import annotations

import hashlib
from typing import get_args

import msgspec
import pytest
from coordinators import running
from everycommand import HISTORY, LAST, NOW

from holdfast.errors import Forbidden
from holdfast.model.access import Access, Role
from holdfast.model.commands import Command
from holdfast.model.jobs import Job
from holdfast.model.logs import LogLine
from holdfast.model.outcomes import Refusal
from holdfast.model.templates import Template
from holdfast.model.workers import Wish, WorkerInfo
from holdfast.rules.access.roles import _OWN
from holdfast.rules.access.visibility import OF_THING, SIEVED
from holdfast.rules.state import Lane
from holdfast.stores.http.lookups import LOOK_UPS
from holdfast.stores.http.store import HttpStore
from holdfast.stores.protocol import DeliveryQuery, GroupQuery, InstanceQuery, JobQuery, StartQuery
from holdfast.testing import ManualClock

EVERYTHING = Access(name="all", roles=(Role.ADMIN,), digest=hashlib.sha256(b"all").hexdigest())
#: May do everything, in a namespace where there is nothing.
WITHIN = Access(name="within", roles=tuple(Role), namespaces=("home",), digest=hashlib.sha256(b"within").hexdigest())
SPOT = ("", "default")
JOB = Job("a", "work", params=msgspec.Raw(b"{}"), created_at=NOW)
#: Every look-up, asked about what the history leaves in the namespace without a name.
LOOKS = {
    "active_of": ("s",),
    "activities": ("w",),
    "activities_of": ("i",),
    "affinities": (["w"],),
    "all": (Job,),
    "band": (*SPOT, 0),
    "bands": SPOT,
    "beginnings": ("i",),
    "begun_by": ("s",),
    "beside": (JOB,),
    "by_name": (Template, "", "t"),
    "candidates": (NOW,),
    "children": ("i",),
    "counts": (),
    "decisions": ("i",),
    "deliveries": (DeliveryQuery(webhook_id="w"),),
    "direct": SPOT,
    "due": (Lane.LEASE, NOW),
    "edge": (*SPOT, 0),
    "ended": SPOT,
    "ended_beyond": SPOT,
    "ended_queues": (),
    "execution_of": (1,),
    "executions": ("i",),
    "flow_totals": (),
    "get": (Job, "a"),
    "granted_by": ("c1",),
    "groups": (GroupQuery(),),
    "held_by": ("s",),
    "history": (1,),
    "ids_with_prefix": ("a", 5),
    "instances": (InstanceQuery(),),
    "is_spoken_of": ("x",),
    "jobs": (JobQuery(),),
    "keys": ("i",),
    "last_run": ("a",),
    "leased": (1,),
    "live_groups": (),
    "local_leases": (),
    "local_turns": (),
    "mail": ("i",),
    "mail_totals": (NOW,),
    "members": ("many",),
    "next_due": (Lane.LEASE,),
    "owned_queues": (),
    "queued": SPOT,
    "ready": ("", ["default"], None, NOW),
    "reservation": SPOT,
    "run_by_token": ("a", 1),
    "running": SPOT,
    "running_of": ("s",),
    "running_with": ("", "k"),
    "runs": ("a",),
    "schedules_of": ("t",),
    "starts": (*SPOT, None, NOW),
    "starts_under": ("i",),
    "stuck_turns": (),
    "successors": ("e",),
    "timers": ("i", 1, 1),
    "turn_by_token": (8,),
    "turn_of": ("many",),
    "unbegun": (StartQuery(),),
    "unfollowed": (),
    "visible": ("i", NOW),
    "webhooks": ("",),
}
MORE = {"beside": {"after": True}, "edge": {"last": True}, "ended": {"failed": False, "until": NOW}}
MORE["ended_beyond"] = {"failed": False, "keep": 1}


@pytest.fixture(scope="module")
def tried():
    """A coordinator where everything has happened that can, and each of it was tried from within a namespace first."""
    clock = ManualClock()
    with running("memory:", clock=clock, accesses=[EVERYTHING, WITHIN]) as serving:
        everything = HttpStore.open(serving.url, access_token="all", clock=clock)
        within = HttpStore.open(serving.url, access_token="within", clock=clock)
        with_nothing = within.decide(HISTORY)
        refused = []
        for command in HISTORY:
            refused += [(command, outcome) for outcome in within.decide([command])]
            everything.decide([command])
        assert [outcome for _, outcome in refused] == with_nothing  # what there is elsewhere does not show
        refused += [(LAST, outcome) for outcome in within.decide([LAST])]
        yield everything, within, refused
        everything.close()
        within.close()


def test_no_kind_of_command_changes_anything_elsewhere(tried):
    everything, _, refused = tried
    assert {type(command) for command, _ in refused} == set(get_args(Command)) - set(_OWN)
    assert [(command, outcome) for command, outcome in refused if not isinstance(outcome, Refusal)] == []
    by_hand = {outcome.code for _, outcome in refused}
    assert "forbidden" in by_hand
    assert all(code == "forbidden" or code.endswith("not_found") for code in by_hand), by_hand
    assert all(b'"within"' not in bytes(entry.event) for entry in everything.feed(0))


def test_every_look_up_is_tried():
    assert list(LOOKS) == sorted(LOOK_UPS)


@pytest.mark.parametrize("look", sorted(LOOKS))
def test_no_look_up_shows_anything_of_elsewhere(tried, look):
    everything, within, _ = tried

    def found(store):
        with store.read() as view:
            seen = getattr(view, look)(*LOOKS[look], **MORE.get(look, {}))
            return list(seen) if LOOK_UPS[look].is_walk or LOOK_UPS[look].result_is_list else seen

    found(everything)
    if look == "next_due":  # a time alone
        assert found(within) is None
    elif look in OF_THING | SIEVED:  # what they may not see is not there
        assert not found(within)
    else:
        with pytest.raises(Forbidden):
            found(within)


def test_no_feed_no_lines_and_no_workers_of_others_are_reached(tried):
    everything, within, _ = tried
    with pytest.raises(Forbidden):
        list(within.feed(0))
    with everything.read() as view:
        (run,) = view.runs("a")
    with pytest.raises(Forbidden):
        within.logs.read(run.run_id)
    with pytest.raises(Forbidden):
        within.logs.add([(run.run_id, LogLine(NOW, "log", "INFO", "mine"))])
    with pytest.raises(Forbidden):
        within.workers.ask("w", Wish.STOP)
    mine = WorkerInfo(worker_id="w", name="w", host="h", pid=1, version="1", started_at=NOW, last_seen=NOW)
    everything.workers.note(mine)
    assert within.workers.all() == []
    for change in (lambda: within.workers.drop("w"), lambda: within.workers.note(mine)):
        with pytest.raises(Forbidden):
            change()
    with pytest.raises(Forbidden):
        within.workers.note(msgspec.structs.replace(mine, namespace="home"))
    assert [one.namespace for one in everything.workers.all()] == [""]
    everything.workers.drop("w")
    assert everything.logs.read(run.run_id) == []
