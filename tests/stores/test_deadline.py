import asyncio
import threading
from math import inf

from holdfast.stores.deadline import deadline, keeping_to


def test_who_says_nothing_waits_without_limit():
    assert deadline() == inf


def test_nobody_inside_waits_longer_than_whoever_is_outside():
    with keeping_to(10):
        with keeping_to(20):
            assert deadline() == 10
        with keeping_to(5):
            assert deadline() == 5
        assert deadline() == 10
    assert deadline() == inf


def test_it_goes_with_work_that_is_handed_to_a_thread_and_touches_no_other():
    async def told():
        with keeping_to(10):
            return await asyncio.to_thread(deadline)

    assert asyncio.run(told()) == 10
    seen = []
    with keeping_to(10):
        other = threading.Thread(target=lambda: seen.append(deadline()))
        other.start()
        other.join()
    assert seen == [inf]
