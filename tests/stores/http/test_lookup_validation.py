"""What is given with a look-up is judged by its types, once made: what there is nothing to judge of has no judge."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.errors import InvalidValue
from holdfast.model.ids import JobId, Token
from holdfast.model.times import Timestamp
from holdfast.stores.http.lookup_validation import HIGHEST, LOWEST, judge_of
from holdfast.stores.protocol import DeliveryQuery, GroupQuery, InstanceQuery, JobQuery

AT = "2026-01-01T00:00:00.000000Z"


@pytest.mark.parametrize("hint", [str, bool, float, JobId, Sequence[str], Sequence[str] | None, dict[str, int]])
def test_what_types_say_all_of_needs_no_judge(hint):
    assert judge_of(hint) is None


@pytest.mark.parametrize(
    ("hint", "well", "ill"),
    [
        (int, [0, -1, LOWEST, HIGHEST], [LOWEST - 1, HIGHEST + 1]),
        (Token, [1], [2**64]),
        (int | None, [None, 3], [2**64]),
        (Timestamp, [AT], ["", "2026", "2026-01-01T00:00:00Z"]),
        (Timestamp | None, [None, AT], [""]),
        (tuple[Timestamp, str] | None, [None, (AT, "")], [("", AT)]),
        (Sequence[int], [[], [1, 2]], [[1, 2**64]]),
        (tuple[int, ...], [(), (1,)], [(1, 2, -(2**64))]),
        (JobQuery, [JobQuery(), JobQuery(before=(AT, "a"))], [JobQuery(limit=-1), JobQuery(before=("", "a"))]),
        (GroupQuery, [GroupQuery()], [GroupQuery(limit=2**63)]),
        (DeliveryQuery, [DeliveryQuery(webhook_id="w", limit=0)], [DeliveryQuery(webhook_id="w", limit=-1)]),
        (InstanceQuery, [InstanceQuery(before=-1)], [InstanceQuery(before=2**63), InstanceQuery(limit=-1)]),
    ],
)
def test_what_makes_no_sense_is_refused(hint, well, ill):
    judge = judge_of(hint)
    for value in well:
        judge(value, "given")
    for value in ill:
        with pytest.raises(InvalidValue, match="Nothing was looked up"):
            judge(value, "given")


@pytest.mark.parametrize("field", ["limit", "keep", "skip"])
def test_what_says_how_many_is_not_below_nothing(field):
    judge_of(int)(0, field)
    with pytest.raises(InvalidValue):
        judge_of(int)(-1, field)
