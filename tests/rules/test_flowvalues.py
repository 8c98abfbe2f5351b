"""What commands about instances may say."""

from __future__ import annotations

import pytest

from holdfast.model.flowcommands import DeleteInstances
from holdfast.rules.flowvalues import flow_problem_with


@pytest.mark.parametrize("ids", [(), ("a", "b")])
def test_a_tree_is_deleted_by_its_one_root(ids):
    refusal = flow_problem_with(DeleteInstances(instance_ids=ids, tree=True))
    assert refusal is not None
    assert "one root" in refusal.message


def test_a_root_named_twice_is_one():
    assert flow_problem_with(DeleteInstances(instance_ids=("a", "a"), tree=True)) is None
    assert flow_problem_with(DeleteInstances(instance_ids=("a", "b"))) is None
