"""The gate of an execution: its code may ask while it runs, and nobody may after its end."""

from types import SimpleNamespace

import pytest

from holdfast.errors import WorkflowNotAllowed
from holdfast.workflows.runtime import command_gate as gates
from holdfast.workflows.runtime.command_gate import MANY_REFUSALS, Gate, Halt


def loop(*, halted=False, running=True):
    return SimpleNamespace(halted=halted, is_running=lambda: running)


def test_code_that_runs_in_its_loop_may_ask_as_often_as_it_likes():
    gate = Gate("i")
    for _ in range(3 * MANY_REFUSALS):
        gate.demand_open(loop())
        gate.demand_alive()


def test_code_of_a_loop_that_halts_leaves_for_good():
    with pytest.raises(Halt):
        Gate("i").demand_open(loop(halted=True))


def test_halt_passes_by_code_that_catches_every_exception():
    assert not issubclass(Halt, Exception)


def test_what_is_asked_for_after_the_end_is_refused_in_a_loop_that_halts_too():
    gate = Gate("order-7")
    gate.is_over = True
    for halted in (False, True):
        with pytest.raises(WorkflowNotAllowed, match="order-7") as refused:
            gate.demand_open(loop(halted=halted))
        assert refused.value.facts["instance"] == "order-7"


def test_what_is_asked_for_outside_of_the_loop_or_by_a_finaliser_is_refused(monkeypatch):
    gate = Gate("i")
    with pytest.raises(WorkflowNotAllowed):
        gate.demand_open(loop(running=False))
    monkeypatch.setattr(gates, "is_collecting", lambda: True)
    with pytest.raises(WorkflowNotAllowed):
        gate.demand_open(loop())


def test_code_that_asks_again_and_again_after_the_end_is_left_by_force_and_then_made_to_wait():
    gate = Gate("i")
    gate.is_over = True
    for _ in range(MANY_REFUSALS):
        with pytest.raises(WorkflowNotAllowed):
            gate.demand_open(loop())
    for _ in range(MANY_REFUSALS):
        with pytest.raises(Halt):
            gate.demand_open(loop())
        with pytest.raises(Halt):
            gate.demand_alive()
    with pytest.raises(Halt):
        gate.demand_open(loop())
    gate.demand_alive()  # it catches even that: it waits, and is left where it stands
