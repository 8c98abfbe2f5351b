"""Whoever holds connections without a word keeps nobody out."""

from __future__ import annotations

import pytest

from holdfast.web.server.connections import FLOW, GOODBYE_S, LINGER_S, Connections


class Wire:
    def __init__(self, head_since=None):
        self.head_since = head_since
        self.is_closing = False
        self.is_cut = False
        self.unsent = 0

    def cut(self):
        self.is_cut = True


def test_one_too_many_closes_the_one_that_was_idle_for_longest():
    connections = Connections(3, 10)
    wires = [Wire() for _ in range(4)]
    for wire in wires[:3]:
        connections.join(wire)
    connections.work(wires[0])
    connections.rest(wires[0])  # not the oldest any more
    connections.work(wires[1])
    connections.join(wires[3])
    assert [wire.is_cut for wire in wires] == [False, False, True, False]
    assert len(connections) == 3


def test_where_all_are_at_work_the_new_one_goes():
    connections = Connections(2, 10)
    wires = [Wire() for _ in range(3)]
    for wire in wires:
        connections.join(wire)
        connections.work(wire)
    assert [wire.is_cut for wire in wires] == [False, False, True]
    connections.leave(wires[0])
    connections.leave(wires[2])
    assert len(connections) == 1


def test_a_head_has_its_time_and_a_request_is_not_cut_here():
    connections = Connections(9, 10)
    head, resting, busy = Wire(100.0), Wire(), Wire()
    for wire in (head, resting, busy):
        connections.join(wire)
    connections.work(busy)
    connections.sweep(109.9)
    assert not head.is_cut
    connections.sweep(110.0)
    assert (head.is_cut, resting.is_cut, busy.is_cut) == (True, False, False)


def test_who_says_nothing_for_long_between_two_requests_goes():
    connections = Connections(9, 10, 60)
    resting, again, busy = Wire(), Wire(), Wire()
    for wire in (resting, again, busy):
        connections.join(wire)
    connections.work(busy)
    connections.sweep(100.0)
    connections.work(again)
    connections.rest(again)
    connections.sweep(159.9)
    assert not resting.is_cut
    connections.sweep(160.0)
    assert (resting.is_cut, again.is_cut, busy.is_cut) == (True, False, False)
    connections.sweep(219.9)
    assert again.is_cut


def test_what_was_closed_and_is_not_fetched_is_cut():
    connections = Connections(9, 10)
    wire = Wire()
    connections.join(wire)
    connections.work(wire)
    wire.is_closing = True
    connections.sweep(100.0)
    connections.sweep(100.0 + LINGER_S - 0.1)
    assert not wire.is_cut
    connections.sweep(100.0 + LINGER_S)
    assert wire.is_cut


@pytest.mark.parametrize(("is_closing", "limit"), [(False, 60), (True, LINGER_S)])
def test_an_answer_that_is_still_being_fetched_is_not_cut_however_long_that_takes(is_closing, limit):
    connections = Connections(9, 10, 60)
    wire = Wire()
    connections.join(wire)
    connections.work(wire)
    wire.unsent = 10 * FLOW
    connections.rest(wire)
    wire.is_closing = is_closing
    now = 100.0
    while wire.unsent:
        connections.sweep(now)
        now += limit
        wire.unsent -= FLOW
    connections.sweep(now)
    connections.sweep(now + limit - 0.1)  # counted from when all was fetched
    assert not wire.is_cut
    connections.sweep(now + limit)
    assert wire.is_cut


def test_an_answer_that_is_fetched_drop_by_drop_is_cut():
    connections = Connections(9, 10)
    wire = Wire()
    connections.join(wire)
    connections.work(wire)
    wire.is_closing, wire.unsent = True, 10 * FLOW
    for second in range(int(LINGER_S) + 1):
        connections.sweep(100.0 + second)
        wire.unsent -= 1
    assert wire.is_cut


def test_who_still_fetches_an_answer_is_not_the_one_that_goes():
    connections = Connections(2, 10)
    fetching, resting, new, newest = (Wire() for _ in range(4))
    for wire in (fetching, resting):
        connections.join(wire)
    fetching.unsent = 10 * FLOW
    connections.join(new)
    assert (fetching.is_cut, resting.is_cut, new.is_cut) == (False, True, False)
    new.unsent = 1
    connections.join(newest)
    assert (fetching.is_cut, new.is_cut, newest.is_cut) == (False, False, True), "all others are at work"


def test_at_the_end_nobody_is_waited_for_who_was_told_all_or_has_asked_nothing():
    connections = Connections(9, 10)
    told, telling, asking, busy = Wire(), Wire(), Wire(100.0), Wire()
    for wire in (told, telling, asking, busy):
        connections.join(wire)
    connections.work(busy)
    told.is_closing = telling.is_closing = True
    telling.unsent = 1
    connections.part(100.0)
    assert [wire.is_cut for wire in (told, telling, asking, busy)] == [False, False, True, False]
    connections.part(100.0 + GOODBYE_S)
    assert [wire.is_cut for wire in (told, telling, asking, busy)] == [True, False, True, False]
