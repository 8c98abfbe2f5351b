"""Consequences: what a decision brings about beyond what was asked for, in the same commit.

Called once for every decision that has events, whatever the command was: a report, an expiry, a cancellation. First
groups, whose effects end runs, too; then whoever wants to be told of an ended run, and workflows that wait for a job.
"""

from __future__ import annotations

from typing import get_args

from holdfast.model.events.workflows import FlowEvent
from holdfast.model.times import Timestamp
from holdfast.rules.decision import Decision
from holdfast.rules.groups.effects import group_effects
from holdfast.rules.random_source import Draws
from holdfast.rules.state import State
from holdfast.rules.webhooks.deliveries import owed
from holdfast.rules.workflows.job_results import told_owners

#: Events of instances alone: nothing follows from them here. Turns have no others, and there are many turns.
_WITHOUT = frozenset(get_args(FlowEvent))


def follow(state: State, decision: Decision, now: Timestamp, draws: Draws) -> Decision:
    """Give the decision with the events that follow from its own."""
    if _WITHOUT.issuperset(map(type, decision.events)):
        return decision
    added = group_effects(state, decision.events, now, draws)
    events = (*decision.events, *added) if added else decision.events
    told = (*owed(state, events), *told_owners(state, events, now))
    return Decision((*events, *told), decision.outcome) if added or told else decision
