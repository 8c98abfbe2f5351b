"""Named points cost nothing until somebody listens, and listeners are put back as they were."""

import pytest

from holdfast.failpoints import listening, reach


def test_a_point_nobody_listens_to_is_passed():
    reach("nowhere")


def test_a_listener_hears_its_point_and_no_other_and_only_inside_its_block():
    heard = []
    with listening("here", lambda: heard.append("here")):
        reach("here")
        reach("there")
    reach("here")
    assert heard == ["here"]


def test_the_inner_listener_hears_and_the_outer_one_is_put_back():
    heard = []
    with listening("here", lambda: heard.append("outer")):
        with listening("here", lambda: heard.append("inner")):
            reach("here")
        reach("here")
    assert heard == ["inner", "outer"]


def test_a_listener_may_fail_and_is_gone_afterwards():
    def fail():
        raise KeyError

    with pytest.raises(KeyError), listening("here", fail):
        reach("here")
    reach("here")
