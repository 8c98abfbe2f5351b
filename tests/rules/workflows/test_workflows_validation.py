"""What commands about instances may say."""

from __future__ import annotations

import pytest

from holdfast.model.workflows.commands import (
    AbandonActivity,
    AbandonTurn,
    CleanSessions,
    DeleteEnded,
    DeleteInstances,
    FetchMore,
    ParkMessages,
    RenewActivity,
    RenewTurn,
)
from holdfast.rules.workflows.validation import flow_problem_with


@pytest.mark.parametrize("ids", [(), ("a", "b")])
def test_a_tree_is_deleted_by_its_one_root(ids):
    refusal = flow_problem_with(DeleteInstances(instance_ids=ids, tree=True))
    assert refusal is not None
    assert "one root" in refusal.message


def test_a_root_named_twice_is_one():
    assert flow_problem_with(DeleteInstances(instance_ids=("a", "a"), tree=True)) is None
    assert flow_problem_with(DeleteInstances(instance_ids=("a", "b"))) is None


#: One more than what fits.
BEYOND = 1 << 63


@pytest.mark.parametrize(
    "command",
    [
        AbandonActivity(token=BEYOND),
        AbandonTurn(token=-BEYOND - 1),
        FetchMore(token=BEYOND),
        RenewActivity(token=BEYOND, lease_s=1.0),
        RenewTurn(token=BEYOND, lock_s=1.0),
        ParkMessages(token=1, messages=(BEYOND,)),
        DeleteEnded(limit=BEYOND),
        CleanSessions(limit=BEYOND),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_number_that_no_store_can_hold_is_refused(command):
    assert flow_problem_with(command) is not None
