"""Functions become workflows with the options of the contract, in seconds or as timedelta."""

from datetime import timedelta

import msgspec
import pytest

from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.errors import InvalidArguments, InvalidValue, WorkflowNotAllowed
from holdfast.rules.jobs.retention import WORKFLOWS_S
from holdfast.workflows.api.definitions import Definitions
from holdfast.workflows.api.workflow import Register, demand_outside
from support.flows import World


@pytest.fixture
def register():
    return Register(Definitions(SignatureCodec), SignatureCodec)


def test_options_are_kept_in_seconds(register):
    @register(
        name="other",
        version="2.1.0",
        cancel_grace=timedelta(minutes=2),
        timeout=90,
        raises=(KeyError,),
        turn_timeout=0,
        max_turn_attempts=3,
        compare_inputs=False,
        on_nondeterminism="fail",
        retention=None,
    )
    async def flow(user: int) -> str:
        return str(user)

    made = flow.definition
    assert (flow.name, flow.version, made.cancel_grace_s, made.timeout_s) == ("other", "2.1.0", 120.0, 90)
    assert (made.turn_timeout_s, made.max_turn_attempts, made.retention_s) == (0, 3, None)
    assert (made.raises, made.compare_inputs, made.on_nondeterminism) == ((KeyError,), False, "fail")
    assert not made.is_blocking
    assert flow.__doc__ is None
    assert flow.__name__ == "flow"


def test_defaults_are_those_of_the_contract(register):
    @register
    def flow() -> None:
        return None

    made = flow.definition
    assert (made.name, made.version, made.cancel_grace_s, made.timeout_s) == ("flow", "1.0.0", 60, None)
    assert (made.turn_timeout_s, made.max_turn_attempts, made.compare_inputs) == (60, 10, True)
    # How long it is kept is left to the store, and that is 30 days if nobody says otherwise.
    assert (made.on_nondeterminism, made.retention_s, WORKFLOWS_S) == ("block", msgspec.UNSET, 30 * 86_400)
    assert made.is_blocking


def test_an_unknown_option_is_refused_and_the_known_ones_named(register):
    with pytest.raises(InvalidArguments, match="cancel_grace"):
        register(grace=5)(test_defaults_are_those_of_the_contract)


def test_options_of_a_start_are_checked_at_once(register):
    @register
    async def flow() -> None:
        return None

    with pytest.raises(InvalidValue):
        flow.options(id="x::sub::1-2")
    with pytest.raises(InvalidValue):
        flow.options(version="newest")
    assert flow.options(id="x", version="1.0.0").chosen.id == "x"


def test_a_call_outside_of_a_workflow_is_refused(register):
    @register
    async def flow() -> None:
        return None

    with pytest.raises(WorkflowNotAllowed, match=r"flow\.call"):
        flow.call()
    with pytest.raises(WorkflowNotAllowed, match=r"flow\.start"):
        flow.start_detached()


def test_what_reaches_the_store_is_refused_within_a_workflow():
    async def main() -> str:
        try:
            demand_outside("run.result")
        except WorkflowNotAllowed as problem:
            return str(problem)
        return ""

    demand_outside("run.result")
    world = World()
    assert "run.result" in world.run(world.workflow(main))
