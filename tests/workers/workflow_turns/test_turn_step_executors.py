"""Where steps of turns run: threads of the crew, the worker's loop, the time of the pump."""

import threading
from concurrent.futures import Future

from stintkit import Clockwork

from holdfast.workers.workflow_turns.step_executors import WorkerStage
from holdfast.workers.workflow_turns.thread_pool import Crew

#: Seconds after which a test that hangs is called broken; none waits so long.
LONG = 15


def test_work_is_done_by_a_thread_of_the_crew_and_one_that_hangs_is_replaced():
    crew = Crew(1)
    stage = WorkerStage(crew, Clockwork().alarm, lambda _: Future())
    hangs, goes_on, done, idents = threading.Event(), threading.Event(), threading.Event(), []

    def hang():
        idents.append(threading.get_ident())
        hangs.set()
        goes_on.wait(LONG)

    try:
        stage.hand_in(hang)
        assert hangs.wait(LONG)
        assert idents != [threading.get_ident()]
        stage.hand_in(done.set)
        stage.write_off(idents[0])
        assert done.wait(LONG)
    finally:
        goes_on.set()
        crew.close()


def test_what_is_due_later_waits_for_the_pump_by_its_own_time():
    works = Clockwork()
    stage = WorkerStage(None, works.alarm, lambda _: Future())
    works.sleep()
    work = object()
    stage.later(stage.now() + 5, work)
    assert works.pokes == 1
    assert works.alarm.due(works.time + 4.9) == []
    assert works.alarm.due(works.time + 5) == [work]
