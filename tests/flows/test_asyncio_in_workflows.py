"""Plain asyncio in workflows: the same result in every order of completion, from memory or history, through crashes."""

import pytest
from asyncioprograms import PROGRAMS
from flowskit import ORDERS, assert_alike, run


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_it_comes_out_alike_in_every_order_and_through_every_crash(program):
    assert run(program).result() == program.result
    assert_alike(program, ORDERS)
