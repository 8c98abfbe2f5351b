"""Turns run by hand: one after the other, through a provider, in the thread that asks.

There is no second way of running a turn. What it decides is the runtime's, what becomes durable the provider's; only
who waits differs from a worker. The order that matters: a step's outcome is committed before the next step is begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from holdfast.model.error_details import ErrorDetails
from holdfast.model.times import milliseconds
from holdfast.model.workflows.block_reasons import blocked_reason
from holdfast.model.workflows.history import OrchestrationItem, TurnCommit
from holdfast.workflows.api.definitions import Definitions
from holdfast.workflows.api.idempotency import running_key
from holdfast.workflows.api.steps import StepCall
from holdfast.workflows.provider import Provider
from holdfast.workflows.runtime.execution import Execution
from holdfast.workflows.runtime.turn import Turn, run_turn

#: Seconds that a turn's lock lives.
LOCK_S = 30.0
#: Seconds until what is blocked is tried again: others go first.
BLOCKED_S = 1.0


class RunsSteps:
    """Runs the steps of workflows, where it is asked to."""

    def run_step(self, call: StepCall) -> str | ErrorDetails:
        """Run a step's function, and return its outcome."""
        token = running_key.set(lambda: call.idempotency_key)
        try:
            value = self.run_async(call.function(*call.args, **call.kwargs))
        except Exception as problem:  # noqa: BLE001 - users' code: whatever it raises is its outcome
            return call.failure(problem)
        finally:
            running_key.reset(token)
        return call.outcome(value)

    def run_async(self, value: Any) -> Any:
        """Run a coroutine to its end. Leave any other value alone."""
        return asyncio.run(value) if asyncio.iscoroutine(value) else value


class Turning(RunsSteps):
    """Runs turns of what is defined, and keeps instances resident in between."""

    def __init__(self, definitions: Definitions, *, sticky: bool = True) -> None:
        """Keep no instance resident unless `sticky`."""
        self._definitions = definitions
        self._sticky = sticky
        self._residents: dict[str, Execution] = {}

    def turn_once(self, provider: Provider, seed: int) -> bool:
        """Run the turn of the first instance that something came in for; False if there is none.

        `seed` is an execution's that begins here. Raises what blocks an instance.
        """
        fetched = provider.fetch_orchestration_item(LOCK_S)
        if fetched is None:
            return False
        item, token, _ = fetched
        resident = self._residents.pop(item.instance, None)
        turn = run_turn(self._definitions, item, now_ms=_now_ms(provider), seed=seed, resident=resident)
        if turn.abandoned is not None:
            delay_s, reason = turn.abandoned.delay_s, turn.abandoned.reason
            provider.abandon_orchestration_item(token, delay_s, ignore_attempt=True, reason=reason)
            return True
        try:
            self._run(provider, token, turn, item)
        except BaseException:
            turn.discard()
            raise
        return True

    def _run(self, provider: Provider, token: str, turn: Turn, item: OrchestrationItem) -> None:
        waiting: list[StepCall] = []
        while not turn.is_idle:
            if turn.must_commit:
                self._commit(provider, token, turn, item, hold=True)
            waiting.extend(turn.take_steps())
            stopped = turn.take_stopped_steps()
            waiting = [call for call in waiting if call.step_no not in stopped]
            if waiting:
                call = waiting.pop(self.choose_step(waiting))
                turn.finish_step(call.step_no, self.run_step(call), _now_ms(provider))
        if turn.blocked is not None:
            reason = blocked_reason(turn.blocked.kind, turn.blocked.text)
            provider.abandon_orchestration_item(token, BLOCKED_S, ignore_attempt=True, reason=reason)
            raise turn.blocked.error
        self._commit(provider, token, turn, item)
        if turn.stage == "running" and turn.execution is not None:
            if self._sticky:
                self._residents[item.instance] = turn.execution
            else:
                turn.execution.close(clean_up=False)

    def _commit(
        self, provider: Provider, token: str, turn: Turn, item: OrchestrationItem, *, hold: bool = False
    ) -> None:
        commit = turn.commit(hold_until_ms=_now_ms(provider) + round(LOCK_S * 1000) if hold else None)
        commit = self.before_commit(item, commit)
        provider.ack_orchestration_item(
            token,
            commit.execution_id,
            commit.history_delta,
            commit.worker_items,
            commit.orchestrator_items,
            commit.metadata,
            commit.cancelled_activities,
            cancelled_timers=commit.cancelled_timers,
            hold=LOCK_S if hold else None,
        )

    def choose_step(self, waiting: Sequence[StepCall]) -> int:
        """Say which of the steps under way ends first."""
        del waiting
        return 0

    def before_commit(self, item: OrchestrationItem, commit: TurnCommit) -> TurnCommit:
        """See, or change, what is about to become durable."""
        del item
        return commit

    def forget(self) -> None:
        """Lose all residents, as a process that died."""
        residents, self._residents = self._residents, {}
        for execution in residents.values():
            execution.close(clean_up=False)


def _now_ms(provider: Provider) -> int:
    return milliseconds(provider.engine.look().now)
