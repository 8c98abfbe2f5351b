"""What a check demands of how it is run is said at the check, and found again there, whatever else is."""

import pytest

from holdfast.testing.conformance.marks import counts_writes, is_marked, sends_once


@counts_writes
@pytest.mark.skip(reason="no check of its own")
def counting():
    """Nothing."""


@sends_once
@counts_writes
def both():
    """Nothing."""


@pytest.mark.parametrize(
    ("check", "counts", "once"), [(counting, True, False), (both, True, True), (print, False, False)]
)
def test_a_check_has_the_marks_it_was_given_and_no_others(check, counts, once):
    assert (is_marked(check, counts_writes), is_marked(check, sends_once)) == (counts, once)
