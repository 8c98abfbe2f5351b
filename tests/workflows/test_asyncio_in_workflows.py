"""Plain asyncio in workflows: the same result in every order of completion, from memory or history, through crashes.

A program is run in each order there is, or in 1,000 of them.
"""

import pytest
from asyncioprograms import PROGRAMS
from flowskit import ORDERS, Untried, assert_alike, run


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_it_comes_out_alike_in_every_order_and_through_every_crash(program):
    assert run(program).result() == program.result
    assert_alike(program, ORDERS)


def test_each_series_of_choices_is_made_once():
    choices, made = Untried(), []
    while True:
        series = [choices.randrange(2)]
        if series == [1]:
            series += [choices.randint(3, 5), choices.randrange(1)]
        made.append(tuple(series))
        if not choices.end():
            break
    assert sorted(made) == [(0,), (1, 3, 0), (1, 4, 0), (1, 5, 0)]


def test_where_there_is_nothing_to_choose_there_is_one_order():
    assert not Untried().end()
