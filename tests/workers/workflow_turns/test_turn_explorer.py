"""Orders of events around the turns of workers: no message is lost, and every instance ends, in any of them."""

import asyncio
import itertools
import os

import pytest
from turn_explorer import Program, Tally, every_order, random_orders

from holdfast.model.workflows.decisions import ANSWERS
from holdfast.model.workflows.work_items import QueueMessage
from holdfast.workers.workflow_turns.machine import Effect, Phase, TurnMachine
from holdfast.workflows.api import context as face
from holdfast.workflows.runtime.completion import next_execution
from holdfast.workflows.runtime.turn import Turn

SOAK = "HOLDFAST_SOAK" in os.environ
#: Random schedules of each program and way to end a worker; orders tried one by one, and their depth.
SEEDS, ORDERS, DEPTH = (2000, 3000, 5) if SOAK else (40, 60, 3)


def one() -> int:
    return 1


def signal(data):
    return lambda app: app.signal("go", data)


def steps_and_signals(app):
    @app.workflow
    async def flow() -> list[int]:
        got = []
        for _ in range(3):
            await face.step(one)
            got.append(await face.signal("go"))
        return got

    return flow


def activities_beside_steps(app):
    @app.activity
    def remote() -> int:
        return 1

    @app.workflow
    async def flow() -> list[int]:
        first = await asyncio.gather(remote.call(), face.step(one), face.signal("go"))
        return [*first, await face.step(one), await remote.call()]

    return flow


def timer_beside_steps(app):
    @app.workflow
    async def flow() -> list[int]:
        got = []
        for _ in range(2):
            await asyncio.gather(face.sleep(1), face.step(one))
            got.append(await face.step(one))
        return [*got, await face.signal("go")]

    return flow


def cancelled(app):
    @app.workflow
    async def flow() -> str:
        try:
            for _ in range(4):
                await face.step(one)
            await face.signal("never")
        except asyncio.CancelledError:
            await face.step(one)
            return "cleaned up"
        return "?"

    return flow


def parent_and_child(app):
    @app.workflow
    async def child(n: int) -> int:
        await face.step(one)
        return n + await face.step(one)

    @app.workflow
    async def flow() -> list[int]:
        first = await asyncio.gather(child.call(1), face.step(one), face.signal("go"))
        return [*first, await child.call(2)]

    return flow


def continued(app):
    @app.workflow
    async def flow(got: list[int] | None = None) -> list[int]:
        got = [*(got or []), await face.signal("go")]
        await face.step(one)
        if len(got) < 3:
            face.continue_as_new(got)
        return got

    return flow


def question(app):
    @app.workflow
    async def flow() -> list[str | int]:
        chosen, _ = await asyncio.gather(face.decision("Go on?", options=["yes", "no"]), face.step(one))
        return [chosen, await face.step(one), await face.signal("go")]

    return flow


def answer(app):
    """Answer the question of the instance as a person would, once it is asked."""
    with app.hf.engine.read() as view:
        asked = list(view.decisions("i"))
    if asked:
        data = '{"chosen":"yes","by":"me"}'
        app.provider.enqueue_for_orchestrator(
            QueueMessage(instance="i", name=f"{ANSWERS}{asked[0].event_id}", data=data)
        )
        return True
    return False


PROGRAMS = [
    Program(
        "steps and signals",
        steps_and_signals,
        [[signal(1), signal(2)], [signal(3)]],
        lambda got: sorted(got) == [1, 2, 3],
    ),
    Program(
        "activities beside steps",
        activities_beside_steps,
        [[signal(5)]],
        lambda got: got == [1, 1, 5, 1, 1],
        has_activities=True,
    ),
    Program("timer beside steps", timer_beside_steps, [[signal(5)]], lambda got: got == [1, 1, 5], timers_s=2.0),
    Program("cancelled", cancelled, [[lambda app: app.cancel()]], lambda got: got == "cleaned up"),
    Program("parent and child", parent_and_child, [[signal(5)]], lambda got: got == [2, 1, 5, 3]),
    Program("continued", continued, [[signal(1), signal(2)], [signal(3)]], lambda got: sorted(got) == [1, 2, 3]),
    Program("question", question, [[answer, signal(5)]], lambda got: got == ["yes", 1, 5]),
]
ENDINGS = ["", "drain", "stop", "kill"]


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending or "undisturbed")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name.replace(" ", "-"))
def test_every_message_is_kept_and_every_instance_ends_in_any_order(program, ending):
    tally = Tally()
    random_orders(program, range(SEEDS), 60, ending, tally)
    for skip in (4, 12, 20):
        every_order(program, DEPTH, skip, ending, tally, ORDERS // 3)
    print(f"{program.name}, {ending or 'undisturbed'}: {tally}")
    assert tally.schedules >= SEEDS
    assert tally.messages


# --- planted defects --------------------------------------------------------------------------------------------------


def acks_remove_all_that_the_lock_holds(patch):
    """The defect that lost messages: a commit is made beside what was fetched and not delivered, and removes it."""

    def may_commit(machine, turn):
        if turn.is_sending or turn.is_over:
            return False
        turn.is_sending = True
        return True

    patch.setattr(TurnMachine, "may_commit", may_commit)
    patch.setattr(Turn, "_take_handled", lambda turn: None)


def inputs_are_forgotten_while_a_thread_plays(patch):
    played = TurnMachine.played

    def forgetful(machine, turn, report, now):
        turn.inbox.clear()
        return played(machine, turn, report, now)

    patch.setattr(TurnMachine, "played", forgetful)


def answered_commits_do_not_wake_their_turn(patch):
    play = TurnMachine._play

    def asleep(machine, turn):
        if turn.inbox:
            play(machine, turn)

    patch.setattr(TurnMachine, "_play", asleep)


def steps_that_end_beside_a_commit_are_forgotten(patch):
    step_ended = TurnMachine.step_ended

    def forgetful(machine, turn, step_no, outcome):
        if not turn.is_sending:
            step_ended(machine, turn, step_no, outcome)

    patch.setattr(TurnMachine, "step_ended", forgetful)


def workers_that_stop_keep_their_locks(patch):
    patch.setattr(TurnMachine, "give_back", lambda machine, turn, *_, **__: machine._end(turn))


def instances_given_back_sleep_until_their_lock_would_have_ended(patch):
    patch.setattr("holdfast.rules.workflows.turns._wakers", lambda state, turn: ())


def two_threads_play_one_turn(patch):
    def play(machine, turn):
        if not turn.is_over:
            turn.phase = Phase.QUEUED
            machine._expect(turn, coming=True)
            machine.effects.append(Effect("play", turn))

    patch.setattr(TurnMachine, "_play", play)


def signals_are_not_carried_over(patch):
    patch.setattr("holdfast.workflows.runtime.turn.next_execution", lambda run, to, late: next_execution(run, to, []))


DEFECTS = {
    acks_remove_all_that_the_lock_holds: "",
    inputs_are_forgotten_while_a_thread_plays: "",
    answered_commits_do_not_wake_their_turn: "",
    steps_that_end_beside_a_commit_are_forgotten: "drain",
    workers_that_stop_keep_their_locks: "stop",
    instances_given_back_sleep_until_their_lock_would_have_ended: "drain",
    two_threads_play_one_turn: "",
    signals_are_not_carried_over: "",
}


@pytest.mark.parametrize(("defect", "ending"), DEFECTS.items(), ids=lambda one: getattr(one, "__name__", one))
def test_planted_defect_is_found(defect, ending, monkeypatch):
    defect(monkeypatch)
    tally = Tally()
    with pytest.raises(AssertionError) as found:  # noqa: PT012 - how many schedules it takes is not known
        for seed, program in itertools.product(range(200), PROGRAMS):
            random_orders(program, range(seed, seed + 1), 60, ending, tally)
    print(f"{defect.__name__}: found after {tally}: {str(found.value).splitlines()[0]}")
