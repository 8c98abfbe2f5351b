"""Callers of one process share requests, and none pays for another."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.errors import PayloadTooLarge, StoreFailed
from holdfast.failpoints import listening
from holdfast.stores.http.request_batcher import Together


class Sending:
    """Answers each command by itself; the first request can be held up, or interrupted."""

    def __init__(self, *, held=False):
        self.requests = []
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.raises = {}
        if not held:
            self.go_on.set()

    def __call__(self, commands):
        self.requests.append(list(commands))
        self.begun.set()
        assert self.go_on.wait(20)
        for command in commands:
            if command in self.raises:
                raise self.raises[command]
        return list(commands)


def gathered(together, sending, *calls):
    """Let the first call begin, the others wait behind it in order, and all end; give what each got, or its error."""
    joined = threading.Semaphore(0)

    def call(commands):
        try:
            return together.decide(commands)
        except BaseException as problem:  # noqa: BLE001 - an interruption is what some of them end in
            return problem

    with listening("together.joined", joined.release), ThreadPoolExecutor(1 + len(calls)) as pool:
        ended = []
        for commands in ([b"first"], *calls):
            ended.append(pool.submit(call, commands))
            assert joined.acquire(timeout=20)
        assert sending.begun.wait(20)
        sending.go_on.set()
        return [one.result(20) for one in ended]


def test_what_comes_while_a_request_is_under_way_goes_in_the_next_and_each_gets_its_own():
    sending = Sending(held=True)
    found = gathered(Together(sending, 256), sending, [b"a"], [b"b", b"c"], [b"d"])
    assert found == [[b"first"], [b"a"], [b"b", b"c"], [b"d"]]
    assert sending.requests == [[b"first"], [b"a", b"b", b"c", b"d"]]


def test_a_request_takes_no_more_than_one_may_have_unless_one_caller_alone_has_more():
    sending = Sending(held=True)
    gathered(Together(sending, 3), sending, [b"a"] * 5, [b"b"] * 2, [b"c"], [b"d"])
    assert [len(request) for request in sending.requests] == [1, 5, 3, 1]


def test_one_alone_waits_for_nobody():
    sending = Sending()
    together = Together(sending, 256)
    assert together.decide([b"a"]) == [b"a"]
    assert together.decide([b"b"]) == [b"b"]
    assert sending.requests == [[b"a"], [b"b"]]


def test_a_request_that_is_refused_is_sent_again_for_each_alone():
    sending = Sending(held=True)
    sending.raises = {b"large": PayloadTooLarge("too large")}
    found = gathered(Together(sending, 256), sending, [b"a"], [b"large"], [b"b"])
    assert found[1] == [b"a"]
    assert found[3] == [b"b"]
    assert isinstance(found[2], PayloadTooLarge)


def test_a_coordinator_that_does_not_answer_is_told_to_each_in_an_error_of_its_own():
    sending = Sending(held=True)
    sending.raises = {b"a": StoreFailed("not known", url="http://there")}
    _, one, other = gathered(Together(sending, 256), sending, [b"a"], [b"b"])
    assert isinstance(one, StoreFailed)
    assert isinstance(other, StoreFailed)
    assert one is not other
    assert one.facts == other.facts == {"url": "http://there"}
    assert len(sending.requests) == 2, "it was not asked again"


def test_who_is_interrupted_while_it_sends_for_others_leaves_them_to_the_next():
    sending = Sending(held=True)
    sending.raises = {b"first": KeyboardInterrupt()}
    found = gathered(Together(sending, 256), sending, [b"a"], [b"b"])
    assert isinstance(found[0], KeyboardInterrupt)
    assert found[1:] == [[b"a"], [b"b"]]
    together = Together(sending, 256)
    with pytest.raises(KeyboardInterrupt):
        together.decide([b"first"])
    assert together.decide([b"next"]) == [b"next"]
