"""Activities in processes of their own: what they raise, and their key, cross two processes unharmed."""

from typing import Any

import process_app
import pytest
from turnskit import App

from holdfast.errors import ActivityError
from holdfast.model.workflows.history import activity_key


@pytest.fixture
def app():
    made = App("", hf=process_app.hf)
    yield made
    made.close()


def test_what_a_child_process_raised_is_met_again_in_the_workflow(app):
    fails = app.as_activity(process_app.raises_with_cause, max_attempts=1)

    @app.workflow
    async def flow() -> list[Any]:
        try:
            await fails.call()
        except ValueError as problem:
            details = problem.details
            return [
                isinstance(problem, ActivityError),
                list(problem.args),
                details.cause.type_name,
                "Exception" in details.type_bases,
                "raises_with_cause" in problem.traceback_text,
            ]
        return []

    app.start(flow)
    app.settle()
    assert app.result() == [True, [402, "declined"], "KeyError", True, True]


def test_a_child_process_knows_the_key_of_its_activity(app):
    key = app.as_activity(process_app.key)

    @app.workflow
    async def flow() -> str:
        return await key.call()

    app.start(flow)
    app.settle()
    assert app.result() == activity_key("i", 1, 2)
