"""Every kind of command, through a line that loses, cuts or doubles each request once: the same happens as without."""

from __future__ import annotations

import re
from typing import get_args

import msgspec
import pytest
from coordinators import running
from everycommand import HISTORY, LAST

from holdfast.model.commands import Command
from holdfast.model.outcomes import Leased, Refusal, encode_outcome
from holdfast.rules.access.roles import _OWN
from holdfast.stores.http.store import HttpStore
from holdfast.testing import ManualClock
from support.faultproxy import Fault, FaultProxy, first_time

FAULTS = sorted({Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.CUT_REQUEST, Fault.CUT_ANSWER, Fault.TWICE})
pytestmark = pytest.mark.usefixtures("brief_pauses")

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
#: Kinds that are refused here: their refusal is what must be the same.
REFUSED = {"answer_decision", "fail_instance", "reset_instance", "redeliver"}
NAMED = [msgspec.structs.replace(command, cmd=f"c{number}") for number, command in enumerate([*HISTORY, LAST])]


def told(texts):
    """Give texts with ids that were drawn by lot numbered in their order."""
    names = {}
    return [UUID.sub(lambda found: names.setdefault(found[0], f"#{len(names)}"), text) for text in texts]


def lived(url, fault, batches):
    """Live through the history; give the outcomes and the events."""
    with (
        running(url, clock=ManualClock()) as serving,
        FaultProxy(serving.url, first_time(fault, only=b"/commands")) as proxy,
    ):
        store = HttpStore.open(proxy.url)
        outcomes = [outcome for batch in batches for outcome in store.decide(batch)]
        entries = [bytes(entry.event).decode() for entry in store.feed(0)]
        store.close()
    # What the coordinator does by itself, about deliveries, has its own time.
    return outcomes, told(one for one in entries if '"delivery:' not in one)


@pytest.fixture(scope="module")
def unharmed():
    return {size: lived("memory:", Fault.NONE, batches(size)) for size in (1, 7)}


def batches(size):
    return [*(NAMED[:-1][at : at + size] for at in range(0, len(HISTORY), size)), NAMED[-1:]]


def said(outcomes):
    """Give outcomes as text, without what only says that it was asked before."""
    texts = (_granted(outcome) or encode_outcome(outcome).decode() for outcome in outcomes)
    return told(re.sub(r',"(created|duplicate)":(true|false)', "", text) for text in texts)


def _granted(outcome):
    """Of leases: what was granted. A repeat shows the jobs as they are by then."""
    return (
        str([(grant.job.job_id, grant.token, grant.run_id) for grant in outcome.grants])
        if isinstance(outcome, Leased)
        else ""
    )


def test_every_kind_that_may_be_sent_is_in_the_history_and_does_something(unharmed):
    assert {type(command) for command in NAMED} == set(get_args(Command)) - set(_OWN)
    outcomes, _ = unharmed[1]
    refused = {
        (command.__struct_config__.tag, outcome.code, outcome.message)
        for command, outcome in zip(NAMED, outcomes, strict=True)
        if isinstance(outcome, Refusal)
    }
    assert {tag for tag, *_ in refused} == REFUSED, refused


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("size", [1, 7])
def test_what_happens_to_the_line_changes_nothing(unharmed, fault, size):
    outcomes, events = lived("memory:", fault, batches(size))
    assert events == unharmed[size][1]
    if size == 1:
        # Of a batch that is sent again, the answers speak of what is so when all of it has happened. So does the last
        # command, which finds nothing left to forget.
        assert said(outcomes[:-1]) == said(unharmed[size][0][:-1])
