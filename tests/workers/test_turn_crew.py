"""The threads that run turns: those that hang are replaced, for what waits as for what comes."""

import threading

from holdfast.workers.turns.crew import Crew

#: Seconds after which a test that hangs is called broken; none waits so long.
LONG = 15


def test_what_waited_for_a_thread_that_is_written_off_is_done_by_another():
    crew = Crew(1)
    hangs, goes_on, done = threading.Event(), threading.Event(), threading.Event()
    stuck = []

    def hang():
        stuck.append(threading.get_ident())
        hangs.set()
        goes_on.wait(LONG)

    crew.put(hang)
    assert hangs.wait(LONG)
    crew.put(done.set)
    crew.write_off(stuck[0])
    try:
        assert done.wait(LONG)
    finally:
        goes_on.set()
        crew.close()


def test_a_thread_that_comes_back_after_it_was_written_off_takes_no_more_work():
    crew = Crew(1)
    hangs, goes_on = threading.Event(), threading.Event()
    threads = []

    def hang():
        threads.append(threading.current_thread())
        hangs.set()
        goes_on.wait(LONG)

    crew.put(hang)
    assert hangs.wait(LONG)
    crew.write_off(threads[0].ident)
    goes_on.set()
    threads[0].join(LONG)
    assert not threads[0].is_alive()
    crew.close()
